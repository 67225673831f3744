"""Elementwise rules: promotion, numbers, half precision."""

import pytest
import torch

from .conftest import lower_and_run

aten = torch.ops.aten
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def sample(dtype, *shape):
    """Values that fit the dtype."""
    torch.manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 9, shape).to(dtype)


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_of_tensors(check, a, b):
    """Two tensors of any two dtypes, with broadcasting and a 0-d operand."""
    x, y, z = sample(a, 3, 1), sample(b, 4), sample(b)
    check(lambda x, y, z: (x + y, x * y, x < y, x / y, torch.maximum(x, y), x * z), x, y, z, modes=("fake",))


UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "log10", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "neg", "abs", "sign",
    "relu", "bitwise_not", "floor", "ceil", "trunc", "round", "logical_not", "isnan", "isinf", "signbit",
)  # fmt: skip
BINARY = (
    "add", "sub", "rsub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign", "nextafter", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
    "logical_or", "logical_xor", "remainder", "fmod", "floor_divide", "pow",
)  # fmt: skip
#: Numbers divided by a tensor of integers, powers of integers, and what has no rule in a short type: the library's.
LIBRARY = {
    "remainder.Tensor",
    "fmod.Tensor",
    "floor_divide.default",
    "pow.Tensor_Tensor",
    "nextafter.default",
    "rsub.Tensor",
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("names", [UNARY, BINARY], ids=["unary", "binary"])
def test_every_rule_gives_what_eager_gives(names, dtype):
    """Of every type that eager takes, special values included, in one graph; loops do all but what raises or has no rule."""
    x, y = sample(dtype, 24), sample(dtype, 24).flip(0)
    if dtype.is_floating_point:
        x[:5] = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 0.5])
        y[2:7] = torch.tensor([1.0, float("nan"), 0.0, float("inf"), -2.0])
    elif dtype is not torch.bool:
        y = y.clamp(1, 5).to(dtype)
    inputs = (x, y)[: 1 if names is UNARY else 2]
    taken = []
    for name in names:
        try:
            getattr(torch, name)(*inputs)
        except (RuntimeError, NotImplementedError):
            continue
        taken.append(name)
    lowered = lower_and_run(lambda *parts: tuple(getattr(torch, name)(*parts) for name in taken), *inputs)
    assert set(lowered.calls) <= LIBRARY if dtype is not torch.bool else True, lowered.calls
    for name, got in zip(taken, lowered.outputs, strict=True):
        torch.testing.assert_close(
            got, getattr(torch, name)(*inputs), equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 2.5, True])
def test_promotion_of_numbers(check, dtype, number):
    """A Python number is weaker than any tensor."""
    check(lambda x: (x + number, x * number, x > number, x / number), sample(dtype, 5), modes=("fake",))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("number", [1000, -1000, 70000, 1 << 40])
