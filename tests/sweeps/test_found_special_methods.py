"""Special methods of a program's classes that a table of them found: each was wrong once."""

from __future__ import annotations

import textwrap

import pytest

from .examine import check

_CALLS = """
def drive(compile, call, show, backward):
    g = compile(f)
    for seed in range(2):
        call(g, whole((3,), seed=seed), SUBJECT)
        show(LOG)
        LOG.clear()
"""

_NOTED = """
LOG = []
def noted(name, result):
    def method(*args):
        LOG.append((name, len(args), type(args[-1]).__name__))
        return result
    return method
class Callable:
    def __init__(self, result):
        self.result = result
    def __call__(self, *args):
        LOG.append(('called', args))
        return self.result
class Getter(Callable):
    def __get__(self, obj, cls=None):
        return lambda *args: self(*args)
"""

#: What a class has under special names -> what is asked of an instance, which is `SUBJECT`.
PROGRAMS = {
    "a callable object where a subclass of a list has a method": (
        """
        class A(list):
            __len__ = Callable(4)
            __add__ = Callable('added')
            __contains__ = Getter(True)
        def f(t, a):
            return t + 1, len(a), a + [1], 3 in a, bool(a)
        """,
        "A([1, 2])",
    ),
    "a descriptor whose method is bound by code of the program": (
        """
        class A:
            __add__ = Getter('added')
            __eq__ = Getter('equal')
        def f(t, a):
            return t + 1, a + 1, a == 2
        """,
        "A()",
    ),
    "attributes found by what is no function": (
        """
        class A:
            __getattr__ = Callable(7)
        class B:
            @staticmethod
            def __getattribute__(name):
                return {'__class__': B, '__dict__': {}}.get(name, name)
        def f(t, pair):
            a, b = pair
            return t + 1, a.missing, getattr(a, 'other', 1), b.x, operator.attrgetter('y')(b), isinstance(b, int)
        """,
        "[A(), B()]",
    ),
    "attributes stored and deleted by what is no function": (
        """
        class A:
            __setattr__ = Callable(None)
            __delattr__ = staticmethod(noted('deleted', None))
        def f(t, a):
            a.x = 1
            del a.y
            return t + 1, vars(a)
        """,
        "A()",
    ),
    "functions in C ask the methods of a subclass of a number or a text at every call": (
        """
        class A(float):
            __abs__ = __complex__ = noted('number', 2j)
        class B(str):
            __index__ = noted('index', 1)
        def f(t, pair):
            a, b = pair
            return t + 1, abs(a), complex(a), [5, 6][b], torch.zeros(b)
        """,
        "[A(1.5), B('b')]",
    ),
    "a number is not asked for what it is": (
        """
        class A(int):
            __int__ = noted('int', 9)
        class B(str):
            __str__ = noted('str', 'other')
        def f(t, pair):
            a, b = pair
            return t * (a + 1), b + 'c'
        """,
        "[A(1), B('b')]",
    ),
    "the truth of a number that has a length": (
        """
        class A(int):
            __len__ = noted('len', 0)
        def f(t, a):
            return t + 1, bool(a), not a
        """,
        "A(3)",
    ),
    "the members of a set that says otherwise": (
        """
        class A(set):
            __iter__ = noted('iter', iter(()))
        class B(frozenset):
            __len__ = noted('len', 5)
        def f(t, pair):
            a, b = pair
            return t + 1, 1 in a, 3 in b
        """,
        "[A([1, 2]), B([3])]",
    ),
    "one class is not asked twice, and a subclass first only for a method of its own": (
        """
        class A:
            __lshift__ = noted('lshift', NotImplemented)
            __rlshift__ = __radd__ = noted('reflected', 'reflected')
            __add__ = noted('add', 'add')
        class B(A):
            pass
        class C(A):
            __radd__ = noted('own', 'own')
        def f(t, a):
            return t + 1, a + B(), a + C(), a << a
        """,
        "A()",
    ),
    "a native operand that takes the other one does not ask it": (
        """
        class A(int):
            __eq__ = __radd__ = noted('asked', 'asked')
            __hash__ = None
        class B(int):
            pass
        def f(t, a):
            return t + 1, True == a, t + a, t == a, B(4) + a, 1.5 + a, 1 + a, 1 == a
        """,
        "A(2)",
    ),
    "what a subclass of a number inherits answers a comparison before the other's own method": (
        """
        class A(int):
            __ge__ = noted('ge', 'own')
        class B(A):
            pass
        def f(t, a):
            return t + 1, a >= B(1), B(1) >= a
        """,
        "A(2)",
    ),
    "a descriptor's methods that are no functions": (
        """
        class Descriptor:
            __get__ = Callable('got')
            __set__ = staticmethod(noted('set', None))
        class A:
            x = Descriptor()
        def f(t, a):
            a.x = 3
            return t + 1, a.x, A.x
        """,
        "A()",
    ),
    "an object that says what its instances are": (
        """
        class A(str):
            __instancecheck__ = noted('instance', True)
        def f(t, a):
            return t + 1, isinstance(3, a), isinstance(3, (str, a))
        """,
        "A('x')",
    ),
    "an object's own attribute is no special method": (
        """
        class A(list):
            def __reversed__(self):
                return iter('class')
            def __init__(self):
                vars(self)['__reversed__'] = lambda: iter('own')
        def f(t, a):
            return t + 1, list(reversed(a))
        """,
        "A()",
    ),
    "texts of a subclass that is made inside": (
        """
        class A(str):
            __str__ = noted('str', 'shown')
        def f(t, a):
            try:
                format(a, 5)
            except TypeError as error:
                return t + 1, '%6s' % A('x'), str(error)
        """,
        "[1]",
    ),
    "what an object is beside what it holds": (
        """
        class A(dict):
            def __dir__(self):
                return [name for name in super().__dir__() if name == '__dict__']
            def __delattr__(self, name):
                super().__delattr__(name)
            there = 1
        class B(list):
            def __getattribute__(self, *args):
                return super().__getattribute__(*args)
        def f(t, pair):
            a, b = pair
            try:
                del a.there
            except AttributeError as error:
                return t + 1, a.__dir__(), vars(b), str(error)
        """,
        "[A(), B()]",
    ),
    "attributes that a class after nn.Module deletes": (
        """
        class Later:
            def __delattr__(self, name):
                LOG.append(('later', name))
        class A(nn.Module, Later):
            def __init__(self):
                super().__init__()
                self.kept = 1
        def f(t, a):
            del a.kept
            return t + 1, hasattr(a, 'kept')
        """,
        "A()",
    ),
    "the class of an object is not asked for": (
        """
        class A(set):
            def __getattribute__(self, name):
                LOG.append(name)
                return object.__getattribute__(self, name)
            attribute = 1
        def f(t, a):
            return t + 1, a.attribute
        """,
        "A()",
    ),
    "a method of the program that declines stands for the native one": (
        """
        class A(set):
            __ior__ = noted('ior', NotImplemented)
        class B(float):
            __truediv__ = noted('truediv', NotImplemented)
        def f(t, pair):
            a, b = pair
            c = a
            c |= {2}
            try:
                b / b
            except TypeError as error:
                return t + 1, type(c), c is a, str(error)
        """,
        "[A([1]), B(2)]",
    ),
    "joining asks an iterator for its length": (
        """
        class A:
            __length_hint__ = noted('hint', 1)
            def __iter__(self):
                return iter('ab')
        def f(t, a):
            return t + 1, ''.join(a)
        """,
        "A()",
    ),
    "an exception that has its own way to store attributes": (
        """
        class A(Exception):
            def __setattr__(self, name, value):
                LOG.append(name)
        def f(t, a):
            try:
                try:
                    1 // 0
                except ZeroDivisionError:
                    raise A(1)
            except A as error:
                print(end='')
                return t + 1, error.args, type(error.__context__)
        """,
        "[1]",
    ),
    "subscripts of a class that something other than a function answers": (
        """
        class A:
            __class_getitem__ = Callable(7)
        def f(t, a):
            return t + 1, A[int]
        """,
        "[1]",
    ),
    "a module that is hashed by a method of its own": (
        """
        class A(nn.Module):
            def __hash__(self):
                LOG.append('hash')
                return 5
        def f(t, a):
            return t + 1, {5: 1}.get(a), a in {5}
        """,
        "A()",
    ),
}


