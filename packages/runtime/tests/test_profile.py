"""Spans, counters, and ranges in torch's profiler."""

from __future__ import annotations

import torch

from flambeau_runtime import load
from flambeau_runtime.profile import count, recording, span


def test_nothing_is_kept_without_a_recorder() -> None:
    with span("outside"):
        count("outside")
    with recording() as profile:
        pass
    assert profile.spans == [] and not profile.counters


def test_spans_and_counters_are_recorded(artifact, store) -> None:
    with recording() as outer, recording() as inner:
        load(artifact, store=store)
        count("things", 2)
    for profile in (outer, inner):
        assert profile.spans[-1].name == "load artifact" and profile.seconds("load artifact") > 0
        assert profile.counters["things"] == 2
        assert profile.chrome_trace()["traceEvents"][-1]["name"] == "load artifact"


def test_kernels_are_ranges_of_torchs_profiler(artifact, store) -> None:
    run = load(artifact, store=store)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with span("step"):
            run(torch.randn(2, 4), 2)
    names = {event.name for event in profiler.events()}
    assert "cpp_affine" in names and "flambeau:step" in names
