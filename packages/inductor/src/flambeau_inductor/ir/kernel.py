"""What a fused group of loops becomes: the input of both code generators.

In: made by ``schedule`` from loop operations. Out: frozen ``KernelBody`` records.

Semantics, in plain Python::

    for point in outer:                      # parallel, any order
        for statement in statements:         # as if each ran on its own, in order
            Reduce:   name := kind over inner of value          (one scalar a point)
            ScanStep: name[inner] := running kind of value along inner's last axis
            Store at level "inner":  for each point of inner: buffer[index] = value
            Store at level "outer":  buffer[index] = value

The generator splits the inner loop into as few passes as the statements' uses of ``reduced`` values need.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeAlias

import torch
from attrs import field, frozen

from ..expr import Expr, Int
from .layout import Buffer, Ref, Sizes
from .loops import Axis
from .scalar import Scalar, loads

#: The launch of a body whose rows stay in memory: a reduction goes over each in a loop.
LOOPED: Final = "looped"


@frozen
class Store:
    """``buffer[index] = value`` (converted to the buffer's dtype as ``to_dtype`` does).

    ``mode``: "set", or for scatters "add" "mul" "min" "max" (atomic where points can collide across threads).
    """

    buffer: str
    index: Expr
    value: Scalar
    level: str = "outer"
    mode: str = "set"


@frozen
class Reduce:
    """``name`` becomes the reduction of ``value`` over the inner axes, accumulated in ``value.dtype``.

    ``dtype`` is the result's (int64 for argmax/argmin, else ``value.dtype``). Later statements use ``reduced(name,
    dtype)``.
    """

    name: str
    kind: str
    value: Scalar
    dtype: torch.dtype


@frozen
class ScanStep:
    """``name`` is, at each inner point, the running ``kind`` of ``value`` along the last inner axis (inclusive).

    The other inner axes, where there are any, start anew; ``reduced(name, dtype)`` is usable at level "inner" only.
    """

    name: str
    kind: str
    value: Scalar
    dtype: torch.dtype


Statement: TypeAlias = Store | Reduce | ScanStep


@frozen
class KernelBody:
    """One kernel. ``outer`` axes are parallel, ``inner`` is the reduction or scan space (empty for pointwise).

    ``buffers`` lists every buffer the kernel touches in argument order (each with its layout, dtype and device);
    buffers with equal ``storage`` share one argument. ``scalars`` are the symbols and parameter names it needs, in
    argument order: free symbols of sizes, strides and index expressions that are not axes, not indirect. ``serial``
    asks for one thread in row-major order (a "set" scatter that may collide on a CPU). ``launch`` is how its language was found to run it fastest, or ``LOOPED``,
    in a record of that language; None: as the language's model of cost says. ``in_order``: sums are added up in the order of the ``inner`` axes, and what is computed at a
    point depends on nothing that lies beside it.
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    statements: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]
    scalars: tuple[Expr | str, ...]
    device: torch.device
    serial: bool = False
    origins: tuple[str, ...] = ()
    stacks: tuple[str, ...] = field(default=(), repr=False)
    launch: Hashable | None = None
    in_order: bool = False


#: The names under which the body of a ``Gemm`` finds a sum, and the sum over its second right operand, of float32.
SUM, SECOND_SUM = "sum", "second_sum"


@frozen
class Window:
    """What a convolution sees of images, as a matrix that is nowhere in memory: (groups, points of all results, terms of a window).

    A point is (image, y, x), in ``points`` of each image; a term is (i, j, channel), in ``taps`` and the channels of one group. The element is
    ``image[image, channel of the group, y * stride + i * dilation - padding, …]``, zero where that is outside.
    """

    #: (images, channels, height, width), in any strides.
    image: Ref
    groups: int
    points: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def channels(self) -> int:
        """Those of one group."""
        return int(self.image.sizes[1]) // self.groups

    @property
    def sizes(self) -> Sizes:
        """Groups, points, terms: those of the matrix."""
        rows = int(self.image.sizes[0]) * self.points[0] * self.points[1]
        return Int(self.groups), Int(rows), Int(self.taps[0] * self.taps[1] * self.channels)

    @property
    def buffer(self) -> str:
        """Where the images are."""
        return self.image.buffer

    @property
    def dtype(self) -> torch.dtype:
        """The images'."""
        return self.image.dtype

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.image.device


