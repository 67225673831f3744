"""Spans, counters, and ranges in torch's profiler."""

from __future__ import annotations

import torch

from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Free, Kernel, Launch, Program, Subprogram
from flambeau_runtime.profile import count, recording, span
from flambeau_runtime.ranges import program_ranges, program_title, programs_of, step_name


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


def test_programs_and_their_steps_are_ranges_of_torchs_profiler(artifact, store) -> None:
    run = load(artifact, store=store)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        with span("step"):
            run(torch.randn(2, 4), 2)
    events = {event.name: event for event in profiler.events()}
    assert "flambeau:step" in events
    whole, kernel = events[program_title(artifact.digest[:16])], events["cpp_affine"]
    assert kernel.cpu_parent is whole
    position = next(n for n, i in enumerate(artifact.program.instructions) if isinstance(i, Launch))
    assert kernel.kwinputs["step"] == step_name(artifact.digest[:16], 0, position)


def test_facts_of_a_step() -> None:
    """A library call and a kernel, one of whose lines would end the text of a trace."""
    meta = {"ops": ["add", "mul"], "stack": ['a "b".py:3 in f'], "modules": [], "bytes": 12, "flops": 3}
    program = Program([Call("aten::mm", meta=meta), Free((0,)), Launch(0, (), ())], 1, 0, [], [])
    whole, steps = program_ranges("d", 0, program, (Kernel("k", 0, "k", 0),))
    assert whole == ("## Call CompiledFxGraph d ##", {})
    call, nothing, launch = steps
    assert nothing is None and launch == ("k", {"step": "d/0/2"})
    facts = {"step": "d/0/0", "ops": "add, mul", "user_lines": "a 'b'.py:3 in f", "bytes": 12, "flops": 3}
    assert call == ("extern_kernels.mm", facts)


def test_nested_programs_are_numbered_as_the_executor_numbers_them() -> None:
    """Each once, before those that it holds."""
    inner, other = Program([Free(())], 0, 0, [], []), Program([], 0, 0, [], [])
    middle = Program([Subprogram("call", (inner,))], 0, 0, [], [])
    outer = Program([Subprogram("call", (middle,)), Subprogram("cond", (inner, other))], 0, 0, [], [])
    assert [id(program) for program in programs_of(outer)] == [id(p) for p in (outer, middle, inner, other)]
    assert program_ranges("d", 1, middle, ())[0] is None
