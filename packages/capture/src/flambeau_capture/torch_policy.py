"""Which torch callables become graph nodes, which are traced into, which are computed.

In: a callable with no replacement. Out: `classify`. Functions of torch's own namespaces are recorded as one node where the function
takes tensors, since custom backends expect torch-level calls.
"""

from __future__ import annotations

import enum
import types
from functools import lru_cache
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from .class_names import module_name, name_of
from .constant_objects import PLACEMENTS


class Decision(enum.Enum):
    """What to do with a torch callable."""

    RECORD = 1
    """A node when a tensor or symbol is among the arguments, else computed for real."""
    ALWAYS_RECORD = 2
    """A node whatever the arguments (it makes a tensor)."""
    INLINE = 3
    FOLD = 4
    """Computed for real on constants."""
    ASK = 7
    """Computed for real, and again at every call: the answer depends on state that no other guard watches."""
    BREAK = 5
    CONTROL_FLOW = 6
    """A higher-order operator of torch: it breaks the graph, with a reason of its own."""


_OPS = (type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))
_NATIVE_OP_MODULES = frozenset((
    "torch", "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch._C._sparse", "torch._C._nested",
))  # fmt: skip
_RECORDED_MODULES = frozenset(("torch.nn.functional", "torch.functional", "torch._lowrank"))
_QUERIES = frozenset((
    "is_tensor", "is_storage", "result_type", "promote_types", "can_cast", "is_complex", "is_floating_point", "is_nonzero", "is_same_size", "is_signed",
    "broadcast_shapes", "numel", "is_conj", "is_neg", "typename", "get_device", "_has_compatible_shallow_copy_type", "_is_zerotensor",
))  # fmt: skip
_INLINED = frozenset(
    (
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
        "_in_projection",
        "_in_projection_packed",
        "_canonical_mask",
        "_none_or_dtype",
        "_no_grad_embedding_renorm_",
        "_verify_batch_size",
    )
)
_BROKEN_MODULES = (
    "torch.distributed",
    "torch.autograd",
    "torch.jit",
    "torch.profiler",
    "torch.multiprocessing",
    "torch.utils.data",
    "torch.hub",
    "torch.serialization",
    "torch.cuda.graphs",
)
_API = "torch.distributed.tensor._api"
_OF_DISTRIBUTED_TENSORS = (_API, "torch.distributed.tensor.parallel.style")
_DISTRIBUTED = dict.fromkeys(("from_local", "to_local", "redistribute", "full_tensor"), Decision.ALWAYS_RECORD)
"""What is done to distributed tensors in a step. The functions that lay out a module around it are traced into: they look at classes and placements."""
_COLLECTIVES = "torch.distributed._functional_collectives"
_FUNCTIONAL = ("broadcast", "all_reduce", "all_gather_", "reduce_scatter_", "all_to_all_single", "wait_tensor")
_NOT_FUNCTIONAL = ("_inplace", "_coalesced", "_backward", "_context")
"""How names of functional collectives begin, and how others do not end: they come to operators, and to what `lookaside/distributed.py` replaces. Results of
several at once share memory, which autograd refuses to wait for one by one."""
_TRANSFORMS = frozenset((
    "vmap", "vmap.<locals>.wrapped", "grad", "grad.<locals>.wrapper", "grad_and_value", "grad_and_value.<locals>.wrapper", "vjp", "jvp", "jacrev",
    "jacfwd", "hessian", "_wraps_without_dynamo_attrs", "_wraps_without_dynamo_attrs.<locals>.inner", "_check_randomness_arg",
))  # fmt: skip
"""Functions of `torch.func`, and what they make, whose Python is traced into: what they come to has replacements (`lookaside/transforms.py`)."""
_KEPT_AUTOGRAD = ("torch.autograd.grad_mode", "torch.autograd.function")


def _is_control_flow(function: Any) -> bool:
    if not isinstance(function, types.FunctionType) or hasattr(function, "__marked_compile_region_fn__"):
        return False
    return "/torch/_higher_order_ops/" in function.__code__.co_filename or function.__name__ == "flex_attention"


def _is_functional_collective(function: types.FunctionType, name: str) -> bool:
    if function.__code__.co_qualname.startswith("_FromTorchTensor."):
        return True  # how torch 2.11 waits for a result with a gradient
    return name.startswith(_FUNCTIONAL) and not name.endswith(_NOT_FUNCTIONAL)


