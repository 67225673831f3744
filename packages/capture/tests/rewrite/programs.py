# ruff: noqa: E731, F841, F821, UP008, F401, B023
"""Small functions, one construct each, that print, mutate and raise; `PROGRAMS` lists (function, arguments maker)."""

from __future__ import annotations

import contextlib

PROGRAMS = []


def program(*args):
    def add(function):
        PROGRAMS.append((function, args))
        return function

    return add


@program([3, 1, 2], 4)
def loop(items, n):
    total = 0
    for i, item in enumerate(items):
        if item == 2:
            continue
        print("item", i, item)
        total += item * n
    else:
        print("done")
    items.append(total)
    return total, items


@program([3, 1, 2])
def loop_break(items):
    for item in items:
        if item == 1:
            print("found")
            break
    else:
        print("never")
    return item


@program(5)
def while_loop(n):
    out = []
    while n:
        n -= 1
        if n % 2:
            out.append(n)
            continue
        print(n)
    return out


@program(0)
@program(2)
@program("x")
def try_except(n):
    log = []
    try:
        print("in")
        log.append(10 / n)
        [1, 2][n]
    except ZeroDivisionError as error:
        log.append(str(error))
        print("zero", log)
    except (TypeError, IndexError) as error:
        print(type(error).__name__)
        log.append(repr(error))
        try:
            raise KeyError("inner")
        except KeyError as inner:
            log.append(type(inner.__context__).__name__)
        raise ValueError("outer") from error
    else:
        print("else")
    finally:
        print("finally", log)
        log.append("f")
    return log


@program(1)
@program(0)
def bare_raise(n):
    try:
        try:
            1 / n
        except ZeroDivisionError:
            print("again")
            raise
        finally:
            print("cleanup")
    except ArithmeticError as error:
        return type(error).__name__, error.__context__
    return n


@program(False)
@program(True)
def finally_return(early):
    for i in range(3):
        try:
            if early and i == 1:
                return i
            print("body", i)
        finally:
            print("fin", i)
    return "end"


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        print("enter", self.name)
        return self

    def __exit__(self, kind, value, tb):
        print("exit", self.name, kind and kind.__name__, value)
        return self.swallow


@program(False, False)
@program(True, False)
@program(True, True)
def with_block(fail, swallow):
    with Manager("a") as a, Manager("b", swallow) as b:
        print(a.name, b.name)
        if fail:
            raise RuntimeError("boom")
        x = len(b.name)
    print("after", swallow)
    return a.name


@program([1, 2, 3])
def with_return(items):
    with Manager("w"):
        for item in items:
            with contextlib.suppress(ZeroDivisionError):
                if item == 2:
                    return 1 / (item - 1)
                1 / 0


@program(2, 3)
def closures(a, b):
    count = 0

    def add(n):
        nonlocal count
        count += n * a
        return count

    add(1)
    print(count)
    b += add(2)
    fs = [lambda k=k: k + a for k in range(2)]
    return count, b, [f() for f in fs], add(1)


@program(3)
def comprehensions(n):
    squares = [i * i for i in range(n)]
    pairs = {(i, j): i + j for i in range(n) for j in range(i)}
    odd = {x for x in squares if x % 2}
    gen = sum(x for x in squares)
    nested = [[j * n for j in range(i)] for i in range(n)]
    print(squares, pairs, odd)
    return gen, nested, sorted(odd)


@program(3)
def comprehension_closure(n):
    fs = [lambda: i + n for i in range(3)]
    n += 1
    return [f() for f in fs]


@program(1, 5)
@program(9, 5)
def chained(a, b):
    if 0 < a < b <= 6:
        print("in")
        r = a
    else:
        r = -a
    return r if a and b or not r else None


@program({"kind": "point", "x": 1, "y": [1, 2]})
@program([1, [2, 3], 4])
@program("text")
def matching(value):
    match value:
        case {"kind": "point", "x": int(x), **rest}:
            print(rest)
            return x, rest
        case [first, [*middle], last] if first < last:
            return first, middle, last
        case str() as text:
            return text.upper()
        case _:
            return None


@program(1.5, "n")
def strings(x, name):
    a = f"{x:.2f} {name!r:>6} {name!s} {x!r}"
    b = f"{name}={x:{'08.3f'}}"
    print(a, b, sep="|", end="\n")
    return a + b


