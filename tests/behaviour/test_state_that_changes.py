"""What a compiled program reads from outside may change between two calls: the next call sees it, as in plain Python."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
import flambeau_capture

from ..comparison import assert_same, run_as_it_is

Change = Callable[[], Any]
Maker = Callable[[], tuple[Callable[[Tensor], Any], list[Change]]]
CASES: list[Maker] = []


def changing(make: Maker) -> Maker:
    """Add a case: the program and what is changed after each call, one thing after the other."""
    CASES.append(make)
    return make


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclasses.dataclass
class Settings:
    scale: float = 1.0
    names: list[str] = dataclasses.field(default_factory=list)
    mode: Mode = Mode.FAST
    inner: Any = None


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Dynamic:
    scale = 1.0

    @property
    def doubled(self) -> float:
        return self.scale * 2

    def __getattr__(self, name: str) -> float:
        if name == "missing":
            return 5.0
        raise AttributeError(name)


FACTOR = 2.0
TABLE: dict[str, Any] = {"a": 1.0}


def helper(x: Tensor, by: float = 1.0, *, plus: float = 0.0) -> Tensor:
    return x * by * FACTOR + plus


@changing
def module_globals() -> Any:
    namespace = globals()
    return lambda x: helper(x), [
        lambda: namespace.update(FACTOR=3.0),
        lambda: namespace.update(FACTOR=torch.ones(2)),
        lambda: namespace.update(FACTOR=2.0),
    ]


@changing
def defaults_of_a_function() -> Any:
    def function(x: Tensor, by: float = 2.0, *, plus: float = 1.0) -> Tensor:
        return x * by + plus

    def positional() -> None:
        function.__defaults__ = (5.0,)

    def keyword() -> None:
        function.__kwdefaults__ = {"plus": 7.0}

    return lambda x: function(x), [positional, keyword]


@changing
def closure_contents() -> Any:
    scale: Any = 1.0

    def change(value: Any) -> None:
        nonlocal scale
        scale = value

    return lambda x: x * scale, [lambda: change(2.0), lambda: change(torch.ones(2) * 3), lambda: change(4)]


@changing
def a_function_is_replaced() -> Any:
    holder = types.SimpleNamespace(run=lambda x: x + 1)
    return lambda x: holder.run(x), [
        lambda: setattr(holder, "run", lambda x: x + 2),
        lambda: setattr(holder, "run", torch.relu),
        lambda: setattr(holder, "run", functools.partial(torch.add, other=3)),
        lambda: setattr(holder, "run", functools.partial(torch.add, other=4)),
    ]


@changing
def a_method_is_replaced_on_the_class() -> Any:
    class Model:
        def run(self, x: Tensor) -> Tensor:
            return x + 1

    model = Model()
    return lambda x: model.run(x), [
        lambda: setattr(Model, "run", lambda self, x: x + 2),
        lambda: setattr(model, "run", lambda x: x + 3),
    ]


@changing
def an_attribute_of_the_class() -> Any:
    class Own(Dynamic):
        scale = 1.5

    model = Own()
    return lambda x: x * model.scale + model.doubled, [
        lambda: setattr(Own, "scale", 2.0),
        lambda: setattr(model, "scale", 3.0),
        lambda: delattr(model, "scale"),
        lambda: delattr(Own, "scale"),
    ]


@changing
def an_attribute_that_was_missing() -> Any:
    model = Dynamic()
    return lambda x: x * model.missing + (1 if hasattr(model, "other") else 2), [
        lambda: setattr(model, "missing", 2.0),
        lambda: setattr(model, "other", 2.0),
    ]


@changing
def a_dataclass() -> Any:
    settings = Settings()

    def run(x: Tensor) -> Tensor:
        y = x * settings.scale + len(settings.names)
        if settings.mode is Mode.SLOW:
            y = y - 1
        return y if settings.inner is None else y + settings.inner.scale

    return run, [
        lambda: setattr(settings, "scale", 2.0),
        lambda: settings.names.append("n"),
        lambda: setattr(settings, "mode", Mode.SLOW),
        lambda: setattr(settings, "inner", Settings(4.0)),
        lambda: setattr(settings.inner, "scale", 5.0),
    ]


@changing
def slots() -> Any:
    value = Slotted(1.0)
    return lambda x: x * value.scale, [lambda: setattr(value, "scale", 2.0), lambda: setattr(value, "scale", 3)]


@changing
def entries_of_a_dict() -> Any:
    table: dict[Any, Any] = {"a": 1.0, 2: torch.ones(2)}

    def run(x: Tensor) -> Tensor:
        y = x * table["a"] + table.get("b", 0.0)
        for key in table:
            y = y + (len(key) if isinstance(key, str) else key)
        return y + table[2]

    return run, [
        lambda: table.update(a=2.0),
        lambda: table.update(b=3.0),
        lambda: table.pop("b"),
        lambda: table.update({2: torch.ones(2) * 5}),
        lambda: table.update(cc=1),
    ]


@changing
def order_of_a_dict() -> Any:
    table = {"a": 1.0, "b": 2.0}

    def run(x: Tensor) -> Tensor:
        for value in table.values():
            x = x * 2 + value
        return x

    def swap() -> None:
        table["a"] = table.pop("a")

    return run, [swap, swap]


@changing
def lists_and_tuples() -> Any:
    state: dict[str, Any] = {"items": [1.0, 2.0], "pair": (1, [2])}

    def run(x: Tensor) -> Tensor:
        for item in state["items"]:
            x = x + item
        return x * state["pair"][1][0]

    return run, [
        lambda: state["items"].append(3.0),
        lambda: state["items"].reverse(),
        lambda: state.update(pair=(1, [3])),
        lambda: state["pair"][1].__setitem__(0, 7),
        lambda: state.update(items=(1.0,)),
    ]


@changing
def sets_and_deques() -> Any:
    members, queue = {1, 2}, collections.deque([1, 2], maxlen=2)
    return lambda x: x * len(members) + (5 if 3 in members else 0) + queue[0], [
        lambda: members.add(3),
        lambda: members.discard(1),
        lambda: queue.append(5),
    ]


@changing
def default_dict_of_a_program() -> Any:
    table: Any = collections.defaultdict(lambda: 1.0)

    def run(x: Tensor) -> Tensor:
        return x * table["k"] + len(table)

    return run, [lambda: table.update(k=3.0), lambda: table.pop("k"), lambda: table.update(z=1.0)]


@changing
def a_type_that_changes() -> Any:
    state = types.SimpleNamespace(value=1)
    return lambda x: x * state.value if isinstance(state.value, int) else x + state.value, [
        lambda: setattr(state, "value", 2.0),
        lambda: setattr(state, "value", True),
        lambda: setattr(state, "value", torch.ones(2)),
        lambda: setattr(state, "value", torch.ones(2, dtype=torch.int32)),
        lambda: setattr(state, "value", torch.ones(1, 2)),
    ]


@changing
def zero_and_minus_zero_and_nan() -> Any:
    state = types.SimpleNamespace(value=0.0)
    return lambda x: x / state.value if state.value == 0 else x * state.value, [
        lambda: setattr(state, "value", -0.0),
        lambda: setattr(state, "value", float("nan")),
        lambda: setattr(state, "value", float("inf")),
        lambda: setattr(state, "value", 0),
    ]


@changing
def identity_of_two_objects() -> Any:
    state = types.SimpleNamespace(a=[1], b=[1])

    def run(x: Tensor) -> Tensor:
        state.a[0] = 1
        state.b[0] = 2
        return x * state.a[0] + (10 if state.a is state.b else 0)

    return run, [lambda: setattr(state, "b", state.a), lambda: setattr(state, "b", [1])]


@changing
def aliases_of_tensors() -> Any:
    state = types.SimpleNamespace(a=torch.ones(2), b=torch.ones(2))

    def run(x: Tensor) -> Tensor:
        state.a.add_(1)
        return x * state.b

    return run, [
        lambda: setattr(state, "b", state.a),
        lambda: setattr(state, "b", state.a.view(2)),
        lambda: setattr(state, "b", torch.ones(2)),
    ]


@changing
def requires_grad_and_grad_mode() -> Any:
    weight = torch.ones(2)

    def leave(enabled: bool) -> None:
        torch.set_grad_enabled(enabled)

    return lambda x: (x * weight, torch.is_grad_enabled()), [
        lambda: weight.requires_grad_(),
        lambda: leave(False),
        lambda: leave(True),
    ]


@changing
def default_dtype() -> Any:
    return lambda x: x.to(torch.get_default_dtype()) + torch.ones(2), [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ]


@changing
def a_module() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.ReLU())
    net.eval()
    handles: list[Any] = []
    return lambda x: net(x) + len(net), [
        lambda: net.train() and net[1].eval(),
        lambda: setattr(net[0], "bias", None),
        lambda: setattr(net[0], "weight", nn.Parameter(torch.eye(2))),
        lambda: net.__setitem__(2, nn.Tanh()),
        lambda: net.append(nn.Sigmoid()),
        lambda: handles.append(net[0].register_forward_hook(lambda m, a, o: o * 2)),
        lambda: handles.append(net.register_forward_pre_hook(lambda m, a: (a[0] + 1,))),
        lambda: [handle.remove() for handle in handles],
        lambda: setattr(net[2], "forward", lambda x: x * 5),
    ]


@changing
def global_module_hooks() -> Any:
    net = nn.Linear(2, 2, bias=False)
    nn.init.ones_(net.weight)
    handles: list[Any] = []
    return lambda x: net(x), [
        lambda: handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 3)),
        lambda: handles[0].remove(),
    ]


@changing
def parameters_and_buffers() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(2))
            self.extra: Any = None

        def forward(self, x: Tensor) -> Tensor:
            x = x * self.scale
            for parameter in self.parameters():
                x = x + parameter
            return x if self.extra is None else x + self.extra

    net = Net()
    return lambda x: net(x).detach(), [
        lambda: net.scale.add_(1),  # type: ignore[operator]
        lambda: setattr(net, "scale", torch.ones(2) * 5),
        lambda: net.register_parameter("w", nn.Parameter(torch.ones(2))),
        lambda: net.double(),
        lambda: net.float(),
        lambda: setattr(net, "extra", 3),
        lambda: delattr(net, "w"),
    ]


@changing
def counters_of_a_program() -> Any:
    state = types.SimpleNamespace(calls=0, seen=[])

    def run(x: Tensor) -> Any:
        state.calls += 1
        state.seen.append(state.calls)
        return x * state.calls, list(state.seen)

    return run, [lambda: None, lambda: setattr(state, "calls", 10), lambda: state.seen.clear(), lambda: None]


@changing
def a_tensor_gets_a_gradient() -> Any:
    weight = torch.ones(2, requires_grad=True)

    def run(x: Tensor) -> Tensor:
        return x if weight.grad is None else x + weight.grad

    return run, [
        lambda: weight.sum().backward(),
        lambda: weight.sum().backward(),
        lambda: setattr(weight, "grad", None),
    ]


@changing
def an_int_among_strings() -> Any:
    state: dict[str, Any] = {"key": "a", "a": 1.0, "b": 2.0}
    return lambda x: x * state[state["key"]] + len(f"{state['key']}{state['a']}"), [
        lambda: state.update(key="b"),
        lambda: state.update(a=100.0),
    ]


@changing
def autocast_around() -> Any:
    entered: list[Any] = []

    def enter() -> None:
        entered.append(torch.autocast("cpu", dtype=torch.bfloat16))
        entered[0].__enter__()

    return lambda x: x[None] @ x[:, None], [enter, lambda: entered.pop().__exit__(None, None, None)]


#: Programs of which calls run in plain Python -> the marker that says so.
MARKS = {
    "aliases_of_tensors": pytest.mark.falls_back("a tensor is written whose memory another input shares"),
    "counters_of_a_program": pytest.mark.falls_back("the recompile limit was reached"),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "make", [pytest.param(make, id=make.__name__, marks=MARKS.get(make.__name__, ())) for make in CASES]
)
def test_a_change_is_seen(make: Maker, dynamic: bool | None) -> None:
    """Plain and compiled programs over states of their own; each call twice."""
    plain, plain_changes = make()
    program, changes = make()
    compiled = flambeau_capture.make_region(program, run_as_it_is, dynamic=dynamic)
    x = torch.tensor([1.0, -2.0])
    try:
        for change, other in zip([lambda: None, *plain_changes], [lambda: None, *changes], strict=True):
            change()
            expected = [plain(x.clone()) for _ in range(2)]
            if plain_changes is not changes and not _is_global(make):
                other()
            assert_same([compiled(x.clone()) for _ in range(2)], expected)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def _is_global(make: Maker) -> bool:
    """Whether the state is the process's, so that it is changed once for both."""
    names = ("module_globals", "default_dtype", "global_module_hooks", "autocast_around")
    return make.__name__ in names


def test_a_device_context_is_known_by_its_device() -> None:
    """`with torch.device(...)` makes another mode each time; what counts is where it puts tensors."""
    records: list[Any] = []
    region = flambeau_capture.make_region(lambda x: torch.ones(3) * x.dim(), run_as_it_is, observer=records.append)
    for device, compiled in (("cpu", 1), ("cpu", 1), ("meta", 2), ("cpu", 2), ("meta", 2)):
        with torch.device(device):
            assert region(torch.zeros(2, 2)).device.type == device
        assert len(records) == compiled


def test_new_memory_under_deterministic_algorithms():
    """It is filled with what no result is taken for, and not in a call without them."""

    def function(x):
        made = torch.empty(3), torch.empty_like(x), x.new_empty(2, 2), torch.empty(2, dtype=torch.int64)
        return *made, torch.empty_strided((2, 2), (2, 1)), x.new_empty_strided((2,), (1,)), x + 1

    compiled = flambeau.compile(function)
    x = torch.ones(3)
    compiled(x)
    torch.use_deterministic_algorithms(True)
    try:
        assert_same(compiled(x), function(x))
        assert compiled(x)[0].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)
