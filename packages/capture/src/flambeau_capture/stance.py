"""What calls of regions do that is not the default: run as they are, compile nothing new, put the first compile off, use another backend.

In: a `Stance`. Out: the one in force before; every region of the process is called by the new one from then on. A call in the default stance reads
nothing of this: each region's way of being called is exchanged (`csrc/stance.cpp`). How ranks agree on what is compiled is kept here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import field, frozen

from . import cache
from .frame import FrameInfo
from .guards.spec import GuardSpec, SourceGuard
from .library import threading
from .native import _C

#: Name -> how `csrc/stance.hpp` counts it. Those that put off the first compile differ in what the handler answers alone.
_NATIVE: Mapping[str, int] = {
    "default": 0,
    "force_eager": 1,
    "eager_on_recompile": 2,
    "fail_on_recompile": 3,
    "eager_then_compile": 0,
    "aot_eager_then_compile": 0,
}
_ELSEWHERE = 4
NAMES = tuple(_NATIVE)


@frozen
class Stance:
    """How calls of regions are taken.

    Attributes:
        name: one of `NAMES`.
        differing_only: look only at the guards in which entries of one code differ; at none where there is one entry. Unsafe.
        backend: compiles in the place of each region's own.
        first: compiles the first call of each code under "aot_eager_then_compile".
    """

    name: str = "default"
    differing_only: bool = False
    backend: Callable[..., Any] | None = field(default=None, eq=id)
    first: Callable[..., Any] | None = field(default=None, eq=id)

    @property
    def puts_off(self) -> bool:
        """Whether a code's first call is not compiled as later ones are."""
        return self.name.endswith("_then_compile")

    @property
    def refuses(self) -> bool:
        """Whether compiling is an error."""
        return self.name == "fail_on_recompile"


class _Process:
    """The stance in force, and the function by which ranks agree."""

    stance = Stance()
    agree: Callable[[bool], bool] | None = None


_lock = threading.Lock()


def current() -> Stance:
    """The stance in force."""
    return _Process.stance


def set_stance(stance: Stance) -> Stance:
    """Take a stance; returns the one before.

    Raises:
        RuntimeError: while a region runs on this thread.
    """
    if _C.inside_region():
        raise RuntimeError("the stance cannot be changed while a compiled function runs")
    with _lock:
        before, _Process.stance = _Process.stance, stance
        _apply()
    return before


def agree_by(agree: Callable[[bool], bool] | None) -> Callable[[bool], bool] | None:
    """Have `agree(found)` decide at each look for an entry whether one that was found may run; returns the function before."""
    with _lock:
        before, _Process.agree = _Process.agree, agree
        _apply()
    return before


def _apply() -> None:
    stance = _Process.stance
    kind = _ELSEWHERE if stance.backend is not None else _NATIVE[stance.name]
    _C.set_stance(kind, stance.differing_only, _Process.agree)
    for region in cache.live_regions():
        region.adopt_stance()


@contextmanager
def run_only() -> Iterator[None]:
    """Calls of regions on this thread compile nothing new in the block."""
    before = _C.set_run_only(True)
    try:
        yield
    finally:
        _C.set_run_only(before)


def computes(info: FrameInfo) -> bool:
    """Whether a frame has to do with tensors: what it is given, or the globals that it names."""
    named = (info.globals.get(name) for name in info.code.co_names)
    return any(map(_is_torchs, (*info.locals.values(), *named)))


def _is_torchs(value: Any) -> bool:
    if isinstance(value, (list, tuple, set)):
        return any(map(_is_torchs, value))
    if isinstance(value, dict):
        return any(map(_is_torchs, value.values()))
    return value is torch or isinstance(value, (torch.Tensor, torch.nn.Module))


class Differences:
    """By what the entries of one code differ: the sources, or kinds of guards without one, that failed where another entry was made."""

    def __init__(self) -> None:
        self.found: set[Any] = set()

    def mark(self, trees: Iterable[_C.GuardTree], new: _C.GuardTree, info: FrameInfo) -> None:
        """Note in which guards `trees` fail on the frame that `new` was made from, and tell all of them."""
        trees = tuple(trees)
        for tree in trees:
            index = tree.check(info.locals, info.globals, info.builtins)
            if 0 <= index < len(tree.specs):
                self.found.add(_subject(tree.specs[index]))
        for tree in (*trees, new):
            tree.differ([place for place, spec in enumerate(tree.specs) if _subject(spec) in self.found])


def _subject(spec: GuardSpec) -> Any:
    return spec.source if isinstance(spec, SourceGuard) else type(spec)
