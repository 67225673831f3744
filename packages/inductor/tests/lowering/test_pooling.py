"""Pools and their gradients are loops over windows, equal to eager's, indices of NaNs and of equal elements included."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.loops import Pointwise, Reduction

from .conftest import lower_and_run

aten = torch.ops.aten
LAST = torch.channels_last
NAN, INF = float("nan"), float("inf")


def _image(*sizes, dtype=torch.float32, last=False):
    """Integers, so that there are equal elements; some are special."""
    image = torch.randint(-9, 9, sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)
    if dtype.is_floating_point and image.numel() > 8:
        flat = image.view(-1)
        flat[[0, flat.numel() // 2]] = NAN
        flat[[1, flat.numel() // 3]] = -INF
        flat[flat.numel() // 5] = INF
    return image.contiguous(memory_format=LAST if len(sizes) == 4 else torch.channels_last_3d) if last else image


POOLS_2D = [
    (2, [], 0, 1, False),
    (3, 2, 1, 1, False),
    (3, 2, 1, 1, True),
    ([3, 2], [1, 3], [1, 0], 1, True),
    (2, 1, 0, [3, 2], False),
    (3, 2, 1, 2, True),
    (3, 4, 0, 1, True),
    ([1, 4], [2, 3], [0, 2], 1, True),
    (1, 3, 0, 1, False),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pool", POOLS_2D, ids=str)
def test_max_pool(check, pool, last):
    """Steps, paddings, dilations and ceilings of both dimensions, with and without the index."""
    x = _image(2, 3, 9, 11, last=last)
    # With paddings between its elements a window may hold nothing: then eager's index lies outside the plane.
    library = ["max_pool2d_with_indices.default"] if pool[2] and pool[3] != 1 else []
    check(lambda x: aten.max_pool2d_with_indices(x, *pool)[0], x)
    check(lambda x: aten.max_pool2d_with_indices(x, *pool)[1], x, library=library)
    check(lambda x: aten.max_pool2d_with_indices(x, *pool), x, library=library)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.int8])
def test_max_pool_of_other_types(check, dtype):
    """Integers have no infinity; of half types the maximum is exact."""
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), _image(2, 3, 8, 8).nan_to_num(2, 3, -4).to(dtype))


def test_max_pool_of_one_image_and_of_none(check):
    """Without a batch; an empty batch."""
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), _image(3, 8, 8))
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1), torch.empty(0, 3, 8, 8), modes=("fake",))


def test_only_minus_infinity(check):
    """The index is that of the first element, not of what stands outside."""
    check(lambda x: aten.max_pool2d_with_indices(x, 3, 2, 1, 1, True), torch.full((1, 2, 5, 6), -INF))


def test_max_pool_of_rows(check):
    """As ``max_pool1d`` reaches ATen."""
    x = torch.randn(2, 3, 17, requires_grad=True)
    check(lambda x: F.max_pool1d(x, 3, 2, 1), x.detach(), modes=("fake",))


@pytest.mark.parametrize("last", [False, True])
def test_max_pool_3d(check, last):
    """Three dimensions."""
    x = _image(2, 3, 5, 6, 7, last=last)
    check(lambda x: aten.max_pool3d_with_indices(x, 2, [1, 2, 2], [1, 0, 1], 1, True), x)
    check(lambda x: aten.max_pool3d_with_indices(x, 3, 2, 1)[0], x)


def test_large_windows_stay_with_the_library(check):
    """Which has threads share them."""
    x = _image(1, 2, 20, 20)
    check(lambda x: aten.max_pool2d_with_indices(x, 6, 2)[0], x, library=["max_pool2d_with_indices.default"])
    check(lambda x: aten.max_pool2d_with_indices(x, 5, 2), x, library=["max_pool2d_with_indices.default"])
    check(lambda x: F.avg_pool2d(x, 6, 2), x, library=["avg_pool2d.default"])
    check(lambda x: aten.max_pool2d_with_indices(x, 5, 1, 2)[0], x)


def test_a_window_of_the_whole_plane_is_a_reduction(check):
    """However large; sizes have to be known for that."""
    x = torch.randn(2, 3, 7, 7)
    for function in (lambda x: F.avg_pool2d(x, 7), lambda x: aten.max_pool2d_with_indices(x, 7)[0]):
        found = check(function, x, modes=("fake",))
        assert any(isinstance(o, Reduction) for o in found.graph.operations)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pool", [pool for pool in POOLS_2D if pool[3] == 1], ids=str)
@pytest.mark.parametrize("counted", [False, True])
def test_avg_pool(check, pool, counted, last):
    """What is outside counts or not; with a ceiling the last window ends with the padding."""
    kernel, stride, padding, _, ceil = pool
    x = _image(2, 3, 9, 11, last=last)
    check(lambda x: aten.avg_pool2d(x, kernel, stride, padding, ceil, counted), x)
    check(lambda x: aten.avg_pool2d(x, kernel, stride, padding, ceil, counted, 3), x, modes=("fake",))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_avg_pool_of_other_types(check, dtype):
    """Added up in float32, rounded once."""
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), torch.randn(2, 3, 8, 8).to(dtype))


ADAPTIVE = [(3, 4), (9, 11), (4, 5), (1, 11), (3, 13), (10, 22)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("sizes", ADAPTIVE, ids=str)
def test_adaptive_pools(check, sizes, last):
    """Ratios that are whole, those that are not, and more results than elements."""
    x = _image(2, 3, 9, 11, last=last)
    check(lambda x: F.adaptive_avg_pool2d(x, sizes), x, modes=("fake",))
    check(lambda x: aten.adaptive_max_pool2d(x, sizes), x, modes=("fake",))
    check(lambda x: aten.adaptive_max_pool2d(x, sizes)[0], x, modes=("fake",))


def test_adaptive_pools_3d(check):
    """Three dimensions."""
    x = _image(2, 3, 4, 6, 5)
    check(lambda x: aten._adaptive_avg_pool3d(x, [2, 3, 4]), x, modes=("fake",))
    check(lambda x: aten.adaptive_max_pool3d(x, [2, 4, 5]), x, modes=("fake",))


def test_adaptive_pools_of_symbolic_sizes(check):
    """Whose windows have no known length, where the plane is symbolic."""
    x = torch.randn(2, 3, 9, 11)
    check(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), x, modes=("symbolic",), library=["_adaptive_avg_pool2d.default"])


def test_a_pool_that_keeps_every_element_is_no_loop(check):
    """VGG's, of an image of the usual size."""
    x = torch.randn(2, 3, 7, 7)
    found = check(lambda x: F.adaptive_avg_pool2d(x, (7, 7)) + 1, x, modes=("fake",))
    assert len(found.graph.operations) == 1


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pool", POOLS_2D, ids=str)
def test_max_pool_backward(check, pool, last):
    """Each element asks the windows that hold it; no atomics."""
    x = torch.randn(2, 3, 9, 11).contiguous(memory_format=LAST if last else torch.contiguous_format)
    value, index = aten.max_pool2d_with_indices(x, *pool)
    kernel, stride, *rest = pool
    found = check(
        lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, kernel, stride, *rest, i),
        torch.randn_like(value), x, index,
    )  # fmt: skip
    assert all(isinstance(o, Pointwise) for o in found.graph.operations)


