"""Calls, copies, containers, exceptions that carry values, caches."""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import operator
import types
import typing

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


@p
def pow_mod():
    def f(x):
        return x + pow(3, 4, mod=5)

    return f, [(x,)]


@p
def wraps_():
    def f(x):
        def deco(fn):
            @functools.wraps(fn)
            def inner(*a):
                "in"
                return fn(*a) + 1

            return inner

        @deco
        def g(x):
            "doc of g"
            return x * 2

        return (
            g(x),
            g.__name__,
            g.__doc__,
            g.__qualname__,
            g.__module__,
            g.__wrapped__.__name__,
            g.__dict__.keys().__len__(),
        )

    return f, [(x,)]


@p
def deepcopy_shared():
    class Obj:
        pass

    def f(x):
        o = Obj()
        o.a = [1, 2]
        o.b = o.a
        o.t = x
        o.u = x
        c = copy.deepcopy(o)
        c.a.append(3)
        return c.b, o.a, c.a is c.b, c.t is c.u, c.t is x, c.t + 1

    return f, [(x,)]


@p
def deepcopy_shared_list():
    def f(x):
        a = [1]
        l = [a, a, (a,)]
        l2 = copy.deepcopy(l)
        l2[0].append(5)
        d = {"p": a, "q": a}
        d2 = copy.deepcopy(d)
        d2["p"].append(1)
        return l2, l, d2, d, x + 1

    return f, [(x,)]


@p
def slots_copy():
    class S:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a = a
            self.b = b

    def f(x):
        s = S(x, [1])
        c = copy.copy(s)
        d = copy.deepcopy(s)
        d.b.append(2)
        return c.a + 1, c.b is s.b, d.b, s.b, type(c).__name__

    return f, [(x,)]


@p
def slots_copy_out():
    class S:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a = a
            self.b = b

        def __repr__(self):
            return f"S({self.a},{self.b})"

    def f(x, s):
        c = copy.copy(s)
        d = copy.deepcopy(s)
        d.b.append(2)
        return x + c.a, c.b is s.b, d.b, s.b

    return f, [(x, S(1, [1]))]


@p
def insort():
    def f(x, l):
        bisect.insort(l, 3)
        bisect.insort_left(l, 2)
        return x + len(l)

    return f, [lambda: (x, [1, 5]), lambda: (x, [1, 5])]


@p
def heap_():
    def f(x, l):
        heapq.heapify(l)
        heapq.heappush(l, 0)
        a = heapq.heappop(l)
        return x + a, heapq.nsmallest(2, l)

    return f, [lambda: (x, [5, 1, 3]), lambda: (x, [5, 1, 3])]


@p
def op_writes():
    def f(x, l, d):
        operator.setitem(l, 0, 9)
        operator.iadd(l, [4])
        operator.delitem(l, 1)
        operator.delitem(d, "k")
        operator.setitem(d, "z", 1)
        a = operator.concat(l, [1])
        operator.iconcat(l, [7])
        b = operator.countOf(l, 4)
        c = operator.indexOf(l, 4)
        return x + len(l), a, b, c

    return f, [lambda: (x, [1, 2, 3], {"k": 1}), lambda: (x, [1, 2, 3], {"k": 1})]


@p
def exc_values():
    def f(x, n):
        try:
            raise ValueError(x * 2, n)
        except ValueError as e:
            return e.args[0] + e.args[1], n

    return f, [(x, 1), (x + 5, 2), (x + 7, 3), (x, 4)]


@p
def exc_values_fold():
    def f(x, n):
        try:
            {}[n]
        except KeyError as e:
            return x + e.args[0], e.args

    return f, [(x, 1), (x + 5, 2), (x + 7, 3), (x, 4)]


@p
def exc_value_tensor_fold():
    def f(x, d):
        try:
            d[x]
        except KeyError as e:
            return e.args[0] is x, x + 1

    return f, [lambda: (x, {})]


@p
def exc_custom_attr():
    class E(Exception):
        def __init__(self, v, w=2):
            super().__init__("msg")
            self.v = v
            self.w = w

    def f(x, n):
        try:
            raise E(x + 1, w=n)
        except E as e:
            return e.v * e.w, str(e), e.args, repr(e)

    return f, [(x, 1), (x + 5, 2), (x + 7, 3), (x, 4)]


@p
def exc_from_callee():
    def g(y, n):
        if n > 0:
            raise RuntimeError(f"bad {n}", y)
        return y

    def f(x, n):
        try:
            return g(x * 2, n)
        except RuntimeError as e:
            return e.args[1] + 1, e.args[0], str(e.args[0])

    return f, [(x, 1), (x + 5, 2), (x + 7, 3), (x, 0)]


@p
def mproxy():
    def f(x, d):
        m = types.MappingProxyType(d)
        return x + m["a"], len(m), list(m)

    d = {"a": 1}

    def call2():
        d["a"] = 2
        d["b"] = 3
        return (x, d)

    return f, [(x, d), call2, (x, d)]


