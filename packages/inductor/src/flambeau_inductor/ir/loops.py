"""Operations of the loop IR: each fills its output buffers, in the order of ``Graph.operations``.

In: scalars over axes. Out: frozen records. Element ``(a0, a1, …)`` of the output is written at ``out.layout.index(a0,
a1, …)`` where ``a`` are the axes of the operation, one per dimension of the output (reduced dimensions are kept out of
it). A value whose dtype differs from the output's dtype is converted as ``to_dtype`` does when stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from attrs import field, frozen

from ..expr import Expr, Symbol, as_expr
from .layout import Buffer, Ref
from .scalar import Scalar, loads

#: What a reduction can do. ``min``/``max``/``argmin``/``argmax`` treat NaN as the extreme value; ties take the first
#: index.
REDUCTION_KINDS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "xor_sum")
SCAN_KINDS = ("sum", "prod", "max", "min", "logaddexp")
#: Rows shorter than this a CPU scans element by element; of longer ones it computes what is scanned in lanes. Measured: from 64 elements on that pays.
SHORT_ROW = 64
SCATTER_MODES = ("set", "add", "mul", "min", "max")


@frozen
class Axis:
    """A loop variable running over ``[0, size)``."""

    symbol: Expr
    size: Expr = field(converter=as_expr)


def make_axes(sizes: tuple[Expr, ...], prefix: str = "i") -> tuple[Axis, ...]:
    """Fresh axes ``i0, i1, …`` (``r0, …`` for reductions) over ``sizes``."""
    return tuple(Axis(Symbol(f"{prefix}{n}", bound=as_expr(size)), size) for n, size in enumerate(sizes))


@frozen
class Pointwise:
    """``out[axes] = value``."""

    out: Buffer
    axes: tuple[Axis, ...]
    value: Scalar
    origins: tuple[str, ...] = ()


@frozen
class Reduction:
    """``out[axes] = kind over reduce_axes of value``.

    The accumulator has the dtype of ``value`` (lowering widens it to what eager accumulates in). ``argmax``/``argmin``
    give the row-major position inside ``reduce_axes`` as int64. ``any``/``all`` take and give bool. An empty reduction
    gives the identity of its kind (lowering refuses those that have none). ``checks``: nobody reads the result, the
    value is evaluated for the errors that it may report.
    """

    out: Buffer
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    kind: str
    value: Scalar
    origins: tuple[str, ...] = ()
    checks: bool = False


@frozen
class Scan:
    """``out[axes] = kind of value over all positions of axes[along] up to and including this one`` (accumulator:
    value's dtype)."""

    out: Buffer
    axes: tuple[Axis, ...]
    along: int
    kind: str
    value: Scalar
    origins: tuple[str, ...] = ()


@frozen
class Scatter:
    """For every point of ``axes`` in turn: ``out[index] = value`` (``mode`` "set") or combined with what is there.

    ``out.storage`` is the buffer that holds the initial contents; it has no other reader after this operation.
    ``index`` is an element position in ``out`` (no offset) and usually contains indirect symbols. With "set" and
    colliding indices the last point in row-major order wins on the CPU; on a GPU any may (as in eager). Parallel "add"
    is atomic.
    """

    out: Buffer
    axes: tuple[Axis, ...]
    index: Expr
    value: Scalar
    mode: str
    origins: tuple[str, ...] = ()


@frozen
class Nested:
    """What an ``Extern`` runs instead of a library's op: the nested graphs ``bodies`` (names in ``Graph.bodies``).

    ``kind`` is that of ``flambeau_runtime.artifact.Subprogram``. The ``Extern``'s arguments are three tuples, what is
    passed (in loops, carried), what stays the same, and the tensors that a "scan" slices, with ``length`` among its
    keywords; it changes those slices that bodies write. ``draws``: a body takes numbers from a generator.
    """

    kind: str
    bodies: tuple[str, ...]
    draws: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(self.bodies)}"


#: An argument of a library call: a tensor window, an expression (int), a scalar of the graph, or plain data and
#: nested tuples.
ExternArg: TypeAlias = Any