def test_max_pool_3d_backward(check):
    """Three dimensions."""
    x = torch.randn(2, 3, 5, 6, 7)
    value, index = aten.max_pool3d_with_indices(x, 2, [1, 2, 2], [1, 0, 1], 1, True)
    check(
        lambda g, x, i: aten.max_pool3d_with_indices_backward(g, x, 2, [1, 2, 2], [1, 0, 1], 1, True, i),
        torch.randn_like(value), x, index,
    )  # fmt: skip


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("pool", [pool for pool in POOLS_2D if pool[3] == 1], ids=str)
def test_avg_pool_backward(check, pool, counted, last):
    """Each window gives its share of the gradient to what it holds."""
    kernel, stride, padding, _, ceil = pool
    x = torch.randn(2, 3, 9, 11).contiguous(memory_format=LAST if last else torch.contiguous_format)
    grad = torch.randn_like(aten.avg_pool2d(x, kernel, stride, padding, ceil))
    arguments = (kernel, stride or kernel, padding, ceil, counted)
    check(lambda g, x: aten.avg_pool2d_backward(g, x, *arguments, None), grad, x)
    check(lambda g, x: aten.avg_pool2d_backward(g, x, *arguments, 5), grad, x, modes=("fake",))


def test_what_is_pooled_is_not_stored_for_its_sizes(check):
    """The gradient of a maximum reads nothing else of it: a batch norm that is computed again stays in the kernel of the ReLU's gradient."""
    x, *rows = torch.randn(2, 4, 9, 9), *(torch.rand(4, 1, 1) + 0.5 for _ in range(4))
    value, index = aten.max_pool2d_with_indices(x, 3, 2, 1)

    def function(g, i, x, mean, scale, weight, bias):
        y = F.relu((x - mean) * scale * weight + bias)
        back = aten.max_pool2d_with_indices_backward(g, y, [3, 3], [2, 2], [1, 1], [1, 1], False, i)
        return aten.threshold_backward(back, y, 0)

    found = check(function, torch.randn_like(value), index, x, *rows, modes=("fake",))
    assert len(found.graph.operations) == 2


