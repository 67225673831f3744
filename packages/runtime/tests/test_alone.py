"""The steps of a program, each as a program of its own: one that can be loaded, or none."""

from __future__ import annotations

import torch

from flambeau_runtime.alone import alone
from flambeau_runtime.artifact import Artifact, Call, InputSpec, OutputSpec, Program, Reg
from flambeau_runtime.executor import load
from flambeau_runtime.records import Hold


def chain(*devices: str) -> Artifact:
    """`aten::exp` of each input, held to its layout, then `aten::sin` of that of the first."""
    inputs = tuple(
        InputSpec("tensor", place, torch.float32, torch.device(device), (4, 3), (3, 1))
        for place, device in enumerate(devices)
    )
    instructions: list[Call | Hold] = []
    for place, device in enumerate(devices):
        out = len(devices) + place
        instructions.append(Call("aten::exp", args=(Reg(place),), outs=(Reg(out),)))
        instructions.append(Hold(out, (4, 3), (3, 1), torch.float32, torch.device(device), "aten::exp"))
    last = 2 * len(devices)
    instructions.append(Call("aten::sin", args=(Reg(len(devices)),), outs=(Reg(last),)))
    return Artifact(Program(tuple(instructions), last + 1, 0, inputs, (OutputSpec("tensor", last),)))


def test_each_call_runs_by_itself() -> None:
    """What `aten::sin` takes lies as the call before it was held to."""
    places = alone(chain("cpu"))
    assert [place.instruction.op for place in places] == ["aten::exp", "aten::sin"]
    for place in places:
        assert place.count == 1 and place.program is not None
        assert place.program.program.instructions[0].op == place.instruction.op
        assert place.program.program.inputs[0].strides == (3, 1)
        assert load(place.program)(torch.randn(4, 3)) == ()


def test_results_of_library_calls_lie_on_the_programs_device() -> None:
    """Which their records name by its type alone; of several devices that says too little."""
    first, last = alone(chain("cuda:1"))
    for place in (first, last):
        assert place.program is not None
        place.program.validate()
        assert place.program.program.inputs[0].device == torch.device("cuda", 0)
    programs = [place.program for place in alone(chain("cuda:0", "cuda:1"))]
    assert [program is not None for program in programs] == [True, True, False]
