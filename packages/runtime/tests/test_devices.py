"""Slots of devices and the ordinals that they stand for; no GPU is needed to say which."""

from __future__ import annotations

from torch import device, empty
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau_runtime import artifact as a
from flambeau_runtime.devices import pinned, real_device


def test_a_slot_is_looked_up() -> None:
    """A device that is no CUDA device has none."""
    assert real_device(device("cuda", 1), (None, 3)) == device("cuda", 3)
    assert real_device(device("cpu"), (3,)) == device("cpu")


def test_constants_pin_the_one_open_slot() -> None:
    """On the CPU they pin nothing, and a device that is fixed stays."""
    with FakeTensorMode():
        here, there = empty(1), empty(1, device="cuda:2")
    for devices, constants, expected in [
        ((None,), [here, there], (2,)),
        ((None,), [here], (None,)),
        ((1,), [there], (1,)),
        ((None, 1), [there], (None, 1)),
    ]:
        program = a.Program([], 0, 0, [], [], devices)
        assert pinned(a.Artifact(program), constants) == expected
