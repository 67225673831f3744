"""Reductions, scans and the layers made of them."""

import pytest
import torch

from flambeau_inductor.expr import Int
from flambeau_inductor.ir.loops import Pointwise, Reduction

from .conftest import lower_and_run

aten = torch.ops.aten
torch.manual_seed(0)
X = torch.randn(3, 5, 4)


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_over_dimensions(check, dim, keepdim):
    """Any subset of dimensions, kept or not."""
    dims = list(range(3)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    check(
        lambda x: (
            aten.sum.dim_IntList(x, dims, keepdim),
            aten.mean.dim(x, dims, keepdim),
            aten.amax(x, dims, keepdim),
            aten.amin(x, dims, keepdim),
            aten.var.correction(x, dims, correction=1, keepdim=keepdim),
            aten.std.correction(x, dims, correction=0, keepdim=keepdim),
            aten.logsumexp(x, dims, keepdim),
            aten.linalg_vector_norm(x, 2, dims, keepdim),
            aten.linalg_vector_norm(x, 3, dims, keepdim),
        ),
        X,
    )


@pytest.mark.parametrize("order", [0, 1, 2, 3, -1, 0.5, 1e-10, float("inf"), float("nan")])
def test_norms_of_single_elements_are_magnitudes(check, order):
    """Of numbers whose squares no float holds too; how many there are is another thing."""
    x = torch.tensor([[-3e38, 0.0, -1e-40, -2.0, float("inf"), float("nan")]])
    check(lambda x: (aten.linalg_vector_norm(x, order, [0]), aten.linalg_vector_norm(x.t(), order, [1], True)), x)
    check(lambda x: aten.linalg_vector_norm(x, order), x[0, 0])


@pytest.mark.parametrize("count", [0, 1, 3, 10, 33])
@pytest.mark.parametrize("value", [0.1, 7.7, 1e10 / 3])
def test_equal_elements_have_no_spread(check, count, value):
    """Whatever rounding makes of their mean: a gradient divides by it. Of no elements there is none."""

    def function(x):
        return aten.std.correction(x, [1], correction=0), *aten.var_mean.correction(x, [1], correction=0)

    lowered = check(function, torch.full((2, count), value))
    assert not count or lowered.outputs[0].tolist() == lowered.outputs[1].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.bfloat16, torch.float64])
def test_dtypes_of_results(check, dtype):
    """Integers sum in int64, bfloat16 accumulates in float32."""
    x = (X * 3).to(dtype)
    check(lambda x: (x.sum(), x.sum(1), x.any(1), x.all(1), x.amax(1), x.prod(2)), x, modes=("fake",))
    if dtype is not torch.bool:
        check(lambda x: (x.argmax(1), x.argmin()), x, modes=("fake",))


def test_positions(check):
    """argmax of everything and along one dimension, NaN and ties included."""
    x = torch.tensor([[1.0, 3.0, 3.0], [float("nan"), 2.0, float("nan")]])
    check(lambda x: (x.argmax(), x.argmin(1), *x.max(1), *x.min(0)), x)


def test_scans(check):
    """Running sums and products, along any dimension."""
    check(lambda x: (x.cumsum(0), x.cumprod(-1), (x * 2).int().cumsum(1)), X)


def test_softmax_and_its_gradient(check):
    """Both softmaxes, forward and backward."""
    check(
        lambda x, d: (
            aten._softmax(x, 1, False),
            aten._log_softmax(x, -1, False),
            aten._softmax_backward_data(d, x.softmax(1), 1, x.dtype),
            aten._log_softmax_backward_data(d, x.log_softmax(1), 1, x.dtype),
        ),
        X,
        torch.randn(3, 5, 4),
        modes=("fake",),
    )


def test_a_softmax_of_nothing(check):
    """No maximum is taken: there is no element that would need one."""
    check(lambda x: (x.softmax(1), x.log_softmax(0)), torch.empty(3, 0, 4), modes=("fake",))


@pytest.mark.parametrize(
    "layer", [lambda x: aten._softmax(x, 1, False), lambda x: x.var(1), lambda x: x.log_softmax(1)]
)
def test_costly_values_that_are_walked_twice_are_stored(check, layer):
    """The second walk reads what the first one computed."""

    def f(x):
        for _ in range(8):
            x = (x.exp() + 1).log()
        return layer(x)

    lowered = check(f, X.abs(), modes=("fake",))
    first = lowered.graph.operations[0]
    assert isinstance(first, Pointwise) and first.out.layout.sizes == tuple(map(Int, X.shape))


def test_half_precision_softmax_is_rounded_once():
    """Everything between is float32: the float32 result, rounded."""
    from .conftest import lower_and_run

    x = X.bfloat16()
    lowered = lower_and_run(lambda x: aten._softmax(x, 1, False), x)
    torch.testing.assert_close(lowered.outputs[0], x.float().softmax(1).bfloat16())


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_and_its_gradient(check, affine):
    """All three results of both directions."""
    w, b = (torch.randn(5, 4), torch.randn(5, 4)) if affine else (None, None)

    def both(x, d, *rest):
        w, b = rest or (None, None)
        out, mean, rstd = aten.native_layer_norm(x, (5, 4), w, b, 1e-5)
        back = aten.native_layer_norm_backward(d, x, (5, 4), mean, rstd, w, b, [True, affine, affine])
        return (out, mean, rstd, *(t for t in back if t is not None))

    check(both, X, torch.randn(3, 5, 4), *((w, b) if affine else ()), modes=("fake",))


def test_group_and_batch_norm(check):
    """Statistics per group, and running statistics."""
    x, w = torch.randn(2, 6, 3, 3), torch.randn(6)
    check(lambda x, w: aten.native_group_norm(x, w, w, 2, 6, 9, 3, 1e-5), x, w, modes=("fake",))
    check(lambda x, w: aten._native_batch_norm_legit_no_training(x, w, None, w, w.abs(), 0.1, 1e-5)[0], x, w)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.int8])
def test_elements_are_converted_before_they_are_added_up(check, dtype):
    """Whole numbers that a half type holds as infinity make no finite sum; truths are joined by `or` and `and`."""
    x = torch.tensor([[70000, -70000, 3], [2, 0, 250], [1, 1, 7]])
    found = check(lambda x: (x.sum(dtype=dtype), x.sum(0, dtype=dtype), x.prod(1, dtype=dtype)), x)
    assert not [op for op in found.graph.operations if not isinstance(op, Pointwise | Reduction)]


@pytest.mark.parametrize("function", [torch.cumsum, torch.cumprod])
def test_running_sums_are_of_converted_elements(check, function):
    """Those of truths are left to the library, whose kernels refuse them."""
    x = torch.tensor([70000, -70000, 3])
    check(lambda x: (function(x, 0, dtype=torch.float16), function(x, 0, dtype=torch.int8)), x)
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        lower_and_run(lambda x: function(x, 0, dtype=torch.bool), x)


@pytest.mark.parametrize(("dim", "stored"), [(-1, 1), (0, 0)])
def test_what_a_running_sum_along_rows_is_of_is_stored_where_it_has_a_vector_form(check, dim, stored):
    found = check(lambda x: (x.exp().cumsum(dim), (x * 2).cumsum(dim)), X)
    assert sum(isinstance(op, Pointwise) for op in found.graph.operations) == stored
