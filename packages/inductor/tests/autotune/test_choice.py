"""When a product becomes a kernel of its own: by option, by the model, by measurement, and never where Triton cannot express it."""

from __future__ import annotations

import measuring
import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from tracing import convolved_on_cuda, traced_on_cuda

from flambeau_inductor.autotune import choice, questions
from flambeau_inductor.devices import CUDA, registry
from flambeau_inductor.pipeline import compile_graph


def meta(*sizes, dtype=torch.bfloat16):
    return torch.empty(*sizes, dtype=dtype, device="meta")


ODD = (meta(4096, 768), meta(50257, 768))
EVEN = (meta(4096, 768), meta(1024, 768))


def gemms(operands, function=lambda x, w: x @ w.t(), **options):
    """How many kernels of products there are."""
    artifact = compile_graph(traced_on_cuda(function, *operands), list(operands), options)
    return sum("gemm" in kernel.entry for kernel in artifact.kernels)


def test_a_kernel_where_the_library_is_slow():
    assert (gemms(ODD), gemms(EVEN)) == (1, 0)


def test_options():
    assert (gemms(ODD, gemm="library"), gemms(EVEN, gemm="generated")) == (0, 1)
    assert gemms(ODD, triton_kernels=False) == 0


@pytest.fixture
def precision():
    flags = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [flag.fp32_precision for flag in flags]
    yield lambda value, flag=flags[0]: setattr(flag, "fp32_precision", value)
    for flag, value in zip(flags, before, strict=True):
        flag.fp32_precision = value


@pytest.mark.parametrize(("value", "count"), [("tf32", 1), ("ieee", 0)])
def test_float32_only_where_its_products_may_round(value, count, precision):
    precision(value)
    assert gemms([operand.float() for operand in ODD], gemm="generated") == count


@pytest.mark.parametrize(
    ("function", "terms", "count"),
    [
        (lambda x, w, y: F.relu(x @ w.t() + y), 64, 1),
        (lambda x, w, y: x @ w.t(), 64, 0),
        (lambda x, w, y: (lambda z: (z, F.relu(z + y)))(x @ w.t()), 64, 0),
    ],
    ids=["few terms", "nothing follows", "the result is needed as well"],
)
def test_results_that_are_most_of_a_product_are_finished_where_they_are_computed(function, terms, count):
    assert gemms((meta(100352, terms), meta(256, terms), meta(100352, 256)), function) == count


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((4096, 4096, 4096), 1), ((8192, 8192, 8192), 1), ((1024, 14336, 4096), 1), ((896, 12544, 4096), 0), ((1024, 4096, 4096), 0)],
    ids=["full rounds", "more of them", "a last one in halves", "one that is half empty", "few results"],
)  # fmt: skip
def test_a_large_product_is_finished_where_it_is_computed_if_its_tiles_fill_the_device(sizes, count):
    m, n, k = sizes
    assert gemms((meta(m, k), meta(n, k)), lambda x, w: F.silu(x @ w.t())) == count
    assert gemms((meta(m, k), meta(n, k))) == 0
    assert gemms((meta(m, k), meta(n, k)), lambda x, w: (lambda y: (y, F.silu(y)))(x @ w.t())) == 0
    assert (
        gemms((meta(m, k, dtype=torch.float32), meta(n, k, dtype=torch.float32)), lambda x, w: F.silu(x @ w.t())) == 0
    )


def test_small_products_are_not_worth_compiling():
    assert gemms((meta(64, 64), meta(63, 64))) == 0


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "follows", "count"),
    [(16, 672, 28, True, 1), (16, 672, 28, False, 0), (64, 672, 28, True, 0), (16, 768, 768, True, 0)],
)
def test_tiny_products_are_one_kernel_with_what_follows(rows, terms, columns, follows, count):
    """As squeeze-and-excitation has them; with nothing behind them a kernel saves no launch."""
    operands = (meta(rows, terms), meta(columns, terms), meta(columns))
    assert gemms(operands, lambda x, w, b: F.silu(x @ w.t() + b) if follows else x @ w.t()) == count


def test_an_epilogue_that_triton_cannot_express(monkeypatch):
    monkeypatch.setattr(choice, "_is_expressed", lambda candidate, tile: False)
    assert gemms(ODD, gemm="generated") == 0


@pytest.fixture
def clock(monkeypatch):
    return measuring.install(monkeypatch)


def in_order(*times):
    """What ways of a product take by their place in a group, 1.0 for the rest; programs that are tuned, which come in pairs, take half as long."""

    def seconds(artifact, place, size):
        if size == 2:
            return 1.0 if place == 0 else 0.5
        return times[place] if place < len(times) else 1.0

    return seconds


