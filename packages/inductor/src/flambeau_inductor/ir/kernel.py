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

from typing import TypeAlias

import torch
from attrs import field, frozen

from ..expr import Expr
from .layout import Buffer
from .loops import Axis
from .scalar import Scalar


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
    asks for one thread in row-major order (a "set" scatter that may collide on a CPU).
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


@frozen
class Combined:
    """Independent kernels that are launched as one: none reads or writes memory that another one writes."""

    name: str
    bodies: tuple[KernelBody, ...]