@p
def mproxy_out():
    d = {"a": 1}
    m = types.MappingProxyType(d)

    def f(x, m):
        return x + m["a"], len(m), sorted(m), "b" in m, m.get("b")

    def call2():
        d["a"] = 2
        d["b"] = 3
        return (x, m)

    return f, [(x, m), call2, (x, m)]


@p
def vars_cls():
    class C:
        a = 1

    def f(x):
        return x + sum(v for k, v in vars(C).items() if not k.startswith("_")), [
            k for k in C.__dict__ if not k.startswith("_")
        ]

    def call2():
        C.b = 5
        return (x,)

    return f, [(x,), call2, (x,)]


@p
def lru_mut():
    @functools.lru_cache(None)
    def g(n):
        return [n]

    def f(x, n):
        l = g(n)
        l.append(1)
        return x + len(l)

    return f, [(x, 1), (x, 1), (x, 1)]


@p
def lru_tensor():
    @functools.lru_cache(None)
    def g(n):
        return torch.zeros(n)

    def f(x):
        b = g(4)
        b.add_(1)
        return x + b

    return f, [(x,), (x,), (x,)]


@p
def lru_identity():
    @functools.cache
    def g(n):
        return torch.zeros(n)

    def f(x):
        return g(4) is g(4), x + g(4)

    return f, [(x,), (x,), (x,)]


@p
def set_order():
    def f(x, s):
        return x + 1, list(s), [k for k in s], tuple(s), max(s)

    a = {8, 1, 16}
    b = {1, 16, 8}
    c = set([16, 8])
    c.add(1)
    return f, [(x, a), (x, b), (x, c), (x, {"a", "c", "b"}), (x, {"c", "b", "a"})]


@p
def set_order_made():
    def f(x):
        s = set()
        s.add(16)
        s.add(8)
        s.add(1)
        s2 = {9, 1, 17}
        return x + 1, list(s), list(s2), list(s | s2), [i for i in frozenset([33, 1, 17])], sorted(s)

    return f, [(x,)]


@p
def isinst():
    def f(x):
        return (
            [isinstance(x, c) for c in (torch.FloatTensor, torch.DoubleTensor, torch.Tensor, torch.LongTensor)],
            isinstance(x * 2, torch.FloatTensor),
            isinstance(x.long(), torch.LongTensor),
            isinstance(x.long(), (int, torch.IntTensor)),
            x + 1,
        )

    return f, [(x,), (x.double(),)]


@p
def dict_change():
    def f(x, d):
        try:
            for k in d:
                d[k + "x"] = 1
        except RuntimeError as e:
            return x + 1, str(e)
        return x

    return f, [lambda: (x, {"a": 1})]


@p
def dict_change2():
    def f(x):
        res = []
        d = {"a": 1, "b": 2}
        for it in (lambda: iter(d), lambda: iter(d.items()), lambda: iter(d.values()), lambda: iter(d.keys())):
            try:
                for k in it():
                    d.pop(next(iter(d)))
            except RuntimeError as e:
                res.append(str(e))
        d = {"a": 1, "b": 2}
        try:
            for k in d:
                del d[k]
                d[k + "1"] = 1
        except RuntimeError as e:
            res.append(str(e))
        for k in d:
            d[k] = 3
        s = {1, 2}
        try:
            for k in s:
                s.add(k + 10)
        except RuntimeError as e:
            res.append(str(e))
        q = collections.deque([1, 2])
        try:
            for k in q:
                q.append(k)
        except RuntimeError as e:
            res.append(str(e))
        q = collections.deque([1, 2])
        try:
            for k in q:
                q.append(k)
                q.popleft()
        except RuntimeError as e:
            res.append(str(e))
        o = collections.OrderedDict(a=1, b=2)
        try:
            for k in o:
                o.move_to_end(k)
        except RuntimeError as e:
            res.append(str(e))
        try:
            for k in o:
                o[k + "x"] = 1
        except RuntimeError as e:
            res.append(str(e))
        return res, x + 1

    return f, [(x,)]


@p
def named_tuple_errors():
    Pair = collections.namedtuple("Pair", "a b")

    def told(make):
        try:
            return make()
        except TypeError as error:
            return str(error)

    def f(x):
        return x + 1, told(lambda: Pair(1)), told(lambda: Pair(1, 2, 3)), told(lambda: Pair(1, c=2))

    return f, [(x,)]


class Money(typing.NamedTuple):
    whole: int
    part: int = 0

    def __add__(self, other):
        return Money(self.whole + other.whole, self.part + other.part)

    def __len__(self):
        return 7


@p
def named_tuple_with_operators_of_its_own():
    def f(x, given):
        made = Money(1, 2)
        return x + 1, made + given, given + made, len(made), len(given), [*made], made == (1, 2)

    return f, [(x, Money(3)), (x, Money(4, 5))]


@p
def keyword_given_twice():
    def g(a=1, **more):
        return a

    def f(x, first, second):
        try:
            return x + g(**first, **second)
        except TypeError as error:
            return x, str(error)

    return f, [(x, {"a": 1}, {"b": 2}), (x, {"a": 1}, {"a": 2})]
