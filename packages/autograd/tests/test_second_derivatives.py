"""A backward of the backward where what the forward was given is gone: from what was saved, as eager's."""

import pytest
import torch
from lifting import compile_function, compile_graph, lift_symbolically
from torch.nn import functional as F

from flambeau_autograd import Config, UnsupportedDoubleBackward

SHIFT = torch.linspace(0.3, 1.2, 12, dtype=torch.float64).view(3, 4)
SQUARE = 3 * torch.eye(3, dtype=torch.float64)


@pytest.fixture(params=[True, False], ids=["native", "twin"])
def config(request):
    return Config(native=request.param)


def leaf():
    return torch.linspace(-1.1, 1.3, 12, dtype=torch.float64).view(3, 4).requires_grad_()


FUNCTIONS = {
    "result": lambda x: x.softmax(0),
    "of a sum": lambda x: (x + SHIFT).sin(),
    "mask": lambda x: (x + SHIFT).relu() * SHIFT,
    "centred": lambda x: (x + SHIFT).std(0).log(),
    "statistics": lambda x: F.layer_norm(x + SHIFT, (4,)),
    "chain": lambda x: F.gelu((x - SHIFT).matmul(SHIFT.t())).logsumexp(0),
    "sizes alone": lambda x: (x * 2).gather(1, torch.tensor([[0, 3], [2, 1], [1, 1]])).exp(),
    "in place": lambda x: (x + SHIFT).mul_(2).exp_().cos(),
    "indices": lambda x: (x + SHIFT).max(0)[0].exp() * (x * 3).cumsum(0),
    # Kernels that may raise for the values of their operands.
    "inverse": lambda x: torch.linalg.inv(x[:, :3] + SQUARE).sin(),
    "root": lambda x: torch.linalg.cholesky(x @ x.t() + SQUARE).sin(),
    "singular values": lambda x: torch.linalg.svdvals(x + SHIFT).sin(),
    "of a symmetric one": lambda x: torch.linalg.eigh(x @ x.t() + SQUARE)[0].sin(),
    "equations": lambda x: torch.linalg.solve(x[:, :3] + SQUARE, SHIFT).sin(),
    "determinant": lambda x: torch.linalg.det(x[:, :3] + SQUARE).sin(),
    "index": lambda x: x[x.argmax(0).remainder(3)].exp(),
    "gather": lambda x: x.gather(1, x.argsort(1)).exp(),
    "embedding": lambda x: F.embedding(x.argmax(0).remainder(3), x).sin(),
    "without grad mode": lambda x: (x + SHIFT).exp() * x.detach().sin(),
}
#: What is computed with data beside.
WITH_DATA = {
    "greater": lambda x, d: torch.maximum(x.exp(), d),
    "bound": lambda x, d: x.exp().clamp(max=d),
    "between": lambda x, d: torch.lerp(x, d, d.sigmoid()).exp(),
    "entropy": lambda x, d: F.binary_cross_entropy(x.sigmoid(), d.sigmoid()),
    "classes": lambda x, d: F.cross_entropy(x, d.argmax(1)),
    "mask": lambda x, d: x.sin().masked_fill(d > 0, 0.0).exp(),
    "distance": lambda x, d: (x - d).norm(dim=1),
}
LOST = {"freed": lambda given: given.clear(), "written": lambda given: [value.detach().add_(1) for value in given]}


def derivatives(function, lost=lambda given: None, before=lambda x: x * 2):
    """The first, second and third of a function of what is computed from a leaf and then lost."""
    torch.manual_seed(0)
    x = leaf()
    given = [before(x)]
    found = function(*given)
    lost(given)
    derived = [found[0] if isinstance(found, tuple) else found]
    for _ in range(3):
        derived += torch.autograd.grad(derived[-1].square().sum(), x, create_graph=True)
    return derived


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_the_input(name, lost, config):
    """A graph after a break: nobody holds what it was given."""
    function = FUNCTIONS[name]
    compiled = compile_function(function, [leaf() * 2], config=config)
    try:
        expected = derivatives(function, LOST[lost])
    except RuntimeError as error:
        assert "modified by an inplace" in str(error)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            derivatives(compiled, LOST[lost])
    else:
        assert_same(derivatives(compiled, LOST[lost]), expected)