@frozen
class Extern:
    """A call of dispatcher op ``op`` (an ``OpOverload``), or of nested graphs (``Nested``).

    ``args``/``kwargs`` hold ``Ref``s (tensors), ``Expr``s (ints), ``Scalar`` parameters (floats), Python values and
    nested tuples or dicts of these. ``outs`` has one buffer per tensor the op returns, None for a result that is unused,
    not a tensor, or an argument that is handed back. ``changed`` are the buffers that stand for the new contents of the
    arguments that the op writes (their ``storage`` is the argument's). ``binds`` says which data-dependent symbols
    the results define: ``(symbol, output position, dimension)``, or dimension None for a scalar result; a string in the
    symbol's place names an integer parameter that loop bodies read. ``reason`` says why this is a library call.
    ``keeps`` is the position of a result that is a workspace for the op's gradient: of whatever size the kernel likes,
    and only there when the call runs in grad mode. ``checks``: it is called although nobody reads what it returns, since it may raise.
    """

    op: Any
    args: tuple[ExternArg, ...]
    kwargs: dict[str, ExternArg]
    outs: tuple[Buffer | None, ...]
    changed: tuple[Buffer, ...] = ()
    binds: tuple[tuple[Expr | str, int, int | None], ...] = ()
    reason: str = ""
    origins: tuple[str, ...] = ()
    keeps: int | None = None
    checks: bool = False


@frozen
class Template:
    """One kernel that is no nest of loops over points: ``kind`` names what it computes (``ir/templates.py``), and who writes it.

    ``operands`` and ``outs`` have names that the kind knows, and so have ``bodies``: scalars that the kernel evaluates in its midst, at the
    points of ``axes``. They may load from buffers, and read what the kernel has computed by then as ``reduced`` values. ``facts`` is plain data.
    ``name`` and ``stacks`` are those of the kernel, given by ``schedule``.
    """

    kind: str
    operands: Mapping[str, Ref]
    outs: Mapping[str, Buffer]
    axes: tuple[Axis, ...]
    bodies: Mapping[str, Scalar]
    facts: Mapping[str, Any]
    origins: tuple[str, ...] = ()
    name: str = ""
    stacks: tuple[str, ...] = field(default=(), repr=False)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(iter(self.outs.values())).layout.device

    @property
    def reads(self) -> tuple[str, ...]:
        """The buffers that it reads."""
        loaded = loads(*self.bodies.values())
        return tuple(
            dict.fromkeys([*(ref.buffer for ref in self.operands.values()), *(node.buffer for node in loaded)])
        )


@frozen
class ReadItem:
    """``symbol`` (or parameter ``name``) is the value of the one-element tensor ``source``: ``.item()``."""

    name: str
    symbol: Expr | None
    source: Ref
    dtype: torch.dtype
    origins: tuple[str, ...] = ()


@frozen
class Assert:
    """Raise RuntimeError(``message``) at run time unless ``condition`` (0 or 1, or a truth value of floats) holds."""

    condition: Expr | Scalar
    message: str
    origins: tuple[str, ...] = ()


Operation: TypeAlias = Pointwise | Reduction | Scan | Scatter | Extern | Template | ReadItem | Assert
Loop: TypeAlias = Pointwise | Reduction | Scan | Scatter


def written(operation: Operation) -> tuple[Buffer, ...]:
    """The buffers an operation fills."""
    if isinstance(operation, Extern):
        return (*(out for out in operation.outs if out is not None), *operation.changed)
    if isinstance(operation, Template):
        return tuple(operation.outs.values())
    if isinstance(operation, ReadItem | Assert):
        return ()
    return (operation.out,)


def refs(argument: ExternArg) -> tuple[Ref, ...]:
    """All tensor windows inside a library call's (nested) argument."""
    if isinstance(argument, Ref):
        return (argument,)
    if isinstance(argument, tuple | list):
        return tuple(r for part in argument for r in refs(part))
    if isinstance(argument, dict):
        return tuple(r for part in argument.values() for r in refs(part))
    return ()
