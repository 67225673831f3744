"""`__torch_function__`: who is asked, in which order, with what; modes inside of a frame."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from both_ways import recorded
from torch import Tensor
from torch.overrides import TorchFunctionMode

seen = []


def _told(value):
    if isinstance(value, Tensor):
        return type(value).__name__
    if isinstance(value, (tuple, list)):
        return [_told(item) for item in value]
    return {k: _told(v) for k, v in value.items()} if isinstance(value, dict) else repr(value)


class Logs(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(("Logs", cls.__name__, func.__name__, types, _told(args), _told(kwargs)))
        return super().__torch_function__(func, types, args, kwargs)


class Further(Logs):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(("Further", cls.__name__, func.__name__, types))
        return super().__torch_function__(func, types, args, kwargs)


class Apart(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(("Apart", cls.__name__, func.__name__, types))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Bare(Tensor):
    pass


class Off(Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Declines(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(("Declines", func.__name__))
        return NotImplemented


class Counts(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(("mode", func.__name__, types, len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


class Replaces(TorchFunctionMode):
    def __init__(self, factor):
        self.factor, self.asked = factor, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.asked += 1
        if func in (torch.sin, Tensor.sin):
            return torch.cos(*args) * self.factor
        return func(*args, **(kwargs or {}))


def _of(cls, start=1.0):
    return torch.arange(start, start + 6).reshape(2, 3).as_subclass(cls)


def _outcome(program, *args):
    seen.clear()
    result = program(*args)
    leaves = result if isinstance(result, tuple) else (result,)
    plain = [
        (type(leaf), leaf.as_subclass(Tensor).tolist() if isinstance(leaf, Tensor) else leaf)
        for leaf in leaves
        if not isinstance(leaf, (list, tuple))
    ]
    return plain, list(seen)


def _agree(program, *makers):
    graphs = []
    region = recorded(program, graphs, fullgraph=True)
    for make in (*makers, makers[0]):
        assert _outcome(region, *make()) == _outcome(program, *make())
    assert graphs


OPERATIONS = {
    "+": lambda a, b: a + b,
    "reflected": lambda a, b: (2 - a, 2**b, a.__rsub__(2)),
    "comparison": lambda a, b: (a < b, a == b),
    "method": lambda a, b: (a.add(b, alpha=2), a.clone().mul_(b)),
    "function": lambda a, b: torch.add(a, b),
    "list": lambda a, b: torch.cat([a, b], dim=1),
    "in Python": lambda a, b: (F.mse_loss(a, b), F.softmax(b, -1), torch.einsum("ij,ij->i", a, b)),
    "broadcast": lambda a, b: torch.broadcast_tensors(a, b)[0],
    "index": lambda a, b: (a[0], b[:, 1:], a[b[0].clamp(0, 1).long()]),
    "operator of aten": lambda a, b: torch.ops.aten.mul(a, b),
    "out": lambda a, b: torch.add(a, b, out=torch.empty(2, 3).as_subclass(Logs)),
    "facts": lambda a, b: (a + 1, a.shape, b.dim(), a.size(0), len(b), a.requires_grad, b.is_leaf),
}
PAIRS = [(Logs, Tensor), (Tensor, Logs), (Further, Logs), (Logs, Further), (Logs, Apart), (Bare, Logs), (Off, Logs)]


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_classes_are_asked_in_torchs_order(operation, left, right):
    try:
        operation(_of(left), _of(right, 2.0))
    except TypeError:
        pytest.skip("torch finds nobody who implements it")
    _agree(operation, lambda: (_of(left), _of(right, 2.0)))


def test_each_order_of_classes_has_its_own_entry():
    makers = [lambda a=a, b=b: (_of(a), _of(b)) for a, b in (*PAIRS, (Tensor, Tensor)) if a is not Bare]
    _agree(lambda a, b: torch.add(a, b) * a, *makers)


def test_one_that_declines_leaves_it_to_the_next():
    _agree(lambda a, b: torch.add(a, b), lambda: (_of(Declines), _of(Apart)))
    region = recorded(lambda a: a + 1, [])
    with pytest.raises(TypeError, match="unsupported operand"):
        region(_of(Declines))


WITHIN_MODES = {
    "method": lambda x: (x.sin(), x.size(0), x.split(1)[0]),
    "function": lambda x: torch.sin(x) + torch.zeros(2, 3),
    "facts": lambda x: (x.shape, x.ndim, len(x), x.dtype, x.T),
    "in Python": lambda x: (F.relu(x), F.softmax(x, -1), F.layer_norm(x, (3,))),
    "iterated": lambda x: (*x, list(x)[0]),
    "factories": lambda x: (torch.ones(2), torch.arange(3), torch.tensor([1.0]), x.new_zeros(2)),
    "gradients": lambda x: _without_gradients(x),
    "subclass": lambda x: x.as_subclass(Logs) + 1,
}


def _without_gradients(x):
    with torch.no_grad():
        return x * 2, torch.is_grad_enabled()


@pytest.mark.parametrize("operation", WITHIN_MODES.values(), ids=WITHIN_MODES)
@pytest.mark.parametrize("cls", [Tensor, Logs])
def test_modes_are_asked_the_innermost_first(operation, cls):
    def program(x):
        with Counts(), Replaces(3) as mode:
            inner = operation(x)
        with Replaces(2), Counts():
            operation(x)
        return inner[0] if isinstance(inner, tuple) else inner, mode.asked, x.sin()

    _agree(program, lambda: (_of(cls),))


def test_a_mode_is_not_asked_about_what_it_does_itself_and_is_left_after_an_error():
    def program(x):
        try:
            with Replaces(2):
                x.sin()
                raise ValueError
        except ValueError:
            return x.sin()

    _agree(program, lambda: (_of(Tensor),))


def test_a_device_beside_a_mode_breaks(broken):
    def program(x):
        with Counts(), torch.device("cpu"):
            return x + torch.ones(3)

    assert "unsupported-call" in broken(program, torch.ones(3))


def test_what_torch_refuses_is_the_programs_error():
    def program(x):
        return torch.add(x, "text")

    with pytest.raises(TypeError, match="add"):
        recorded(program, [])(_of(Logs))


def test_modes_around_a_frame_are_known_by_their_class():
    graphs = []
    region = recorded(lambda x: x.sin() + 1, graphs, fullgraph=True)
    for mode in (Replaces(2), Replaces(2), Counts(), Replaces(2), None):
        found = []
        for call in (region, lambda x: x.sin() + 1):
            seen.clear()
            if mode is not None:
                mode.__enter__()
            result, depth = call(torch.ones(3)), torch._C._len_torch_function_stack()
            if mode is not None:
                mode.__exit__(None, None, None)
            found.append((result.tolist(), depth, list(seen)))
        assert found[0] == found[1]
    assert len(graphs) == 3


def test_what_a_mode_around_a_frame_holds_is_guarded():
    region, x = recorded(lambda x: x.sin(), [], fullgraph=True), torch.ones(3)
    for factor in (2.0, 3.0, torch.full((3,), 5.0)):
        with Replaces(factor) as mode:
            result = region(x)
        assert mode.asked == 1 and torch.equal(result, x.cos() * factor)
