"""Activation checkpointing.

In: calls of `torch.utils.checkpoint.checkpoint` met while tracing. Out: the function traced in place, its nodes marked with
`meta["checkpoint"]`, the number of the region, and `meta["policy"]`, what of it may be saved all the same.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as checkpoints

from ..library import inspect
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.functions import PartialValue
from ..values.iterators import IteratorValue
from ..values.sequences import ListValue
from ..values.tensor import TensorValue
from ..values.walk import reachable
from .forward_mode import in_a_level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_SIGNATURE = inspect.signature(checkpoints.checkpoint)
_OWN_ARGUMENTS = {name for name, what in _SIGNATURE.parameters.items() if what.kind is what.KEYWORD_ONLY}
_OWN_ARGUMENTS |= {"preserve_rng_state"}  # older torch takes it out of the function's own
_MODELLED = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop", "context_fn")


@replaces(checkpoints.checkpoint)
def checkpoint(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`checkpoint(function, *args)`: traced in place; the regions tell the partitioner what to compute again in the backward."""
    if not args or "function" in kwargs:
        raise GraphBreak("unsupported-call", "checkpoint() without a function by position")
    if t.overrides.listens:
        raise GraphBreak("unsupported-call", "checkpoint() within a mode of __torch_function__")
    own = {name: value for name, value in kwargs.items() if name in _OWN_ARGUMENTS}
    others = {name: value for name, value in kwargs.items() if name not in own}
    return _region(t, args[0], args[1:], others, own)


def decorated(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A call of what `checkpoint(**kwargs)` gave for a function."""
    function, positional, named = args
    others = {t.wrapper.to_python(key): value for key, value in t.operators.mapping_items(named)}
    return _region(t, function, list(t.operators.iterate_all(positional)), others, kwargs)


# Where torch has the form of a decorator.
if hasattr(checkpoints, "_checkpoint_impl"):
    replaces(checkpoints._checkpoint_impl)(decorated)


def _region(t: Tracer, function: Value, args: Args, kwargs: Kwargs, own: Kwargs) -> Value:
    """torch runs the function a second time for the backward: what such a run would show besides its gradients breaks."""
    policy = _policy(own["context_fn"]) if "context_fn" in own else None
    for name, value in own.items():
        known = value.constant() if value.is_constant() else value.real()
        unknown = known is MISSING and name != "context_fn"
        if unknown or (name not in _MODELLED and known is not _SIGNATURE.parameters[name].default):
            raise GraphBreak("unsupported-call", f"checkpoint() with {name}")
    if "use_reentrant" not in own:
        raise GraphBreak("unsupported-call", "checkpoint() without use_reentrant")
    reentrant = bool(own["use_reentrant"].constant())
    if reentrant:
        _refuse_reentrant(args, kwargs, own)
    if in_a_level():
        raise GraphBreak("unsupported-call", "checkpoint() within a level of forward-mode differentiation")
    if any(body.hidden for body in t.graph.bodies):
        raise GraphBreak("unsupported-call", "checkpoint() within a transformed function, which torch refuses")
    before = t.heap.size()
    given = (function, *args, *kwargs.values())
    if any(isinstance(value, IteratorValue) and value.source is None for value in reachable(given).values()):
        raise GraphBreak("unsupported-call", "checkpoint() of a function that is given an iterator")
    with t.heap.watching(given), t.graph.checkpointed(policy, reentrant=reentrant) as region:
        result = t.caller.call(function, args, kwargs)
    if reentrant or t.graph.has_history(region.number):
        if region.draws and "preserve_rng_state" in own and not own["preserve_rng_state"].constant():
            raise GraphBreak(
                "unsupported-call", "checkpoint(preserve_rng_state=False) of a function that draws random numbers"
            )
        if region.writes or t.heap.size() != before:
            raise GraphBreak("unsupported-call", "checkpoint() of a function that changes what is outside of it")
    if reentrant:
        _refuse_results(t, result, args)
    return result


def _policy(context_fn: Value) -> Any:
    """The operators, or the function, by which `create_selective_checkpoint_contexts` says what is saved. It decides about memory alone."""
    if context_fn.real() is checkpoints.noop_context_fn:
        return None
    if (
        isinstance(context_fn, PartialValue)
        and context_fn.function.real() is checkpoints.create_selective_checkpoint_contexts
    ):
        given = (*context_fn.args, *context_fn.kwargs.values())
        if len(given) == 1 and isinstance(given[0], ListValue):
            operators = tuple(item.constant() if item.is_constant() else item.real() for item in given[0].items)
            if all(isinstance(operator, torch._ops.OpOverload) for operator in operators):
                return operators
        if len(given) == 1 and isinstance(given[0].real(), types.FunctionType):
            return given[0].real()
    raise GraphBreak("unsupported-call", "checkpoint() with context_fn")


def _refuse_reentrant(args: Args, kwargs: Kwargs, own: Kwargs) -> None:
    """The reentrant kind runs the function without gradients at first. Where it is told to differentiate, that shows in the function's
    own questions about gradients alone; elsewhere it warns, and where torch refuses the call eager raises."""
    differentiated = any(isinstance(arg, TensorValue) and arg.fake.requires_grad for arg in args)
    if not differentiated or not torch.is_grad_enabled():
        raise GraphBreak("unsupported-call", "checkpoint(use_reentrant=True) of nothing that requires grad")
    if kwargs or not own.keys() <= {"use_reentrant", "preserve_rng_state"}:
        raise GraphBreak("unsupported-call", "checkpoint(use_reentrant=True) with further arguments")


def _refuse_results(t: Tracer, result: Value, args: Args) -> None:
    """The reentrant kind makes new tensors of its results, and differentiable ones of all that can be."""
    results = [result] if isinstance(result, TensorValue) else list(t.operators.iterate_all(result))
    taken = {arg.fake.untyped_storage()._cdata for arg in args if isinstance(arg, TensorValue)}
    for value in results:
        if not isinstance(value, TensorValue) or not value.fake.requires_grad:
            raise GraphBreak("unsupported-call", "checkpoint(use_reentrant=True) of a function with other results")
        memory = value.fake.untyped_storage()._cdata
        if value.source is not None or memory in taken:
            raise GraphBreak(
                "unsupported-call", "checkpoint(use_reentrant=True) of a function that returns what it is given"
            )
        taken.add(memory)
