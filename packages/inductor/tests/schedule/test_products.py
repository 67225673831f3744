"""Which library calls are products, and of what: convolutions as matrices and as windows of images."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tracing import lowered, traced

from flambeau_inductor.ir.kernel import Window
from flambeau_inductor.ir.layout import Ref
from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.products import read_product


def image(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype).to(memory_format=torch.channels_last)


def product(function, *inputs, mode="fake"):
    (call,) = [s for s in schedule(lowered(traced(function, *inputs, mode=mode))).steps if isinstance(s, Extern)]
    return read_product(call)


EIGHTH = torch.float8_e4m3fn


def scaled(x, w, one, other, **given):
    return torch._scaled_mm(x, w.t(), one, other, **{"out_dtype": torch.bfloat16, **given})


def test_a_product_of_eighths_has_scales():
    x, w = torch.ones(32, 64).to(EIGHTH), torch.ones(48, 64).to(EIGHTH)
    found = product(lambda x, w, s, t: scaled(x, w, s, t), x, w, torch.ones(32, 1), torch.ones(1, 48))
    assert found.sizes == (1, 32, 48, 64) and ints(found.right.strides)[1:] == (1, 64) and found.bias is None
    assert [ints(scale.sizes) for scale in found.scales] == [(32, 1), (1, 48)] and found.promotes
    found = product(lambda x, w, s, t: scaled(x, w, s, t, use_fast_accum=True), x, w, torch.ones(()), torch.ones(1))
    assert [ints(scale.sizes) for scale in found.scales] == [(), (1,)] and not found.promotes


@pytest.mark.parametrize(
    ("types", "given"),
    [
        ((EIGHTH, torch.float8_e5m2), {}),
        ((EIGHTH, EIGHTH), {"out_dtype": EIGHTH}),
        ((EIGHTH, EIGHTH), {"out_dtype": EIGHTH, "scale_result": torch.ones(())}),
    ],
    ids=["of two types", "of 8 bits", "a scale of the result"],
)
def test_other_products_of_eighths_are_the_librarys(types, given):
    x, w = (torch.ones(32, 64).to(dtype) for dtype in types)
    assert product(lambda x, w, s, t: scaled(x, w, s, t, **given), x, w, torch.ones(()), torch.ones(())) is None


def ints(values):
    return tuple(map(int, values))


def test_a_convolution_of_one_element_is_a_product_of_matrices():
    found = product(F.conv2d, image(2, 16, 5, 7), image(24, 16, 1, 1), torch.ones(24))
    assert found.is_convolution and found.sizes == (1, 70, 24, 16)
    assert isinstance(found.left, Ref) and ints(found.left.strides)[1:] == (16, 1)
    assert ints(found.right.strides)[1:] == (1, 16) and ints(found.result.strides)[1:] == (24, 1)
    assert ints(found.bias.strides) == (24, 0, 1)


@pytest.mark.parametrize("change", [{"stride": 2}, {"padding": 1}])
def test_where_points_are_not_at_one_distance_it_is_a_window(change):
    found = product(lambda x, w: F.conv2d(x, w, **change), image(2, 16, 6, 7), image(24, 16, 1, 1))
    assert isinstance(found.left, Window)


def test_windows():
    found = product(
        lambda x, w: F.conv2d(x, w, stride=(1, 2), padding=(2, 1), dilation=(3, 1), groups=2),
        image(3, 32, 9, 8),
        image(40, 16, 3, 2),
    )
    assert found.sizes == (2, 3 * 7 * 5, 20, 3 * 2 * 16)
    window = found.left
    assert (window.taps, window.points, window.channels) == ((3, 2), (7, 5), 16)
    assert (window.stride, window.padding, window.dilation) == ((1, 2), (2, 1), (3, 1))
    # Groups fill a part of every line of the result.
    assert ints(found.result.strides) == (20, 40, 1) and ints(found.right.strides) == (20 * 96, 1, 96)


def test_a_row_is_an_image_of_one_row():
    def rows(x, w):
        return F.conv1d(x.transpose(1, 2), w.transpose(1, 2), stride=2, padding=1)

    found = product(rows, torch.ones(2, 9, 16), torch.ones(24, 3, 16))
    assert (found.left.points, found.left.taps, found.left.stride) == ((1, 5), (1, 3), (1, 2))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        # By rows the points of two images are not at one distance from each other.
        (F.conv2d, (torch.ones(2, 16, 5, 5), torch.ones(8, 16, 3, 3))),
        # Weights whose taps and channels do not follow each other.
        (F.conv2d, (image(2, 16, 5, 5), torch.ones(8, 16, 3, 3))),
        (F.conv_transpose2d, (image(2, 16, 5, 5), image(16, 8, 3, 3))),
        (F.conv2d, (image(0, 16, 5, 5), image(8, 16, 3, 3))),
        (F.conv2d, (image(2, 16, 5, 5, dtype=torch.float64), image(8, 16, 3, 3, dtype=torch.float64))),
        (F.conv3d, (torch.ones(1, 16, 5, 5, 5), torch.ones(8, 16, 1, 1, 1))),
    ],
    ids=["by rows", "weights by channels", "transposed", "no images", "double", "volumes"],
)
def test_what_stays_with_the_library(function, inputs):
    assert product(function, *inputs) is None


def test_sizes_known_at_run_time_stay_with_the_library():
    assert product(F.conv2d, image(2, 16, 5, 5), image(8, 16, 3, 3), mode="symbolic") is None
