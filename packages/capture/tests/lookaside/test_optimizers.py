"""Steps of torch's optimizers as one graph, and the operators whose scalar is a tensor."""

from __future__ import annotations

import copy

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import GraphBreakError, make_region


def _step_both(net, twin, plain, step, between=lambda net: None):
    x = torch.randn(4, 3)
    for model in (net, twin):
        model.zero_grad()
        model(x).square().sum().backward()
        between(model)
    plain()
    step()


def _assert_same_state(optimizer, twin_optimizer):
    told, twin_told = optimizer.state_dict()["state"], twin_optimizer.state_dict()["state"]
    assert {key: list(kept) for key, kept in told.items()} == {key: list(kept) for key, kept in twin_told.items()}
    for key, kept in told.items():
        torch.testing.assert_close(list(kept.values()), list(twin_told[key].values()))


@pytest.mark.parametrize(
    ("make", "graphs"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 1),
        # What it keeps is made of the first gradients, or of zeros that come to the same.
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), 1),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1), 2),
        (lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True), 1),
        (lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True), 1),
        (lambda p: torch.optim.NAdam(p, lr=0.1), 1),
        (lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5), 1),
        (lambda p: torch.optim.Adadelta(p, lr=0.1), 1),
        (lambda p: torch.optim.Rprop(p, lr=0.1), 1),
        (lambda p: torch.optim.Adamax(p, lr=0.1, foreach=True), 1),
    ],
    ids=["sgd", "momentum", "dampening", "adamw", "adam", "nadam", "rmsprop", "adadelta", "rprop", "adamax"],
)
def test_a_step_is_one_graph(make, graphs):
    """What torch keeps from step to step is there when the first one is traced."""
    net = torch.nn.Linear(3, 2)
    twin = copy.deepcopy(net)
    optimizer, twin_optimizer = make(net.parameters()), make(twin.parameters())
    records = []
    step = make_region(twin_optimizer.step, eager, fullgraph=True, observer=records.append)
    for _ in range(4):
        _step_both(net, twin, optimizer.step, step)
        torch.testing.assert_close(twin.weight, net.weight)
    _assert_same_state(optimizer, twin_optimizer)
    assert len(records) == graphs


@pytest.mark.parametrize(
    "change", ["no gradient at first", "gradients dropped before", "state read before", "a closure", "own"]
)
def test_state_is_made_for_the_parameters_that_eager_makes_it_for(change):
    net = torch.nn.Linear(3, 2)
    twin = copy.deepcopy(net)

    class Own(torch.optim.AdamW):
        def _init_group(self, group, *lists):
            self.told = getattr(self, "told", 0) + 1
            return super()._init_group(group, *lists)

    kind = Own if change == "own" else torch.optim.AdamW
    optimizers = [kind(model.parameters(), lr=0.1) for model in (net, twin)]

    def program(optimizer, model):
        if change == "gradients dropped before":
            model.bias.grad = None
        if change == "state read before" and len(optimizer.state) > 5:
            return
        optimizer.step(*([lambda: model.weight.sum()] if change == "a closure" else []))

    region = make_region(program, eager)
    for number in range(3):

        def drop(model, number=number):
            if change == "no gradient at first" and not number:
                model.bias.grad = None

        _step_both(net, twin, lambda: program(optimizers[0], net), lambda: region(optimizers[1], twin), drop)
        torch.testing.assert_close(twin.state_dict(), net.state_dict())
        _assert_same_state(*optimizers)
    assert getattr(optimizers[0], "told", 0) == getattr(optimizers[1], "told", 0)


@pytest.mark.parametrize(
    "options", [{}, {"foreach": True}, {"nesterov": True, "weight_decay": 0.1}, {"maximize": True}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_momentum_starts_with_the_very_gradient(options, dtype):
    """Signs of zeros, what has no end, and the layout; a parameter that gets its first gradient later starts then."""
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(2, 4, dtype=dtype).t()), torch.nn.Parameter(torch.zeros(3, dtype=dtype))]
    twins = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    optimizer, twin = (torch.optim.SGD(p, lr=0.1, momentum=0.9, **options) for p in (weights, twins))
    step = make_region(twin.step, eager, fullgraph=True)
    for number in range(3):
        gradients = [torch.randn(2, 4, dtype=dtype).t(), torch.tensor([-0.0, float("inf"), -1.0], dtype=dtype)]
        for parameters in (weights, twins):
            parameters[0].grad = gradients[0].clone()
            parameters[1].grad = gradients[1].clone() if number else None
        optimizer.step()
        step()
        for one, other in zip(weights, twins, strict=True):
            kept, found = ({"p": p, **o.state[p]} for p, o in ((one, optimizer), (other, twin)))
            assert list(kept) == list(found)
            for key, value in kept.items():
                # Where torch compiles, its lists of parameters are written to in two operations, each of which rounds.
                torch.testing.assert_close(found[key], value, rtol=0, atol=0.02 if key == "p" else 0, equal_nan=True)
                assert torch.equal(found[key].signbit() | value.isnan(), value.signbit() | value.isnan())
                assert found[key].stride() == value.stride()


