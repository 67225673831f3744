"""The stop-watch itself."""

from __future__ import annotations

import gc

import pytest

from flambeau_runtime.bench import compare, measure


def test_a_measurement_is_ordered_and_counts_calls() -> None:
    calls = []
    result = measure(lambda: calls.append(1), seconds=0.02)
    assert result.minimum <= result.low <= result.median <= result.high
    assert len(calls) >= result.samples * result.batch and result.spread >= 0


def test_contestants_are_sampled_alike_without_garbage_collection() -> None:
    seen = set()
    results = compare({"a": lambda: seen.add(gc.isenabled()), "b": lambda: None}, seconds=0.02)
    assert results["a"].samples == results["b"].samples and seen == {False} and gc.isenabled()


def test_an_exception_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0)
    assert gc.isenabled()
