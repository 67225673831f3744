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
from ..ir.graph import ConstantInput, Graph, Input, TensorInput
from ..ir.loops import Extern
from .builder import Builder

#: A dense layout: the dimensions from outermost to innermost. None for what is no tensor, or may lie as it likes.
Order = tuple[int, ...] | None

#: What nodes carry besides their fakes that lowering goes by.
_NOTES = ("backward", "checks", "raises", "refused", "static")


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


def fingerprint(module: fx.GraphModule) -> tuple[Any, ...]:
    """Equal for modules that compute the same on values of the same layouts, whatever their nodes are called."""
    numbers = {node: number for number, node in enumerate(module.graph.nodes)}

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return ("node", numbers[value])
        if isinstance(value, tuple | list):
            return tuple(map(argument, value))
        if isinstance(value, slice):
            return argument((value.start, value.stop, value.step))
        if isinstance(value, dict):
            return tuple((key, argument(part)) for key, part in value.items())
        # Neither equality nor a hash of its own can be trusted: 1, 1.0 and True are equal.
        return (type(value).__name__, repr(value))

    def target(node: fx.Node) -> Any:
        if node.op != "get_attr":
            return node.target if node.op == "call_function" else None
        found: Any = module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return fingerprint(found) if isinstance(found, fx.GraphModule) else found

    return tuple(
        (
            node.op,
            _Same(target(node)),
            argument(node.args),
            argument(node.kwargs),
            _described(node.meta.get("val")),
            tuple(note for note in _NOTES if node.meta.get(note)),
        )
        for node in module.graph.nodes
    )


class _Same:
    """Fingerprints compare by what they hold, everything else by identity; the object is kept, so that no other gets its place."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value) if isinstance(self.value, tuple) else id(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        whole = isinstance(self.value, tuple) and isinstance(other.value, tuple)
        return self.value == other.value if whole else self.value is other.value


def _described(val: Any) -> Any:
    if isinstance(val, torch.Tensor):
        strided = val.layout is torch.strided
        offset = (str(val.storage_offset()), *map(str, val.stride())) if strided else ()
        return (tuple(map(str, val.shape)), offset, val.dtype, val.device, val.layout)
    if isinstance(val, tuple | list):
        return tuple(map(_described, val))
    return (type(val).__name__, str(val))