@pytest.mark.parametrize(
    ("times", "count"), [([1.0, 0.5], 1), ([1.0, 0.99], 0), ([1.0, None, 0.5], 1), ([1.0, None], 0), ([None, 0.5], 0)]
)
def test_measurement_decides(times, count, clock):
    clock.seconds = in_order(*times)
    assert gemms(EVEN, max_autotune_gemm=True) == count
    assert clock.sizes[0] > 1


def test_what_was_measured_is_not_measured_again(clock):
    clock.seconds = in_order(1.0, 0.5)
    assert [gemms(EVEN, max_autotune_gemm=True) for _ in range(2)] == [1, 1]
    timed = len(clock.groups)
    # Nor for sizes of the same bucket; another epilogue is another kernel.
    near = (meta(4000, 768), meta(1024, 768))
    assert gemms(near, max_autotune_gemm=True) == 1
    assert [len(group) for group in clock.groups[timed:]] == [2]
    assert gemms(EVEN, lambda x, w: (x @ w.t()).relu(), max_autotune_gemm=True) == 1
    assert max(clock.sizes[timed + 1 :]) > 2


def convolutions(dtype=torch.bfloat16, image=(32, 64, 28, 28), weight=(64, 64, 3, 3), **options):
    """How many kernels of convolutions there are."""
    images = [meta(*s, dtype=dtype) for s in (image, weight)]
    images = [image.to(memory_format=torch.channels_last) for image in images]
    groups = image[1] // weight[1]
    gm = convolved_on_cuda(lambda x, w: F.conv2d(x, w, padding=1, groups=groups).relu(), *images)
    artifact = compile_graph(gm, images, options)
    return sum("gemm" in kernel.entry for kernel in artifact.kernels)


def test_convolutions_stay_with_the_library_unless_asked_for():
    assert (convolutions(), convolutions(gemm="generated")) == (0, 1)


@pytest.mark.parametrize(
    ("image", "weight", "count"),
    [
        ((32, 3, 112, 112), (64, 3, 3, 3), 1),
        # Few points, many channels, many results.
        ((2, 3, 112, 112), (64, 3, 3, 3), 0),
        ((32, 8, 112, 112), (64, 8, 3, 3), 0),
        ((32, 3, 112, 112), (256, 3, 3, 3), 0),
        # A few channels each of many groups.
        ((32, 64, 112, 112), (64, 4, 3, 3), 0),
        ((32, 64, 112, 112), (64, 1, 3, 3), 0),
    ],
)
def test_convolutions_of_colours_are_kernels(image, weight, count):
    assert convolutions(image=image, weight=weight) == count
    assert convolutions(image=image, weight=weight, gemm="library") == 0


@pytest.mark.parametrize(("times", "count"), [([1.0, 0.5], 1), ([1.0, 0.99], 0), ([1.0, None], 0)])
def test_convolutions_are_measured(times, count, clock):
    clock.seconds = in_order(*times)
    assert convolutions(max_autotune_gemm=True) == count
    assert clock.sizes[0] > 1
    # The default finds the answer, too.
    assert convolutions() == count


def test_windows_of_a_convolution_stay_out_of_reductions():
    """A layer norm over channels reads what they came to."""
    image, weight = meta(8, 64, 28, 28).to(memory_format=torch.channels_last), meta(64, 1, 3, 3)

    def function(x, w):
        return F.layer_norm(F.conv2d(x, w, padding=1, groups=64).permute(0, 2, 3, 1), (64,))

    artifact = compile_graph(convolved_on_cuda(function, image, weight), [image, weight])
    names = [kernel.entry for kernel in artifact.kernels]
    assert [("convolution" in name, "layer_norm" in name) for name in names[-2:]] == [(True, False), (False, True)]


def test_convolutions_of_a_channel_a_group_are_no_products(clock):
    assert convolutions(image=(8, 64, 28, 28), weight=(64, 1, 7, 7), max_autotune_gemm=True) == 0
    assert clock.sizes == []


@pytest.mark.parametrize(("value", "count"), [("tf32", 1), ("ieee", 0)])
def test_float32_convolutions_only_where_they_may_round(value, count, precision):
    precision(value, torch.backends.cudnn.conv)
    assert convolutions(torch.float32, gemm="generated") == count


def test_the_default_uses_what_was_measured(clock):
    clock.seconds = in_order(1.0, 0.5)
    assert gemms(EVEN) == 0
    assert gemms(EVEN, max_autotune=True) == 1
    timed = len(clock.groups)
    assert gemms(EVEN) == 1
    assert gemms(EVEN, autotune_local_cache=False) == 0
    assert len(clock.groups) == timed


