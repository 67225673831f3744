"""Python programs around tensors that a sweep found: each was wrong once."""

from __future__ import annotations

import pytest

from .examine import check

PYTHON = {
    "members of an enum are operands and arguments": """
        class Flags(enum.IntFlag):
            R = 4
            W = 2
        class Axis(enum.IntEnum):
            FIRST = 0
        class Kind(str, enum.Enum):
            MEAN = 'mean'
        def f(t):
            t = t[None]
            return t + (Flags.R | Flags.W), t + Flags(0), t.sum(Axis.FIRST), t.permute((Axis.FIRST, 1)), F.l1_loss(t, t * 2, reduction=Kind.MEAN)
        """,
    "an attribute deleted and stored again is the last": """
        class Holder:
            pass
        holder = Holder()
        holder.a, holder.b = 1, 2
        def f(t):
            del holder.a
            holder.a = t + 1
            holder.c = 4
            del holder.c
            return t * 2
        """,
    "a class attribute that was stored is read through an instance and a subclass": """
        class Base:
            kind = 'base'
        class Child(Base):
            pass
        child = Child()
        def f(t):
            Base.kind = 'stored'
            return t + 1, child.kind, Child.kind, Base.kind
        """,
    "super() in the method of a metaclass": """
        class Meta(type):
            def __call__(cls, *args):
                made = super().__call__(*args)
                made.born = 'meta'
                return made
        class Made(metaclass=Meta):
            def __init__(self, n):
                self.n = n
        def f(t):
            made = Made(3)
            return t + made.n, made.born
        """,
    "the text of an exception whose own method decides its arguments": """
        class Problem(Exception):
            def __init__(self, text, value=0):
                super().__init__(text, value, 7)
                self.value = value
        class Worse(Problem, KeyError):
            pass
        def f(t):
            return t + 1, repr(Worse('r')), str(Problem('p', 2)), Worse('r').args
        """,
    "two comprehensions over one name of which a function keeps the first": """
        def f(t):
            funcs = [lambda: k for k in range(3)]
            print('a')
            pairs = [k for k, group in itertools.groupby([1, 2])]
            print('b')
            return t * 2, pairs, funcs[1]()
        """,
    "the keys of a dict as a set": """
        def f(t):
            d = {'a': 1, 'b': [2]}
            k = d.keys()
            return t + 1, k == {'a', 'b'}, {'a'} == k, k != {'a'}, k >= {'a'}, k == d.keys(), d.items() == d.items(), d.values() == d.values()
        """,
    "an exception with fields of its own": """
        class Missing(OSError):
            def __init__(self, name):
                super().__init__(2, name)
        def f(t):
            try:
                raise Missing('a')
            except FileNotFoundError:
                return t
            except OSError as error:
                return t + error.errno, error.strerror, error.args
        """,
    "`@=`, which tensors have no method for": """
        def f(t):
            other = u = t
            u @= t
            return other, operator.imatmul(t, t), t + 1, u
        """,
    "a tuple of a tuple is that one": """
        pair = (1, [2])
        def f(t):
            made = (t, 2)
            return t + 1, tuple(pair) is pair, tuple(made) is made, tuple([1, 2])
        """,
    "a length beyond an index": """
        class Long:
            def __len__(self):
                return 2 ** 70
        def f(t):
            try:
                return t + len(Long())
            except OverflowError as error:
                return t * 2, str(error)
        """,
    "a warning whose category is none": """
        warnings.resetwarnings()
        def f(t):
            try:
                return t + 1, warnings.warn('w', int)
            except TypeError as error:
                return t * 2, str(error)
        """,
    "a function that looks at the stack of calls": """
        import inspect, sys
        def above():
            return sys._getframe(1).f_code.co_name, sorted(sys._getframe(1).f_locals), sys._getframe(1).f_lineno
        def f(t):
            a = 3
            t = t * a
            own = sorted(inspect.currentframe().f_locals)
            return t + a, own, [found.function for found in inspect.stack()[:2]], above()
        """,
}


