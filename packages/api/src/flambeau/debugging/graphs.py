"""Captured graphs outside of the process that captured them: as bytes for tools, as a script for people.

In: a graph and its inputs. Out: bytes and back (`pack`, `unpack`), or the text of a standalone script. Functions are kept by name. Inputs that are fakes become
real tensors of the same layout; sizes that are symbols become numbers.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor

#: Elements that are written into a script one by one.
_FEW = 64


class Ref:
    """A node in the arguments of another, by name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _operator(name: str) -> Any:
    return attrgetter(name)(torch.ops)


def _functional(name: str) -> Any:
    return getattr(torch.nn.functional, name)


def _name_in_functional(value: Any) -> str:
    """What torch.nn.functional calls a function that it makes at import, as it does the pools; "" for any other."""
    if "<locals>" not in getattr(value, "__qualname__", ""):
        return ""
    return next((name for name, bound in vars(torch.nn.functional).items() if bound is value), "")


def _rebuilt(nodes: Sequence[tuple[Any, ...]], attributes: Mapping[str, Any]) -> fx.GraphModule:
    root = torch.nn.Module()
    for name, value in attributes.items():
        _set(root, name, value)
    graph, made = fx.Graph(), dict[str, fx.Node]()

    def resolved(value: Any) -> Any:
        if isinstance(value, Ref):
            return made[value.name]
        if isinstance(value, (tuple, list)):
            parts = [resolved(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, dict):
            return {key: resolved(part) for key, part in value.items()}
        if isinstance(value, slice):
            return slice(resolved(value.start), resolved(value.stop), resolved(value.step))
        return value

    for name, op, target, args, kwargs in nodes:
        made[name] = graph.create_node(op, target, resolved(args), resolved(kwargs), name)
    return fx.GraphModule(root, graph)


def _set(root: torch.nn.Module, name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        if not hasattr(root, part):
            root.add_module(part, torch.nn.Module())
        root = getattr(root, part)
    setattr(root, last, value)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return Ref, (value.name,)
        if isinstance(value, OpOverload):
            return _operator, (f"{value.namespace}.{value._schema.name.partition('::')[2]}.{value._overloadname}",)
        if isinstance(value, OpOverloadPacket):
            return _operator, (value._qualified_op_name.replace("::", "."),)
        if name := _name_in_functional(value):
            return _functional, (name,)
        if isinstance(value, HigherOrderOperator):
            return _operator, (f"higher_order.{value.name()}",)
        if isinstance(value, fx.GraphModule):
            return _rebuilt, _parts(value)
        if isinstance(value, torch.SymInt):
            return int, (value.node.hint,)
        if isinstance(value, torch.SymFloat):
            return float, (value.node.hint,)
        if isinstance(value, FakeTensor):
            return _like, (*_layout(value), value.dtype, str(value.device), value.requires_grad)
        return NotImplemented


def _parts(gm: fx.GraphModule) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    nodes = [(node.name, node.op, node.target, _plain(node.args), _plain(node.kwargs)) for node in gm.graph.nodes]
    names = {str(node.target) for node in gm.graph.nodes if node.op in ("get_attr", "call_module")}
    return nodes, {name: attrgetter(name)(gm) for name in sorted(names)}


def _plain(value: Any) -> Any:
    """Arguments in ordinary containers."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, slice):
        return slice(_plain(value.start), _plain(value.stop), _plain(value.step))
    return value


def _size(value: Any) -> int:
    return int(value) if isinstance(value, int) else int(value.node.hint)


def _layout(value: Tensor) -> tuple[list[int], list[int]]:
    return [_size(n) for n in value.shape], [_size(n) for n in value.stride()]


def _like(shape: list[int], stride: list[int], dtype: torch.dtype, device: str, requires_grad: bool) -> Tensor:
    """A tensor of this layout with arbitrary contents, which are those of indices where they are integers."""
    span = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0
    generator = torch.Generator().manual_seed(span)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        memory = torch.randn(span, generator=generator, dtype=wide).to(dtype)
    else:
        memory = torch.randint(0, 2, (span,), generator=generator).to(dtype)
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(f"the graph is one for {device}, and there is none here")
    return memory.to(where).as_strided(shape, stride).detach().requires_grad_(requires_grad)


def pack(gm: fx.GraphModule, inputs: Sequence[Any]) -> bytes:
    """The graph and its inputs as bytes. Raises pickle.PicklingError or AttributeError for a function that has no name."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump((gm, [value.detach() if _is_inner(value) else value for value in inputs]))
    return buffer.getvalue()


def _is_inner(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor) and not value.is_leaf


def unpack(data: bytes) -> tuple[fx.GraphModule, list[Any]]:
    """What `pack` was given. Only for files that this user wrote: they can hold any code."""
    gm, inputs = pickle.loads(data)
    return gm, inputs


def operations(gm: fx.GraphModule) -> int:
    """Calls in a graph."""
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


def script(
    gm: fx.GraphModule, inputs: Sequence[Any], check: str, *, note: str = "", data: str = "", **arguments: Any
) -> str:
    """A program that runs the graph under `flambeau.compile(model, **arguments)` beside eager.

    Args:
        check: "wrong", "crash" or "slow": what the program looks for, and raises for.
        note: goes into the docstring.
        data: a file beside the script that has the inputs; without, they are written down or drawn.
    """
    lines = [f'"""{note or "A graph that flambeau compiled."}"""', "", "from __future__ import annotations", ""]
    # A failure is to be raised, not run in eager.
    lines += ["import os", "", 'os.environ.setdefault("FLAMBEAU_SUPPRESS_ERRORS", "0")', ""]
    lines += ["import torch", "", "import flambeau", "from flambeau.debugging.trial import check", ""]
    lines += sorted(set(filter(None, (_import(name, value) for name, value in _globals(gm).items()))))
    lines += ["", "", *_class_of("Model", gm)]
    if data:
        given = f'torch.load(__file__.rpartition("/")[0] + "/{data}", weights_only=False)'
    else:
        given = "[\n" + "".join(f"        {_value(value)},\n" for value in inputs) + "    ]"
    lines += ["", "", "def inputs():", "    torch.manual_seed(0)", f"    return {given}", "", ""]
    lines += [
        'if __name__ == "__main__":',
        "    model = Model()",
        f"    compiled = flambeau.compile(model{''.join(f', {k}={v!r}' for k, v in arguments.items())})",
        f'    check(model, compiled, inputs(), "{check}")',
    ]
    return "\n".join(lines) + "\n"


def _class_of(name: str, gm: fx.GraphModule) -> list[str]:
    """A module of the graph's code and what it holds; a graph that it calls (the body of a `cond`) is a class within."""
    held, nested = [], []
    for attribute, value in _attributes(gm).items():
        if isinstance(value, fx.GraphModule):
            inner = f"Body_{attribute.replace('.', '_')}"
            nested += [f"    {line}" if line else "" for line in (*_class_of(inner, value), "")]
            held.append(f"        self.{attribute} = self.{inner}()")
        else:
            held.append(f"        self.{attribute} = {_value(value)}")
    body = gm.graph.python_code("self").src.replace("\t", "    ").strip().splitlines()
    lines = [f"class {name}(torch.nn.Module):", *nested]
    if held:
        lines += ["    def __init__(self):", "        super().__init__()", *held, ""]
    return lines + [f"    {line}" if line.strip() else "" for line in body]


def _globals(gm: fx.GraphModule) -> dict[str, Any]:
    """Names that the code of a graph, and of those that it calls, takes from its module."""
    found = dict(gm.graph.python_code("self").globals)
    for value in _attributes(gm).values():
        if isinstance(value, fx.GraphModule):
            found |= _globals(value)
    return found


def _attributes(gm: fx.GraphModule) -> dict[str, Any]:
    names = {str(node.target) for node in gm.graph.nodes if node.op == "get_attr"}
    return {name: attrgetter(name)(gm) for name in sorted(names)}


def _import(name: str, value: Any) -> str:
    if name == "torch" or name == "__builtins__":
        return ""
    if type(value).__name__ == "module":
        return f"import {value.__name__}" if name == value.__name__ else f"import {value.__name__} as {name}"
    if value is type(None):
        return f"{name} = type(None)"
    if isinstance(value, float):
        return f'{name} = float("{value}")'
    if value is torch.device or isinstance(value, type):
        return f"from {value.__module__} import {value.__name__} as {name}"
    if known := _name_in_functional(value):
        return f"from torch.nn.functional import {known} as {name}"
    module, qualname = getattr(value, "__module__", None), getattr(value, "__name__", None)
    return f"from {module} import {qualname} as {name}" if module and qualname else f"{name} = {value!r}"


def _value(value: Any) -> str:
    """An input as an expression. Of a fake, and of a symbol, nothing is asked that could become a guard."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return repr(value.node.hint)
    if not isinstance(value, Tensor):
        return repr(value)
    place = "" if value.device.type == "cpu" else f', device="{value.device}"'
    grad = ".requires_grad_()" if value.requires_grad else ""
    shape, strides = map(tuple, _layout(value))
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
    is_plain = strides == _plain_strides(shape)
    if is_plain and span <= _FEW and not isinstance(value, FakeTensor):
        numbers = value.detach().cpu().tolist()
        text = repr(numbers).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
        made = f"torch.tensor({text}, dtype={value.dtype}{place})"
        return f"{made}.reshape({shape}){grad}" if 0 in shape else f"{made}{grad}"
    drawn = shape if is_plain else (span,)
    if value.dtype.is_complex:
        contents = f"torch.randn({drawn}, dtype=torch.complex64{place}).to({value.dtype})"
    elif value.dtype.is_floating_point:
        contents = f"torch.randn({drawn}{place}).to({value.dtype})"
    else:
        contents = f"torch.randint(0, 2, {drawn}{place}).to({value.dtype})"
    # Strides may go over the same memory twice, as those of an expanded tensor.
    return contents + ("" if is_plain else f".as_strided({shape}, {strides})") + grad


def _plain_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, size = [], 1
    for n in reversed(shape):
        strides.append(size)
        size *= max(n, 1)
    return tuple(reversed(strides))
