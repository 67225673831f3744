"""torch calls that read or set global state, and questions about being compiled.

In: calls met while tracing. Out: constants (guarded by `GlobalState`, or by asking again), state changes as graph nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.torch_version import TorchVersion

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def _named(*paths: str) -> list[Any]:
    """The objects at these paths that this torch has, without repetition."""
    found: dict[int, Any] = {}
    for path in paths:
        obj: Any = torch
        for part in path.split(".")[1:]:
            obj = getattr(obj, part, None)
            if obj is None:
                break
        if obj is not None:
            found[id(obj)] = obj
    return list(found.values())


_COMPUTE_OTHERWISE = tuple(
    function.__code__
    for function in (torch.nn.TransformerEncoder.forward, torch.func.vmap, torch.func.grad, torch.func.grad_and_value)
)
"""Code of torch whose results are others where it is told that it is compiled (padded positions are not zero, transformed functions do not have the name of
what is transformed): it is not told."""


@replaces(*_named("torch.compiler.is_compiling", "torch.compiler.is_dynamo_compiling"))
def is_compiling(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if t.frames.frame.code in _COMPUTE_OTHERWISE:
        return ConstantValue(False)
    t.told_compiling = True
    return ConstantValue(True)


@replaces(*_named(
    "torch.jit.is_scripting", "torch.jit.is_tracing", "torch.jit._trace.is_tracing", "torch._jit_internal.is_scripting",
    "torch.compiler.is_exporting", "torch._C._is_tracing", "torch._utils.is_compiling_export",
))  # fmt: skip
def answers_false(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(False)


@replaces(
    *_named(
        "torch._C._log_api_usage_once",
        "torch._logging.warning_once",
        "torch._C._get_tracing_state",
        "torch.cuda.nvtx.range_push",
        "torch.cuda.nvtx.range_pop",
    )
)
def answers_none(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(None)


def _answer(*paths: str, watched: bool) -> None:
    """Register functions that are asked for real while tracing.

    What ``GlobalState`` guards or never changes needs no guard of its own; what is ``watched`` is asked again at every call.
    """
    for target in _named(*paths):

        def answer(t: Tracer, args: Args, kwargs: Kwargs, target: Any = target) -> Value:
            return t.folder.ask(target, args, kwargs) if watched else t.folder.fold(target, args, kwargs)

        replaces(target)(answer)


_answer(
    "torch.is_inference_mode_enabled", "torch.get_default_dtype", "torch.are_deterministic_algorithms_enabled",
    "torch.is_autocast_enabled", "torch.get_autocast_dtype", "torch.get_autocast_gpu_dtype", "torch.get_autocast_cpu_dtype", "torch.is_autocast_cpu_enabled",
    "torch.is_autocast_cache_enabled", "torch.is_deterministic_algorithms_warn_only_enabled", "torch.get_deterministic_debug_mode",
    "torch.get_rng_state_size",
    "torch.cuda.is_available", "torch.cuda.device_count", "torch.cuda.is_bf16_supported", "torch.backends.cuda.is_built",
    "torch.backends.mps.is_available", "torch.xpu.is_available", "torch.distributed.is_available",
    "torch.amp.is_autocast_available", "torch.amp.autocast_mode.is_autocast_available", "torch._C._is_autocast_available",
    "torch.promote_types", "torch.can_cast", "torch.finfo", "torch.iinfo",
    watched=False,
)  # fmt: skip
_answer(
    "torch.cuda.current_device", "torch.cuda.is_current_stream_capturing", "torch.get_num_threads", "torch.get_num_interop_threads",
    "torch.distributed.is_initialized",
    watched=True,
)  # fmt: skip


@replaces(torch.is_grad_enabled)
def is_grad_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """What `GlobalState` guards."""
    t.graph.refuse_question("torch.is_grad_enabled()")
    return t.folder.fold(torch.is_grad_enabled, args, kwargs)


@replaces(*_named("torch._C._set_grad_enabled"))
def set_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    answer = t.overrides.instead("call_function", torch._C._set_grad_enabled, args, kwargs)
    if answer is not None:
        return answer
    set_grad_mode(t, bool(t.folder.concrete(args[0])))
    return ConstantValue(None)


def set_grad_mode(t: Tracer, enabled: bool) -> None:
    """Set the grad mode while tracing and in the graph."""
    if torch.is_grad_enabled() == enabled:
        return
    torch._C._set_grad_enabled(enabled)
    t.graph.derive(torch._C._set_grad_enabled, (enabled,), None)


@replaces(
    *_named(
        "torch.manual_seed",
        "torch.random.manual_seed",
        "torch.seed",
        "torch.set_rng_state",
        "torch.get_rng_state",
        "torch.random.get_rng_state",
        "torch.random.set_rng_state",
    )
)
def random_state(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "the state of the random generator is set or read")


@replaces(*_named("torch._assert"))
def torch_assert(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.caller.call(t.wrapper.wrap_pinned(_asserted), args, kwargs)


def _asserted(condition: Any, message: Any) -> None:
    if not condition:
        raise AssertionError(message)


@replaces(*_named("torch._check_with"))
def torch_check(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """What every function of the family `torch._check` comes to: a branch, so that what it asks is a guard."""
    condition = args[1].realise(t) if len(args) > 1 else None
    if isinstance(condition, SymbolicValue) and condition.is_open():
        t.graph.check(condition.node, condition.symbol)  # plain Python says what is wrong, where it fails
        return ConstantValue(None)
    return t.caller.call(t.wrapper.wrap_pinned(_checked), args, kwargs)


_CHECK_FAILED = "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to PyTorch.)"

#: Whether torch has words of their own for conditions that are tensors.
_TENSORS_ARE_NAMED = TorchVersion(torch.__version__) >= "2.12"


def _checked(error_type: Any, cond: Any, message: Any) -> None:
    if not isinstance(cond, bool):
        if isinstance(cond, torch.Tensor) and _TENSORS_ARE_NAMED:
            raise TypeError(
                "cond must be a bool, but got a Tensor. For tensor conditions, use torch._check_tensor_all() "
                "to assert that all elements are true."
            )
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error_type(_CHECK_FAILED if message is None else str(message()))


@replaces(*_named("torch.jit.annotate"))
def annotate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`torch.jit.annotate(type, value)`: the value; Python's own signature check is torch's."""
    given = [*args, *(kwargs[name] for name in ("the_type", "the_value")[len(args) :] if name in kwargs)]
    if len(given) != 2 or len(args) + len(kwargs) != 2:
        raise GraphBreak("unsupported-call", "torch.jit.annotate with arguments that it does not take")
    return given[1]


@replaces(*_named("torch.is_tensor"))
def is_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(issubclass(args[0].python_type(), torch.Tensor))


@replaces(*_named("torch.is_inference"))
def is_inference(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs or not isinstance(args[0], TensorValue):
        raise GraphBreak("unsupported-call", "torch.is_inference of something else than one tensor")
    return args[0].call_method(t, "is_inference", (), {})


@replaces(*_named("torch.sym_int"))
def symbolic_conversion(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if t.wrapper.is_foldable(args[0]):
        return t.folder.fold(int, args, {})
    return t.arithmetic.symbolic(torch.sym_int, args)
