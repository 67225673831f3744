"""The backend registry: names to callables `(gm, example_inputs) -> callable`, exactly as for `torch.compile`.

In: a name, a callable or None. Out: the backend. Names come from this module, from `register_backend`, and, loaded on first
use, from the entry-point group `torch_dynamo_backends` that existing backends already publish.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar

import torch
from attrs import frozen

from . import torchs_backends
from .defaults import Settings
from .errors import BackendLookupError, DuplicateBackend, UnknownName
from .options import Options
from .records import Recorder
from .rescue import as_captured

CompiledFn = Callable[..., Any]
Backend = Callable[..., CompiledFn]
BackendT = TypeVar("BackendT", bound=Backend)

ENTRY_POINT_GROUP = "torch_dynamo_backends"


@frozen
class RegisteredBackend:
    """A backend and what `list_backends` needs to know about it."""

    function: Backend
    tags: frozenset[str]


_REGISTRY: dict[str, RegisteredBackend] = {}


def register_backend(
    compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Callable[..., Any]:
    """Register a backend under a name; works as a function and as a decorator.

    Args:
        compiler_fn: `(GraphModule, example_inputs) -> callable`; None makes a decorator.
        name: defaults to the function's `__name__`.
        tags: free words; `"debug"` and `"experimental"` are hidden by `list_backends()`.

    Raises:
        DuplicateBackend: when the name already stands for another function.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    key = name or getattr(compiler_fn, "__name__", None)
    if not key:
        raise BackendLookupError("a backend without __name__ needs a name", hint="pass name='...'")
    known = _REGISTRY.get(key)
    if known is not None and known.function is not compiler_fn:
        raise DuplicateBackend(f"backend {key!r} is already registered")
    _REGISTRY[key] = RegisteredBackend(compiler_fn, frozenset(tags))
    return compiler_fn


def _entry_point_names() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """Names that `backend=` accepts, sorted; those that carry one of `exclude_tags` are left out."""
    excluded = frozenset(exclude_tags or ())
    names = {name for name, backend in _REGISTRY.items() if not backend.tags & excluded}
    published = (_entry_point_names().keys() | set(torchs_backends.names(excluded))) - _REGISTRY.keys()
    return sorted(names | published)


def lookup_backend(backend: str | Backend | None) -> Backend:
    """The callable behind a name.

    Args:
        backend: a registered or published name, a callable (returned as it is), or None for the default.

    Raises:
        UnknownName: with the names that exist and the nearest one.
        BackendLookupError: when a published backend cannot be loaded, or the argument is neither name nor callable.
    """
    if backend is None:
        backend = get_default_backend()
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise BackendLookupError(f"backend takes a name or a callable, not {backend!r}")
    if backend not in _REGISTRY:
        point = _entry_point_names().get(backend)
        if point is None:
            return _of_others(backend)
        try:
            register_backend(point.load(), name=backend)
        except ImportError as error:
            raise BackendLookupError(f"backend {backend!r} ({point.value}) cannot be imported: {error}") from error
    return _REGISTRY[backend].function


def _of_others(name: str) -> Backend:
    try:
        found = torchs_backends.find(name)
    except ImportError as error:
        raise BackendLookupError(
            f"backend {name!r} cannot be loaded: {error}", hint="or register it: flambeau.compiler.register_backend"
        ) from error
    if found is None:
        raise UnknownName("backend", name, list_backends(exclude_tags=None))
    return found


class _Process:
    """The default of this process, and the backends that it has compiled with which have something to reset."""

    default: str | Backend = "inductor"
    used: ClassVar[dict[int, Any]] = {}


def set_default_backend(backend: str | Backend | None) -> None:
    """Compile with this backend where `flambeau.compile` is not told one; None takes that back.

    Raises:
        UnknownName, BackendLookupError: as `lookup_backend`.
    """
    if backend is not None:
        lookup_backend(backend)
    _Process.default = "inductor" if backend is None else backend


def get_default_backend() -> str | Backend:
    """The backend where `flambeau.compile` is not told one, as it was given to `set_default_backend`."""
    return _Process.default


def note_use(backend: Backend) -> None:
    """Remember a backend that is to be told of a reset."""
    if callable(getattr(backend, "reset", None)):
        _Process.used[id(backend)] = backend


def reset_backends() -> None:
    """Call `reset()` of every backend that was compiled with and has one."""
    used, _Process.used = list(_Process.used.values()), {}
    for backend in used:
        backend.reset()


def reads_fakes(backend: BackendT) -> BackendT:
    """Mark a backend that reads fake example inputs; any other is given real tensors, as existing backends expect."""
    return _does_not_want("real_inputs", backend)


def reads_nodes(backend: BackendT) -> BackendT:
    """Mark a backend that reads the nodes of a graph: its Python code is made only if it is asked for."""
    return _does_not_want("code", backend)


def _does_not_want(what: str, backend: BackendT) -> BackendT:
    setattr(backend, f"wants_{what}", False)
    return backend


