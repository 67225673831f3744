"""Programs whose surroundings change between two calls: compiled, they see the change as plain Python does.

Each entry makes a function and something that changes what the function depends on: globals, classes, containers, modules of torch.
"""

from __future__ import annotations

import abc
import array
import collections
import contextvars
import dataclasses
import enum
import functools
import itertools
import math
import sys
import threading
import types

import numpy as np
import pytest
import torch

from flambeau_capture import make_region

CHANGES = {}


class Record:
    """An object with the attributes that it is made with."""

    def __init__(self, **values):
        self.__dict__.update(values)


def change(make):
    """Register a pair of a program and its change."""
    CHANGES[make.__name__] = make
    return make


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
def kwdefaults():
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
def class_attr():
    class C:
        k = 2

    o = C()

    def f(x):
        return x * o.k

    return f, lambda: setattr(C, "k", 4)


@change
def inst_shadows_class():
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
def base_class_gains_attr():
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
def class___changed():
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
def tensor_grad():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        return x * (2 if w.grad is None else 3)

    return f, lambda: setattr(w, "grad", torch.ones(3))


@change
def requires_grad():
    w = torch.ones(3)

    def f(x):
        return x * (2 if w.requires_grad else 3)

    return f, lambda: w.requires_grad_()


@change
def tensor_attr():
    w = torch.ones(3)
    w.k = 2

    def f(x):
        return x * w.k

    return f, lambda: setattr(w, "k", 3)


@change
def tensor_attr_added():
    w = torch.ones(3)

    def f(x):
        return x * getattr(w, "kk", 3)

    return f, lambda: setattr(w, "kk", 5)


@change
def tensor_data_swapped():
    w = torch.ones(3)

    def f(x):
        return x[:1] * w.sum() * w.shape[0]

    return f, lambda: setattr(w, "data", torch.ones(5))


@change
def tensor_version():
    w = torch.ones(3)

    def f(x):
        return x * w._version

    return f, lambda: w.add_(1)


@change
def module_training():
    m = torch.nn.Dropout(1.0)

    def f(x):
        return m(x)

    return f, lambda: m.eval()


@change
def module_param_replaced():
    m = torch.nn.Linear(3, 3)

    def f(x):
        return m(x).detach()

    return f, lambda: setattr(m, "weight", torch.nn.Parameter(torch.ones(3, 3)))


@change
def module_submodule_replaced():
    m = torch.nn.Sequential(torch.nn.ReLU())

    def f(x):
        return m(x - 5)

    return f, lambda: m.__setitem__(0, torch.nn.Sigmoid())


@change
def module_hook_added():
    m = torch.nn.ReLU()

    def f(x):
        return m(x)

    return f, lambda: m.register_forward_hook(lambda mod, i, o: o * 3)


@change
def global_module_hook():
    m = torch.nn.ReLU()
    H = []

    def f(x):
        return m(x)

    def ch():
        H.append(torch.nn.modules.module.register_module_forward_hook(lambda mod, i, o: o * 3))

    f.undo = lambda: [h.remove() for h in H]
    return f, ch


@change
def module_forward_patched():
    m = torch.nn.ReLU()

    def f(x):
        return m(x)

    return f, lambda: setattr(m, "forward", lambda x: x * 9)


@change
def parametrization():
    m = torch.nn.Linear(3, 3)

    class Z(torch.nn.Module):
        def forward(s, w):
            return w * 0 + 1

    def f(x):
        return m(x).detach()

    return f, lambda: torch.nn.utils.parametrize.register_parametrization(m, "weight", Z())


@change
def buffer_none():
    m = torch.nn.Module()
    m.register_buffer("b", torch.ones(3))

    def f(x):
        return x * (2 if m.b is None else 3)

    return f, lambda: setattr(m, "b", None)


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
def userdict_subclass_getitem():
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
def string_global():
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
def simplenamespace():
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
def math_inf_nan_const():
    o = Record(v=float("nan"))

    def f(x):
        return x * (2 if o.v != o.v else 3)

    return f, lambda: setattr(o, "v", 1.0)


@change
def neg_zero():
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
def torch_default_dtype():
    def f(x):
        return (x.double() * torch.ones(3)).to(torch.ones(1).dtype)

    f.undo = lambda: torch.set_default_dtype(torch.float32)
    return f, lambda: torch.set_default_dtype(torch.float64)


@change
def default_device():
    def f(x):
        return torch.ones(3).device.type

    f.undo = lambda: torch.set_default_device(None)
    return f, lambda: torch.set_default_device("meta")


@change
def tensor_method_patched():
    def f(x):
        return x.relu()

    old = torch.Tensor.relu
    f.undo = lambda: setattr(torch.Tensor, "relu", old) if False else delattr(torch.Tensor, "relu")
    return f, lambda: setattr(torch.Tensor, "relu", lambda s: s * 44)


@change
def attribute_of_a_tensor_subclass():
    class T(torch.Tensor):
        k = 2

    w = torch.ones(3).as_subclass(T)

    def f(x):
        return x * w.k

    return f, lambda: setattr(T, "k", 3)


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
def child_module_added():
    m = torch.nn.Module()
    m.a = torch.nn.ReLU()

    def f(x):
        for c in m.children():
            x = c(x) + 1
        return x

    return f, lambda: setattr(m, "b", torch.nn.ReLU())


@change
def parameter_added():
    m = torch.nn.Linear(3, 3)

    def f(x):
        return x * len(list(m.parameters()))

    return f, lambda: m.register_parameter("z", torch.nn.Parameter(torch.ones(1)))


@change
def parameterlist_append():
    m = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3))])

    def f(x):
        return sum((p.detach() for p in m), x)

    return f, lambda: m.append(torch.nn.Parameter(torch.ones(3)))


@change
def module_imported():
    def f(x):
        return x * len(sys.modules.get("zzmod").__name__ if "zzmod" in sys.modules else "q")

    def ch():
        sys.modules["zzmod"] = types.ModuleType("zzmod")

    f.undo = lambda: sys.modules.pop("zzmod", 0)
    return f, ch


def _calls(function, make_change, undo):
    """Results (or exceptions) of two calls before the change and two after it."""
    found = []
    for turn in range(4):
        if turn == 2:
            make_change()
        try:
            found.append(function(torch.arange(3.0) + 1))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    undo()
    return found


@pytest.mark.parametrize("make", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(make):
    """Four results equal, types included."""
    torch.manual_seed(0)
    program, changes = make()
    expected = _calls(program, changes, getattr(program, "undo", lambda: None))
    torch.manual_seed(0)
    program, changes = make()
    region = make_region(program, lambda graph, inputs: graph.forward)
    found = _calls(region, changes, getattr(program, "undo", lambda: None))
    for want, have in zip(expected, found, strict=True):
        assert type(have) is type(want)
        if isinstance(want, torch.Tensor):
            torch.testing.assert_close(have, want, equal_nan=True)
        else:
            assert have == want
