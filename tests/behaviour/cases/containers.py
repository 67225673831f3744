"""Lists, dicts, sets, tuples, named tuples, enums, strings, comprehensions and the functions over them."""

# ruff: noqa: RUF015, RUF017, UP031 (the odd ways of writing are what is tested)

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import types
import typing
from typing import Any

import torch
from torch import Tensor

from .table import case


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Point(typing.NamedTuple):
    x: Tensor
    y: Any = 2


@dataclasses.dataclass
class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """Like the outputs of transformers: a dataclass that is a dict of what is not None."""

    logits: Any = None
    loss: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass(frozen=True)
class Settings:
    scale: float = 2.0
    names: tuple[str, ...] = ("a", "b")


@case()
def enumerate_zip_sorted(x: Tensor) -> Any:
    rows = [(3, "c"), (1, "a"), (2, "b")]
    ordered = sorted(rows, key=lambda row: row[0], reverse=True)
    return [x * n for n, _ in ordered], [name for _, (_, name) in enumerate(zip(range(3), ordered, strict=False), 1)][0]


@case()
def itertools_functions(x: Tensor) -> Any:
    out = [x * a + b for a, b in itertools.product(range(2), repeat=2)]
    out += list(itertools.islice((x * i for i in itertools.count()), 1, 5, 2))
    out += [a for a, _ in itertools.combinations([x, x + 1, x + 2], 2)]
    for _, group in itertools.groupby([1, 1, 2], key=lambda n: n):
        out.append(x * len(list(group)))
    out += itertools.takewhile(lambda t: t.dim() == 2, [x])
    return out, list(itertools.accumulate([1, 2, 3])), list(itertools.chain.from_iterable([i] * 2 for i in range(2)))


@case()
def comprehensions(x: Tensor) -> Any:
    table = {name: x * i for i, name in enumerate("abc") if name != "b"}
    flat = [y for row in [[x, x + 1], [x + 2]] for y in row]
    return table, flat, {len(k) for k in table}, {v.dim(): k for k, v in table.items()}


@case()
def star_unpacking(x: Tensor) -> Any:
    first, *rest = x, x + 1, x + 2
    *start, last = rest
    (a, b), c = (first, last), [*rest, *start]
    return a, b, c, {"k": a, "j": b}


@case()
def walrus_and_chained_comparison(x: Tensor) -> Any:
    if (n := x.shape[0]) > 2 and 1 < n <= 3:
        x = x + n
    return x, [y for i in range(4) if (y := i * 2) > 2]


@case()
def strings_and_formatting(x: Tensor) -> Any:
    name = f"{'x':>4}|{x.shape[1]:03d}|{x.dtype}|{tuple(x.shape)!r}"
    return (
        x.neg(),
        name,
        "%s-%d" % ("a", x.dim()),
        f"{1} {2}",
        name.split("|")[0].strip().upper(),
        "a" in name,
    )


@case(arguments=lambda: (torch.ones(2), Color.BLUE, Level.HIGH))
def enums(x: Tensor, color: Color, level: Level) -> Any:
    x = x * 2 if color is Color.BLUE else x
    x = x + (level if level > Level.LOW else 0)
    return x, color, Color["RED"].value, Color(2).name, {Color.RED: 1}.get(color, 7), [c.name for c in Color]


@case()
def named_tuple(x: Tensor) -> Any:
    point = Point(x)
    point = point._replace(y=x + 1)
    a, b = point
    return point, a + b, point.x, point._fields, point[1], point._asdict()["x"]


@case(arguments=lambda: (Point(torch.ones(2), 3), Settings()))
def named_tuple_and_frozen_dataclass_arguments(point: Point, settings: Settings) -> Any:
    return Point(point.x * settings.scale, point.y + 1), settings.names[0], settings


@case()
def dataclass_replace_and_equality(x: Tensor) -> Any:
    made = Settings(3.0)
    changed = dataclasses.replace(made, scale=4.0)
    return x * changed.scale, made == Settings(3.0), made == changed, dataclasses.asdict(changed)["scale"], repr(made)


@case()
def model_output(x: Tensor) -> Any:
    made = Output(logits=x * 2)
    return made, made["logits"] + 1, made.to_tuple(), "loss" in made, made.loss, list(made.items())[0][0]


@case()
def default_dict_and_counter(x: Tensor) -> Any:
    groups: Any = collections.defaultdict(list)
    for i, key in enumerate("aba"):
        groups[key].append(x * i)
    return dict(groups), len(groups["c"]), sorted(groups)


@case()
def deque_rotates(x: Tensor) -> Any:
    queue = collections.deque([x, x + 1, x + 2], maxlen=3)
    queue.append(x + 3)
    queue.appendleft(queue.pop())
    return list(queue), queue[0], len(queue)


