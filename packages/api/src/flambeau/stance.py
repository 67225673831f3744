"""`set_stance`: what calls of compiled functions do for a while, or from now on.

In: the name of a stance, as for `torch.compiler.set_stance`. Out: the stance is taken at once; used as a context manager or a decorator it is put
back. It counts for the whole process. `set_enable_guard_collectives` has the ranks of a job agree on what is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

import torch

import flambeau_capture

from .backends import Backend, lookup_backend
from .errors import InvalidOption, UnknownName

P = ParamSpec("P")
R = TypeVar("R")


class set_stance:  # a function in the eyes of who calls it
    """Say what calls of compiled functions do: a function, a context manager and a decorator.

    Args:
        stance: "default" compiles what is new. "force_eager" runs everything as if nothing was compiled. "eager_on_recompile" runs what is compiled
            and compiles nothing: calls that fit no entry run in eager. "fail_on_recompile" raises for them. "eager_then_compile" runs the first call of
            a function in eager, "aot_eager_then_compile" with the backend aot_eager; both compile from the second call on, when it is known which
            sizes change.
        skip_guard_eval_unsafe: look only at the guards in which the entries of a function differ, at none where it has one entry. A call that fits
            none is then given wrong results without a word: for programs that have seen all of their inputs.
        force_backend: under "default", compile with this backend whatever `flambeau.compile` was told; entries are kept apart.

    Raises:
        UnknownName: for a stance or backend that does not exist.
        InvalidOption: for `force_backend` under another stance.
        RuntimeError: when it is called inside a compiled function.

    Example:
        >>> with flambeau.compiler.set_stance("fail_on_recompile"):
        ...     model(x)
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Backend | None = None,
    ) -> None:
        if stance not in flambeau_capture.STANCES:
            raise UnknownName("stance", stance, flambeau_capture.STANCES)
        if force_backend is not None and stance != "default":
            raise InvalidOption(f"force_backend goes with the stance 'default' alone, not with {stance!r}")
        self._stance = flambeau_capture.Stance(
            stance,
            differing_only=skip_guard_eval_unsafe,
            backend=None if force_backend is None else lookup_backend(force_backend),
            first=lookup_backend("aot_eager") if stance == "aot_eager_then_compile" else None,
        )
        self._before = flambeau_capture.set_stance(self._stance)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, under the stance while it runs."""
        flambeau_capture.set_stance(self._before)
        stance = self._stance

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            before = flambeau_capture.set_stance(stance)
            try:
                return function(*args, **kwargs)
            finally:
                flambeau_capture.set_stance(before)

        return call

    def __enter__(self) -> None:
        flambeau_capture.set_stance(self._stance)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        flambeau_capture.set_stance(self._before)


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Have all ranks of a job compile where one of them must, so that none waits for ever in a collective of a graph that others do not run.

    Each look for an entry is then a collective of its own: all ranks must call the same compiled functions in the same order. Without a process group
    a rank decides alone.

    Returns:
        Whether it was on before.
    """
    before = flambeau_capture.agree_by(_all_found if enabled else None)
    return before is not None


def ranks_group() -> torch.distributed.ProcessGroup:
    """The group in which the ranks of a job agree on what is compiled."""
    return _group(id(torch.distributed.group.WORLD))


def _all_found(found: bool) -> bool:
    """Whether every rank has found an entry."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return found
    votes = torch.tensor([int(found)])
    distributed.all_reduce(votes, distributed.ReduceOp.MIN, group=ranks_group())
    return bool(votes.item())


@functools.lru_cache(maxsize=1)
def _group(world: int) -> torch.distributed.ProcessGroup:
    """Ranks agree on the host, beside what their devices do. Made anew for a new world."""
    return torch.distributed.new_group(backend="gloo")
