"""A whole lowered graph: what enters, the operations in an order that works, what leaves.

In: buffers and operations made by lowering. Out: one frozen ``Graph``, the input of ``schedule``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from attrs import field, frozen

from ..expr import Expr
from .layout import Buffer, Ref
from .loops import Operation, written


@frozen
class TensorInput:
    """Positional input ``buffer``; ``static`` says that its address does not change from call to call (a parameter),
    ``opaque`` that only library calls read it, which know its form: what one kept for its gradient, or a packed weight."""

    buffer: Buffer
    static: bool = False
    opaque: bool = False


@frozen
class ScalarInput:
    """Positional scalar input. ``value`` is the integer expression it carries (usually a symbol); None for a float or
    bool parameter, which loop bodies read as ``parameter(name)``."""

    name: str
    value: Expr | None
    dtype: torch.dtype


Input: TypeAlias = TensorInput | ScalarInput


@frozen
class ConstantInput:
    """A tensor the graph closes over (``get_attr``): the buffer it is known by and the tensor itself."""

    buffer: Buffer
    tensor: torch.Tensor = field(eq=False, repr=False)


#: A graph output: a window on a buffer, an integer expression, a scalar (floats, truth values), a parameter's name, a Python constant, or None.
Output: TypeAlias = Ref | Expr | Any


@frozen
class Graph:
    """``inputs`` in calling order, ``constants``, ``operations`` in program order, ``outputs`` in returning order.

    ``buffers`` has every buffer by name (inputs, constants and results). ``origins`` on operations name FX nodes;
    ``stacks`` maps an FX node's name to the user's line, ``modules`` to the path of the module that calls it, ``ops`` to the name of the operation, for comments, names and profiles. ``bodies`` has the nested graphs of
    all ``Nested`` calls, those inside bodies included, each after what it calls; bodies have no constants.
    """

    inputs: tuple[Input, ...]
    constants: tuple[ConstantInput, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Output, ...]
    buffers: Mapping[str, Buffer] = field(repr=False)
    stacks: Mapping[str, str] = field(factory=dict, repr=False)
    modules: Mapping[str, str] = field(factory=dict, repr=False)
    ops: Mapping[str, str] = field(factory=dict, repr=False)
    name: str = "graph"
    bodies: Mapping[str, Graph] = field(factory=dict, repr=False)

    def writer(self, buffer: str) -> Operation | None:
        """The operation that fills ``buffer``; None for inputs and constants."""
        for operation in self.operations:
            if any(out.name == buffer for out in written(operation)):
                return operation
        return None
