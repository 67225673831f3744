"""Classes, functions and the answers of objects that change."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import types
import weakref

from . import Record, change


@change
def default_mutable():
    def f(x, acc=[1]):
        return x * acc[0]

    return f, lambda: f.__defaults__[0].__setitem__(0, 7)


@change
def defaults_replaced():
    def f(x, a=2):
        return x * a

    def g(x):
        return f(x)

    return g, lambda: setattr(f, "__defaults__", (5,))


@change
def keyword_defaults():
    def f(x, *, a=2):
        return x * a

    def g(x):
        return f(x)

    return g, lambda: f.__kwdefaults__.__setitem__("a", 9)


@change
def code_swapped():
    def f(x):
        return x * 2

    def h(x):
        return x * 3

    def g(x):
        return f(x)

    return g, lambda: setattr(f, "__code__", h.__code__)


@change
def class_attribute():
    class C:
        k = 2

    o = C()

    def f(x):
        return x * o.k

    return f, lambda: setattr(C, "k", 4)


@change
def instance_shadows_class():
    class C:
        k = 2

    o = C()

    def f(x):
        return x * o.k

    return f, lambda: setattr(o, "k", 4)


@change
def method_patched_on_instance():
    class C:
        def m(s, x):
            return x * 2

    o = C()

    def f(x):
        return o.m(x)

    return f, lambda: setattr(o, "m", lambda x: x * 10)


@change
def method_patched_on_class():
    class C:
        def m(s, x):
            return x * 2

    o = C()

    def f(x):
        return o.m(x)

    return f, lambda: setattr(C, "m", lambda s, x: x * 10)


@change
def base_class_gains_attribute():
    class B:
        pass

    class C(B):
        pass

    o = C()

    def f(x):
        return x * getattr(o, "k", 3)

    return f, lambda: setattr(B, "k", 4)


@change
def property_added():
    class C:
        pass

    o = C()
    o.k = 2

    def f(x):
        return x * o.k

    return f, lambda: setattr(C, "k", property(lambda s: 8))


@change
def class_of_an_object_assigned():
    class A:
        def m(s):
            return 2

    class B:
        def m(s):
            return 3

    o = A()

    def f(x):
        return x * o.m()

    return f, lambda: setattr(o, "__class__", B)


@change
def getattr_hook():
    class A:
        def __getattr__(s, n):
            return 2 if n == "k" else 0

    o = A()

    def f(x):
        return x * o.k

    return f, lambda: setattr(A, "__getattr__", lambda s, n: 5)


@change
def cell_rebound():
    n = 2

    def f(x):
        return x * n

    def ch():
        nonlocal n
        n = 6

    return f, ch


@change
def keywords_of_a_partial():
    p = functools.partial(lambda x, k: x * k, k=2)

    def f(x):
        return p(x)

    return f, lambda: p.keywords.__setitem__("k", 7)


@change
def lru_cache():
    G = [2]

    @functools.lru_cache
    def h(k):
        return G[0] * k

    def f(x):
        return x * h(3)

    return f, lambda: G.__setitem__(0, 5)


@change
def cached_property():
    class C:
        n = 2

        @functools.cached_property
        def k(s):
            return s.n

    o = C()

    def f(x):
        return x * o.k

    return f, lambda: o.__dict__.__setitem__("k", 11)


@change
def abc_register():
    class A(abc.ABC):
        pass

    class B:
        pass

    b = B()

    def f(x):
        return x * (2 if isinstance(b, A) else 3)

    return f, lambda: A.register(B)


@change
def enum_value():
    class E(enum.Enum):
        A = 1

    o = Record(e=E.A)

    def f(x):
        return x * o.e.value

    return f, lambda: setattr(E.A, "_value_", 5)


@change
def field_of_a_dataclass():
    @dataclasses.dataclass
    class D:
        k: int = 2

    d = D()

    def f(x):
        return x * d.k

    return f, lambda: setattr(d, "k", 3)


@change
def dict_subclass_getitem():
    class D(dict):
        def __getitem__(s, k):
            return 2

    d = D(a=1)

    def f(x):
        return x * d["a"]

    return f, lambda: setattr(D, "__getitem__", lambda s, k: 7)


@change
def list_subclass_len():
    class L(list):
        n = 2

        def __len__(s):
            return s.n

    l = L([1])

    def f(x):
        return x * len(l)

    return f, lambda: setattr(L, "n", 5)


@change
def bool_of_object():
    class C:
        v = True

        def __bool__(s):
            return s.v

    o = C()

    def f(x):
        return x * (2 if o else 3)

    return f, lambda: setattr(C, "v", False)


@change
def eq_of_object():
    class C:
        v = 1

        def __eq__(s, o):
            return s.v == o

    o = C()

    def f(x):
        return x * (2 if o == 1 else 3)

    return f, lambda: setattr(C, "v", 4)


@change
def simple_namespace():
    a = types.SimpleNamespace(k=2)

    def f(x):
        return x * a.k

    return f, lambda: setattr(a, "k", 3)


@change
def slots():
    class C:
        __slots__ = ("k",)

    a = C()
    a.k = 2

    def f(x):
        return x * a.k

    return f, lambda: setattr(a, "k", 3)


@change
def slot_filled():
    class C:
        __slots__ = ("k",)

    a = C()

    def f(x):
        return x * (2 if hasattr(a, "k") else 3)

    return f, lambda: setattr(a, "k", 5)


@change
def slot_deleted():
    class C:
        __slots__ = ("k",)

    a = C()
    a.k = 2

    def f(x):
        return x * (2 if hasattr(a, "k") else 3)

    return f, lambda: delattr(a, "k")


@change
def function_attribute():
    def h():
        return 0

    h.k = 2

    def f(x):
        return x * h.k

    return f, lambda: setattr(h, "k", 3)


@change
def class_property():
    class A:
        pass

    class B:
        pass

    class C:
        @property
        def __class__(s):
            return s.c

    o = C()
    o.__dict__["c"] = A

    def f(x):
        return x * (2 if isinstance(o, A) else 3)

    return f, lambda: o.__dict__.__setitem__("c", B)


@change
def instancecheck_hook():
    class M(type):
        v = True

        def __instancecheck__(c, o):
            return M.v

    class A(metaclass=M):
        pass

    o = Record()

    def f(x):
        return x * (2 if isinstance(o, A) else 3)

    return f, lambda: setattr(M, "v", False)


@change
def list_of_a_bound_method():
    held = []
    put = held.append

    def f(x):
        put(1)
        return x * len(held)

    return f, lambda: held.extend([5, 5])


@change
def list_of_a_bound_method_alone():
    held = [1]
    count = functools.partial(held.count, 1)

    def f(x):
        return x * count()

    return f, lambda: held.append(1)


@change
def dict_of_a_bound_method():
    held = {"a": 2}
    get = held.get

    def f(x):
        return x * get("a", 3)

    return f, held.clear


@change
def weak_proxy():
    held = Record(scale=2)
    proxy = weakref.proxy(held)

    def f(x):
        return x * proxy.scale

    return f, lambda: setattr(held, "scale", 5)
