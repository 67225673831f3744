"""Comparing a sample of the calls of a compiled graph with eager while a program runs.

In: a backend and a rate. Out: a backend whose graphs, every so many calls, run once more on copies of their inputs, compiled and in eager, gradients included.
A difference that float64 does not excuse is a warning (or an error). Inputs, results and random numbers of the program are left alone.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ..backends import Backend, CompiledFn
from ..errors import InternalError, InvalidOption
from ..rescue import as_captured
from .compare import copies, difference, run, widened


class WrongResult(InternalError):
    """A sampled call of a compiled graph differs from eager by more than rounding."""

    code = "FB091"


def rate_of(value: Any) -> tuple[int, bool]:
    """Every how many calls are compared, and whether a difference is an error: of 8, 0.125, True, "8", "error" or "8,error".

    Raises InvalidOption for anything else.
    """
    words = [word.strip() for word in str(value).split(",")] if not isinstance(value, bool) else ["1" if value else "0"]
    numbers = [word for word in words if word != "error"]
    try:
        number = float(numbers[0]) if numbers else 1.0
    except ValueError:
        number = -1.0
    if len(numbers) > 1 or number < 0:
        raise InvalidOption(
            f"verify takes a number of calls or a share of them, not {value!r}",
            hint="8: every eighth call; 0.1: a tenth of the calls; '8,error': a difference raises",
        )
    every = 0 if number == 0 else round(1 / number) if number < 1 else int(number)
    return every, "error" in words


def verified(backend: Backend, rate: tuple[int, bool]) -> Backend:
    """`backend`, whose graphs are compared; the backend itself for a rate of 0."""
    every, raises = rate
    if every == 0:
        return backend

    @functools.wraps(backend)
    def compile_and_watch(gm: fx.GraphModule, inputs: list[Any]) -> CompiledFn:
        compiled: CompiledFn = backend(gm, inputs)
        calls = -1

        def call(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls % every == 0:
                _compare(gm, compiled, given, raises=raises)
            return compiled(*given)

        return call

    return compile_and_watch


def _compare(gm: fx.GraphModule, compiled: Callable[..., Any], given: Sequence[Any], *, raises: bool) -> None:
    found = _difference(gm, compiled, given)
    if not found:
        return
    words = f"a compiled graph differs from eager: {found}"
    if raises:
        raise WrongResult(words)
    warnings.warn(
        f"{words}\n  FLAMBEAU_REPRO_AFTER=dynamo FLAMBEAU_REPRO_LEVEL=4 keeps the graph, which `flambeau minify` shrinks",
        RuntimeWarning,
        stacklevel=3,
    )


def _difference(gm: fx.GraphModule, compiled: Callable[..., Any], given: Sequence[Any]) -> str:
    devices = sorted({value.device.index for value in given if isinstance(value, torch.Tensor) and value.is_cuda})
    eager = as_captured(gm)
    with torch.random.fork_rng(devices=devices):
        state = torch.random.get_rng_state()
        states = [torch.cuda.get_rng_state(device) for device in devices]

        def again(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
            torch.random.set_rng_state(state)
            for device, at in zip(devices, states, strict=True):
                torch.cuda.set_rng_state(at, device)
            return run(function, inputs)

        try:
            expected = again(eager, copies(given))
        except Exception:
            return ""  # the call itself will raise it
        actual = again(compiled, copies(given))

        def exact() -> Any:
            try:
                return again(eager, [widened(value) for value in given])
            except Exception:
                return None  # a graph that names its types has no twin in float64

        return difference(actual, expected, exact)
