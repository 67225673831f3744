"""`ScriptedValue`: a function that `torch.jit.script` or `torch.jit.trace` compiled.

In: the function. Out: a call of it is one node, which calls it for real where the graph runs as it is, and interprets its operations one by one
on fakes, so that stages behind capture see those. One that does anything else than compute, and arguments that TorchScript would convert, break the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..library import functools
from ..signals import GraphBreak
from .base import Value
from .builtins import RealValue
from .constants import ConstantValue
from .symbolic import SymbolicValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .base import Tracer

_STRUCTURE = frozenset((
    "prim::Constant", "prim::ListConstruct", "prim::TupleConstruct", "prim::ListUnpack", "prim::TupleUnpack", "prim::TupleIndex", "prim::If",
    "prim::Loop", "prim::unchecked_cast", "prim::dtype", "prim::device", "aten::size", "aten::len", "aten::dim", "aten::numel", "aten::__is__",
    "aten::__isnot__", "aten::__getitem__",
))  # fmt: skip
"""What TorchScript does itself, without the dispatcher, and without a look at the elements of a tensor, which a fake has not."""
_READ_VALUES = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"))
_PLAIN: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


class ScriptedValue(RealValue):
    """A `torch.jit.ScriptFunction` from outside."""

    __slots__ = ()

    def get_attribute(self, t: Tracer, name: str) -> Value:
        raise GraphBreak("unsupported-attribute", f"{name!r} of a scripted function")

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        other = next((node.kind() for node in _nodes(self.object.inlined_graph) if not _is_computed(node)), None)
        if other is not None:
            raise GraphBreak("unsupported-call", f"a scripted function that does {other}")
        return t.recorder.record("call_function", _runner(self.object), self._given(t, args, kwargs), {})

    def _given(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[Value]:
        """The arguments by position, as TorchScript takes them without converting any."""
        parameters = self.object.schema.arguments
        given = dict(zip((parameter.name for parameter in parameters), args, strict=False))
        if (
            len(args) > len(parameters)
            or not kwargs.keys() <= {parameter.name for parameter in parameters} - given.keys()
        ):
            raise GraphBreak("unsupported-call", "a scripted function that does not take these arguments")
        given.update(kwargs)
        found = []
        for parameter in parameters:
            if parameter.name not in given and not parameter.has_default_value():
                raise GraphBreak("unsupported-call", "a scripted function that does not take these arguments")
            value = given.get(parameter.name) or t.wrapper.from_python(parameter.default_value)
            found.append(_taken(t, value.realise(t), str(parameter.type)))
        return found


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_computed(node: Any) -> bool:
    """Whether it is an operator of the dispatcher, or computes with numbers alone, so that interpreting it on fakes has no effect."""
    if node.kind() in _STRUCTURE:
        return True
    name = node.schema().partition("(")[0]
    if name and torch._C._dispatch_has_kernel(name) and node.kind() not in _READ_VALUES:
        return True
    values = (*node.inputs(), *node.outputs())
    return node.kind().startswith("aten::") and bool(values) and all(str(value.type()) in _PLAIN for value in values)


def _taken(t: Tracer, value: Value, kind: str) -> Value:
    if isinstance(value, SymbolicValue):
        value = t.wrapper.from_python(t.folder.concrete(value))
    wanted = kind.removeprefix("Optional[").removesuffix("]")
    is_none = value.python_type() is type(None) and kind.startswith("Optional[")
    plain = isinstance(value, ConstantValue) and value.python_type() is _PLAIN.get(wanted)
    if not (is_none or plain or (isinstance(value, TensorValue) and wanted == "Tensor")):
        raise GraphBreak("unsupported-call", f"{value.describe()} as the {kind} of a scripted function")
    return value


@functools.lru_cache(maxsize=256)
def _runner(function: Any) -> Callable[..., Any]:
    """What a node calls: the function, or on fakes what it is made of (its own executor would remember them)."""
    graph = function.inlined_graph

    def scripted(*args: Any) -> Any:
        if any(isinstance(arg, FakeTensor) for arg in args):
            return torch._C._jit_interpret_graph(graph, args)
        return function(*args)

    return scripted
