"""Functions with a cache: answers older than what their bodies would give now, caches that are cleared, arguments that are objects."""

from __future__ import annotations

import functools
import types

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


def _after(change):
    def arguments():
        change()
        return (x,)

    return arguments


@p
def an_answer_older_than_what_it_read():
    state = {"by": 1}

    @functools.lru_cache
    def shift(n):
        return n * state["by"]

    def f(x):
        return x + shift(3)

    def set_to(by):
        return _after(lambda: state.update(by=by))

    cleared = _after(shift.cache_clear)
    return f, [(x,), set_to(2), cleared, set_to(1), cleared, set_to(2)]


@p
def a_cached_method():
    class Scaled:
        by = 1

        @functools.lru_cache  # noqa: B019 (a cache that keeps its objects is what is tried)
        def scale(self, n, *, extra=0):
            return self.by * n + extra

    o = Scaled()

    def f(x):
        return x * o.scale(3), x * o.scale(3, extra=1)

    def set_to(by):
        return _after(lambda: setattr(o, "by", by))

    return f, [(x,), set_to(5), _after(Scaled.scale.cache_clear), set_to(1)]


@p
def what_the_frame_changed_before():
    state = types.SimpleNamespace(by=1)

    @functools.lru_cache
    def shift(n):
        return n * state.by

    def f(x, by):
        state.by = by
        return x + shift(3)

    return f, [(x, 2), (x, 1), _after_clear(shift, 3)]


def _after_clear(cached, by):
    def arguments():
        cached.cache_clear()
        return x, by

    return arguments


@p
def what_the_frame_changed_without_a_meaning_for_it():
    state = types.SimpleNamespace(by=2, calls=0)

    @functools.lru_cache
    def shift(n):
        return n * state.by

    def f(x):
        state.calls += 1
        return x + shift(3), state.calls

    return f, [(x,), (x,), _after(lambda: setattr(state, "by", 7)), _after(shift.cache_clear)]


@p
def a_cache_that_holds_nothing():
    @functools.lru_cache(maxsize=0)
    def pair(n):
        return n, n + 1

    def f(x):
        return x + 1, pair(1) is pair(1), pair([1][0]) == pair(1)

    return f, [(x,), (x,)]


@p
def a_body_that_raises_now():
    state = {"by": 1}

    @functools.lru_cache
    def shift(n):
        return n // state["by"]

    def f(x):
        try:
            return x + shift(3)
        except ZeroDivisionError:
            return x - 1

    def set_to(by):
        return _after(lambda: state.update(by=by))

    return f, [(x,), set_to(0), _after(shift.cache_clear), set_to(1), set_to(0)]


@p
def answers_that_are_equal_but_of_other_types():
    state = {"as": int}

    @functools.lru_cache
    def one(n):
        return state["as"](n)

    def f(x):
        return x + 1, one(1)

    def set_to(cls):
        def change():
            one.cache_clear()
            state["as"] = cls
            one(1)
            state["as"] = int

        return _after(change)

    return f, [(x,), set_to(float), set_to(bool), set_to(int)]


@p
def a_pure_body_of_sizes():
    @functools.lru_cache
    def half(n):
        return max(n // 2, 1)

    def f(x):
        return x[: half(x.shape[0])] * half(7)

    return f, [(x,), (torch.arange(6.0),), (torch.arange(8.0),)]
