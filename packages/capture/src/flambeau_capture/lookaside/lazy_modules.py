"""Modules whose parameters get their sizes from the first input (`torch.nn.LazyLinear` and its kin).

In: the hook that torch calls before such a module's first call. Out: torch makes the parameters, at once and for good, and the frame is traced anew with
them: any run of the frame comes here, so plain Python would have made the same at its first call. Where that is not sure the graph breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import _disable_current_modes

from ..class_names import class_module, type_name
from ..refusal import TraceAnew
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.members import mro_lookup
from ..values.objects import ObjectValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_RULES = ("initialize_parameters", "reset_parameters", "has_uninitialized_params")


@replaces(LazyModuleMixin._infer_parameters)
def infer_parameters(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`_infer_parameters(module, args, kwargs)`."""
    _, module, given, *named = args
    real: Any = module.realise(t).real()
    others = named[0] if named else kwargs.get("kwargs")
    if not isinstance(module.realise(t), ObjectValue) or real is MISSING or not _is_torchs(real):
        raise _refused("one of the program's own kind")
    if any(target.real() is real for target in t.heap.targets()):
        raise _refused("one that the frame has changed")
    if t.graph.in_inference or t.graph.open_inference:
        raise _refused("one whose parameters are made in inference mode")
    if t.graph.bodies or t.graph.fake_mode.draws:
        raise _refused("one after random numbers were drawn, or within a body")
    tensors = [_sized(value.realise(t)) for value in t.operators.iterate_all(given)]
    items = () if others is None else t.operators.mapping_items(others)
    by_name = {t.wrapper.to_python(key): _sized(value.realise(t)) for key, value in items}
    with _disable_current_modes():
        try:
            real._infer_parameters(real, tuple(tensors), by_name)
        except Exception as error:
            raise _refused(f"{type_name(type(real))} raises {type_name(type(error))}") from None
    raise TraceAnew(GraphBreak("unsupported-call", "a lazy module got its parameters"))


def _is_torchs(module: Any) -> bool:
    """Whether torch alone says what the parameters are: it looks at nothing but sizes, and draws their values. A class of another `forward` than the
    module has once it is initialised is called by that once."""
    becomes = type(module).cls_to_become
    if becomes is not None and type(module).forward is not becomes.forward:
        return False
    classes = (mro_lookup(type(module), name)[1] for name in _RULES)
    return all(class_module(cls).startswith("torch.nn.modules.") for cls in classes) and not any(
        name in vars(module) for name in _RULES
    )


def _sized(value: Value) -> torch.Tensor:
    """A tensor of the size that the argument has in this call, without memory."""
    if not isinstance(value, TensorValue):
        raise _refused("one that is given what is no tensor")
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in value.fake.shape]
    if any(type(size) is not int for size in sizes):
        raise _refused("one whose input has a size that depends on values")
    with _disable_current_modes():
        return torch.empty(sizes, dtype=value.fake.dtype, device="meta")


def _refused(what: str) -> GraphBreak:
    return GraphBreak("unsupported-call", f"a lazy module is called for the first time: {what}")
