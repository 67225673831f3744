"""Small programs that are run plainly and under capture; every one takes one tensor and returns something comparable."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math

import torch
import torch.nn.functional as F

PROGRAMS = []

Point = collections.namedtuple("Point", "a b")


def program(function):
    """Register a program."""
    PROGRAMS.append(function)
    return function


@program
def arithmetic(x):
    return (x * 2 - 1) / 3 + x**2, -x, x @ x.T, 5 - x, x // 0.5, x % 2


@program
def shapes(x):
    b, n = x.shape
    return x.view(n, b), x.reshape(-1), x.size(0) * x.numel(), x.dim(), tuple(x.stride()), x.shape[-1] // 2


@program
def lists(x):
    made = [x, x + 1]
    made.append(x * 2)
    made[0] = made[0] - 1
    made.extend([i * x for i in range(3)])
    popped = made.pop()
    return made[::-1], popped, len(made), sum(made), [m.sum() for m in made if m is not x]


@program
def dicts(x):
    d = {"a": x, "b": x + 1}
    d["c"] = d.pop("a") * 2
    d.update(e=x, f=3)
    return {k: v for k, v in d.items()}, list(d), d.get("z", 7), "b" in d, d.setdefault("g", x - 1)


@program
def containers(x):
    queue = collections.deque([x], maxlen=2)
    queue.append(x + 1)
    queue.append(x + 2)
    groups = collections.defaultdict(list)
    groups["k"].append(x)
    ordered = collections.OrderedDict(a=x)
    ordered.move_to_end("a")
    point = Point(x, 2)
    return list(queue), groups["k"], ordered["a"], point.a, {1, 2} | {3}


@program
def loops(x):
    total = torch.zeros_like(x)
    for i, (a, b) in enumerate(zip(range(3), itertools.count(2))):
        if i == 1:
            continue
        total = total + a * x + b
    while i > 0:
        total = total + i
        i -= 1
    else:
        total = total * 2
    return total


@program
def closures(x):
    scale = 2

    def inner(y, *args, power=1, **rest):
        nonlocal scale
        scale += 1
        return y * scale**power + sum(args) + len(rest)

    return inner(x), inner(x, 1, 2, power=2, other=3), functools.partial(inner, power=0)(x), scale


@program
def generators(x):
    def numbers(n):
        for i in range(n):
            got = yield i * x
            assert got is None
        return n

    def outer():
        result = yield from numbers(2)
        yield result

    return list(outer()), sum(v for v in numbers(3)), next(numbers(1)), dict((i, v) for i, v in enumerate(numbers(2)))


@program
def exceptions(x):
    try:
        raise ValueError("no", x.shape[0])
    except (KeyError, ValueError) as error:
        message = str(error.args[0])
    finally:
        x = x + 1
    try:
        {}["missing"]
    except KeyError as error:
        key = error.args[0]
    try:
        list(range(1))[1]
    except IndexError:
        x = x * 2
    return x, message, key


class Manager:
    def __enter__(self):
        return self

    def __exit__(self, *details):
        return details[0] is ValueError


@program
def contexts(x):
    @contextlib.contextmanager
    def scaled(by):
        yield x * by

    with scaled(3) as y, Manager():
        z = y + 1
        raise ValueError("swallowed")
    with torch.no_grad(), contextlib.suppress(KeyError):
        z = z * 2
    return z, torch.is_grad_enabled()


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: float = 2.0

    def __post_init__(self):
        self.total = self.left + self.right

    @property
    def doubled(self):
        return self.left * 2

    def __add__(self, other):
        return Pair(self.left + other.left, self.right)

    def __len__(self):
        return 2

    def __getitem__(self, key):
        return (self.left, self.right)[key]


@program
def objects(x):
    pair = Pair(x) + Pair(x * 2, right=1.0)
    pair.left = pair.left - 1
    return (
        pair.doubled,
        pair.total,
        len(pair),
        pair[1],
        getattr(pair, "none", None),
        isinstance(pair, Pair),
        hasattr(pair, "left"),
    )


class Base:
    factor = 2

    def __init__(self, x):
        self.x = x

    def scaled(self):
        return self.x * self.factor

    @classmethod
    def make(cls, x):
        return cls(x)

    @staticmethod
    def plus(x):
        return x + 1

    def __getattr__(self, name):
        if name == "computed":
            return self.x + 10
        raise AttributeError(name)


class Derived(Base):
    factor = 3

    def scaled(self):
        return super().scaled() + 1


@program
def inheritance(x):
    made = Derived.make(x)
    return made.scaled(), Base(x).scaled(), made.plus(x), made.computed, type(made).__name__


@program
def strings(x):
    name = "value"
    return (
        f"{name}:{x.dim():03d} {x.shape[0]!r}",
        "-".join(str(i) for i in range(3)),
        "%s %d".__mod__((name, 3)),
        name.upper(),
    )


@program
def builtins_used(x):
    values = [3, 1, 2]
    return (
        sorted(values, reverse=True),
        max(values),
        min(4, 5),
        any(v > 2 for v in values),
        all([]),
        abs(-3),
        math.sqrt(16),
        list(map(lambda v: v * x, values)),
        list(filter(None, [0, 1])),
        divmod(7, 2),
        round(2.5),
    )


@program
def unpacking(x):
    first, *middle, last = [x, x + 1, x + 2, x + 3]
    a, (b, c) = 1, (2, 3)
    return first, middle, last, [*middle, a], {"k": b, "c": c}, (lambda *p, **k: (p, k))(*middle, q=a)


@program
def inplace(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 0
    y[:, 1] += 5
    torch.relu_(y)
    return y


@program
def functional(x):
    return (
        F.softmax(x, dim=-1),
        F.layer_norm(x, (x.shape[-1],)),
        F.gelu(x),
        torch.cat([x, x], 0),
        torch.einsum("ij,kj->ik", x, x),
        torch.where(x > 0, x, 0.0),
        x.split(1, 0),
        x.max(dim=1),
        torch.arange(4) + torch.zeros(4),
    )


@program
def matching(x):
    match (x.dim(), {"k": 1}):
        case (2, {"k": value}):
            return x + value
        case _:
            return x


@program
def dtypes(x):
    return (
        x.to(torch.float64),
        x.double().dtype,
        x.type_as(x),
        x.device.type,
        torch.finfo(x.dtype).max,
        x.is_floating_point(),
        x.new_zeros(2),
    )


# Programs that break the graph.


@program
def prints(x):
    y = x + 1
    print("shape", tuple(y.shape))
    return y * 2


@program
def branches(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    else:
        y = y - 1
    for i in range(2):
        if (y + i).mean() > 1000:
            break
        y = y * 1.5
    return y


@program
def items(x):
    n = int(x.abs().sum().item()) % 3 + 1
    return x.repeat(n, 1), float(x.max()), x.tolist()


@program
def break_in_with(x):
    with torch.no_grad():
        y = x + 1
        print("inside", torch.is_grad_enabled())
        y = y * 2
    return y, torch.is_grad_enabled()


@program
def break_in_try(x):
    try:
        y = x + 1
        print("trying")
        raise RuntimeError("stop")
    except RuntimeError as error:
        print("caught", error)
        y = x - 1
    finally:
        print("finally")
    return y * 2


@program
def break_in_callee(x):
    def inner(v):
        v = v * 3
        print("inner")
        return v + 1

    return inner(x + 1) * 2


@program
def dynamic_shape(x):
    kept = x[x > 0]
    return kept.shape[0] >= 0, (kept * 2).sum(), torch.nonzero(x).shape[1]


@program
def raises(x):
    y = x + 1
    if y.dim() == 2:
        raise ValueError("two dimensions")
    return y


@program
def raises_from_operator(x):
    return torch.cat([x, x[0]]) + 1
