"""The standard library and containers in a compiled program."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import random
import threading
import types
import typing
import weakref

import torch
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "Python library"


@program(SECTION)
def lock_held_around_a_write() -> Made:
    lock, cache = threading.Lock(), {}

    def f(x: Tensor) -> Tensor:
        with lock:
            cache["last"] = x.shape[0]
        return x * 2

    return f, [(torch.randn(3),)], cache


@program(SECTION)
def exit_stack_of_contexts() -> Made:
    def f(x: Tensor, frozen: bool) -> Tensor:
        with contextlib.ExitStack() as stack:
            if frozen:
                stack.enter_context(torch.no_grad())
            stack.enter_context(torch.autocast("cpu", enabled=False))
            return x.sin() * 2

    return f, [(torch.randn(3, requires_grad=True), False), (torch.randn(3, requires_grad=True), True)]


@program(SECTION)
def null_context_chosen() -> Made:
    def f(x: Tensor, grad: bool) -> Tensor:
        with contextlib.nullcontext() if grad else torch.no_grad():
            return x.exp()

    return f, [(torch.randn(3, requires_grad=True), True), (torch.randn(3, requires_grad=True), False)]


@program(SECTION)
def exceptions_suppressed() -> Made:
    def f(x: Tensor, table: dict[str, float]) -> Tensor:
        scale = 1.0
        with contextlib.suppress(KeyError):
            scale = table["scale"]
        return x * scale

    return f, [(torch.randn(3), {}), (torch.randn(3), {"scale": 2.0})]


@program(SECTION)
def weak_reference_followed() -> Made:
    owner = nn.Linear(3, 3)
    ref = weakref.ref(owner)

    def f(x: Tensor) -> Tensor:
        layer = ref()
        return layer(x) if layer is not None else x

    return f, [(torch.randn(2, 3),)], owner


@program(SECTION)
def weak_key_dictionary_of_modules() -> Made:
    layer = nn.Linear(3, 3)
    counts: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()

    def f(x: Tensor) -> Tensor:
        counts[layer] = counts.get(layer, 0) + 1
        return layer(x) * counts[layer]

    return f, [(torch.randn(2, 3),), (torch.randn(2, 3),)], layer


@program(SECTION)
def itertools_count_outside() -> Made:
    steps = itertools.count(1)
    return lambda x: x * next(steps), [(torch.ones(3),), (torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def itertools_of_lists() -> Made:
    def f(xs: list[Tensor]) -> Tensor:
        pairs = [a * b for a, b in itertools.combinations(xs, 2)]
        sums = itertools.accumulate(pairs)
        chained = itertools.chain(sums, itertools.islice(itertools.cycle(xs), 4))
        return torch.stack(list(chained)).sum(0)

    return f, [([torch.randn(3) for _ in range(3)],)]


@program(SECTION)
def itertools_product_and_groupby() -> Made:
    def f(x: Tensor) -> Tensor:
        for i, j in itertools.product(range(2), repeat=2):
            x = x + i * j
        groups = {k: len(list(v)) for k, v in itertools.groupby("aabbb")}
        return x * groups["b"]

    return f, [(torch.randn(3),)]


@program(SECTION)
def thread_local_setting() -> Made:
    local = threading.local()
    local.scale = 3.0

    def f(x: Tensor) -> Tensor:
        y = x * getattr(local, "scale", 1.0)
        local.calls = getattr(local, "calls", 0) + 1
        return y + local.calls

    return f, [(torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def context_variable_read_and_set() -> Made:
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)

    def helper(x: Tensor) -> Tensor:
        return x * scale.get()

    def f(x: Tensor) -> Tensor:
        token = scale.set(5.0)
        y = helper(x)
        scale.reset(token)
        return y + helper(x)

    return f, [(torch.ones(3),)]


@program(SECTION)
def registered_pytree_class() -> Made:
    class State:
        def __init__(self, h: Tensor, c: Tensor) -> None:
            self.h, self.c = h, c

    torch.utils._pytree.register_pytree_node(State, lambda s: ([s.h, s.c], None), lambda parts, _: State(*parts))

    def f(state: State) -> State:
        return torch.utils._pytree.tree_map(lambda t: t * 2, state)

    return f, [(State(torch.randn(3), torch.randn(3)),)]


@program(SECTION)
def functools_partial_and_reduce() -> Made:
    scale = functools.partial(torch.mul, other=2.0)

    def f(xs: list[Tensor]) -> Tensor:
        return functools.reduce(operator.add, map(scale, xs))

    return f, [([torch.randn(3) for _ in range(3)],)]


@program(SECTION)
def functools_cached_table() -> Made:
    @functools.lru_cache(maxsize=None)
    def positions(n: int) -> Tensor:
        return torch.arange(n) / n

    return lambda x: x + positions(x.shape[-1]), [(torch.randn(2, 4),), (torch.randn(2, 4),), (torch.randn(2, 6),)]


@program(SECTION)
def functools_singledispatch() -> Made:
    @functools.singledispatch
    def scale(value: object, x: Tensor) -> Tensor:
        return x

    scale.register(int, lambda value, x: x * value)
    scale.register(str, lambda value, x: x + len(value))
    return lambda v, x: scale(v, x).sin(), [(3, torch.ones(3)), ("abc", torch.ones(3)), (None, torch.ones(3))]


@program(SECTION)
def functools_cached_property() -> Made:
    class Grid:
        def __init__(self, n: int) -> None:
            self.n = n

        @functools.cached_property
        def points(self) -> Tensor:
            return torch.linspace(0, 1, self.n)

    grid = Grid(4)
    return lambda x: x * grid.points + grid.points, [(torch.randn(4),), (torch.randn(4),)], grid


@program(SECTION)
def dataclass_made_and_returned() -> Made:
    @dataclasses.dataclass
    class Output:
        logits: Tensor
        loss: Tensor | None = None
        extra: list[int] = dataclasses.field(default_factory=list)

    def f(x: Tensor) -> Output:
        out = Output(x * 2, extra=[x.shape[0]])
        out.loss = out.logits.sum()
        return out

    return f, [(torch.randn(3),)]


@program(SECTION)
def frozen_dataclass_configuration() -> Made:
    @dataclasses.dataclass(frozen=True)
    class Config:
        width: int = 4
        dropout: float = 0.0
        names: tuple[str, ...] = ("a", "b")

    def f(x: Tensor, config: Config) -> Tensor:
        wide = dataclasses.replace(config, width=config.width * 2)
        return x * wide.width + len(config.names)

    return f, [(torch.ones(3), Config()), (torch.ones(3), Config(width=8))]


@program(SECTION)
def enum_deciding_a_branch() -> Made:
    class Mode(enum.Enum):
        SUM = "sum"
        MEAN = "mean"

    def f(x: Tensor, mode: Mode | str) -> Tensor:
        match Mode(mode):
            case Mode.SUM:
                return x.sum()
            case Mode.MEAN:
                return x.mean()

    return f, [(torch.ones(3), Mode.SUM), (torch.ones(3), "mean")]


@program(SECTION)
def int_flags_combined() -> Made:
    class Flag(enum.IntFlag):
        SIN, COS, NEG = 1, 2, 4

    def f(x: Tensor, flags: Flag) -> Tensor:
        if Flag.SIN in flags:
            x = x.sin()
        return -x if flags & Flag.NEG else x

    return f, [(torch.ones(3), Flag.SIN | Flag.NEG), (torch.ones(3), Flag.COS)]


@program(SECTION)
def namedtuple_results() -> Made:
    class Output(typing.NamedTuple):
        mean: Tensor
        std: Tensor
        size: int = 0

    def f(x: Tensor) -> Output:
        return Output(x.mean(), x.std())._replace(size=x.numel())

    return f, [(torch.randn(4),)]


@program(SECTION)
def dict_compared_and_merged() -> Made:
    def f(x: Tensor, options: dict[str, float]) -> Tensor:
        default = {"scale": 1.0, "shift": 0.0}
        merged = default | options
        return x if merged == default else x * merged["scale"] + merged["shift"]

    return f, [(torch.ones(3), {}), (torch.ones(3), {"scale": 2.0})]


@program(SECTION)
def dict_fromkeys_and_methods() -> Made:
    def f(x: Tensor) -> dict[str, Tensor]:
        out = dict.fromkeys(["a", "b"], x)
        out.setdefault("c", x * 3)
        out["b"] = out.pop("a") + 1
        out.update(d=x.sin())
        return {k: v * 2 for k, v in reversed(out.items())}

    return f, [(torch.randn(3),)]


@program(SECTION)
def collections_of_all_kinds() -> Made:
    def f(x: Tensor) -> Tensor:
        groups = collections.defaultdict(list)
        for i, part in enumerate(x):
            groups[i % 2].append(part)
        queue = collections.deque(groups[0], maxlen=2)
        queue.appendleft(x[-1])
        counts = collections.Counter("abca")
        return torch.stack(list(queue)).sum() * counts["a"]

    return f, [(torch.randn(4),)]


@program(SECTION)
def ordered_dict_and_chain_map() -> Made:
    def f(x: Tensor) -> Tensor:
        layers = collections.OrderedDict(a=torch.sin, b=torch.cos)
        layers.move_to_end("a")
        for layer in layers.values():
            x = layer(x)
        return x * collections.ChainMap({"k": 2}, {"k": 3, "j": 4})["j"]

    return f, [(torch.randn(3),)]


@program(SECTION)
def set_operations() -> Made:
    def f(x: Tensor, names: set[str]) -> Tensor:
        known = {"sin", "cos", "exp"}
        for name in sorted(names & known):
            x = getattr(torch, name)(x)
        return x + len(names - known) + len(names ^ known)

    return f, [(torch.ones(3), {"sin", "exp", "no"})]


@program(SECTION)
def list_methods() -> Made:
    def f(x: Tensor) -> Tensor:
        parts = list(x.unbind())
        parts.insert(0, parts.pop())
        parts.extend(p * 2 for p in parts[:2])
        parts[1:3] = [parts[1] + parts[2]]
        parts.reverse()
        del parts[0]
        order = sorted(range(len(parts)), key=lambda i: -i)
        return torch.stack([parts[i] for i in order])

    return f, [(torch.randn(4),)]


@program(SECTION)
def strings_formatted() -> Made:
    def f(x: Tensor, name: str) -> dict[str, Tensor]:
        key = f"{name}.{x.shape[0]:03d}"
        other = "{}/{!r}".format(name.upper(), x.dim())
        last = "%s-%.2f" % (name.partition("_")[2], 1 / 3)
        return {key: x + 1, other: x + 2, last.strip("-"): x * 3}

    return f, [(torch.randn(3), "layer_one")]


@program(SECTION, raises=True)
def exception_leaving_the_function() -> Made:
    class TooLong(ValueError):
        pass

    def check(x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            raise TooLong(f"{x.shape[0]} is too long")
        return x * 2

    return lambda x: check(x + 1), [(torch.randn(3),), (torch.randn(4),)]


@program(SECTION)
def exception_caught_inside() -> Made:
    def risky(x: Tensor, ok: bool) -> Tensor:
        if not ok:
            raise RuntimeError("not ok")
        return x.sin()

    def f(x: Tensor, ok: bool) -> Tensor:
        try:
            return risky(x, ok)
        except (ValueError, RuntimeError) as error:
            return x * len(str(error))
        finally:
            x = x + 1

    return f, [(torch.ones(3), True), (torch.ones(3), False)]


@program(SECTION)
def assert_with_a_message() -> Made:
    def f(x: Tensor) -> Tensor:
        assert x.dim() == 2, f"expected 2 dimensions, got {x.dim()}"
        return x.t() @ x

    return f, [(torch.randn(2, 3),)]


@program(SECTION)
def generator_of_layers() -> Made:
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def outputs(x: Tensor) -> typing.Iterator[Tensor]:
        for layer in layers:
            x = layer(x)
            yield x

    def f(x: Tensor) -> Tensor:
        first, *rest = outputs(x)
        return first + sum(rest)

    return f, [(torch.randn(2, 3),)], layers


@program(SECTION)
def generator_with_send() -> Made:
    def running() -> typing.Generator[Tensor | None, Tensor, None]:
        total = None
        while True:
            x = yield total
            total = x if total is None else total + x

    def f(xs: list[Tensor]) -> Tensor:
        g = running()
        next(g)
        for x in xs:
            out = g.send(x)
        g.close()
        return out

    return f, [([torch.randn(3) for _ in range(3)],)]


@program(SECTION)
def closures_made_anew() -> Made:
    def make(scale: float):
        def inner(x: Tensor) -> Tensor:
            return x * scale

        return inner

    def f(x: Tensor, function: typing.Callable[[Tensor], Tensor]) -> Tensor:
        return function(x).sin()

    return f, [(torch.ones(3), make(2.0)), (torch.ones(3), make(2.0)), (torch.ones(3), make(3.0))]


@program(SECTION)
def closure_counting_its_calls() -> Made:
    calls = 0

    def f(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return f, [(torch.ones(3),)] * 3


@program(SECTION)
def closure_returned() -> Made:
    def f(x: Tensor) -> tuple[Tensor, int]:
        y = x.sin()

        def later(z: Tensor) -> Tensor:
            return z + y

        return later(x), later.__code__.co_argcount

    return f, [(torch.randn(3),)]


@program(SECTION)
def heap_of_numbers() -> Made:
    def f(x: Tensor, costs: list[int]) -> Tensor:
        heap = list(costs)
        heapq.heapify(heap)
        return x * heapq.heappop(heap) + heapq.nlargest(1, heap)[0]

    return f, [(torch.ones(3), [3, 1, 2])]


@program(SECTION)
def math_of_sizes() -> Made:
    def f(x: Tensor) -> Tensor:
        scale = 1 / math.sqrt(x.shape[-1])
        return x * scale + math.ceil(x.shape[0] / 2) + math.log2(8) + math.gcd(x.shape[0], 4)

    return f, [(torch.randn(2, 4),), (torch.randn(3, 5),), (torch.randn(4, 6),)]


@program(SECTION)
def random_numbers_of_python() -> Made:
    def f(x: Tensor) -> Tensor:
        return x * random.random() + random.randint(0, 10) + random.uniform(0.0, 1.0)

    return f, [(torch.ones(3),), (torch.ones(3),)]


@program(SECTION)
def layer_drop() -> Made:
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def f(x: Tensor) -> Tensor:
        for layer in layers:
            if random.random() < 0.5:
                continue
            x = layer(x)
        return x

    return f, [(torch.randn(2, 3),)], layers


@program(SECTION)
def simple_namespace_written() -> Made:
    state = types.SimpleNamespace(step=0, history=[])

    def f(x: Tensor) -> Tensor:
        state.step += 1
        state.history.append(x.shape)
        return x * state.step

    return f, [(torch.ones(3),), (torch.ones(3),)], state