@register_backend(name="eager", tags=("debug",))
@reads_fakes
def eager(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """Runs the captured graph with torch's own ops: tests capture alone."""
    return as_captured(gm)


@register_backend(name="noop", tags=("debug",))
@reads_fakes
def noop(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """The same as `eager`, under the name that overhead measurements use."""
    return gm.forward


@register_backend(name="aot_eager", tags=("debug",))
@reads_fakes
@reads_nodes
def aot_eager(gm: torch.fx.GraphModule, inputs: list[Any], *, settings: Settings | None = None) -> CompiledFn:
    """Ahead-of-time autograd, then torch's own ops: tests capture and autograd without generated kernels."""
    from .stack import compile_aot_eager

    return compile_aot_eager(gm, inputs, settings=settings)


@register_backend(name="aot_eager_decomp_partition", tags=("debug",))
@reads_fakes
@reads_nodes
def aot_eager_decomp_partition(
    gm: torch.fx.GraphModule, inputs: list[Any], *, settings: Settings | None = None
) -> CompiledFn:
    """`aot_eager` with what the default backend has done to its graphs before it lowers them: decompositions, rewrites, its partition."""
    from .stack import compile_aot_eager

    return compile_aot_eager(gm, inputs, settings=settings, decomposed=True)


@register_backend(name="pre_dispatch_eager", tags=("debug",))
@reads_fakes
def pre_dispatch_eager(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """Traces the graph once more into ATen ops above autograd, and runs those: tests what `torch.export` sees."""
    from torch.fx.experimental.proxy_tensor import make_fx

    run = as_captured(gm)

    def call(*given: Any) -> Any:
        return run(*given)

    traced: CompiledFn = make_fx(call, pre_dispatch=True, _allow_non_fake_inputs=True)(*inputs)
    return traced


@register_backend(name="ts", tags=("debug",))
def ts(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """The captured graph as TorchScript."""
    return _scripted(gm)


@register_backend(name="aot_ts", tags=("debug",))
@reads_fakes
@reads_nodes
def aot_ts(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """Forward and backward graphs as TorchScript."""
    return aot_autograd(fw_compiler=_scripted_aten)(gm, inputs)


def _scripted_aten(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """TorchScript chooses overloads itself."""
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
    return _scripted(gm)


def _scripted(gm: torch.fx.GraphModule) -> CompiledFn:
    with warnings.catch_warnings():
        # torch deprecates it for programs; here it is what was asked for by name.
        warnings.simplefilter("ignore")
        # In a class of its own: that of captured graphs makes its code when it is asked for, which TorchScript does not read.
        scripted: CompiledFn = torch.jit.script(torch.fx.GraphModule(gm, gm.graph))
    return scripted


def aot_autograd(
    *,
    fw_compiler: Backend,
    bw_compiler: Backend | None = None,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: Mapping[Any, Any] | Callable[[], Mapping[Any, Any]] | None = None,
    inference_compiler: Backend | None = None,
) -> Backend:
    """A backend made of compilers of functional ATen graphs: one for the forward, one for the backward.

    Args:
        fw_compiler: `(graph, example_inputs) -> callable`; the callable takes the inputs, or with `_boxed_call = True` one list of them.
        bw_compiler: for the backward; by default `fw_compiler`.
        partition_fn: `functorch.compile.min_cut_rematerialization_partition` (the default) or `default_partition`, or
            `(joint, config) -> nodes to save`.
        decompositions: op -> decomposition, or a function that gives them.
        inference_compiler: where no gradient is wanted; by default `fw_compiler`.

    Raises:
        TypeError: when a compiler cannot be called.
    """
    import flambeau_autograd

    name = getattr(partition_fn, "__name__", "")
    if getattr(partition_fn, "__module__", "") == "torch._functorch.partitioners":
        partition_fn = flambeau_autograd.default_partition if name == "default_partition" else flambeau_autograd.min_cut
    made: Backend = flambeau_autograd.aot_autograd(
        fw_compiler=fw_compiler,
        bw_compiler=bw_compiler,
        partition_fn=partition_fn,
        decompositions=decompositions() if callable(decompositions) else decompositions,
        inference_compiler=inference_compiler,
    )
    return made


@register_backend(name="loops", tags=("debug",))
@reads_fakes
@reads_nodes
def loops(gm: torch.fx.GraphModule, inputs: list[Any]) -> CompiledFn:
    """Everything up to the loop IR, which an interpreter runs: tells lowering and code generation apart. For a CPU."""
    from .debugging.backends import loops as interpreted

    return interpreted(gm, inputs)


@register_backend(name="inductor")
@reads_fakes
@reads_nodes
def inductor(
    gm: torch.fx.GraphModule,
    inputs: list[Any],
    *,
    options: Options | None = None,
    recorder: Recorder | None = None,
    settings: Settings | None = None,
) -> CompiledFn:
    """The default: ahead-of-time autograd, fusion, generated kernels, the native executor."""
    from .stack import compile_stack

    return compile_stack(gm, inputs, options or Options(), recorder, settings)


@register_backend(name="cudagraphs")
@reads_fakes
@reads_nodes
def cudagraphs(
    gm: torch.fx.GraphModule,
    inputs: list[Any],
    *,
    options: Options | None = None,
    recorder: Recorder | None = None,
    settings: Settings | None = None,
) -> CompiledFn:
    """Torch's own kernels, recorded and replayed as CUDA graphs: no code is generated."""
    from .stack import compile_stack

    chosen = (options or Options()).with_(fallback_by_default=True, triton__cudagraphs=True)
    return compile_stack(gm, inputs, chosen, recorder, settings)


_OWN = tuple(backend.function for backend in _REGISTRY.values())


def is_own(backend: Backend) -> bool:
    """Whether it is of this package: these know `flambeau.compile`'s modes and options, and any other is given what it was called with."""
    return any(backend is own for own in _OWN)  # one of others' need not have a hash
