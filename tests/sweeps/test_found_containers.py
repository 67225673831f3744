"""Programs around tensors that ask Python's own containers, texts and numbers for what tables of their methods ask: each was wrong once."""

from __future__ import annotations

import textwrap

import pytest

from .examine import check

_KIT = """
class Ob:
    pass
class L(list):
    def __iter__(self): return iter([9, 8])
class T(tuple):
    pass
class D(dict):
    def keys(self): return ['a', 'zz']
    def __iter__(self): return iter(['q'])
    def __getitem__(self, key): return key
class S(set):
    def __iter__(self): return iter([1, 5])
    def __contains__(self, item): return True
    def __len__(self): return 7
    def add(self, item): raise ValueError
class FS(frozenset):
    pass
class Text(str):
    def __str__(self): return 'other'
    def __eq__(self, other): return True
    def __hash__(self): return 7
class Whole(int):
    def __int__(self): return 77
class OD(collections.OrderedDict):
    pass
class DD(collections.defaultdict):
    pass
class E:
    def __init__(self, v): self.v = v
    def __eq__(self, other): return self.v == other.v
class Given:
    def __init__(self, v): super().__init__(v)
seen = []
def told(*given):
    for v in given:
        seen.append(v)
        yield v
def error(function, *args):
    try:
        function(*args)
    except Exception as raised:
        return type(raised), str(raised)
"""

#: A name -> the body of `f(t, a, b)`, and what `a` and `b` are at each call, where `p` and `q` are objects of the driver.
PROGRAMS = {
    "an object as a key of a dict from outside": (
        "return t + 1, b in a, a.get(b)",
        ("{p: 1}, p", "{p: 1}, q", "{q: 1}, q", "{p: 1}, p"),
    ),
    "an object as a key that may come": (
        "if b not in a: a[b] = t + 1\nreturn t + a[b], len(a)",
        ("shared, p", "shared, q", "shared, p"),
    ),
    "objects as keys of a dict made inside": (
        "d = {a: 1}\nreturn t + 1, d.get(b), len({a, b}), len({a: 1, b: 2}), len(set([a, b]))",
        ("p, q", "p, p", "q, p"),
    ),
    "an object as a member of a set": (
        "return t + 1, b in a, len(a)",
        ("{p}, p", "{p}, q", "{q}, q", "members, q", "members, p"),
    ),
    "a key of a copied dict": ("d = dict(a)\nreturn t + 1, b in d", ("{p: 1}, q", "{p: 1}, p")),
    "a subclass of set that says otherwise": (
        "a.discard(2)\nb.update([3])\nreturn t + 1, 77 in a, b | {4}, set(a), {1, 2}.union(a), {1, 2} >= a",
        ("S([1, 2]), S([1, 2])", "S([1, 2, 3]), S()"),
    ),
    "a subclass of set that only came along": ("return t + 1, a, b", ("S([1, 2]), 1", "S([1, 3]), 2")),
    "a text and a number that say otherwise": (
        "return t + 1, a < 'b', a.__lt__('b'), [*a], b + 1, b * 2, b | 4, b.__or__(b)",
        ("Text('abc'), Whole(4)", "Text('xy'), Whole(5)"),
    ),
    "contents of a subclass that is added": (
        "c = [1]\nc += a\nd = {'k': 0}\nd |= b\ne = collections.deque([1])\ne += a\nreturn t + 1, c, d, e, [1] + a, d.keys() & b",
        ("L([1, 2]), D(a=1)", "L([3]), D()"),
    ),
    "the whole of a tuple is the tuple": (
        "return t + 1, tuple(a) is a, a[:] is a, a * 1 is a, a + () is a, () + a is a, (tuple(a), a, a[:], a.__mul__(1)), b",
        ("(1, 2), 1", "(3, t), 1", "T((1, 2)), 1", "T((1, t)), 1", "(), 1"),
    ),
    "an operation that makes another object of the class": (
        "return t + 1, a.copy(), a | {'k': 2}, b.copy(), b | {7}",
        ("OD(a=1), FS([1, 2])", "DD(list, a=[1]), FS()"),
    ),
    "a subclass of a dict with defaults": (
        "found = error(lambda: a['new'])\nreturn t + 1, found, a, a.get('other'), error(a.__init__, 5), error(DD, 5), DD(None)",
        ("DD(list, a=[1]), 1", "DD(None), 1"),
    ),
    "an initialiser that takes nothing": (
        "return t + 1, error(Given, 3), error(object.__init__, b, 3), a.__init__(3), error(bytearray(b'a').__init__, [t])",
        ("(1, 2), p", "'text', p", "3.5, p"),
    ),
    "comparisons that object has": (
        "return t + 1, a.values().__ne__(b), E(1).__ne__(E(1)), E(1).__ne__(E(2)), Ob().__lt__(1), Ob().__ne__(1)",
        ("{'a': 1}, 1", "{'b': t}, 2"),
    ),
    "no more than a set needs is asked for": (
        "return t + 1, a.issuperset(told(1, 5, 2)), a.isdisjoint(told(7, 1, 2)), a.issubset(told(1, 2, 3)), b",
        ("{1, 2}, 1", "frozenset([1, 2]), 1"),
    ),
    "keys with tensors in them": (
        "return t + 1, a.get(b), a.get((1, b)), (1, b) in a",
        ("{t: 1, (1, t): 2}, t", "{t: 1, (1, t): 2}, t + 0", "{t: 1}, t", "kept, t", "kept, last"),
    ),
    "methods of symbolic numbers": (
        "return t + 1, a.from_bytes(b'ab', 'little'), error(a.__int__, 5), a ** 1j, error(lambda: a ** list), a.conjugate(), b.fromhex('0x2')",
        ("3, 1.5", "4, 2.5", "5, 3.25"),
    ),
    "an error names the class that has the method": (
        "return t + 1, a.popitem(t, b)",
        ("collections.defaultdict(list), 1", "collections.Counter('ab'), 1"),
    ),
    "an error names the class where a frame breaks before it": (
        "return t + 1, a.items(bytearray(b))",
        ("collections.defaultdict(list), b'a'", "collections.Counter('ab'), b'b'"),
    ),
    "an error of a method that all objects have": ("return t + 1, a.__format__()", ("slice(1, 2), 1", "'text', 1")),
    "a proxy of what is no mapping": (
        "c = types.MappingProxyType(bytes(a))\nprint(b)\nreturn t + 1, type(c)",
        ("[1], 1", "[2], 1"),
    ),
    "a slice that cannot be a key": (
        "return t + 1, error(lambda: {}[a:[1]]), error(lambda: {}[a:2])",
        ("1, 1", "2, 1"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_containers(name: str) -> None:
    """One compiled function, called with other objects."""
    body, calls = PROGRAMS[name]
    function = "def f(t, a, b):\n" + textwrap.indent(body, "    ")
    lines = [
        "def drive(compile, call, show, backward):",
        "    g = compile(f)",
        "    p, q, shared, t = Ob(), Ob(), {}, whole((3,))",
        "    members, last = {q}, t + 0",
        "    kept = {last: 1, (1, last): 2}",
        *(f"    call(g, t, {given})" for given in calls),
        "    show(shared, kept, seen)",
    ]
    check("\n".join((_KIT, function, *lines)), "eager")