def test_a_compared_number_wraps_around_as_in_eager(check, dtype, number):
    """What a short integer type makes of it is compared."""
    x = torch.tensor([0, 1, 24, 100, 112, 232, -24]).to(dtype)
    check(lambda x: (x < number, x == number, x >= number, number > x), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_after_every_op(check, dtype):
    """A chain gives bit for bit what eager gives."""
    x, y = sample(dtype, 64), sample(dtype, 64)
    lowered = check(lambda x, y: ((x * 1.1 + y) * x - y / 3).relu() + 0.3, x, y)
    want = ((x * 1.1 + y) * x - y / 3).relu() + 0.3
    assert torch.equal(lowered.outputs[0], want)


def test_fast_numerics_rounds_only_what_is_stored():
    """The option drops the rounding between ops."""
    from flambeau_inductor.ir.scalar import walk
    from flambeau_inductor.ir.verify import scalars_of

    x = sample(torch.bfloat16, 8)
    counts = []
    for numerics in ("faithful", "fast"):
        graph = lower_and_run(lambda x: (x + 1) * 2 - 3, x, numerics=numerics).graph
        counts.append(sum(n.op == "to_dtype" for n in walk(*scalars_of(graph.operations[0]))))
    assert counts[1] < counts[0]


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
@pytest.mark.parametrize("divisor", [3, -3, 2.5])
def test_division_modes(check, mode, divisor):
    """Signs of quotients follow eager for integers and floats."""
    ints, floats = torch.arange(-7, 8), torch.linspace(-7, 7, 15)
    check(
        lambda i, f: (torch.div(i, divisor, rounding_mode=mode), torch.div(f, divisor, rounding_mode=mode)),
        ints,
        floats,
    )
    check(lambda i, f: (i % divisor, f % divisor, torch.fmod(i, divisor), torch.fmod(f, divisor)), ints, floats)


def test_integer_division_by_a_tensor_stays_with_the_library(check):
    """It raises on zero, which a loop would not."""
    a, b = torch.arange(1, 9), torch.arange(1, 9)
    check(lambda a, b: a // b, a, b, library=["floor_divide.default"])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_clamp_to_bounds_out_of_range(check, dtype):
    """They are the library's: some versions of torch leave such bounds out, some wrap them around, and each refuses others."""
    x, taken = torch.tensor([0, 1, 5, 100, 127], dtype=dtype), []
    for bounds in ((-1, None), (-200, 500), (None, 300), (-(2**40), 3), (1, 2**40), (-1, 4)):
        try:
            x.clamp(*bounds)
        except RuntimeError:
            continue
        taken.append(bounds)
    held = torch.iinfo(dtype)
    wide = [pair for pair in taken if any(b is not None and not held.min <= b <= held.max for b in pair)]
    check(lambda x: tuple(x.clamp(*bounds) for bounds in taken), x, library=["clamp.default"] if wide else [])


def test_where_clamp_and_nan(check):
    """NaN wins in maximum and clamp."""
    x = torch.tensor([1.0, float("nan"), -2.0, float("inf")])
    check(
        lambda x: (torch.where(x > 0, x, 0.5), x.clamp(-1, 1), x.clamp_min(0), torch.maximum(x, x.flip(0)), x.isnan()),
        x,
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_activations(check, approximate):
    """gelu, silu and their like."""
    x = sample(torch.float32, 33)
    check(
        lambda x: (
            aten.gelu(x, approximate=approximate),
            aten.silu(x),
            aten.leaky_relu(x, 0.2),
            aten.sigmoid(x),
            aten.hardtanh(x),
            aten.tanh_backward(x, x.tanh()),
            aten.threshold_backward(x, x, 0),
        ),
        x,
    )


def test_powers(check):
    """Special exponents and general ones."""
    special = torch.tensor([0.0, -0.0, 4.0, -4.0, float("inf"), float("-inf"), float("nan"), 0.1])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = special.to(dtype)
        check(
            lambda x: tuple(x**exponent for exponent in (0, 0.5, 1, 2, 3, -1, -0.5, -2, 1.7, -1.5)), x, modes=("fake",)
        )
    check(lambda x: tuple(x**exponent for exponent in (0, 1, 2, 3, 5, 0.5)), torch.arange(-4, 5), modes=("fake",))


def test_a_power_that_eager_may_refuse_is_left_to_it(check):
    """Of integers to an exponent that may be negative."""
    check(lambda x: x ** (x.shape[0] - 3), torch.arange(5), modes=("symbolic",), library=["pow.Tensor_Scalar"])


def test_symbolic_numbers_reach_loops(check):
    """A size used as a number is a value of the loop."""
    check(lambda x: x * x.shape[0] + x.shape[1], torch.randn(3, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("eps", [0.0, 1e-10, 0.3, 0.7, 1.0, 2.0, -1.0, float("nan"), None])
def test_bounds_of_logit_that_changed_places(check, eps, dtype):
    """The lower one is asked first, each in the type of the tensor."""
    x = torch.tensor(
        [0.0, -0.0, 0.125, 0.5, 0.875, 1.0, 2.0, -2.0, float("inf"), float("-inf"), float("nan")], dtype=dtype
    )
    check(lambda x: torch.logit(x, eps), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_are_rounded_to_half_types(check, dtype):
    """A small change of an exponent is a large one of the power; so it is where a quotient is rounded."""
    x = torch.tensor([1e4, 100.0, 3.0, 0.1, 7.0], dtype=dtype)
    check(lambda x: (x**0.3, 0.3**x, x**1.1), x)
    for mode in ("floor", "trunc"):
        check(lambda x: (torch.div(300.7, x, rounding_mode=mode), torch.div(x, 0.3, rounding_mode=mode)), x)


_IN_HALF = {
    "mul of a number": lambda x, y, t: torch.mul(0.3, x),
    "div of a number": lambda x, y, t: torch.div(0.3, x),
    "mul by a 0-d tensor": lambda x, y, t: x * t,
    "div by a 0-d tensor": lambda x, y, t: x / t,
    "floor by a 0-d tensor": lambda x, y, t: x // t,
    "trunc by a 0-d tensor": lambda x, y, t: torch.div(x, t, rounding_mode="trunc"),
    "trunc by a number": lambda x, y, t: torch.div(x, 0.001, rounding_mode="trunc"),
    "mul of a 0-d tensor": lambda x, y, t: t * x,
    "xlogy": lambda x, y, t: (torch.xlogy(x, y), torch.xlogy(0.3, y), torch.xlogy(x, 0.3)),
    "xlog1py": lambda x, y, t: (torch.special.xlog1py(x, y), torch.special.xlog1py(0.3, y), torch.special.xlog1py(x, 0.3)),
    "logit": lambda x, y, t: (torch.logit(y), torch.logit(y, 0.3)),
    "logaddexp": lambda x, y, t: (torch.logaddexp(x, y), torch.logaddexp2(x, y)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", _IN_HALF.values(), ids=_IN_HALF)
def test_half_types_are_rounded_where_the_cpus_kernels_round(function, dtype):
    """Every element is eager's: which numbers, and which steps of a formula, are rounded."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(256, generator=generator).to(dtype) for _ in range(2))
    inputs = x * 8 - 4, y, torch.tensor(0.3)
    expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    lowered = lower_and_run(function, *inputs)
    assert not lowered.calls
    for got, want in zip(lowered.outputs, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_that_is_subtracted_is_negated_first(check, dtype):
    """An integer's zero has no sign: `-0.0 - 0 * y` adds zero times `y`."""
    x, y = torch.tensor([-0.0, 0.0, -0.0], dtype=dtype), torch.tensor([-0.5, -0.5, 0.5], dtype=dtype)
    found = check(lambda x, y: (torch.sub(x, y, alpha=0), torch.sub(x, y, alpha=0.0), torch.sub(x, y, alpha=2)), x, y)
    for alpha, result in zip((0, 0.0), found.outputs, strict=False):
        assert torch.equal(result.signbit(), torch.sub(x, y, alpha=alpha).signbit())
