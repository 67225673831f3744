"""Distributed tensors and collectives of `torch.distributed`.

In: calls met while tracing. Out: `DTensor.from_local` on a mesh that is given is a node; so is a reduction in place over a group of processes,
written as the functional collective and a copy. Functional collectives are traced into: what they call are operators that know a group by its name, and
their results are waited for, as torch has it wherever they are traced. The numbers of all processes are asked at every call. Handles for what runs
beside the program break the graph, as everything else of `torch.distributed` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..replacements import replaces, replaces_later
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_REDUCED = frozenset((
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int32, torch.int64,
))  # fmt: skip
_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


@replaces_later("torch.distributed.tensor._api")
def _tensors() -> None:
    from torch.distributed.tensor import DTensor

    @replaces(DTensor.from_local)
    def from_local(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """`DTensor.from_local(tensor, mesh, placements)`: without a mesh it would be the one that is active at the call."""
        mesh = args[1] if len(args) > 1 else kwargs.get("device_mesh", ConstantValue(None))
        if mesh.realise(t).is_constant():
            raise GraphBreak("unsupported-call", "DTensor.from_local on the mesh that is active")
        return t.recorder.record("call_function", DTensor.from_local, args, kwargs)


@replaces_later("torch.distributed._functional_collectives")
def _functional() -> None:
    import torch.distributed._functional_collectives as functional

    for name in ("_resolve_group", "_resolve_group_name"):
        if hasattr(functional, name):
            replaces(getattr(functional, name))(_name_of_group)
    if hasattr(functional, "_group_or_group_name"):

        @replaces(functional._group_or_group_name)
        def name_of_name(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
            """Of what `_resolve_group` gave."""
            return args[0]

    @replaces(functional._are_we_tracing)
    def tracing(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """As `torch.compiler.is_compiling`."""
        return ConstantValue(True)

    @replaces(functional._maybe_wrap_tensor)
    def waited(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """A result that is still on its way, in eager."""
        return t.recorder.record("call_function", torch.ops._c10d_functional.wait_tensor.default, args, {})


def _name_of_group(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The name of a group that is given by it, as a group, or as a mesh of one dimension or a dimension of one."""
    from torch.distributed._functional_collectives import _resolve_group_name
    from torch.distributed.device_mesh import DeviceMesh

    group = args[0].realise(t)
    parts: list[Any] = []
    for part in t.operators.iterate_all(group) if group.python_type() is tuple else [group]:
        part = part.realise(t)
        if part.is_constant():
            parts.append(part.constant())
            continue
        if not issubclass(part.python_type(), (dist.ProcessGroup, DeviceMesh)) or part.source is None:
            raise GraphBreak("unsupported-call", f"a collective among {part.describe()}")
        t.guards.identity(part.source, part.real())
        parts.append(part.real())
    try:
        name = _resolve_group_name(parts[0] if len(parts) == 1 else tuple(parts))
    except (ValueError, AssertionError, RuntimeError) as error:
        raise GraphBreak("unsupported-call", f"a collective of which torch says: {error}") from None
    return ConstantValue(str(name))


def _size_of_group(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Of one that is known by its name, asked at every call."""
    return t.folder.ask(dist.distributed_c10d._get_group_size_by_name, args, kwargs)


def _group_of_all() -> str:
    """The name of the group of all processes, by which functional collectives know it."""
    return str(dist.group.WORLD.group_name) if dist.is_initialized() and dist.group.WORLD is not None else ""


def _number(function: Any) -> Any:
    def of_name(name: str) -> int:
        return int(function(dist.distributed_c10d._resolve_process_group(name)))

    def number(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """A number of a group, of the one of all processes by default, asked at every call."""
        if all(value.realise(t).is_constant() for value in (*args, *kwargs.values())):
            return t.folder.ask(function, args, kwargs)
        if len(args) + len(kwargs) > 1 or not {"group"}.issuperset(kwargs):
            raise GraphBreak("unsupported-call", f"{function.__name__} with arguments that torch may refuse")
        name = _name_of_group(t, [*args, *kwargs.values()], {})
        return t.folder.ask(of_name, [name], {})

    return number


def _all_reduce(
    t: Tracer, tensor: Value, op: Value | None = None, group: Value | None = None, async_op: Value | None = None
) -> Value:
    """`all_reduce(tensor)`: eager's writes into the tensor without autograd, so that nothing in the graph may have a gradient."""
    name = _named(t, group)
    tensor = tensor.realise(t)
    beside = ConstantValue(False) if async_op is None else async_op.realise(t)
    if not name or not beside.is_constant() or beside.constant():
        raise GraphBreak("unsupported-call", "all_reduce without a group, or beside the program")
    if not isinstance(tensor, TensorValue) or tensor.python_type() not in (torch.Tensor, torch.nn.Parameter):
        raise GraphBreak("unsupported-call", "all_reduce of what is no plain tensor")
    fake = tensor.fake
    if fake.dtype not in _REDUCED or fake.layout is not torch.strided or not fake.is_contiguous():
        raise GraphBreak("unsupported-call", f"all_reduce of {tensor.describe()} that may be refused")
    if fake.requires_grad or t.graph.has_history():
        raise GraphBreak("autograd-call", "all_reduce in a graph with gradients")
    functional = torch.ops._c10d_functional
    named = [ConstantValue(_operation(t, op)), ConstantValue(name)]
    reduced = t.recorder.record("call_function", functional.all_reduce.default, [tensor, *named], {})
    there = t.recorder.record("call_function", functional.wait_tensor.default, [reduced], {})
    t.recorder.record("call_method", "copy_", [tensor, there], {})
    return ConstantValue(None)


def _named(t: Tracer, group: Value | None) -> str:
    """The name of a group, of the one of all processes by default."""
    group = ConstantValue(None) if group is None else group.realise(t)
    if not group.is_constant():
        if not issubclass(group.python_type(), dist.ProcessGroup):
            raise GraphBreak("unsupported-call", f"all_reduce among {group.describe()}")
        return str(_name_of_group(t, [group], {}).constant())
    if group.constant() is not None:
        raise GraphBreak("unsupported-call", "all_reduce among what is no group")
    name = _group_of_all()
    t.guards.answer(_group_of_all, (), {}, name)
    return name


def _operation(t: Tracer, op: Value | None) -> str:
    if op is None:
        return "sum"
    op = op.realise(t)
    real = op.constant() if op.is_constant() else op.real()
    name = next((name for name in _OPERATIONS if real == getattr(dist.ReduceOp, name, None)), None)
    if name is None:
        raise GraphBreak("unsupported-call", "all_reduce with an operation that is none of torch's own")
    t.guards.identity(op.source, real)
    return name.lower()


if dist.is_available():
    for _function in (dist.get_world_size, dist.get_rank):
        replaces(_function)(_number(_function))

    if hasattr(dist.distributed_c10d, "_get_group_size_by_name"):
        replaces(dist.distributed_c10d._get_group_size_by_name)(_size_of_group)

    @replaces(dist.all_reduce)
    def all_reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """`all_reduce(tensor, op, group, async_op)`."""
        if len(args) > 4 or not args or not {"op", "group", "async_op"}.issuperset(kwargs):
            raise GraphBreak("unsupported-call", "all_reduce with arguments that torch may refuse")
        return _all_reduce(t, *args, **kwargs)
