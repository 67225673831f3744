"""Iterators over a break, warnings, imports, variables that are deleted, names in errors."""

from __future__ import annotations

import collections
import contextlib
import itertools
import warnings

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


def brk(name, mk):
    def make():
        def f(x, l):
            it = mk(l)
            a = next(it)
            print("hi")
            r = list(it)
            return x + 1, a, r

        return f, [lambda: (x, [1, 2, 3]), lambda: (x, [1, 2, 3])]

    make.__name__ = "break_" + name
    PROGRAMS.append(make)


brk("list", lambda l: iter(l))
brk("listapp", lambda l: (l.append(9), iter(l))[1])
brk("tuple", lambda l: iter(tuple(l)))
brk("dict", lambda l: iter(dict.fromkeys(l)))
brk("items", lambda l: iter(dict.fromkeys(l).items()))
brk("values", lambda l: iter(dict.fromkeys(l).values()))
brk("enumerate", lambda l: enumerate(l, 5))
brk("zip", lambda l: zip(l, l))
brk("map", lambda l: map(lambda v: v + 1, l))
brk("filter", lambda l: filter(None, l))
brk("reversed", lambda l: reversed(l))
brk("set", lambda l: iter(set(l)))
brk("deque", lambda l: iter(collections.deque(l)))
brk("range", lambda l: iter(range(5)))
brk("chain", lambda l: itertools.chain(l, l))
brk("islice", lambda l: itertools.islice(l, 0, 3, 1))
brk("cycle", lambda l: itertools.islice(itertools.cycle(l), 5))
brk("count", lambda l: itertools.islice(itertools.count(3), 5))
brk("repeat", lambda l: itertools.repeat(7, 3))
brk("str", lambda l: iter("abc"))
brk("gen", lambda l: (v + 1 for v in l))
brk("accumulate", lambda l: itertools.accumulate(l))
brk("product", lambda l: itertools.product(l, l))
brk("groupby", lambda l: (k for k, g in itertools.groupby(l)))
brk("takewhile", lambda l: itertools.takewhile(lambda v: v < 3, l))
brk("dropwhile", lambda l: itertools.dropwhile(lambda v: v < 1, l))
brk("starmap", lambda l: itertools.starmap(max, zip(l, l)))
brk("zip_longest", lambda l: itertools.zip_longest(l, [1]))
brk("pairwise", lambda l: itertools.pairwise(l))
brk("compress", lambda l: itertools.compress(l, [1, 0, 1]))


@p
def break_listappend():
    def f(x):
        items = [1, 2]
        items.append(3)
        it = iter(items)
        a = next(it)
        print()
        return x + 1, a, list(it)

    return f, [(x,)]


@p
def break_iter_outside():
    def f(x, it):
        a = next(it)
        print()
        b = next(it)
        return x + a + b

    return f, [lambda: (x, iter([1, 2, 3])), lambda: (x, iter([1, 2, 3]))]


@p
def break_iter_shared():
    def f(x, l):
        it = iter(l)
        o = [it]
        next(it)
        print()
        next(o[0])
        l.append(4)
        return x + 1, list(it)

    return f, [lambda: (x, [1, 2, 3])]


@p
def warn_err():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("hey")
            except UserWarning as e:
                return x + 1, str(e)
        return x

    return f, [(x,)]