@pytest.mark.parametrize("name", ["SGD", "Adam", "Rprop"])
def test_state_is_made_for_gradients_of_the_frame(name):
    """What `backward()` gives in the same frame; a parameter that it does not reach has no state."""

    def program(net, unused, optimizer, x):
        net(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return unused.grad

    def made(net):
        unused = torch.nn.Parameter(torch.ones(2))
        options = {"momentum": 0.9} if name == "SGD" else {}
        return net, unused, getattr(torch.optim, name)([*net.parameters(), unused], lr=0.1, **options)

    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    ours, theirs = made(copy.deepcopy(net)), made(net)
    records = []
    region = make_region(program, eager, fullgraph=True, observer=records.append)
    for _ in range(3):
        x = torch.randn(4, 3)
        assert region(*ours, x) is None
        assert program(*theirs, x) is None
        torch.testing.assert_close(ours[0].state_dict(), theirs[0].state_dict())
        _assert_same_state(ours[2], theirs[2])
    assert len(records) == 1


@pytest.mark.parametrize("name", ["Rprop", "ASGD"])
def test_state_that_is_made_of_an_option_which_the_frame_sets_before(name):
    def program(optimizer):
        optimizer.param_groups[0]["lr"] = 0.5
        optimizer.step()

    def told(run):
        weight = torch.nn.Parameter(torch.ones(2))
        weight.grad = torch.tensor([1.0, -2.0])
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)
        run(optimizer)
        return weight.detach(), {key: list(kept.values()) for key, kept in optimizer.state_dict()["state"].items()}

    torch.testing.assert_close(told(make_region(program, eager)), told(program))


@pytest.mark.parametrize("fault", ["a group without an option", "a sparse gradient"])
def test_what_making_the_state_raises_the_step_raises(fault):
    """Not as a fault of the compiler's, and with eager's state."""

    def told(compiled):
        weight = torch.nn.Parameter(torch.ones(2, 2))
        optimizer = torch.optim.Adam([weight])
        weight.grad = torch.ones(2, 2).to_sparse() if fault == "a sparse gradient" else torch.ones(2, 2)
        if fault == "a group without an option":
            del optimizer.param_groups[0]["amsgrad"]
        step = make_region(optimizer.step, eager, suppress_errors=False) if compiled else optimizer.step
        return outcome(step), {str(key): list(kept) for key, kept in optimizer.state.items()}

    assert told(True) == told(False)


@pytest.mark.parametrize("name", ["addcdiv", "addcmul", "addcdiv_", "addcmul_"])
def test_a_scalar_that_is_a_tensor(name):
    """Written out, so that no value is read while tracing."""

    def run(x, a, b, value):
        return getattr(x.clone(), name)(a, b, value=value)

    x, a, b = torch.ones(3), torch.full((3,), 2.0), torch.full((3,), 4.0)
    region = make_region(run, eager, fullgraph=True)
    torch.testing.assert_close(region(x, a, b, torch.tensor(0.5)), run(x, a, b, 0.5))


@pytest.mark.parametrize("name", ["addcdiv", "addcmul_", "add", "sub_"])
@pytest.mark.parametrize(
    "number",
    [
        torch.tensor([2.0]),
        torch.tensor(True),
        torch.tensor(2),
        torch.tensor(1j),
        torch.tensor(2.0, requires_grad=True),
    ],
    ids=["a dimension", "bool", "integer", "complex", "gradient"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_tensor_that_eager_takes_for_no_such_number(name, number, dtype):
    """It raises what eager raises, or gives the same type."""

    def run(x, number):
        y = x + 1
        operands = [y, y] if name.startswith("addc") else [y]
        return getattr(y, name)(*operands, **{"value" if name.startswith("addc") else "alpha": number})

    x = torch.ones(2, dtype=dtype)
    assert_equal(outcome(make_region(run, eager), x, number), outcome(run, x, number))


def test_a_list_of_tensors_is_no_list_of_scalars():
    """But for the optimizers' own, which are numbers in eager."""

    def run(x, value):
        y = x + 1
        torch._foreach_addcdiv_([y], [x], [x], [value])
        return y

    records = []
    for function in (run, make_region(run, eager, observer=records.append)):
        with pytest.raises(TypeError, match="_foreach_addcdiv_"):
            function(torch.ones(2), torch.tensor(2.0))
    assert records


def test_alpha_that_is_a_tensor(check):
    """The same for `add` and `sub`."""
    check(lambda x: x.add(x, alpha=2) - x.sub(x, alpha=3))
    region = make_region(lambda x, a: x.add(x, alpha=a).sub_(x, alpha=a), eager, fullgraph=True)
    torch.testing.assert_close(region(torch.ones(2), torch.tensor(3.0)), torch.ones(2))


def test_profiler_ranges_are_no_part_of_the_graph(check):
    """With and without a break inside."""

    def run(x):
        with torch.autograd.profiler.record_function("range") as entered:
            y = x + 1
        return y, entered is not None

    check(run)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_profiler_range_as_a_decorator(breaks):
    """Also where the function that it made leaves the frame."""

    def run(x):
        @torch.autograd.profiler.record_function("range")
        def inner(y):
            if breaks:
                print(end="")
            return y + 1

        return inner(x), inner.__name__, inner

    x = torch.ones(2)
    found, name, inner = make_region(run, eager)(x)
    assert torch.equal(found, x + 1)
    assert name == "inner"
    assert torch.equal(inner(x), x + 1)


def test_methods_that_another_compiler_keeps_from_itself():
    """Marked ones of torch.optim are traced; a function of the user's with that mark breaks the graph."""

    def marked(function):
        def wrapper(*args):
            raise AssertionError("the wrapper is the other compiler's business")

        wrapper._torchdynamo_disable = True
        wrapper._torchdynamo_orig_callable = function
        return wrapper

    def of_torch(x):
        return x + 1

    def of_the_user(x):
        return x + 1

    of_torch.__module__ = "torch.optim.adam"
    kept, refused = marked(of_torch), marked(of_the_user)
    region = make_region(lambda x: kept(x) * 2, eager, fullgraph=True)
    torch.testing.assert_close(region(torch.ones(2)), torch.full((2,), 4.0))
    with pytest.raises(GraphBreakError, match="of_the_user is marked with disable"):
        make_region(lambda x: refused(x) * 2, eager, fullgraph=True)(torch.ones(2))