@pytest.mark.parametrize("text", PYTHON.values(), ids=PYTHON.keys())
def test_python(text: str) -> None:
    """Two calls, and what the program's names hold afterwards."""
    shown = {"holder": "holder", "Child": "Child.kind"}
    names = ", ".join(value for name, value in shown.items() if f"{name}" in text)
    driver = f"""
        def drive(compile, call, show, backward):
            g = compile(f)
            call(g, whole((3,)))
            call(g, whole((3,), seed=1))
            show({names})
        """
    check(text + driver, "eager")


def test_symbolic_numbers_as_bounds_of_ranges_and_with_flags() -> None:
    """A part of a range is a range, and a flag with a number is a flag."""
    check(
        """
        class Access(enum.IntFlag):
            R = 4
            W = 2

        def f(t, n):
            return t * n, range(10)[2:n + 3], range(10)[n], Access.R | n, n & Access.W, Access.R + n

        def drive(compile, call, show, backward):
            g = compile(f)
            for n in (2, 3, 4, 9):
                call(g, whole((3,)), n)
            call(g, whole((3,)), 10)
        """,
        "eager",
    )


def test_a_warning_after_a_break_tells_who_called_the_function() -> None:
    """The rest of a function is called by its beginning, which is nobody's caller."""
    check(
        """
        def f(t):
            t = t * 2
            print(end='')
            t = t + 1
            print(end='')
            warnings.warn('w', DeprecationWarning, 2)
            return t - 1

        def g(t):
            return f(t) + 1

        def drive(compile, call, show, backward):
            compiled = compile(f)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter('always')
                call(compiled, whole((3,)))
                compiled(whole((3,)))
                compile(g)(whole((3,)))
            show([(found.filename.rpartition('/')[2], found.lineno) for found in told])
        """,
        "eager",
    )


def test_an_attribute_that_a_module_lacks() -> None:
    """It may come later, in the module's own dictionary as well as among its parameters."""
    check(
        """
        class M(nn.Module):
            def forward(self, t):
                return t + getattr(self, 'late', 0), hasattr(self, 'w')

        def drive(compile, call, show, backward):
            m = M()
            g = compile(m)
            call(g, whole((3,)))
            m.late = 2
            call(g, whole((3,)))
            del m.late
            call(g, whole((3,)))
            m.w = parameter((3,), torch.float64, 1)
            call(g, whole((3,)))
        """,
        "eager",
    )


def test_a_number_that_a_graph_computes_and_gives_back() -> None:
    """Inductor's loops give it as an expression, which their interpreter has to compute."""
    check(
        """
        total = 0.0

        def f(now, x):
            global total
            total += now * 2.0 - 0.5
            return x + 1

        def drive(compile, call, show, backward):
            g = compile(f, dynamic=True)
            for n in range(4):
                call(g, 1.25 * n, whole((3,), seed=n))
                show(total)
        """,
        "lowered",
    )


def test_a_property_that_raises_attribute_error() -> None:
    """Python asks `__getattr__` then, of modules too; not for another error."""
    check(
        """
        class Answers:
            @property
            def part(self):
                return self.nothing
            @functools.cached_property
            def late(self):
                raise AttributeError('late')
            @property
            def other(self):
                raise ValueError('other')
            def __getattr__(self, name):
                return name * 2

        class Silent(nn.Module):
            @property
            def part(self):
                return self.nothing

        def f(x, o):
            try:
                return x + 1, hasattr(o, 'part'), getattr(o, 'part', 3), o.part
            except AttributeError as error:
                return x + 2, str(error)

        def fails(x, o):
            try:
                return x + 1, o.late, o.other
            except (ValueError, AttributeError) as error:
                return x + 2, str(error)

        def drive(compile, call, show, backward):
            for g in (compile(f), compile(fails)):
                for o in (Answers(), Silent(), Answers()):
                    call(g, whole((2,), torch.float32), o)
        """,
        "eager",
    )
