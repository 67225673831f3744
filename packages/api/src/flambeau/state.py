"""The compiler's state in this process: forgetting it, using it without adding to it, and the questions that programs ask about it.

In: compiled functions, or nothing. Out: the same functions under another rule; answers. Also the entry points that `torch.compile` had before.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

import flambeau_capture

from .backends import Backend, reset_backends
from .compile import compile
from .errors import InvalidOption
from .module import original_of

P = ParamSpec("P")
R = TypeVar("R")


def reset() -> None:
    """Forget what this process has compiled, as if it had just started: entries, what they taught about sizes, CUDA graphs, callbacks.

    Backends that have a `reset()` are told. The cache on disk, `counters` and settings stay.
    """
    flambeau_capture.reset()
    flambeau_capture.forget_callbacks()
    reset_backends()
    recordings = sys.modules.get("flambeau_runtime.graphs")
    if recordings is not None:  # nothing was recorded where it was never loaded
        recordings.reset()


def reset_code_caches() -> None:
    """Forget compiled entries alone: what was learnt about sizes stays, so that the next calls compile for those at once."""
    flambeau_capture.forget_entries()


def run(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, using what it has compiled and compiling nothing: calls that fit no entry run in eager.

    Args:
        function: a compiled function or module, or what one was made from: then the compiled one is called that lives.

    Raises:
        InvalidOption: for what cannot be called.
    """
    if not callable(function):
        raise InvalidOption(f"run takes a function or a module, not {type(function).__name__}")

    # Not `wraps`: a module has no name.
    @functools.wraps(function, updated=())
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with flambeau_capture.run_only():
            return _compiled_of(function)(*args, **kwargs)

    return call


def _compiled_of(function: Callable[P, R]) -> Callable[P, R]:
    if isinstance(function, flambeau_capture.Region) or original_of(function) is not function:
        return function
    wanted = function.__call__ if isinstance(function, torch.nn.Module) else function
    found: Callable[P, R] | None = next(
        (region for region in flambeau_capture.live_regions() if region.callable == wanted and region.codes()), None
    )
    return function if found is None else found


def optimize(
    backend: str | Backend = "inductor", *, nopython: bool = False, disable: bool = False, dynamic: bool | None = None
) -> Callable[[Any], Any]:
    """The decorator that `flambeau.compile` makes, under the arguments that `torch._dynamo.optimize` has."""
    made: Callable[[Any], Any] = compile(backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic)
    return made


def optimize_assert(backend: str | Backend = "inductor", *, dynamic: bool | None = None) -> Callable[[Any], Any]:
    """`optimize` for functions that must be one graph: a graph break is an error."""
    return optimize(backend, nopython=True, dynamic=dynamic)


def compile_in_place(model: torch.nn.Module, **arguments: Any) -> None:
    """Compile a module's call in place, as `torch.nn.Module.compile` does: the module stays the object that it is.

    Its `state_dict` keys stay, and whoever holds the module calls what is compiled. Copies and pickles of it are not compiled.

    Args:
        model: the module.
        arguments: as for `flambeau.compile`.

    Raises:
        InvalidOption: for something else than a module; and as `flambeau.compile`.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidOption(f"compile_in_place takes an nn.Module, not {type(model).__name__}", "use flambeau.compile")
    model._compiled_call_impl = compile(model._call_impl, **arguments)


def cudagraph_mark_step_begin() -> None:
    """Accepted for programs written for torch.compile; nothing needs it: results stay valid while they are referenced."""


def is_compiling() -> bool:
    """True while the code that asks is being captured; in plain Python it is False."""
    return flambeau_capture.is_capturing()


def is_dynamo_compiling() -> bool:
    """The same question under the name that existing code asks."""
    return flambeau_capture.is_capturing()


def is_exporting() -> bool:
    """True while `torch.export` traces the code that asks."""
    return torch.compiler.is_exporting()
