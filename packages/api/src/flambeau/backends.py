"""The backend registry: names to callables `(gm, example_inputs) -> callable`, exactly as for `torch.compile`.

In: a name, a callable or None. Out: the backend. Names come from this module, from `register_backend`, and, loaded on first
use, from the entry-point group `torch_dynamo_backends` that existing backends already publish.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from typing import Any, TypeVar

import torch
from attrs import frozen

from .defaults import Settings
from .errors import BackendLookupError, DuplicateBackend, NotHereYet, UnknownName
from .options import Options
from .records import Recorder
from .rescue import as_captured
from .torch_names import BACKENDS

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
    return sorted(names | (_entry_point_names().keys() - _REGISTRY.keys()))


def lookup_backend(backend: str | Backend | None) -> Backend:
    """The callable behind a name.

    Args:
        backend: a registered or published name, a callable (returned as it is), or None for the default.

    Raises:
        UnknownName: with the names that exist and the nearest one.
        BackendLookupError: when a published backend cannot be loaded, or the argument is neither name nor callable.
    """
    if backend is None:
        backend = "inductor"
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise BackendLookupError(f"backend takes a name or a callable, not {backend!r}")
    if backend not in _REGISTRY:
        point = _entry_point_names().get(backend)
        if point is None and backend in BACKENDS:
            raise NotHereYet("backend", backend)
        if point is None:
            raise UnknownName("backend", backend, list_backends(exclude_tags=None))
        try:
            register_backend(point.load(), name=backend)
        except ImportError as error:
            raise BackendLookupError(f"backend {backend!r} ({point.value}) cannot be imported: {error}") from error
    return _REGISTRY[backend].function


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