@case()
def set_operations(x: Tensor) -> Any:
    a, b = {1, 2, 3}, frozenset((2, 3, 4))
    return x * len(a & b), a | b, a - b, a ^ b, 2 in a, a <= {1, 2, 3, 4}, sorted(a)


@case()
def slices_and_negative_steps(x: Tensor) -> Any:
    items = [x * i for i in range(5)]
    items[1:3] = [x]
    del items[0]
    return items[::-1], items[-2:], x[1:, ::2], x[..., None].shape, x[:, [0, 2]], x[x.shape[0] - 1]


@case()
def dict_methods(x: Tensor) -> Any:
    table = {"a": x}
    table |= {"b": x + 1}
    other = dict(table, c=3)
    popped = other.pop("a")
    missing = other.pop("zz", None)
    view = other.keys() & {"b", "z"}
    for key in list(other):
        if key == "c":
            del other[key]
    return table, other, popped, missing, view, list(reversed(table)), dict.fromkeys("ab", x), table.popitem()[0]


@case(arguments=lambda: (torch.ones(2), [1, 2], {"k": [3]}, {5}))
def mutates_arguments(x: Tensor, numbers: list[Any], table: dict[str, Any], members: set[int]) -> Any:
    numbers.append(x)
    numbers.sort(key=lambda n: -1 if isinstance(n, Tensor) else n)
    table["k"].append(len(numbers))
    table.setdefault("new", []).append(x + 1)
    members.discard(5)
    members.add(6)
    return x + sum(table["k"][:1])


@case()
def numbers(x: Tensor) -> Any:
    n = x.shape[0]
    return (
        x * (n // 2) + n % 2,
        divmod(n, 2),
        round(2.567, 1),
        int("3"),
        float(n),
        abs(-n),
        pow(2, n),
        (7).bit_length(),
        complex(1, 2).imag,
    )


@case()
def identity_and_membership(x: Tensor) -> Any:
    y = x
    items = [x, 1, None]
    return x is y, x is not items[0], None in [1, None], [3, 1].index(1), [1, 2, 1].count(1), x + 1


@case()
def reduce_functions(x: Tensor) -> Any:
    import functools
    import math

    return (
        functools.reduce(lambda a, b: a * b, [x, x + 1, x + 2]),
        math.prod(x.shape),
        math.sqrt(x.shape[1]),
        sum(([1], [2]), []),
    )


@case()
def bytes_and_ranges(x: Tensor) -> Any:
    r = range(2, 10, 3)
    return x * r[1], len(r), 5 in r, list(reversed(r)), b"ab"[0], bytes(2), r.start, r == range(2, 11, 3)


@case()
def tensors_as_dict_keys(x: Tensor) -> Any:
    state = {x: 1}
    y = x + 1
    state[y] = 2
    return state[x] + state[y], y, len(state), x in state


class Registry(collections.OrderedDict):  # type: ignore[type-arg]
    """Makes what it holds, as the table of activations of transformers does."""

    def __getitem__(self, key: str) -> Any:
        content = super().__getitem__(key)
        cls, options = content if isinstance(content, tuple) else (content, {})
        return cls(**options)


class Reversed(list):  # type: ignore[type-arg]
    """Counts from the end."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(-1 - index)


ACTIVATIONS = Registry({"relu": torch.nn.ReLU, "leaky": (torch.nn.LeakyReLU, {"negative_slope": 0.2})})


@case()
def dict_subclass_that_makes_what_it_holds(x: Tensor) -> Any:
    return ACTIVATIONS["relu"](x), ACTIVATIONS["leaky"](x), "relu" in ACTIVATIONS, len(ACTIVATIONS)


@case(arguments=lambda: (torch.ones(2), Reversed([1.0, 2.0, 3.0])))
def list_subclass_that_counts_from_the_end(x: Tensor, items: Any) -> Any:
    return x * items[0], x * items[1], len(items), list(items)


@case(arguments=lambda: (torch.ones(2), types.SimpleNamespace(a=1, b=2)))
def delattr_and_setattr_by_name(x: Tensor, state: Any) -> Any:
    for name in ("a", "b"):
        value = getattr(state, name)
        delattr(state, name)
        setattr(state, name * 2, value)
    return x * state.aa, hasattr(state, "a"), sorted(vars(state))


@case(1, breaks=("external-mutation", "input-output"))
def slice_across_a_break(x: Tensor) -> Any:
    rows = (slice(None), slice(1, 3))
    x[:, ::2] += print("in the middle") or 1
    return x[rows] * 2, rows