def test_random_numbers_are_those_of_the_forward(config):
    """And none are drawn from the program's generator."""

    def function(x):
        return F.dropout((x + SHIFT).sin(), 0.5) * x

    for lost in (lambda given: None, LOST["freed"]):
        expected = [*derivatives(function, lost), torch.rand(2)]
        compiled = compile_function(function, [leaf() * 2], config=config)
        assert_same([*derivatives(compiled, lost), torch.rand(2)], expected)


def test_input_that_the_graph_overwrites(config):
    """Its old contents decide gradients, and come from what was saved."""

    def function(x, c):
        return (x + 1).exp() * c.add_(1)

    compiled = compile_function(function, [leaf() * 2, SHIFT.clone()], config=config)
    counters = [SHIFT.clone(), SHIFT.clone()]
    ours = derivatives(lambda x: compiled(x, counters[0])[0])
    assert_same(ours, derivatives(lambda x: function(x, counters[1])))
    assert torch.equal(*counters)


def test_input_whose_write_has_a_history(config):
    def function(x):
        x.sin_()
        return x.exp()

    compiled = compile_graph(lift_symbolically(function), [leaf() * 2], config=config)
    assert_same(derivatives(compiled), derivatives(function))


def test_results_that_lead_apart(config):
    """Each to its own inputs: their histories are found where the inputs are gone."""

    def function(x, y):
        return (x + 1).exp(), (y + SHIFT).sin() * SHIFT

    given = [leaf() * 2, leaf() * 3]
    compiled = compile_function(function, given, config=config)

    def of_both(run):
        def call(x):
            first, second = run(x, x * x)
            return first.sin() + second.cos()

        return call

    assert_same(derivatives(of_both(compiled), LOST["freed"]), derivatives(of_both(function)))


def test_what_was_saved_is_written_before_the_last_backward(config):
    """An error, as in eager."""
    for run in (torch.tanh, lambda x: compile_function(torch.tanh, [leaf() * 2], config=config)(x)[0]):
        x = leaf()
        y = run(x * 2)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with torch.no_grad():
            y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            g.sum().backward()


@pytest.mark.parametrize("name", WITH_DATA)
def test_without_data_that_wants_no_gradient(name, config):
    """Made for the call alone."""
    function = WITH_DATA[name]
    compiled = compile_function(function, [leaf() * 2, SHIFT], config=config)
    ours, theirs = (lambda x, run=run: run(x, SHIFT - x.detach()) for run in (compiled, function))
    assert_same(derivatives(ours, LOST["freed"]), derivatives(theirs))
    assert_same(derivatives(ours), derivatives(theirs))


def test_data_beside_a_parameter(config):
    """A graph of data and parameters saves what is best for the backward alone: a clear error where the data is gone."""

    def function(weight, data):
        return torch.maximum(weight.exp(), data)

    weight = torch.nn.Parameter(leaf().detach())
    compiled = compile_function(function, [weight, SHIFT], config=config)

    def derivative(run, data):
        out = run(weight, data)
        del data
        (found,) = torch.autograd.grad(out[0].sum(), weight, create_graph=True)
        return found

    assert_same([derivative(compiled, SHIFT)], [derivative(lambda *given: (function(*given),), SHIFT)])
    with pytest.raises(UnsupportedDoubleBackward, match="was freed"):
        derivative(compiled, SHIFT + 0)


def test_nothing_more_is_kept_alive(config):
    """The input's memory goes when the program lets it go."""
    compiled = compile_function(lambda x: x.softmax(0), [leaf() * 2], config=config)
    memory = []

    def lost(given):
        memory.append(torch.multiprocessing.reductions.StorageWeakRef(given[0].untyped_storage()))
        given.clear()
        assert memory[0].expired()

    derivatives(compiled, lost)
