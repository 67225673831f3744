"""Answers: the fastest way if it is clearly so, asked once, kept for a device; progress on a terminal alone."""

from __future__ import annotations

import io
import sys

import measuring
import pytest
import torch
from attrs import frozen
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau_inductor.autotune import questions
from flambeau_inductor.autotune.asked import start_measuring
from flambeau_inductor.autotune.progress import Progress
from flambeau_inductor.autotune.questions import UNKNOWN, Question, answers, fastest
from flambeau_inductor.codegen.tunable import bucket
from flambeau_inductor.config import Config
from flambeau_runtime import library_settings
from flambeau_runtime.artifact import Artifact, Program

CUDA = torch.device("cuda")


@frozen
class Knob:
    value: int


def program(way):
    """A program that says which way it is."""
    return None if way.value < 0 else Artifact(Program((), 0, 0, (), ()), meta={"value": way.value})


def question(asked="what", values=(1, 2, 3)):
    def around(way):
        return [Knob(way.value + 10)]

    return Question(asked, asked, CUDA, tuple(map(Knob, values)), program, Knob, around)


@pytest.fixture
def clock(monkeypatch):
    """A program takes one second over the value of its way."""
    clock = measuring.install(monkeypatch)
    clock.seconds = lambda artifact, place, size: 1.0 / artifact.meta["value"]
    return clock


def test_the_fastest_is_taken_if_it_is_clearly_faster():
    assert fastest("a", {"a": 1.0, "b": 0.99}) == "a"
    assert fastest("a", {"a": 1.0, "b": 0.97, "c": 0.9}) == "c"
    assert fastest("a", {"a": 1.0, "b": None}) == "a"
    assert fastest("a", {"a": None, "b": 0.1}) == "a"


def test_asked_once_and_kept(clock):
    assert answers([question(), question("else", (5, 4)), question()], Config(), measure=True) == [
        Knob(3),
        Knob(5),
        Knob(3),
    ]
    assert clock.sizes == [3, 2]
    assert answers([question()], Config(), measure=False) == [Knob(3)]
    assert answers([question("third")], Config(), measure=False) == [UNKNOWN]
    assert clock.sizes == [3, 2]


def test_what_is_not_to_be_kept_is_known_to_this_process_alone(clock):
    unkept = Config(autotune_local_cache=False)
    asked = question("of no store")
    assert answers([asked], unkept, measure=True) == answers([asked], unkept, measure=True) == [Knob(3)]
    assert clock.sizes == [3]
    assert answers([asked], Config(), measure=False) == [UNKNOWN]


def test_a_way_that_cannot_be_a_program_is_not_taken(clock):
    assert answers([question(values=(1, -2, 2))], Config(), measure=True) == [Knob(2)]
    assert clock.sizes == [2]


def test_looking_around(clock):
    """Each round tries what is beside the best, until the rounds are over."""
    assert answers([question()], Config(coordinate_descent_tuning=True), measure=True) == [Knob(43)]
    assert clock.sizes == [3, 2, 2, 2, 2]


def test_what_libraries_may_do_is_part_of_the_key():
    before, key = library_settings.current(), question().key
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert question().key != key
    finally:
        library_settings.apply(before)
    assert question().key == key


def test_the_device_and_the_versions_are_part_of_the_key(monkeypatch):
    here = question().key
    assert question("else").key != here
    monkeypatch.setattr(questions, "_generator", lambda: "another")
    assert question().key != here


@pytest.mark.parametrize(("size", "wanted"), [(1, 1), (7, 7), (8, 8), (9, 10), (1000, 1024), (1025, 1280), (768, 768)])
def test_buckets(size, wanted):
    assert bucket(size) == wanted


class Terminal(io.StringIO):
    def __init__(self, is_one):
        super().__init__()
        self.is_one = is_one

    def isatty(self):
        return self.is_one


@pytest.mark.parametrize("is_one", [True, False])
def test_progress_is_for_terminals(is_one, monkeypatch):
    shown = Terminal(is_one)
    monkeypatch.setattr(sys, "stderr", shown)
    with Progress("products", 2) as progress:
        progress.step(0)
        progress.step(1)
        progress.step(0)
    text = shown.getvalue()
    if not is_one:
        assert text == ""
    else:
        assert "products" in text and "1/2" in text and "2/2" in text and "3/2" not in text
        # The line is gone in the end.
        assert text.endswith("\x1b[2K")


def test_the_process_is_started_ahead_where_it_will_be_needed(clock):
    inputs = [torch.empty(2, device="meta"), 3]
    with FakeTensorMode():
        with_gpu = [torch.empty(2, device="cuda"), *inputs]
    start_measuring(with_gpu, Config())
    assert clock.started == []
    for option in ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise"):
        start_measuring(with_gpu, Config(**{option: True}))
    start_measuring(inputs, Config(max_autotune=True))
    assert [device.type for device in clock.started] == ["cuda"] * 3
