"""Classes: slots, metaclasses, properties, what their objects lack, their order, and caches of what they compute."""

from __future__ import annotations

import collections
import functools
import types
import weakref

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


class Slots:
    __slots__ = ("a", "b")


class SlotsWithHook(Slots):
    __slots__ = ()

    def __getattr__(self, name):
        return len(name) + 10


def slot(name, cls, read, *changes):
    """A slot that is empty, and is not in another call."""

    def make():
        made = cls()

        def f(x):
            return x * read(made)

        def call(change):
            return lambda: (change(made), (x,))[1]

        return f, [(x,), (x,), *map(call, changes), (x,)]

    make.__name__ = "slot_" + name
    PROGRAMS.append(make)


def fill(made):
    made.b = 3


def empty(made):
    del made.b


slot("getattr", Slots, lambda made: getattr(made, "b", 7), fill, empty)
slot("hasattr", Slots, lambda made: made.b if hasattr(made, "b") else -1, fill, empty)
slot("read", Slots, lambda made: made.b, fill, empty)
slot("hook", SlotsWithHook, lambda made: made.b, fill, empty)
slot("deleted", Slots, lambda made: made.__delattr__("b") if hasattr(made, "b") else 2, fill)


class Counts(type):
    made = 0

    def __call__(cls, *args):
        Counts.made += 1
        made = super().__call__(*args)
        made.number = Counts.made
        return made


class Counted(metaclass=Counts):
    def __init__(self, start=1):
        self.start = start


@p
def metaclass_that_constructs():
    Counts.made = 0

    def f(x, start):
        return x + Counted(start).start, Counted().number, type.__call__(Counted, 5).start

    return f, [(x, 3), (x, 3), (x, 4)]


@p
def metaclass_that_is_asked_for_hashes():
    asked = []

    class Asked(type):
        def __hash__(cls):
            asked.append(cls.__name__)
            return 3

    class Made(metaclass=Asked):
        def __init__(self):
            self.held = 2

    made = Made()

    def f(x):
        return x + made.held, len(asked)

    return f, [(x,)] * 3


@p
def cached_with_effects():
    log = []

    @functools.lru_cache(None)
    def double(n):
        log.append(n)
        return n * 2

    def f(x, n):
        return x + double(n) + double(n) + double(n + 1), list(log)

    return f, [(x, 1), (x, 1), (x, 2), (x, 5)]


@p
def containers_that_differ_before_a_tensor():
    def f(x, n):
        a, b = [n, x], [n + 1, x]
        return x + 1, a != b, a == b, a < b, a >= b, (n, x) != (n + 1, x), {1: a} != {1: b}, a != [n, x]

    return f, [(x, 1), (x, 2), (x, 3)]


@p
def hash_with_an_argument():
    def f(x):
        return x + 1, (1, x).__hash__(3)

    return f, [(x,), (x,)]


@p
def properties_without_functions():
    class Named:
        unset = property()

        @property
        def read(self):
            return 1

    class Added:
        pass

    Added.unset = property()
    Added.read = property(lambda self: 1)
    Added.borrowed = Named.read

    def f(x):
        told = []
        for obj in (Named(), Added()):
            for name in ("unset", "read", "borrowed"):
                try:
                    told.append(getattr(obj, name))
                except AttributeError as error:
                    told.append(str(error))
                try:
                    setattr(obj, name, 2)
                except AttributeError as error:
                    told.append(str(error))
        return x + len(told), told

    return f, [(x,)]


@p
def ends_of_an_ordered_dict():
    def f(x):
        d = collections.OrderedDict(a=1, b=2, c=3)
        d.move_to_end("a")
        first = list(d.items())
        d.move_to_end("c", last=False)
        return x + d["c"], first, list(d.items()), len(d)

    return f, [(x,)]


@p
def objects_that_lack():
    class Bare:
        pass

    def f(x):
        told = []
        for ask in (len, lambda b: b[0], lambda b: b.__setitem__(0, 1)):
            try:
                ask(Bare())
            except (TypeError, AttributeError) as error:
                told.append(str(error))
        return x + len(told), told

    return f, [(x,)]


@p
def cached_properties_of_an_argument():
    class Square:
        def __init__(self):
            self.side = 3

        @functools.cached_property
        def area(self):
            return self.side**2

    one = Square()

    def f(x):
        return x + one.area, sorted(vars(one))

    return f, [(x,), (x,), lambda: one.__dict__.pop("area") and (x,)]


