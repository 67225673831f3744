"""Containers, iterators, plain values and names that change."""

from __future__ import annotations

import array
import collections
import contextvars
import itertools
import math
import sys
import threading
import types

import numpy as np
import torch

from . import Record, change


@change
def global_dict_value():
    G = {"a": 1}

    def f(x):
        return x * G["a"]

    return f, lambda: G.__setitem__("a", 2)


@change
def global_list_append():
    G = [1, 2]

    def f(x):
        return x * len(G) + sum(G)

    return f, lambda: G.append(5)


@change
def itertools_count():
    c = itertools.count(1)

    def f(x):
        return x * next(c)

    return f, lambda: None


@change
def generator_global():
    g = (i for i in range(100))

    def f(x):
        return x * next(g)

    return f, lambda: None


@change
def iterator_list():
    it = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])

    def f(x):
        return x * next(it)

    return f, lambda: None


@change
def contextvar():
    v = contextvars.ContextVar("v", default=2)

    def f(x):
        return x * v.get()

    return f, lambda: v.set(5)


@change
def thread_local():
    t = threading.local()
    t.k = 2

    def f(x):
        return x * t.k

    return f, lambda: setattr(t, "k", 6)


@change
def user_module_attr():
    mod = types.ModuleType("usermod")
    mod.k = 2

    def f(x):
        return x * mod.k

    return f, lambda: setattr(mod, "k", 3)


@change
def globals_function():
    ns = {"k": 2, "torch": torch}
    exec("def f(x): return x*globals()['k']", ns)
    return ns["f"], lambda: ns.__setitem__("k", 3)


@change
def builtins_shadowed():
    ns = {"torch": torch}
    exec("def f(x): return x*len([1,2])", ns)
    return ns["f"], lambda: ns.__setitem__("len", lambda l: 9)


@change
def set_membership():
    S = {1, 2}

    def f(x):
        return x * (2 if 3 in S else 1)

    return f, lambda: S.add(3)


@change
def deque_rotate():
    d = collections.deque([1, 2, 3])

    def f(x):
        return x * d[0]

    return f, lambda: d.rotate(1)


@change
def defaultdict_factory():
    d = collections.defaultdict(lambda: 2)

    def f(x):
        return x * d["q"]

    return f, lambda: d.__setitem__("q", 5)


@change
def counter():
    d = collections.Counter("aab")

    def f(x):
        return x * d["a"]

    return f, lambda: d.update("a")


@change
def dict_order():
    d = {"a": 1, "b": 2}

    def f(x):
        return x * list(d.values())[0]

    return f, lambda: d.__setitem__("a", d.pop("a"))


@change
def longer_string():
    o = Record(s="ab")

    def f(x):
        return x * len(o.s)

    return f, lambda: setattr(o, "s", "abcd")


@change
def byte_array():
    b = bytearray(b"ab")

    def f(x):
        return x * b[0]

    return f, lambda: b.__setitem__(0, 5)


@change
def numpy_array():
    a = np.array([2.0])

    def f(x):
        return x * float(a[0])

    return f, lambda: a.__setitem__(0, 3.0)


@change
def array_array():
    a = array.array("i", [2])

    def f(x):
        return x * a[0]

    return f, lambda: a.__setitem__(0, 3)


@change
def not_a_number():
    o = Record(v=float("nan"))

    def f(x):
        return x * (2 if o.v != o.v else 3)

    return f, lambda: setattr(o, "v", 1.0)


@change
def negative_zero():
    o = Record(v=0.0)

    def f(x):
        return x * math.copysign(1.0, o.v)

    return f, lambda: setattr(o, "v", -0.0)


@change
def true_vs_1():
    o = Record(v=1)

    def f(x):
        return x * (2 if o.v is True else 3)

    return f, lambda: setattr(o, "v", True)


@change
def module_imported():
    def f(x):
        return x * len(sys.modules.get("zzmod").__name__ if "zzmod" in sys.modules else "q")

    def ch():
        sys.modules["zzmod"] = types.ModuleType("zzmod")

    f.undo = lambda: sys.modules.pop("zzmod", 0)
    return f, ch
