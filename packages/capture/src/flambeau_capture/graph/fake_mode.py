"""A fake tensor mode that does not import torch's own compiler.

Making a `FakeTensorMode` and dispatching under it read three settings of that compiler's configuration, and torch wraps every
dispatch mode so that the compiler keeps out of it; each imports the whole package, which costs more than a second in a fresh
process. `LeanFakeMode` sets the same attributes itself and dispatches without the wrapper; `_Unloaded` answers the setting that
every dispatch reads, for as long as nobody has imported the package, and gives way to it as soon as somebody does.

In: nothing. Out: `new_fake_mode()`, a `FakeTensorMode` in every respect. Where torch's initialiser sets other attributes than
those known here (another version), or where the package is loaded anyway, the ordinary mode is made.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch._compile
import torch._decomp
import torch._functorch.config
import torch._refs
import torch._refs.linalg
import torch._refs.special
import torch.nested._internal.nested_tensor
from torch._decomp import decompositions
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._ops import HigherOrderOperator, OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorConverter, FakeTensorMode
from torch.torch_version import TorchVersion

from ..library import contextlib, dis, functools
from ..native import _C
from .fake_results import FakeResults
from .repeats import Region
from .warned import Kernels

#: What `FakeTensorMode.__init__` sets in torch 2.11 to 2.15; a test compares the values too.
_ATTRIBUTES = frozenset(
    (
        "_allow_unsafe_data_ptr_access", "_mode_key", "_stack", "_stack_trace", "allow_fallback_kernels", "allow_meta",
        "allow_non_fake_inputs", "allow_scalar_outputs", "cache_crosscheck_enabled", "cache_enabled", "enter_stack",
        "fake_tensor_converter", "in_kernel_invocation", "nt_tensor_id_counter", "nt_tensor_id_initial_count",
        "propagate_real_tensors", "shape_env", "static_shapes",
    )
)  # fmt: skip
COMPILER = "torch._dynamo"
"""The package that is not imported."""
_EXCLUSION = "__dynamo_disable"
_EXCLUDER = torch._compile._disable_dynamo.__code__.co_filename
_WRAPPED = ("torch._refs", "torch._decomp", "torch._prims", "torch._meta_registrations")
_own_dispatch: Any = FakeTensorMode.__torch_dispatch__


class _Settings:
    """The settings that dispatch reads, at torch's defaults; any other one loads the real configuration."""

    _custom_ops_profile = None

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{COMPILER}.config"), name)


class _Unloaded(ModuleType):
    """Stands in `torch` where the compiler's package will be; whoever needs more of it than `config` loads it.

    It is never in `sys.modules`, so an `import` of the package finds the real one, which then takes this one's place.
    """

    def __getattr__(self, name: str) -> Any:
        real = sys.modules.get(COMPILER)
        if real is not None:
            return getattr(real, name)
        if name == "config":
            return _SETTINGS
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(COMPILER), name)


_SETTINGS = _Settings()


class _DeferredExclusion:
    """What torch's references call in place of themselves so that its compiler does not trace them.

    There is nothing to be kept out of while the package is not loaded; afterwards the package's own answer is used.
    """

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        package = sys.modules.get(COMPILER)
        if package is None or not hasattr(package, "disable"):
            return self.function(*args, **kwargs)
        excluded = package.disable(self.function, True, wrapping=False)
        setattr(self.function, _EXCLUSION, excluded)
        return excluded(*args, **kwargs)


@functools.cache
def _defer_exclusions() -> None:
    """Put a `_DeferredExclusion` where a reference would import the package at its first call."""
    modules = (torch._refs, torch._refs.nn.functional, torch._refs.special, torch._refs.linalg, decompositions)
    tables = [vars(module) for module in modules]
    seen: set[FunctionType] = set()
    waiting: list[Any] = [
        function
        for table in (*tables, *torch._decomp.global_decomposition_table.values())
        for function in table.values()
    ]
    while waiting:
        function = waiting.pop()
        if type(function) is not FunctionType or function in seen or not function.__module__.startswith(_WRAPPED):
            continue
        seen.add(function)
        # Wrappers overwrite one another's `__wrapped__`; the closures hold what is really called.
        below = _closure_of(function)
        if function.__code__.co_filename == _EXCLUDER and not hasattr(target := below["fn"], _EXCLUSION):
            setattr(target, _EXCLUSION, _DeferredExclusion(target))
        waiting += below.values()


def _closure_of(function: FunctionType) -> dict[str, Any]:
    """What the free variables of a function hold, by name; those without a value are left out."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _norm_by_positions(
    mode: FakeTensorMode, func: OpOverload, x: torch.Tensor, ord: Any = 2, dim: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """A vector norm with its dimensions counted from the front: torch 2.11's formula keeps those of one element that are named from the back."""
    if not dim or all(d >= 0 for d in dim):
        return NotImplemented
    return func(x, ord, [d % max(x.ndim, 1) for d in dim], *args, **kwargs)


