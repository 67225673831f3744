"""Functions on tensors with a graph break somewhere; `TENSOR_PROGRAMS` lists (function, arguments)."""

from __future__ import annotations

import contextlib

import torch

TENSOR_PROGRAMS = []
X = torch.arange(6.0).reshape(2, 3)


def program(*args):
    def add(function):
        TENSOR_PROGRAMS.append((function, args))
        return function

    return add


@program(X)
def prints(x):
    y = x + 1
    print("sum", float(y.sum()))
    return y * 2


@program(X)
@program(-X - 1)
def branch(x):
    y = x * 2
    if y.sum() > 0:
        z = y + 1
    else:
        z = y - 1
    return z.relu(), y


@program(X)
def loop_prints(x):
    out = []
    for i in range(3):
        x = x + i
        print(i, x.sum().item())
        out.append(x)
    else:
        print("end")
    return out


@program(X)
def while_tensor(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
        if n == 3:
            continue
    return x, n


@program(X, True)
@program(X, False)
def try_finally(x, fail):
    log = []
    try:
        y = x + 1
        print("in try")
        log.append(y)
        if fail:
            raise ValueError(str(y.sum().item()))
        z = y * 2
    except ValueError as error:
        print("caught", error)
        z = y * 3
        print(type(error).__name__)
    else:
        print("else")
        z = z + 1
    finally:
        print("finally")
        x = x - 1
    return x, z, log


@program(X)
def raise_out(x):
    y = x.sum()
    print("about to raise")
    try:
        raise KeyError("a")
    except KeyError as error:
        raise RuntimeError(f"value {y.item()}") from error


@program(X)
def real_error(x):
    try:
        y = x @ x
    except RuntimeError as error:
        print(type(error).__name__)
        y = x.t()
    return y + 1


class Scale:
    def __init__(self, by):
        self.by = by

    def __enter__(self):
        print("enter")
        self.entered = True
        return self.by

    def __exit__(self, *exc):
        print("exit", exc[0])
        self.entered = False
        return exc[0] is ZeroDivisionError


@program(X, False)
@program(X, True)
def with_user(x, fail):
    manager = Scale(3)
    with manager as by:
        y = x * by
        print("inside", y.sum().item())
        if fail:
            1 / 0
        y = y + 1
        print("inside again")
    return y, manager.entered


@program(X)
def with_no_grad(x):
    w = torch.ones(3, requires_grad=True)
    a = (x * w).sum()
    with torch.no_grad():
        b = x * w
        print("grad", torch.is_grad_enabled(), b.requires_grad)
        c = b * w
    d = c * w
    print(torch.is_grad_enabled(), d.requires_grad)
    return a.detach(), b, c, d.detach(), a.requires_grad, d.requires_grad


@program(X)
def with_no_grad_raises(x):
    try:
        with torch.no_grad():
            y = x + 1
            print("in", torch.is_grad_enabled())
            raise ValueError("boom")
    except ValueError as error:
        print("out", torch.is_grad_enabled(), error)
    return y, torch.is_grad_enabled()


@program(X)
def nested_with(x):
    with contextlib.ExitStack() as stack, torch.enable_grad(), torch.no_grad():
        stack.callback(print, "callback")
        y = x + 1
        print("body", y.shape)
    return y * 2


@program(X)
def with_return(x):
    with torch.no_grad():
        y = x + 1
        print("before return")
        return y * 2


@program(X)
def closures(x):
    count = 0
    scale = x.sum()

    def step(n):
        nonlocal count
        count += n
        return x * count + scale

    a = step(1)
    print("count", count)
    b = step(2)
    x = x + 1
    print("count", count)
    return a, b, step(3), count


@program(X)
def calls(x):
    def inner(*args, **kwargs):
        print(len(args), sorted(kwargs))
        return args[0] + kwargs.get("k", 0)

    y = inner(x, k=2)
    args, kwargs = (y, 1), {"k": 3, "z": 4}
    z = inner(*args, **kwargs)
    print(*[1, 2], sep="-", end="!\n")
    return inner(z, *args, q=1, k=5)


@program(X)
def strings(x):
    y = x + 1
    text = f"{y.sum().item():.1f} {tuple(y.shape)!r} {'a':>3}"
    print(text)
    return y, text


@program(X)
def comprehension(x):
    out = [x * i for i in range(3)]
    print(len(out))
    values = [t.sum().item() for t in out]
    table = {i: t for i, t in enumerate(out) if values[i] >= 0}
    return out, values, table


@program(X)
def chained(x):
    if 0 < x.sum() < 100 <= 200:
        y = x + 1
    else:
        y = x - 1
    z = x.sum() and y.sum() or x
    return y, z, not x.sum()


@program(X)
def for_else(x):
    for i in range(5):
        x = x + 1
        if x.max() > 7:
            print("break", i)
            break
    else:
        print("no break")
    return x, i


@program({"kind": "scale", "by": 2, "x": X})
@program([X, X])
def matching(value):
    match value:
        case {"kind": "scale", "by": int(by), "x": x}:
            print("scale")
            return x * by
        case [a, b]:
            print("pair")
            return a + b


@program([X, X + 1], {"a": X})
def mutates(items, table):
    items.append(items[0] + items[1])
    table["b"] = items[-1] * 2
    print(len(items), sorted(table))
    del items[0]
    table.pop("a")
    items.reverse()
    print(len(items))
    items[0] = table["b"].sum()
    return None


class State:
    def __init__(self, x):
        self.x = x
        self.log = []

    def __deepcopy__(self, memo):
        return State(self.x)


@program(State(X))
def attributes(state):
    state.x = state.x + 1
    print(state.x.sum().item())
    state.y = state.x * 2
    state.log.append(state.y)
    print(len(state.log))
    del state.y
    return state.x, state.log, sorted(vars(state))


@program(X)
def generators(x):
    def gen(n):
        for i in range(n):
            print("gen", i)
            yield x + i

    out = [t * 2 for t in gen(2)]
    total = sum(t.sum() for t in gen(3))
    return out, total


@program(X)
def iterators(x):
    out = []
    it = iter([1, 2, 3, 4])
    for i, (a, b) in enumerate(zip(it, [x, x + 1])):
        print(i, a)
        out.append(b * a)
    print(next(it))
    for k, v in {"p": x, "q": x * 2}.items():
        print(k)
        out.append(v)
    return out, list(it), list(reversed(out))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(3, 4)
        self.b = torch.nn.Linear(4, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        h = self.a(x)
        print("hidden", tuple(h.shape), self.calls)
        return self.b(torch.relu(h))


def net():
    torch.manual_seed(1)
    return Net()


@program(net(), X)
def module(net, x):
    y = net(x)
    print("between")
    return net(y.repeat(1, 2)[:, :3]), net.calls


class Chained(Net):
    def forward(self, x):
        y = super().forward(x)
        print("chained")
        return super().forward(y @ y.t() @ x)


@program(Chained(), X)
def super_calls(net, x):
    with torch.no_grad():
        return net(x).shape


@program(X)
def swallowed(x):
    with contextlib.suppress(ValueError):
        y = x + 1
        print("raising")
        raise ValueError("gone")
    return y


@program(X)
def nested_handlers(x):
    try:
        try:
            print("one")
            raise ValueError("inner")
        except ValueError as error:
            print("two", error)
            y = x + 1
            raise TypeError("outer")
        finally:
            print("three")
            x = x * 2
    except TypeError as error:
        print("four", error, type(error.__context__).__name__)
        z = x + y
    return z


@program(X)
def item(x):
    n = x.sum().item()
    y = x + n
    m = int(y.max())
    return y * m, n, m, y.tolist()


@program(X)
def lambdas(x):
    fs = [lambda t, k=k: t * k for k in range(3)]
    print(len(fs))
    return [f(x) for f in fs], sorted([3, 1, 2], key=lambda v: -v)


@program(X)
def star_unpack(x):
    a, *b = x.unbind(0), x, x + 1
    print(len(b))
    (c, d), *e = a, b
    return c, d, e


@program(X)
def in_place(x):
    y = x.clone()
    y += 1
    print("added")
    y[0] = 0
    y[1, 1:] *= 2
    print("done")
    return y


@program(X)
def globals_written(x):
    global _SEEN
    _SEEN = x + 1
    print("set")
    y = _SEEN * 2
    del _SEEN
    return y


@program(X)
def asserts(x):
    assert x.sum() > 0, "positive"
    y = x + 1
    assert y.sum() < 0, f"negative {y.sum().item()}"
    return y