@frozen
class Computed:
    """A matrix that is computed where it is read: its element at ``axes`` (batch, row, column) is ``value``, of ``source.dtype`` or made of it.

    ``source`` is what most of it is read from, as that lies: one element of it belongs to each of the matrix.
    """

    sizes: Sizes
    axes: tuple[Expr, Expr, Expr]
    value: Scalar
    source: Ref

    @property
    def buffer(self) -> str:
        """Where the source is."""
        return self.source.buffer

    @property
    def dtype(self) -> torch.dtype:
        """The matrix's."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        return self.source.device

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it is computed from."""
        return tuple(dict.fromkeys(node.buffer for node in loads(self.value)))


def operand_reads(operand: Ref | Window | Computed) -> tuple[str, ...]:
    """The buffers that an operand is read from."""
    return operand.reads if isinstance(operand, Computed) else (operand.buffer,)


@frozen
class Gemm:
    """A matrix product (GEMM) with what is done to its results where they are computed (its epilogue), as one kernel.

    ``left`` is (batch, m, k) and ``right`` (batch, k, n), of one floating type; a batch of one is a plain product, a window a convolution. ``body`` is a kernel over two
    axes without inner ones, the rows of all batches and the columns, whose statements read the sum at their point as ``reduced(SUM, float32)``.
    ``tile`` says which block of results a program has at a time. ``promotes``: sums of operands of 8 bits are kept in float32 after a few terms.

    With ``offsets`` (int32, one for each group) it is a grouped product: ``left`` is (1, m, k) and ``right`` (groups, k, n), and the rows from the offset before a group's to
    its own (from 0 for the first) are multiplied with that group's matrix. The sums of rows behind the last offset are 0. ``further`` are the groups' matrices behind the
    first one where they lie apart, each (1, k, n) as ``right`` is then, in its strides. ``second`` is another right
    operand of a grouped product, in the same memory as ``right``, as far behind it as those of further matrices are behind theirs; its sums are ``reduced(SECOND_SUM, float32)``.
    """

    left: Ref | Window
    right: Ref | Computed
    body: KernelBody
    tile: GemmTile
    offsets: Ref | None = None
    second: Ref | None = None
    promotes: bool = False
    further: tuple[Ref, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.body.name

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.body.device

    @property
    def origins(self) -> tuple[str, ...]:
        """The nodes that it computes."""
        return self.body.origins

    @property
    def stacks(self) -> tuple[str, ...]:
        """Where the user wrote them."""
        return self.body.stacks

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        more = (ref.buffer for ref in (self.offsets, self.second, *self.further) if ref is not None)
        operands = (*operand_reads(self.left), *operand_reads(self.right), *more)
        found = [*operands, *(n.buffer for s in self.body.statements for n in loads(s.value))]
        return tuple(dict.fromkeys(found))

    @property
    def writes(self) -> tuple[str, ...]:
        """The buffers that it fills."""
        return tuple(s.buffer for s in self.body.statements if isinstance(s, Store))


@frozen
class GemmTile:
    """Rows and columns of results that a program computes at a time, terms that it loads at a time, warps, and stages of the pipeline.

    ``parts``: the terms are summed in that many parts by themselves, and the sums of the parts in order by the kernel that follows. ``fetched``: blocks
    of operands are fetched by the hardware where memory lies so, which takes a while to begin.
    """

    rows: int
    columns: int
    terms: int
    num_warps: int
    num_stages: int
    parts: int = 1
    fetched: bool = True


@frozen
class Combined:
    """Independent kernels that are launched as one: none reads or writes memory that another one writes."""

    name: str
    bodies: tuple[KernelBody, ...]