@lru_cache(maxsize=8192)
def _classify(function: Any) -> Decision:
    return _decide(function)


def _decide(function: Any) -> Decision:
    if isinstance(function, _OPS):
        return Decision.ALWAYS_RECORD
    module = module_name(function) or ""
    name = name_of(function)
    if isinstance(function, HigherOrderOperator) or _is_control_flow(function):
        return Decision.CONTROL_FLOW
    if isinstance(function, types.BuiltinFunctionType):
        return _classify_native(function, module, name)
    if isinstance(function, types.FunctionType):
        if "/torch/_functorch/" in function.__code__.co_filename:
            # Before its module is asked: a transformed function has the name and the module of what was given.
            known = name == "functional_call" or function.__code__.co_qualname in _TRANSFORMS
            return Decision.INLINE if known else Decision.BREAK
        if module in _RECORDED_MODULES:
            return (
                Decision.INLINE
                if name in _INLINED or (name.startswith("_") and name not in _PUBLIC_PRIVATE)
                else Decision.RECORD
            )
        if module.startswith(_OF_DISTRIBUTED_TENSORS):
            return _DISTRIBUTED.get(name, Decision.INLINE if name == "<lambda>" or module != _API else Decision.BREAK)
        if module == _COLLECTIVES and _is_functional_collective(function, name):
            return Decision.INLINE
        if module.startswith(_BROKEN_MODULES) and not module.startswith(_KEPT_AUTOGRAD):
            return Decision.BREAK
        if module == "torch._tensor" or (module.startswith("torch") and function is getattr(torch.Tensor, name, None)):
            return Decision.RECORD
        return Decision.INLINE
    if isinstance(function, type):
        return Decision.FOLD if function in _FOLDED_CLASSES or module == PLACEMENTS else Decision.INLINE
    return Decision.INLINE


_PUBLIC_PRIVATE = frozenset(("_unwrap_optional",))
_FOLDED_CLASSES = (
    torch.device,
    torch.dtype,
    torch.finfo,
    torch.iinfo,
    range,
    slice,
    int,
    float,
    bool,
    str,
    bytes,
    complex,
    frozenset,
)


_QUESTIONS = ("_get_", "get_", "is_", "_is_", "has_", "_has_", "_len_", "_are_", "_cuda_is", "_cuda_get")
_SETTERS = (
    "set_",
    "_set_",
    "clear_",
    "autocast_increment",
    "autocast_decrement",
    "_push_",
    "_pop_",
    "_increment_",
    "_decrement_",
)
"""How names of functions begin that change torch's state: doing that while tracing would change the state of the program itself."""


_QUANTISES = ("quantize_per_", "quantized_")
"""How names of functions begin whose results are quantised, where a run on fakes has plain numbers."""
_NESTED = "_nested_"
"""How names of functions begin that make nested tensors or ask whether values allow it, which a run on fakes affirms."""
_UNSAFE = "unsafe_"
"""How names of functions begin that give views, and say that they give new tensors."""


def _classify_native(function: Any, module: str, name: str) -> Decision:
    if module.startswith("torch") and name.startswith((*_QUANTISES, _NESTED, _UNSAFE)):
        return Decision.BREAK
    if module.startswith("torch") and name.startswith(_SETTERS):
        return Decision.BREAK
    owner = getattr(function, "__self__", None)
    if module in _NATIVE_OP_MODULES and (
        owner is None or module != "torch" or getattr(owner, "__name__", "") != "torch._C"
    ):
        if name in _QUERIES:
            return Decision.RECORD
        return Decision.ALWAYS_RECORD
    if module == "_operator":
        return Decision.RECORD
    if isinstance(owner, types.ModuleType) and owner.__name__ == "torch._C":
        if name in _PURE_C:
            return Decision.FOLD
        return Decision.ASK if name.startswith(_QUESTIONS) else Decision.BREAK
    if isinstance(owner, type) and issubclass(owner, torch.Tensor):
        return Decision.BREAK
    return Decision.INLINE


_PURE_C = frozenset(("_get_default_device", "is_deterministic", "_jit_internal", "_is_any_true"))


def classify(function: Any) -> Decision:
    """What to do with a callable. The answer is not kept for functions of the program's, for it would keep those and what they close over."""
    if type(function) is types.FunctionType and not str(module_name(function)).startswith("torch"):
        return _decide(function)
    try:
        return _classify(function)
    except TypeError:
        return Decision.INLINE