@pytest.mark.parametrize(("text", "subject"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_asked(text: str, subject: str) -> None:
    """Two calls, and which methods they asked."""
    check(_NOTED + textwrap.dedent(text) + _CALLS.replace("SUBJECT", subject), "eager")


def test_a_way_of_copying_that_comes_later() -> None:
    """Objects are copied as their class says at the time."""
    check(
        """
        class A:
            pass
        def f(t, a):
            return t + 1, copy.copy(a) is a, copy.deepcopy(a) is a
        def drive(compile, call, show, backward):
            g = compile(f)
            call(g, whole((3,)), A())
            A.__copy__ = lambda self: self
            call(g, whole((3,)), A())
            A.__reduce__ = lambda self: 'text'
            call(g, whole((3,)), A())
        """,
        "eager",
    )


def test_a_method_that_comes_later() -> None:
    """What a class lacked when it was compiled: each is asked from then on."""
    check(
        """
        class A:
            def __init__(self):
                self.x = self.y = 1
        def f(t, a):
            del a.x
            return t + 1, {4: 1}.get(a, 2)
        def drive(compile, call, show, backward):
            g = compile(f)
            call(g, whole((3,)), A())
            A.__delattr__ = lambda self, name: print('deleted', name)
            call(g, whole((3,)), A())
            A.__hash__ = lambda self: len(vars(self)) + 3
            call(g, whole((3,)), A())
        """,
        "eager",
    )


@pytest.mark.parametrize("later", [False, True], ids=["there", "comes later"])
@pytest.mark.parametrize("name", ["number", "pair", "made", "given"])
def test_what_a_class_has_of_its_metaclass(name: str, later: bool) -> None:
    """Numbers, functions that are not bound, class methods and descriptors; a `__getattr__` answers until then."""
    check(
        f"""
        class Given:
            def __get__(self, owner, kind):
                return owner.__name__, kind.__name__
        found = {{"number": 2, "pair": staticmethod(lambda: (1, 2)), "made": classmethod(lambda cls, x: (cls.__name__, x)), "given": Given()}}
        class Meta(type):
            def __getattr__(cls, name):
                return lambda *args: len(name)
        class Made(metaclass=Meta):
            pass
        def f(t):
            return t + 1, type(Made.{name}).__name__, Made.{name} == 2
        def drive(compile, call, show, backward):
            g = compile(f)
            if {later}:
                call(g, whole((3,)))
            for name, value in found.items():
                setattr(Meta, name, value)
            call(g, whole((3,)))
        """,
        "eager",
    )
