"""The bodies of higher-order operators: each is lowered once, whoever calls it.

In: a nested ``GraphModule`` and how its values have to lie. Out: ``Body``, a graph of the loop IR by name, with what a call of it passes besides
its operands: constants (which a nested program cannot hold) and sizes that it names without being given them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from torch import fx

from ..effects import draws, may_fail
from ..expr import Expr, hint
from ..fingerprint import fingerprint
from ..ir.graph import ConstantInput, Graph, Input, TensorInput
from ..ir.loops import Extern
from .builder import Builder

#: A dense layout: the dimensions from outermost to innermost. None for what is no tensor, or may lie as it likes.
Order = tuple[int, ...] | None


@frozen
class Form:
    """How a body's values have to lie: one ``Order`` for each placeholder and output; without, as its fakes say."""

    inputs: tuple[Order, ...] = ()
    outputs: tuple[Order, ...] = ()

    def input(self, position: int) -> Order:
        """The order of a placeholder."""
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int) -> Order:
        """The order of an output."""
        return self.outputs[position] if position < len(self.outputs) else None


@frozen(eq=False)
class Body:
    """A lowered body. ``graph.inputs`` are its placeholders; a call passes ``constants`` and ``symbols`` besides. ``orders`` is how outputs lie."""

    path: str
    graph: Graph
    constants: tuple[ConstantInput, ...]
    symbols: tuple[Expr, ...]
    orders: tuple[Order, ...]

    @property
    def draws(self) -> bool:
        """Whether it takes random numbers."""
        return any(isinstance(o, Extern) and draws(o.op) for o in self.graph.operations)

    @property
    def may_fail(self) -> bool:
        """Whether it may raise for the values it is given."""
        return any(map(may_fail, self.graph.operations))


class Bodies:
    """Those of one artifact. ``lower(module, path, form, outside)`` makes a ``Body``; ``outside`` are the symbols known around it."""

    def __init__(self, lower: Callable[[fx.GraphModule, str, Form, frozenset[str]], Body]) -> None:
        self._lower = lower
        self._known: dict[Any, Body] = {}
        self._names: dict[tuple[Body, tuple[str, ...]], str] = {}
        self.graphs: dict[str, Graph] = {}

    def get(self, module: fx.GraphModule, path: str, form: Form, outside: frozenset[str]) -> Body:
        """The body of ``module`` in this form, or of one equal to it that was lowered before."""
        key = (fingerprint(module), form)
        if key not in self._known:
            self._known[key] = self._lower(module, path, form, outside)
        return self._known[key]

    def name(self, body: Body, inputs: Sequence[Input]) -> str:
        """The name of ``body`` in ``graphs`` as it takes ``inputs``: its placeholders in another order, with more behind them."""
        key = (body, tuple(item.buffer.name if isinstance(item, TensorInput) else item.name for item in inputs))
        found = self._names.get(key)
        if found is None:
            count = sum(name.partition("#")[0] == body.path for name in self.graphs)
            found = self._names[key] = f"{body.path}#{count}" if count else body.path
            more = {item.buffer.name: item.buffer for item in inputs if isinstance(item, TensorInput)}
            self.graphs[found] = evolve(
                body.graph, name=found, inputs=tuple(inputs), constants=(), buffers={**more, **body.graph.buffers}
            )
        return found


def dense_order(g: Builder, val: torch.Tensor) -> tuple[int, ...]:
    """The order in which the dimensions of ``val`` lie, whether or not it is dense."""
    strides, sizes = g.exprs(val.stride()), g.exprs(val.shape)
    return tuple(sorted(range(val.dim()), key=lambda d: (-hint(strides[d]), -hint(sizes[d]), d)))