def callee(*args, **kwargs):
    print(args, sorted(kwargs.items()))
    return len(args) + len(kwargs)


@program([1, 2], {"k": 3})
def star_calls(args, kwargs):
    x = callee(*args, 3, **kwargs, z=4)
    y = callee(1, b=2)
    z = callee(*args)
    w = callee(a=1, *args)
    return x + y + z + w, max(args, key=lambda v: -v)


@program({"a": 1}, [1, 2, 3])
def mutations(d, items):
    d["b"] = items[1:]
    items[0:2] = [9]
    del d["a"]
    items.extend(x + 1 for x in list(items))
    d |= {"c": 1}
    a, *b = items
    (c, d2), e = (a, b), d
    return a, b, c, d2, e, items[-1]


@program(4)
def generator_use(n):
    def gen():
        for i in range(n):
            got = yield i
            print("got", got)

    g = gen()
    out = [next(g)]
    out.append(g.send("x"))
    for i in g:
        out.append(i)
    return out, list(zip("ab", range(n))), dict(map(lambda v: (v, v), "xy"))


class Base:
    def __init__(self, x):
        self.x = x

    def value(self):
        return self.x


class Child(Base):
    def __init__(self, x):
        super().__init__(x + 1)
        self.y = [x]

    def value(self):
        print("value")
        f = lambda: self.y
        return (
            super().value() + super(Child, self).x + len(f()) + sum(self.y)
            if hasattr(super(), "x")
            else super().value() * 2
        )


@program(3)
def classes(n):
    class Local(Child):
        z = n

        def value(self):
            return super().value() + self.z

    return Local(n).value(), Child(n).value()


@program(3)
def deleted(n):
    x = n
    del x
    try:
        return x
    except UnboundLocalError as error:
        print("unbound", error.name if hasattr(error, "name") else "")
    x = 2
    return x


@program(3)
def sees_locals(n):
    a = 1
    b = a + n
    print(sorted(locals()))
    return sorted(locals().items())


@program(3)
def imports(n):
    import math
    from os.path import join
    from os.path import sep as s

    return math.floor(n + 0.5), join("a", "b"), s


@program(3)
def globals_(n):
    global _COUNTER
    _COUNTER = n
    _COUNTER += 1
    r = _COUNTER
    del _COUNTER
    return r


@program(3)
@program(0)
def asserts(n):
    assert n, f"n is {n}"
    x = y = n
    x **= 2
    y @= Mat()
    return -x, +x, ~x, not x, y, x is y, x is not y, n in [x], n not in [x]


class Mat:
    def __rmatmul__(self, other):
        return other * 10


@program(3)
def groups(n):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as g:
        print("v", g.exceptions)
    except* TypeError as g:
        print("t", g.exceptions)
    return n


@program(2)
def nested_handlers(n):
    try:
        raise ValueError("one")
    except ValueError as first:
        try:
            raise TypeError("two")
        except TypeError as second:
            print(second.__context__)
            try:
                print("inner")
                n / 0
            except ZeroDivisionError as third:
                chain = [type(e).__name__ for e in (third, third.__context__, third.__context__.__context__)]
                print(chain)
        print("back", type(first).__name__)
    import sys

    return chain, sys.exc_info()


@program([1, 2])
def walrus(items):
    if (n := len(items)) > 1 and (m := n * 2) > 3:
        print(n, m)
    return [y := 1, y**2], n


@program(2)
def keywords_only(a, /, b=3, *rest, c=4, **more):
    print(a, b, rest, c, more)
    rest += (1,)
    more["k"] = a
    return rest, more, c


@program([1, 2], {"a": 1}, {1, 50})
def iterators_over_what_was_filled(items, table, members):
    """The effects are done after the iterators are made."""
    items.extend([7, 8])
    table["p"] = 2
    members.add(100)
    iterators = [iter(items), enumerate(items), zip(items, "abcd"), iter(table), iter(table.items()), iter(members)]
    for iterator in iterators:
        next(iterator), next(iterator)
    third = next(iterators[0])
    print(third)
    return [list(iterator) for iterator in iterators], items, table


@program([1, 2, 3])
def iterator_over_what_was_cleared(items):
    iterator = iter(items)
    first = next(iterator), next(iterator)
    items.clear()
    print(first)
    items.extend([4, 5, 6])
    return list(iterator), items