@p
def warn_err2():
    def f(x):
        try:
            warnings.warn("hey", DeprecationWarning)
        except DeprecationWarning as e:
            return x + 1, str(e)
        return x

    def g(x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return f(x)

    return g, [(x,)]


@p
def warn_err3():
    def f(x):
        try:
            warnings.warn("hey", DeprecationWarning)
        except DeprecationWarning as e:
            return x + 1, str(e)
        return x

    def c():
        warnings.simplefilter("error")
        return (x,)

    def c2():
        warnings.simplefilter("ignore")
        return (x,)

    return f, [c, c, c2, c]


@p
def warn_rec():
    def f(x):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            warnings.warn("a")
            warnings.warn("b", RuntimeWarning)
        return x + 1, [str(i.message) for i in w], [i.category.__name__ for i in w]

    return f, [(x,)]


@p
def dir_():
    class C:
        z = 1

        def __init__(self):
            self.q = 1

        def m(self):
            pass

    def f(x, o):
        return x + 1, [n for n in dir(o) if not n.startswith("__")], "q" in dir(o), [n for n in dir(C) if n[0] != "_"]

    return f, [lambda: (x, C())]


@p
def t_assert():
    def f(x, n):
        try:
            torch._assert(n > 1, "no")
        except AssertionError as e:
            return x, str(e)
        return x + 1

    return f, [(x, 1), (x, 2), (x, 3)]


@p
def initsub():
    def f(x):
        class B:
            subs = []

            def __init_subclass__(cls, tag=None, **k):
                super().__init_subclass__(**k)
                B.subs.append((cls.__name__, tag))

        class D(B, tag=3):
            v = 2

        return x * D.v, B.subs

    return f, [(x,)]


@p
def oserr():
    def f(x):
        try:
            raise OSError(2, "nope")
        except FileNotFoundError as e:
            return x + 1, e.errno, e.strerror, type(e).__name__, str(e)

    return f, [(x,)]


@p
def imports():
    def f(x):
        import colorsys
        from html import escape

        return x + 1, colorsys.rgb_to_hsv(1, 0, 0), escape("<")

    return f, [(x,), (x,)]


@p
def import_first():
    def f(x):

        return x

    def g(x):
        try:
            return f(x)
        except ImportError as e:
            return x + 1, str(e), type(e).__name__

    return g, [(x,)]


@p
def del_cell():
    def f(x):
        y = x + 1
        g = lambda: y  # noqa: E731, F821 - a cell whose name is deleted below
        a = g()
        del y
        print("b")
        try:
            g()
        except NameError as e:
            return a, str(e), type(e).__name__

    return f, [(x,)]


@p
def del_cell2():
    def f(x):
        y = x + 1

        def g():
            return y  # noqa: F821

        print("b")
        a = g()
        del y
        print("c")
        try:
            y
        except UnboundLocalError as e:
            m = str(e)
        except NameError as e:
            m = "N" + str(e)
        return a, m

    return f, [(x,)]


@p
def del_local():
    def f(x):
        y = x + 1
        del y
        print("c")
        try:
            y
        except UnboundLocalError as e:
            m = str(e)
        except NameError as e:
            m = "N" + str(e)
        return x * 2, m

    return f, [(x,)]


@p
def attr_name():
    class N:
        pass

    def f(x, n):
        try:
            n.missing
        except AttributeError as e:
            return x + 1, len(e.name), e.obj is n, str(e)

    return f, [lambda: (x, N())]


@p
def attr_name2():
    def f(x):
        try:
            [1].missing
        except AttributeError as e:
            return x + 1, e.name, e.obj, str(e)

    return f, [(x,)]


@p
def nm():
    def f(x):
        try:
            undefd
        except NameError as e:
            return x + 1, len(e.name), str(e)

    return f, [(x,)]


@p
def slotset():
    class S:
        __slots__ = ("a",)

    def f(x, s):
        try:
            s.c = 1
        except AttributeError as e:
            return x + 1, str(e)

    return f, [lambda: (x, S())]


@p
def dela():
    class S:
        def m(self):
            pass

        k = 1

    def f(x, s):
        r = []
        for n in ("m", "k", "__len__", "zz"):
            try:
                delattr(s, n)
            except AttributeError as e:
                r.append(str(e))
        s.q = 1
        del s.q
        return x + 1, r, hasattr(s, "q"), hasattr(s, "k")

    return f, [lambda: (x, S())]


@p
def lazy():
    m = torch.nn.LazyLinear(3)
    _ = m.forward

    def f(x):
        torch.manual_seed(0)
        m = torch.nn.LazyLinear(3)
        return m(x).shape

    return f, [(x,)]


@p
def lazy2():
    torch.manual_seed(0)
    m = torch.nn.LazyLinear(3)

    def f(x):
        return m(x) * 1

    return f, [(x,), (x,)]


SEEN = set()


@p
def seen():
    SEEN.clear()

    def f(x, n):
        if n in SEEN:
            return x
        SEEN.add(n)
        return x + len(SEEN)

    return f, [(x, 1), (x, 1), (x, 2), (x, 3)]


def counted(container, n):
    """How long a container is, each time it is asked for the next element."""
    for _ in range(n):
        yield len(container)


def failing():
    yield 1
    yield 2
    raise ValueError


def one_by_one(name, change):
    """A container that is filled sees each element before the next is asked for."""

    def make():
        def f(x, l, d):
            s, q = {*l}, collections.deque(l, 6)
            try:
                change(l, d, s, q)
            except (ValueError, TypeError) as error:
                print(type(error))
            return x + len(l), l, d, sorted(s), list(q)

        return f, [lambda: (x, [3, 1, 2], {"a": 1}), lambda: (x, [3, 1, 2, 4], {})]

    make.__name__ = "one_by_one_" + name
    PROGRAMS.append(make)


one_by_one("list_extend", lambda l, d, s, q: l.extend(counted(l, 2)))
one_by_one("list_add", lambda l, d, s, q: l.__iadd__(sum(l) for _ in [1, 2]))
one_by_one("list_map", lambda l, d, s, q: l.extend(map(lambda v: v + len(l), [1, 2])))
one_by_one("list_itself", lambda l, d, s, q: (l.extend(l), l.extend(reversed(l)), q.extend(q), s.update(s)))
one_by_one("list_raises", lambda l, d, s, q: l.extend(failing()))
one_by_one("list_slice", lambda l, d, s, q: l.__setitem__(slice(1, 2), counted(l, 3)))
one_by_one(
    "list_slice_grows", lambda l, d, s, q: l.__setitem__(slice(len(l), None), (l.append(1) or v for v in [7, 8]))
)
one_by_one("list_slice_from_the_end", lambda l, d, s, q: l.__setitem__(slice(-1, None), counted(l, 2)))
one_by_one(
    "list_extended_slice_grows", lambda l, d, s, q: l.__setitem__(slice(0, 9, 2), (l.append(1) or v for v in [7, 8]))
)
one_by_one("list_extended_slice", lambda l, d, s, q: l.__setitem__(slice(0, 3, 2), (v * 2 for v in [7, 8])))
one_by_one("list_key", lambda l, d, s, q: l.sort(key=lambda v: (len(l), -v)))
one_by_one("list_key_raises", lambda l, d, s, q: l.sort(key=lambda v: 1 if v < 2 else int("no")))
one_by_one("deque_extend", lambda l, d, s, q: (q.extend(counted(q, 2)), q.extendleft(counted(q, 3))))
one_by_one("deque_raises", lambda l, d, s, q: q.extendleft(failing()))
one_by_one("set_update", lambda l, d, s, q: s.update(counted(s, 2), [9], counted(s, 3)))
one_by_one("set_difference", lambda l, d, s, q: s.difference_update(counted(s, 3)))
one_by_one("set_raises", lambda l, d, s, q: s.update([7, [], 8]))
one_by_one("dict_update", lambda l, d, s, q: d.update((str(v), len(d)) for v in l))
one_by_one("dict_or", lambda l, d, s, q: d.__ior__((str(v), len(d)) for v in l))
one_by_one("dict_raises", lambda l, d, s, q: d.update((v, v) for v in failing()))


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return kind is IndexError


@contextlib.contextmanager
def swallows():
    try:
        yield
    except IndexError:
        print("caught")


def in_no_grad(x, i):
    try:
        with torch.no_grad(), torch.autocast("cpu"):
            return x[i]
    except IndexError:
        return x * 2


def in_comprehension(x, i):
    try:
        return [x[j] for j in (i, i)]
    except IndexError:
        return x * 2


def in_an_except(x, i):
    try:
        try:
            raise ValueError
        except ValueError:
            return x[i]
    except IndexError:
        return x * 2


def unused(x, i):
    try:
        x[i]
        x[None][:, i]
    except IndexError:
        return x * 2
    else:
        return x * 3


def in_a_with(manager):
    def f(x, i):
        y = x * 2
        with manager():
            y = x[i]
        return y + 1

    return f


def caught(name, f):
    """An index that only the values tell to be wrong: the exception stops where it does in Python."""

    def make():
        return f, [lambda i=i: (x, torch.tensor([i])) for i in (1, 9, 2, 9)]

    make.__name__ = "caught_" + name
    PROGRAMS.append(make)


caught("in_no_grad", in_no_grad)
caught("in_comprehension", in_comprehension)
caught("in_an_except", in_an_except)
caught("unused", unused)
caught("suppress", in_a_with(lambda: contextlib.suppress(IndexError)))
caught("class", in_a_with(Swallows))
caught("generator", in_a_with(swallows))
caught("nowhere", in_a_with(torch.no_grad))


@p
def thrown_into_a_generator():
    """`contextlib` of Python 3.11 throws a class, the error and its traceback: it is the error that comes out again."""

    @contextlib.contextmanager
    def scope(*kinds):
        try:
            yield
        except kinds:
            pass

    def one():
        yield 1

    def f(x, l):
        error = KeyError("k", 1)
        for kinds in ((), (ValueError,), (IndexError,)):
            try:
                with scope(*kinds):
                    raise IndexError("no", len(l))
            except IndexError as e:
                l.append(e.args)
            try:
                with scope(*kinds):
                    raise error
            except KeyError as e:
                l.append(e is error)
        waiting = one()
        next(waiting)
        try:
            waiting.throw(error)
        except KeyError as e:
            l.append(e.args)
        return x + 1

    return f, [lambda: (x, [1, 2, 3]), lambda: (x, [])]