@p
def ordered_objects():
    class Ordered:
        def __init__(self, key):
            self.key = key

        def __lt__(self, other):
            return ("lt", self.key, other.key)

        def __le__(self, other):
            return ("le", self.key, other.key)

    def f(x):
        a, b = Ordered(1), Ordered(2)
        return x + 1, [a < b, a <= b, a > b, a >= b]

    return f, [(x,)]


@p
def cached_with_a_store():
    box = types.SimpleNamespace()

    @functools.lru_cache(None)
    def double(n):
        box.last = n
        return n * 2

    def f(x, n):
        return x + double(n) + double(n), box.last

    return f, [(x, 1), (x, 1), (x, 2), (x, 1)]


@p
def a_function_with_a_derivative_that_counts():
    box = types.SimpleNamespace(count=0)

    class Counting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            box.count += 1
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def f(x):
        return Counting.apply(x), box.count

    return f, [(x,), (x,)]


class Pretending:
    def __init__(self, other):
        self.other, self.asked = other, 0

    @property
    def __class__(self):
        self.asked += 1
        return self.other


class Hiding:
    def __getattribute__(self, name):
        return 12


@p
def objects_that_name_another_class():
    def f(x, o):
        return x + o.asked, o.other

    named = (torch.Tensor, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, tuple, 12)
    return f, [(x, Pretending(other)) for other in named]


@p
def an_object_that_hides_everything():
    def f(x, o):
        return x + o.a

    return f, [(x, Hiding()), (x, Hiding())]


@p
def every_attribute_is_asked_for():
    """As often as Python asks, and never by the trace itself."""
    asked = []

    class Loud:
        k = 2

        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

        def __setattr__(self, name, value):
            asked.append(("set", name))
            super().__setattr__(name, value)

        def __delattr__(self, name):
            asked.append(("del", name))
            super().__delattr__(name)

        def add(self, x):
            return x + self.k

    loud = Loud()

    def f(x, n):
        loud.q = n
        loud.q += 1
        told = [loud.q, hasattr(loud, "z"), getattr(loud, "z", 3), vars(loud)["q"], loud.__class__ is Loud]
        try:
            del loud.nothing
        except AttributeError as error:
            told.append(str(error))
        told += [
            isinstance(loud, Loud),
            isinstance(loud, int),
            isinstance(loud, (str, Loud)),
            isinstance(loud, int | Loud),
        ]
        x = loud.add(x)
        del loud.q
        return x, told, list(asked)

    return f, [(x, 2), (x, 2), (x, 3)]


@p
def a_context_is_entered_by_its_class():
    asked = []

    class Own:
        def __enter__(self):
            return "class"

        def __exit__(self, *error):
            asked.append("class")

        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    class Half:
        def __enter__(self):
            return "half"

    class Answers:
        def __getattr__(self, name):
            asked.append(name)
            return lambda *args: 3

    own, half, answers = Own(), Half(), Answers()
    own.__dict__.update(__enter__=lambda: "own", __exit__=lambda *error: True)

    def f(x, which):
        manager = (own, half, answers, 3, None)[which]
        try:
            with manager as entered:
                told = entered
        except (TypeError, AttributeError) as error:
            told = type(error).__name__, str(error)
        return x + 1, told, list(asked)

    return f, [(x, which) for which in (0, 1, 2, 3, 4, 0)]


@p
def names_in_errors_of_native_classes():
    space = types.SimpleNamespace(a=1)

    def f(x, which):
        of = (space, types.SimpleNamespace, collections.deque, functools.partial)[which]
        try:
            told = of.zz
        except AttributeError as error:
            told = str(error)
        return x + 1, told

    return f, [(x, which) for which in range(4)]


@p
def a_native_init_of_another_class():
    """`object.__init__` fills no list, and that of a list takes no other object."""

    class Unfilled(list):
        __init__ = object.__init__

    class Misfit:
        __init__ = list.__init__

    class Own(dict):
        __init__ = dict.__init__

    def f(x, which):
        try:
            made = (Unfilled, Misfit, Own)[which](*(([1],), (), ({1: 2},))[which])
            told = type(made).__name__, repr(made)
        except TypeError as error:
            told = str(error)
        return x + 1, told

    return f, [(x, which) for which in range(3)]


@p
def a_weak_reference_that_counts_its_calls():
    class Counting(weakref.ref):
        def __init__(self, of):
            super().__init__(of)
            self.calls = 0

        def __call__(self):
            self.calls += 1
            return super().__call__(), self.calls

    class Of:
        def one(self):
            return 1

    of = Of()
    counting, method = Counting(of), weakref.WeakMethod(of.one)

    def f(x):
        found, calls = counting()
        return x + calls, found is of, method()(), counting.calls

    return f, [(x,)] * 3
