"""Choices that win one at a time and lose together are dropped; what cannot be timed as a whole is not."""

from __future__ import annotations

import measuring
import pytest
import torch
from attrs import evolve
from tracing import traced_on_cuda

from flambeau_inductor.autotune import whole
from flambeau_inductor.config import Config
from flambeau_inductor.pipeline import compile_graph


def meta(*sizes, dtype=torch.bfloat16):
    return torch.empty(*sizes, dtype=dtype, device="meta")


INPUTS = (meta(4096, 768), meta(4096, 768), meta(8192, 4096), meta(8192, 4096))


def layer(x, w, p, q):
    """A product and a kernel over points that have nothing to do with each other."""
    return x @ w.t(), (p * q).tanh()


def compiled(function=layer, inputs=INPUTS, **options):
    return compile_graph(traced_on_cuda(function, *inputs), list(inputs), options)


def facts(artifact):
    """Whether the product is a kernel, and how the other kernel is launched."""
    points = next(k.meta for k in artifact.kernels if "gemm" not in k.entry)
    return measuring.gemms(artifact) > 0, (points["constexprs"], points["num_warps"])


@pytest.fixture
def clock(monkeypatch):
    """The third way to compute a product and the third launch of a kernel are the fastest."""
    return with_programs(measuring.install(monkeypatch), {})


def with_programs(clock, ways):
    """The same where whole programs take what ``ways`` says, by their names."""

    def seconds(artifact, place, size):
        if size == len(whole.WAYS):
            return ways.get(list(whole.WAYS)[place], 1.0)
        return 0.5 if place == 2 else 1.0

    clock.seconds = seconds
    return clock


@pytest.mark.parametrize(
    ("ways", "product", "launch"),
    [
        ({"tuned": 0.8, "products": 0.9, "launches": 0.9}, True, True),
        ({"tuned": 1.2, "products": 0.9, "launches": 1.3}, True, False),
        ({"tuned": 1.2, "products": 1.3, "launches": 0.9}, False, True),
        ({"tuned": 1.2, "products": 1.3, "launches": 1.1}, False, False),
        ({"tuned": 0.99}, False, False),
        ({"tuned": None, "products": 0.9}, True, False),
        ({"default": None, "tuned": 0.5}, False, False),
    ],
)
def test_a_choice_that_loses_as_a_whole_is_dropped(ways, product, launch, clock):
    model = facts(compiled(autotune_local_cache=False))
    with_programs(clock, ways)
    found = facts(compiled(max_autotune=True))
    assert (found[0], found[1] != model[1]) == (product, launch)
    # The answer is kept, for the default too.
    timed = len(clock.groups)
    assert facts(compiled(max_autotune=True)) == found
    assert facts(compiled()) == found
    assert len(clock.groups) == timed


def test_programs_that_are_the_same_are_not_timed(clock):
    clock.seconds = lambda artifact, place, size: 1.0
    compiled(max_autotune=True)
    assert len(whole.WAYS) not in clock.sizes and clock.sizes


def test_programs_that_do_not_fit_are_not_timed(monkeypatch):
    clock = measuring.install(monkeypatch, free_bytes=lambda device: 64 << 20)
    clock.seconds = lambda artifact, place, size: 0.5 if place == 2 else 1.0
    assert facts(compiled(max_autotune=True))[0]
    assert len(whole.WAYS) not in clock.sizes


def test_programs_that_values_decide_are_not_timed(clock):
    artifact = compiled(layer)
    assert whole._can_be_timed(artifact, torch.device("cuda"))
    program = artifact.program
    read = evolve(artifact, program=evolve(program, instructions=(*program.instructions, whole.Item(0, 0))))
    assert not whole._can_be_timed(read, torch.device("cuda"))


def test_what_is_asked_does_not_depend_on_what_is_measured(clock):
    compiled(max_autotune=True, coordinate_descent_tuning=True)
    (kept,) = [
        key for key, _ in clock.store._memory.values() if dict(key.parts)["asked"].startswith("program of 4 inputs")
    ]
    compiled()
    assert kept in [key for key, _ in clock.store._memory.values()]
    assert len(clock.store._memory) == 3


def test_options_that_forbid_measuring_are_all_named():
    assert set(whole._MEASURING) <= {name for name, _ in Config().key()}