def _by_positions(formula: Any) -> Any:
    """The same for the formula, which fakes with symbolic sizes run instead of the op."""

    @functools.wraps(formula)
    def norm(x: torch.Tensor, ord: Any = 2, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        return formula(x, ord, dim and [d % max(x.ndim, 1) for d in dim], *args, **kwargs)

    return norm


def _shrink_backward(
    mode: FakeTensorMode, func: OpOverload, grad: torch.Tensor, x: torch.Tensor, lambd: Any
) -> torch.Tensor:
    """Torch's own take plain sizes only; they lay their results out as any function of both tensors does."""
    with mode:
        return grad * x


def _upsample_backward(
    fake_mode: FakeTensorMode, func: Any, grad: Any, output_size: Any, input_size: Any, *args: Any
) -> Any:
    """Torch's takes no symbolic sizes."""
    with fake_mode:
        return grad.new_empty(input_size).to(memory_format=suggest_memory_format(grad))


def _pack_padded_sequence(
    mode: FakeTensorMode, func: OpOverload, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Torch's own gives the packed values the sizes of the padded ones, and their counts the type of the values."""
    shapes = mode.shape_env
    if shapes is None or not shapes.allow_dynamic_output_shape_ops:
        raise DynamicOutputShapeException(func)
    packed, steps = (shapes.create_unbacked_symint() for _ in range(2))
    for size in (packed, steps):
        torch._check(size >= 0)
    with mode:
        return values.new_empty((packed, *values.shape[2:])), lengths.new_empty((steps,))


def _unique(func: OpOverload) -> Any:
    """Torch's own, for an op that gives the different elements or slices of a tensor: kernels stack slices, and move that dimension to its place.
    Where each is found, and how often, are whole numbers (in 2.11 torch's own are of the tensor's dtype)."""
    own, place = op_implementations_dict[func], _DIM_OF_UNIQUE[func]

    @functools.wraps(own)
    def unique(mode: FakeTensorMode, func: OpOverload, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found, *more = own(mode, func, values, *args, **kwargs)
        dim = None if place is None else kwargs.get("dim", args[place] if len(args) > place else None)
        with mode:
            if dim is not None and found.ndim:
                sizes = list(found.shape)
                found = values.new_empty([sizes.pop(dim % found.ndim), *sizes]).movedim(0, dim)
            more = [numbers.new_empty(numbers.shape, dtype=torch.int64) for numbers in more]
        return (found, *more)

    return unique


_DIM_OF_UNIQUE: dict[Any, int | None] = {
    torch.ops.aten._unique2.default: None,
    torch.ops.aten.unique_dim.default: 0,
    torch.ops.aten.unique_consecutive.default: 2,
}
"""Where among the arguments after the first the dimension stands, if there is one."""


def _of_its_dtype(formula: Any) -> Any:
    """Torch's formula for dropout that keeps mean and variance gives the default dtype."""

    @functools.wraps(formula)
    def dropout(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return formula(values, *args, **kwargs).to(values.dtype)

    return dropout


@functools.cache
def _correct_fakes() -> None:
    """Register, in torch and for the process, what its fakes say wrongly."""
    register_op_impl(torch.ops.aten.softshrink_backward.default)(_shrink_backward)
    register_op_impl(torch.ops.aten.hardshrink_backward.default)(_shrink_backward)
    register_op_impl(torch.ops.aten._upsample_bicubic2d_aa_backward.default)(_upsample_backward)
    for op in _DIM_OF_UNIQUE:
        op_implementations_dict[op] = _unique(op)
    op_implementations_dict[torch.ops.aten._pack_padded_sequence.default] = _pack_padded_sequence
    table, dropout = torch._decomp.decomposition_table, torch.ops.aten.alpha_dropout.default
    table[dropout] = _of_its_dtype(table[dropout])
    if TorchVersion(torch.__version__) < "2.12":
        norm = torch.ops.aten.linalg_vector_norm.default
        register_op_impl(norm)(_norm_by_positions)
        table[norm] = _by_positions(table[norm])


_READ = torch.ops.aten._local_scalar_dense.default
_DEVICE = torch.ops.prim.device.default
#: What gives, for an op, its arguments and the fakes of its results, the fakes of what the kernel really returns.
Correction = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]
_corrections: list[Correction] = []


def register_correction(correct: Correction) -> None:
    """From here on the results of every op on fakes of `new_fake_mode` are what `correct` says."""
    if correct not in _corrections:
        _corrections.append(correct)


@functools.cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


class CorrectedFakeMode(FakeTensorMode):
    """A `FakeTensorMode` whose results are corrected by what is registered; a region and kernels that are set are told of each op.

    `draws` says that some op has drawn random numbers. `has_failed` says that a correction raised: that is a fault of ours, whatever torch makes of the error. `numbers`: the tensors that ops read as
    numbers, and whether for the first time, while somebody listens.
    """

    numbers: list[tuple[torch.Tensor, bool]] | None = None
    region: Region | None = None
    kernels: Kernels | None = None
    has_failed = False
    draws = False
    results: FakeResults | None = None
    supports_higher_order_operators = True
    _calls = 0  # how many ops ran, also inside of others

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tells torch not to wrap this class's dispatch."""
        return False

    _dispatch: Any = _own_dispatch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The results of an op on fakes."""
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._of_higher_order(func, types, args, kwargs)
        if func is _DEVICE and type(args[0]) is FakeTensor and not self.in_kernel_invocation:
            return args[0].fake_device  # what C++ asks of every tensor that it is given
        if func is _READ and self.numbers is not None:
            self.numbers.append((args[0], args[0].item_memo is None))
        out, key = None, None
        if self.results is not None and self.shape_env is None:
            key = self.results.key(self, func, args, kwargs)
            out = None if key is None else self.results.find(key, self, args)
        if out is None:
            self._calls = calls = self._calls + 1
            out = self._dispatch(func, types, args, kwargs)
            is_alone = self._calls == calls
            if out is NotImplemented:
                return out  # a wrapper's class is asked, and comes back with what it holds
            for correct in _corrections:
                self.has_failed = True
                out = correct(func, args, kwargs, out)
                self.has_failed = False
            if key is not None and is_alone and self.results is not None:
                self.results.keep(key, func, args, kwargs, out)
        if not self.draws and _draws(func):
            self.draws = True
        if self.region is not None:
            self.region.note(func, args, kwargs, out)
        if self.kernels is not None:
            self.kernels.note(func, args, kwargs)
        return out

    def _of_higher_order(self, func: HigherOrderOperator, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the fake of an operator comes to, as a launch of a Triton kernel: torch's rules are for fake modes, and it looks for one of this very class."""
        if func in registered_hop_fake_fns:
            return self._dispatch(func, types, args, kwargs)
        rule: Any = func.python_key_table.get(FakeTensorMode)
        if rule is None:
            raise NotImplementedError(f"torch has no rule for {func.name()} on fakes")
        return rule(self, *args, **kwargs)


class LeanFakeMode(CorrectedFakeMode):
    """A `FakeTensorMode` without a shape environment, with torch's default settings."""

    def __init__(self) -> None:
        super(FakeTensorMode, self).__init__()
        self.allow_fallback_kernels = True
        self.propagate_real_tensors = False
        self.fake_tensor_converter = FakeTensorConverter(copy_data=False, export=False)
        self.static_shapes = True
        self.allow_scalar_outputs = False
        self._allow_unsafe_data_ptr_access = True
        self.allow_meta = torch._functorch.config.fake_tensor_allow_meta
        self.cache_enabled = True
        self.cache_crosscheck_enabled = False
        self.allow_non_fake_inputs = False
        self.in_kernel_invocation = False
        self.enter_stack: list[Any] = []
        self.shape_env = None
        self._stack_trace = traceback.StackSummary()
        self._stack = None
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE
        self.nt_tensor_id_initial_count = torch.nested._internal.nested_tensor._tensor_id_counter
        self.nt_tensor_id_counter = self.nt_tensor_id_initial_count

    _dispatch = getattr(_own_dispatch, "__wrapped__", _own_dispatch)


def new_fake_mode() -> FakeTensorMode:
    """A fresh mode; `shape_env` is None until the first symbolic size."""
    _correct_fakes()
    _keep_cuda_guard()
    mode: CorrectedFakeMode
    if COMPILER in sys.modules or not _known_initialiser():
        mode = CorrectedFakeMode(allow_non_fake_inputs=False)
    else:
        package, _, name = COMPILER.rpartition(".")
        vars(sys.modules[package]).setdefault(name, _Unloaded(COMPILER))
        _defer_exclusions()
        mode = LeanFakeMode()
    mode.results = FakeResults()
    return mode


@functools.cache
def _keep_cuda_guard() -> None:
    """Where torch is built for CUDA and sees no device, its fake modes free a guard that is still used, once the thread that entered the first
    of them ends; a guard that stays is put there before that."""
    if torch.cuda._is_compiled() and not torch.cuda.is_available():
        _C.keep_cuda_guard()


@functools.cache
def _known_initialiser() -> bool:
    """Whether torch's initialiser stores exactly the attributes that ours does."""
    stored = {
        instruction.argval
        for instruction in dis.get_instructions(FakeTensorMode.__init__)
        if instruction.opname == "STORE_ATTR"
    }
    return stored == _ATTRIBUTES