def test_avg_pool_3d_backward(check):
    """Three dimensions."""
    x = torch.randn(2, 3, 5, 6, 7)
    grad = torch.randn_like(F.avg_pool3d(x, 2, (1, 2, 2), (1, 0, 1), True))
    check(lambda g, x: aten.avg_pool3d_backward(g, x, [2, 2, 2], [1, 2, 2], [1, 0, 1], True, False, None), grad, x)


@pytest.mark.parametrize("sizes", ADAPTIVE, ids=str)
def test_adaptive_pools_backward(check, sizes):
    """Windows that overlap included."""
    x = torch.randn(2, 3, 9, 11)
    value, index = aten.adaptive_max_pool2d(x, sizes)
    grad = torch.randn_like(value)
    check(lambda g, x: aten._adaptive_avg_pool2d_backward(g, x), grad, x, modes=("fake",))
    check(lambda g, x, i: aten.adaptive_max_pool2d_backward(g, x, i), grad, x, index, modes=("fake",))


def test_a_batch_norm_is_part_of_the_pool(check):
    """What belongs to a channel is computed once for a window; it counts as nothing in what computing again costs."""
    x, *rows = _image(2, 4, 9, 9), *(torch.rand(4, 1, 1) + 0.5 for _ in range(4))

    def function(x, mean, variance, weight, bias):
        return F.max_pool2d(F.relu((x - mean) * (variance + 1e-5).rsqrt() * weight + bias), 3, 2, 1)

    found = check(function, x, *rows, modes=("fake",))
    assert len(found.graph.operations) == 1
    assert sum(node.op == "rsqrt" for node in sc.walk(found.graph.operations[0].value)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_keeps_order_is_done_to_the_largest(check, dtype):
    """A ReLU and bounds, once for a window, where nobody asks for the index."""
    x, high = _image(2, 4, 9, 9, dtype=dtype), torch.full((4, 1, 1), 6.0).to(dtype)

    def function(x, high):
        return aten.max_pool2d_with_indices(torch.minimum(F.relu(x), high), 3, 2, 1)

    found = check(lambda x, high: function(x, high)[0], x, high, modes=("fake",))
    (pool,) = found.graph.operations
    assert sum(node.op == "relu" for node in sc.walk(pool.value)) == 1
    check(function, x, high, modes=("fake",))
    # All of a window may be paddings, whose ReLU would be zero.
    check(lambda x: F.max_pool2d(F.relu(x), 2, 1, 1, 3), x[..., :2, :], modes=("fake",))


def test_pools_of_joined_channels(check):
    """Each tensor's part is pooled by itself: which part a channel is from is asked once for a window."""
    x, y, b = _image(2, 4, 9, 9), torch.randn(2, 2, 9, 9), torch.randn(4, 1, 1)

    def joined(x, y, b):
        return torch.cat([F.relu(x + b), y], 1)

    found = check(lambda x, y, b: F.max_pool2d(joined(x, y, b), 3, 2, ceil_mode=True), x, y, b, modes=("fake",))
    (pool,) = found.graph.operations
    conditions = {n.args[0] for n in sc.walk(pool.value) if n.kind == "masked"}
    assert sum(n.op == "relu" for n in sc.walk(pool.value)) == 1 and len(conditions) < 9
    check(lambda x, y, b: F.avg_pool2d(joined(x, y, b), 2), x, y, b)
    check(lambda x, y, b: aten.max_pool2d_with_indices(joined(x, y, b), 3, 2, 1), x, y, b)
    check(lambda x, y, b: F.max_pool2d(torch.cat([x, y * 2], 1).to(torch.bfloat16).relu(), 3, 2, 1), x, y, b)


def test_planes_of_one_row(check):
    """Places beside the only one do not exist, which what is the same at all places must not hide."""
    x, row = torch.randn(2, 4, 1, 9), torch.randn(1, 9)
    check(lambda x, row: F.max_pool2d(F.relu(x + row), 3, 2, 1), x, row)
    check(lambda x, row: F.avg_pool2d((x * row).view(2, 4, 1, 9), 3, 1, 1), x, row)
    check(lambda row: F.max_pool2d(row.expand(2, 3, 5, 9) * 2, 3, 2, 1), row, modes=("fake",))


def test_what_may_raise_is_not_computed_where_there_is_nothing(check):
    """Positions that are read, and what has conditions of its own."""
    rows, at = torch.randn(2, 4, 9, 9), torch.randint(0, 9, (9,))
    check(lambda x, at: F.max_pool2d(x[:, :, at], 3, 2, 1), rows, at)
    check(
        lambda x, y: F.max_pool2d(torch.cat([x, y], 1).relu(), 3, 2, 1),
        rows,
        rows[:, :2].clone(memory_format=torch.contiguous_format),
    )


def test_what_a_window_reads_is_computed_in_it_where_that_is_cheap(check):
    """A bias and a ReLU are; an array of conditions or of functions is stored first."""
    x, b = torch.randn(2, 4, 9, 9), torch.randn(4, 1, 1)
    assert len(check(lambda x, b: F.max_pool2d(F.relu(x + b), 3, 2, 1), x, b, modes=("fake",)).graph.operations) == 1
    assert len(check(lambda x: F.max_pool2d(x.tan(), 3, 2, 1), x, modes=("fake",)).graph.operations) == 2
    assert len(check(lambda x: F.max_pool2d(F.max_pool2d(x, 3, 1, 1), 3, 1, 1), x).graph.operations) == 2


@st.composite
def _pools(draw):
    """Two-dimensional pools that torch takes, on small planes."""
    kernel = [draw(st.integers(1, 4)) for _ in range(2)]
    dilation = [draw(st.integers(1, 3)) for _ in range(2)]
    padding = [draw(st.integers(0, k // 2 if d == 1 else 0)) for k, d in zip(kernel, dilation, strict=True)]
    stride = [draw(st.integers(1, 4)) for _ in range(2)]
    sizes = [draw(st.integers(1, 9)) for _ in range(2)]
    for size, k, d, p in zip(sizes, kernel, dilation, padding, strict=True):
        assume(size + 2 * p >= d * (k - 1) + 1)
    return sizes, kernel, stride, padding, dilation, draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(_pools(), st.booleans(), st.booleans())
def test_any_pool(pool, last, counted):
    """Forward and backward of maximum and average, through the loop IR's interpreter."""
    sizes, kernel, stride, padding, dilation, ceil = pool
    x = _image(2, 3, *sizes, last=last)

    def functions():
        yield lambda x: aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
        yield lambda x: aten.avg_pool2d(x, kernel, stride, padding, ceil, counted)

    for function in functions():
        try:
            wanted = function(x)
        except RuntimeError:
            assume(False)  # torch takes no such pool
        _agree(lower_and_run(function, x).outputs, wanted)
    x = torch.randn(x.shape).contiguous(memory_format=LAST if last else torch.contiguous_format)
    value, index = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
    back = aten.max_pool2d_with_indices_backward
    rest = (kernel, stride, padding, dilation, ceil)
    grad = torch.randn_like(value)
    _agree(lower_and_run(lambda g, x, i: back(g, x, *rest, i), grad, x, index).outputs, back(grad, x, *rest, index))
    grad = torch.randn_like(aten.avg_pool2d(x, kernel, stride, padding, ceil, counted))
    rest = (kernel, stride, padding, ceil, counted, None)
    back = aten.avg_pool2d_backward
    _agree(lower_and_run(lambda g, x: back(g, x, *rest), grad, x).outputs, back(grad, x, *rest))


def _agree(outputs, wanted):
    for got, want in zip(outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
        assert got.stride() == want.stride()