def test_the_library_stays_where_it_was_measured_to_be_faster(clock):
    """Also where the model expects a kernel of ours to be far faster."""
    assert gemms(ODD) == 1
    clock.seconds = in_order(1.0)
    assert gemms(ODD, max_autotune_gemm=True) == 0
    assert gemms(ODD) == 0


def test_answers_of_another_version_are_no_answers(clock):
    clock.seconds = in_order(1.0, 0.5)
    assert gemms(EVEN, max_autotune_gemm=True) == 1
    for key, _ in list(clock.store._memory.values()):
        clock.store.put_json(key, {"way": {"no_such_knob": 1}})
    assert gemms(EVEN) == 0


def test_products_of_a_graph_are_measured_together(clock, monkeypatch):
    def two(x, w):
        return ((x @ w.t()).relu() @ w.t()).tanh()

    asked = []
    original = clock.time_groups

    def time_groups(groups, **more):
        asked.append(len(groups))
        return original(groups, **more)

    monkeypatch.setattr(questions, "time_groups", time_groups)
    clock.seconds = in_order(1.0, 0.5)
    assert gemms((meta(4096, 768), meta(768, 768)), two, max_autotune_gemm=True) == 2
    assert asked == [2, 1]


def test_nothing_is_measured_where_algorithms_are_to_be_deterministic(clock):
    clock.seconds = in_order(1.0, 0.5)
    assert gemms(EVEN, max_autotune=True) == 1
    torch.use_deterministic_algorithms(True)
    try:
        timed = len(clock.groups)
        assert gemms(EVEN, lambda x, w: (x @ w.t()).relu(), max_autotune=True) == 0
        # What was measured before does not count either.
        assert gemms(EVEN) == 0 and len(clock.groups) == timed
    finally:
        torch.use_deterministic_algorithms(False)


def followed(x, w):
    return (x @ w.t()).sigmoid()


@pytest.mark.parametrize(
    ("rows", "columns", "function", "count"),
    [
        (1, 4096, None, 1),
        (2, 4096, None, 1),
        (1, 512, None, 0),
        (8, 4096, None, 0),
        (16, 4096, followed, 1),
        (17, 4096, followed, 0),
        (16, 512, followed, 0),
    ],
)
def test_few_rows_of_a_large_weight_take_no_library(rows, columns, function, count):
    operands = (meta(rows, 4096), meta(columns, 4096))
    # Where terms come in parts, what adds them up is a kernel for itself, named after what follows.
    assert gemms(operands, function or (lambda x, w: x @ w.t())) == count


def test_few_rows_of_float32_are_multiplied_exactly():
    assert gemms((meta(1, 4096, dtype=torch.float32), meta(4096, 4096, dtype=torch.float32))) == 1
    assert gemms((meta(8, 4096, dtype=torch.float32), meta(4096, 4096, dtype=torch.float32)), followed) == 0


def test_a_weight_across_the_terms_stays_with_the_library():
    assert gemms((meta(1, 4096), meta(4096, 4096)), lambda x, w: (x @ w).sigmoid()) == 0


def grouped(x, w, offsets):
    gate, up = torch._grouped_mm(x, w.transpose(1, 2), offs=offsets).chunk(2, dim=-1)
    return F.silu(gate) * up


GROUPS = (meta(4096, 768), meta(4, 1536, 768), meta(4, dtype=torch.int32))


FEW = (meta(512, 768), *GROUPS[1:])


def plain(x, w, offsets):
    return torch._grouped_mm(x, w.transpose(1, 2), offs=offsets).relu()


def test_grouped_products_of_few_rows_stay_with_a_library_that_has_a_kernel_for_them(monkeypatch):
    assert (gemms(FEW, plain), gemms(FEW, plain, gemm="generated"), gemms(GROUPS, plain)) == (0, 1, 1)
    assert (gemms(FEW, grouped), gemms(GROUPS, grouped)) == (0, 1)
    libraries = evolve(CUDA.libraries, multiplies_groups=lambda device, dtype: False)
    monkeypatch.setitem(registry._DEVICES._records, "cuda", evolve(CUDA, libraries=libraries))
    assert gemms(FEW, grouped) == 1


def test_grouped_products_are_measured_with_rows_in_all_groups(clock):
    clock.seconds = in_order(1.0, 0.5)
    assert gemms(GROUPS, grouped, max_autotune_gemm=True) == 1
    library, own = clock.groups[0][:2]
    assert [entry for entry in measuring.entries(own) if "even_groups" in entry] and measuring.gemms(own) == 1
    assert measuring.gemms(library) == 0
