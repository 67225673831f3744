"""Launches that are tried: each computes what the model's does; what is measured decides; equal kernels are asked about once."""

from __future__ import annotations

import measuring
import pytest
import torch
import torch.nn.functional as F
from attrs import asdict, evolve

pytest.importorskip("triton")

from tracing import lowered, traced, traced_on_cuda

from flambeau_inductor.autotune.measure import program_of
from flambeau_inductor.autotune.whole import WAYS
from flambeau_inductor.codegen.triton import Config as Blocks
from flambeau_inductor.codegen.triton.candidates import tunable
from flambeau_inductor.config import Config
from flambeau_inductor.ir.kernel import KernelBody
from flambeau_inductor.pipeline import compile_graph
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.steps import step_writes
from flambeau_runtime import load


def kernel(function, *inputs):
    """The one kernel of a function."""
    plan = schedule(lowered(traced(function, *inputs)))
    (step,) = plan.steps
    assert isinstance(step, KernelBody)
    return step


X = torch.randn(96, 64)
WIDE = torch.randn(3, 3072)
LONG = torch.randn(5000)

CASES = {
    "pointwise": (lambda x, y: (x * y).tanh(), LONG, LONG * 0.5),
    "many operations": (lambda x: F.gelu(x.exp().log1p()).erf(), torch.randn(4096)),
    "transposed": (lambda x, y: x.t() + y, X, torch.randn(64, 96)),
    "softmax": (lambda x: x.softmax(-1), X),
    "wide softmax": (lambda x: x.softmax(-1), WIDE),
    "norm": (lambda x: F.layer_norm(x, (3072,)), WIDE),
    "columns": (lambda x: x.sum(0), torch.randn(300, 40)),
    "running sum": (lambda x: x.cumsum(-1), X),
}


@pytest.mark.parametrize("name", CASES)
def test_each_launch_computes_the_same(name):
    function, *inputs = CASES[name]
    body = kernel(function, *inputs)
    found = tunable(body)
    assert found is not None and len(found.launches) >= 2
    tried = list(found.launches)
    tried += [other for other in found.neighbours(tried[0]) if other not in tried]
    assert len(set(tried)) == len(tried) and all(map(found.fits, tried[1:]))
    buffers = {buffer.name: buffer for buffer in body.buffers}
    values = {f"{name}_1": value for name, value in zip("xy", inputs, strict=False)}
    wanted = function(*inputs)
    for launch in tried:
        step = evolve(body, launch=launch)
        program = program_of([step], buffers, sorted(step_writes(step)), Config(cpu_backend="triton"))
        assert program is not None
        (result,) = load(program)(*(values[spec.name] for spec in program.program.inputs))
        torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, i: x[i], (X, torch.zeros(50, dtype=torch.int64))),
        (lambda x, i, y: x.index_add(0, i, y), (X, torch.zeros(5, dtype=torch.int64), torch.randn(5, 64))),
    ],
)
def test_kernels_whose_time_depends_on_values_are_left(function, inputs):
    plan = schedule(lowered(traced(function, *inputs)))
    assert [tunable(step) for step in plan.steps if isinstance(step, KernelBody)][-1] is None


def test_a_launch_for_other_sizes_does_not_fit():
    found = tunable(kernel(lambda x: x.softmax(-1), X))
    assert found.launches[0].persistent and found.fits(found.launches[0])
    assert not found.fits(evolve(found.launches[0], blocks={"x": 1, "r": 32}))
    assert not found.fits(evolve(found.launches[0], blocks={"x": 3, "r": 64}))
    assert not found.fits(Blocks({"x": 256}, 4)) and not found.fits(None)


def test_rows_of_one_bucket_ask_the_same():
    def asked(rows, columns):
        return tunable(kernel(lambda x: x.softmax(-1), torch.randn(rows, columns))).asked

    assert asked(1000, 64) == asked(1024, 64)
    assert asked(1000, 64) != asked(2000, 64) and asked(1000, 64) != asked(1000, 128)


def meta(*sizes):
    return torch.empty(*sizes, device="meta", dtype=torch.bfloat16)


@pytest.fixture
def clock(monkeypatch):
    """The third launch of each kernel takes half as long as the others, and so does a program with such launches."""
    clock = measuring.install(monkeypatch)
    clock.seconds = lambda artifact, place, size: 0.5 if place == (2 if size > len(WAYS) else 1) else 1.0
    return clock


def launches(*inputs, function=lambda x, y: (x * y).tanh(), **options):
    """How the kernels of a program are launched: blocks and warps."""
    artifact = compile_graph(traced_on_cuda(function, *inputs), list(inputs), options)
    return [(kernel.meta["constexprs"], kernel.meta["num_warps"]) for kernel in artifact.kernels]


LARGE = (meta(8192, 4096), meta(8192, 4096))


def test_measurement_decides_and_is_kept(clock):
    model = launches(*LARGE)
    measured = launches(*LARGE, max_autotune_pointwise=True)
    assert measured != model
    timed = len(clock.groups)
    assert clock.sizes[0] > 1 and clock.sizes[-1] == 2
    # Without a further measurement, also by the default, but not where choices shall not depend on measurements.
    assert launches(*LARGE, max_autotune_pointwise=True) == measured
    assert launches(*LARGE) == measured
    assert launches(*LARGE, autotune_local_cache=False) == model
    assert len(clock.groups) == timed


def test_products_alone_leave_kernels_as_they_are(clock):
    assert launches(*LARGE, max_autotune_gemm=True) == launches(*LARGE, autotune_local_cache=False)
    assert clock.groups == []


def test_small_kernels_are_left(clock):
    small = (meta(64, 64), meta(64, 64))
    assert launches(*small, max_autotune=True) == launches(*small, autotune_local_cache=False)
    assert clock.groups == []


def test_equal_kernels_are_measured_once(clock, monkeypatch):
    def once(x, y):
        return (x * y).tanh()

    def twice(x, y, p, q):
        return once(x, y), once(p, q).sum()

    launches(*LARGE, function=once, max_autotune_pointwise=True, fuse=False)
    alone = len([size for size in clock.sizes if size > len(WAYS)])
    clock = measuring.install(monkeypatch)
    launches(*LARGE, *LARGE, function=twice, max_autotune_pointwise=True, fuse=False)
    together = len([size for size in clock.sizes if size > len(WAYS)])
    # The tangents once, and a sum more.
    assert (alone, together) == (1, 2)


def test_what_no_longer_fits_is_not_used(clock):
    model = launches(*LARGE)
    launches(*LARGE, max_autotune_pointwise=True)
    for key, _ in list(clock.store._memory.values()):
        clock.store.put_json(key, {"way": asdict(Blocks({"x": 3}, 4))})
    assert launches(*LARGE) == model
