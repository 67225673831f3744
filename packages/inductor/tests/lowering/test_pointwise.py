"""Elementwise rules: promotion, numbers, half precision."""

import pytest
import torch

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

    from .conftest import lower_and_run

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


def power(exponent):
    """x to a fixed power."""
    return lambda x: x**exponent


def test_powers(check):
    """Special exponents and general ones."""
    x = torch.rand(9) + 0.1
    for exponent in (0, 0.5, 1, 2, 3, -1, -0.5, 1.7):
        check(power(exponent), x, modes=("fake",))


def test_symbolic_numbers_reach_loops(check):
    """A size used as a number is a value of the loop."""
    check(lambda x: x * x.shape[0] + x.shape[1], torch.randn(3, 5))
