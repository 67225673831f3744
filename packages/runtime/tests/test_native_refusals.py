"""What the native executor refuses by itself, should it ever be given what `native.py` does not make: an error each, and nothing is run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flambeau_runtime.extension import extension


def executor(*instructions: Any, kernels: Any = (), constants: Any = (), outputs: Any = ()) -> Any:
    """Of encoded instructions that read and write two registers of each kind."""
    program = (0, 2, 2, 0, (), (), instructions, outputs)
    ignore = lambda *_: None  # noqa: E731 - nobody asks it
    return extension().Executor(program, kernels, constants, ignore, lambda *_: "there", ignore, ignore)


ALLOCATE = ("alloc", 0, (2,), (1,), torch.float32, torch.device("cpu"))


@pytest.mark.parametrize(
    "instruction, error, words",
    [
        (("frobnicate",), ValueError, "unknown instruction frobnicate"),
        ((), ValueError, "a record of the program is too short"),
        (ALLOCATE[:4], ValueError, "a record of the program is too short"),
        (3, TypeError, "a program is made of tuples"),
        ((None,), TypeError, "argument"),
        ((*ALLOCATE[:4], torch.device("cpu"), torch.float32), TypeError, "expected a torch.dtype"),
        ((*ALLOCATE[:5], torch.float32), TypeError, "expected a torch.device"),
        (("alloc", "first", *ALLOCATE[2:]), TypeError, "int"),
        (("call", "aten::frobnicate", "", (), (), (), 0), RuntimeError, "aten::frobnicate"),
        (("call", "aten::neg", "", (), (), (("t", 1),), 0), RuntimeError, "argument self is missing"),
        (("call", "aten::neg", "", (("t", 0), ("t", 0)), (), (("t", 1),), 0), RuntimeError, "too many arguments"),
        (("call", "aten::neg", "", (), (("other", 1),), (("t", 1),), 0), RuntimeError, "no argument is named other"),
    ],
)
def test_an_instruction_that_is_none(instruction: Any, error: type[Exception], words: str) -> None:
    assert executor(ALLOCATE)() == ()
    with pytest.raises(error, match=words):
        executor(ALLOCATE, instruction)


def test_constants_and_kernels_that_are_none() -> None:
    with pytest.raises(TypeError, match="a constant must be a tensor"):
        executor(constants=((0, 3),))
    with pytest.raises(TypeError, match="int"):
        executor(constants=(("first", torch.ones(1)),))
    with pytest.raises(ValueError, match="kernel k has no address"):
        executor(kernels=(("k", 0, "", ()),))


def test_arguments_of_another_kind() -> None:
    run = executor(ALLOCATE)
    with pytest.raises(TypeError, match="wants a list"):
        run.take(())
    with pytest.raises(TypeError, match="takes a tensor"):
        extension().release_memory(3, "gone")


def test_a_table_of_recordings_without_any() -> None:
    table = extension().RecordingTable(1, lambda x: (x + 1,), lambda: False, None, lambda _: None)
    assert table(1) == (2,)
    with pytest.raises(TypeError, match="positional arguments only"):
        table(x=1)
    with pytest.raises(LookupError, match="the table has no such recording"):
        table.play(object(), (1,))
    with pytest.raises(AttributeError):
        table.add(object())
    assert table.held(object()) == ()
    table.remove(object())


def test_a_watch_of_what_is_no_tensor() -> None:
    watch = extension().Watch
    assert watch((torch.ones(1),), (0,)).holds((torch.ones(1),)) is False
    with pytest.raises(IndexError, match="a watched input is not there"):
        watch((), (0,))
    with pytest.raises(TypeError, match="a watched input is no tensor"):
        watch((3,), (0,))
    with pytest.raises(TypeError, match="int"):
        watch((torch.ones(1),), ("first",))
    with pytest.raises(TypeError, match="wants the tuple of inputs"):
        watch((torch.ones(1),), (0,)).holds([torch.ones(1)])
