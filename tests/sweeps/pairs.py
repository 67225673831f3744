"""Calls of one small function that differ in one thing: whether two arguments are one object, their kind, their order, what they hold.

In: a seed. Out: a `Program`. A function asks two arguments a few questions; then it is called with values of one kind, and again with one thing changed: an
answer that was right for the first call and is kept for the next is what the sweep looks for.
"""

from __future__ import annotations

import random

from .program import Program

#: How often each backend is taken when none is named: these are questions to capture.
MIX = {"eager": 12, "aot_eager": 2, "lowered": 1}

DECLARATIONS = """
class O:
    def __init__(self, **values):
        self.__dict__.update(values)
    def __repr__(self):
        return f'O({sorted(vars(self))})'
class P(O):
    def __len__(self):
        return 2
    def __iter__(self):
        return iter([1, 2])
    def __getitem__(self, place):
        return [1, 2][place]
    def __contains__(self, item):
        return item == 1
class Q(O):
    @property
    def v(self):
        return 7
    def __eq__(self, other):
        return isinstance(other, O)
    def __hash__(self):
        return 1
    def __bool__(self):
        return False
    def __call__(self, *args):
        return len(args)
class I(int):
    pass
class R(float):
    pass
class S(str):
    pass
class L(list):
    pass
class D(dict):
    pass
class U(tuple):
    pass
class W:
    __slots__ = ('v', '__weakref__')
N = collections.namedtuple('N', 'a b')
E = enum.Enum('E', 'A B')
J = enum.IntEnum('J', 'A B')
X = enum.IntFlag('X', 'A B')
def sorts(value):
    match value:
        case bool():
            return 'bool'
        case int():
            return 'int', value
        case [a, b]:
            return 'pair', a, b
        case [a, *rest]:
            return 'sequence', a, rest
        case {'a': v, **rest}:
            return 'mapping', v, sorted(rest)
        case str() | None:
            return value
        case O(v=v):
            return 'object', v
        case _:
            return 'other'
def changed(value):
    if isinstance(value, (list, collections.deque)):
        value.append(9)
    elif isinstance(value, bytearray):
        value.append(57)
    elif isinstance(value, collections.abc.MutableMapping):
        value['z'] = 9
    elif isinstance(value, set):
        value.add(9)
    elif isinstance(value, torch.Tensor):
        with torch.no_grad():
            value.add_(1)
    else:
        value.v = 9
    return value
def shown(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, O):
        return sorted(vars(value).items())
    return sorted(value.items(), key=str) if isinstance(value, dict) else re.sub('0x[0-9a-f]+', '', str(value))
"""

#: Values that are near one another: a call's neighbour differs little.
KINDS = [
    "0", "1", "2", "-1", "int('100000')", "10 ** 20", "True", "False", "1.0", "float('1.5')", "0.0", "-0.0", "float('nan')", "float('inf')", "1j", "I(1)", "R(1.0)", "J.A", "X.A", "X.A | X.B", "E.A", "E.B", "None", "...", "fractions.Fraction(1, 2)", "decimal.Decimal('1')", "decimal.Decimal('nan')",
    "'a'", "'b'", "''", "'1'", "''.join(['a b', '!'])", "S('a')", "b'a'", "bytes(bytearray(b'a b'))", "bytearray(b'a')", "memoryview(b'ab')",
    "[]", "[1]", "[1, 2]", "[2, 1]", "[True, 2.0]", "[[1], [2]]", "L([1, 2])", "(1, 2)", "(2, 1)", "tuple([1, 'a'])", "U((1, 2))", "N(1, 2)", "torch.Size((1, 2))", "range(1, 3)", "slice(1, 2)", "collections.deque([1, 2])", "collections.deque([1, 2], 2)", "[torch.ones(1), 2]", "(torch.ones(1), 2)",
    "{1, 2}", "{1}", "{'a', 'b'}", "frozenset({1, 2})", "frozenset([(1, 'a')])", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "{'a': 1}", "{1: 'a'}", "{True: 'a'}", "D(a=1, b=2)", "collections.OrderedDict(a=1, b=2)", "collections.OrderedDict(b=2, a=1)", "collections.defaultdict(int, a=1)", "collections.Counter('ab')", "collections.ChainMap({'a': 1}, {'b': 2})", "types.MappingProxyType({'a': 1})", "{'a': 1}.keys()", "{'a': 1}.items()",
    "O(v=1)", "O(v=1, w=2)", "O()", "P(v=1)", "Q(w=1)", "W()", "types.SimpleNamespace(v=1)", "object()", "lambda *args: len(args)", "(lambda c: lambda *args: c)(1)", "(lambda c: lambda *args: c)(2)", "len", "sum", "O(v=1).__init__", "[].append", "functools.partial(max, 1)", "operator.itemgetter(0)", "property(len)", "staticmethod(len)", "functools.lru_cache(len)", "type('C', (), {})", "int", "O", "torch.no_grad()", "types.CellType(1)", "ValueError(1)",
    "torch.ones(2)", "torch.ones(2, dtype=torch.int64)", "torch.ones(2).requires_grad_()", "torch.tensor(1)", "nn.Parameter(torch.ones(2))", "torch.float32", "torch.float64", "torch.device('cpu')", "torch.device('cpu', 0)", "torch.finfo(torch.float32)", "torch.Generator()", "torch.ones(1).untyped_storage()", "nn.Linear(1, 1)", "nn.ReLU()", "nn.ModuleList([nn.ReLU()])", "iter([1, 2])", "(v for v in (1, 2))", "zip([1], [2])",
]  # fmt: skip
#: Questions about one of the arguments.
ASKED = [
    "len({x})", "list({x})", "tuple({x})", "sorted({x})", "bool({x})", "not {x}", "{x} == 1", "{x} != [1, 2]", "{x} < 2", "hash({x}) == hash(1)", "isinstance({x}, int)", "isinstance({x}, (list, tuple))", "isinstance({x}, collections.abc.Mapping)", "isinstance({x}, collections.abc.Sequence)", "isinstance({x}, collections.abc.Hashable)", "type({x}).__name__", "type({x}) is int", "callable({x})",
    "t * {x}", "t + {x}", "{x} * t", "t == {x}", "torch.arange(3.)[{x}]", "torch.full((2,), {x})", "torch.tensor({x})", "torch.as_tensor({x})", "torch.zeros({x}).shape", "torch.ones(2).reshape({x}).shape", "torch.ones(1, 2, 3).sum({x}).shape", "torch.ones(2).to({x}).dtype", "torch.ones(2).clamp(max={x})", "torch.where(torch.tensor([True, False]), {x}, 0)", "torch.stack({x})", "{x}.sum()", "torch.is_tensor({x})", "{x}.requires_grad",
    "{x}[0]", "{x}['a']", "{x}[:1]", "[1, 2, 3][{x}]", "{x}.get('b', 9)", "list({x}.items())", "[k for k in {x}.keys()]", "1 in {x}", "'a' in {x}", "f'{x}' if not hasattr({x}, '__dict__') else 0", "str({x}) if isinstance({x}, (int, float, str, list)) else 0", "int({x})", "float({x}) if type({x}) is not memoryview else 0", "[v for v in {x}]", "(lambda p, q: (q, p))(*{x})", "(lambda *p: len(p))(*{x})", "(lambda **p: sorted(p))(**{x})", "sorts({x})", "json.dumps({x})",
    "getattr({x}, 'v', 'no')", "hasattr({x}, 'v'), hasattr({x}, 'w')", "sorted(vars({x}))", "{x}.real", "{x} + {x}", "{x} * 2", "-{x}", "1 / {x}", "7 % {x}", "{x} ** 2", "max({x}, 1)", "max({x})", "sum({x})", "list(reversed({x}))", "list(enumerate({x}))", "list(zip({x}, 'ab'))", "list(map(str, {x}))", "any({x})", "all({x})", "{x} or 3", "{x} and 3", "{x} is None", "{x} is True", "dict({x})", "sorted(set({x}))", "''.join({x})", "{x}([1, 2])", "isinstance(1, {x})", "next(iter({x}))",
    "divmod(7, {x})", "round({x})", "abs({x})", "'%d' % {x}", "math.isinf({x})", "{x}.__class__.__mro__[-2].__name__", "[0, *{x}]", "{**{x}, 'q': 1}", "functools.reduce(operator.add, {x})", "operator.index({x})", "{x}.count(1)", "({x}.pop(), len({x}))", "({x}.clear(), len({x}))", "({x}.update({'a': 5}), {x}['a'])", "copy.copy({x}) is {x}", "type(copy.deepcopy({x})).__name__", "{x}.dtype", "{x}.bits", "{x}.type", "{x}.a", "{x}.name", "{x}.value", "{x}.args", "{x}.training", "{x}.func",
]  # fmt: skip
#: Questions about both.
PAIRED = [
    "a is b", "a is not b", "id(a) == id(b)", "len({id(a), id(b)})", "operator.is_(a, b)", "any(v is b for v in [a, 1])", "a == b", "a != b", "a < b", "a == a", "a in (b,)", "[b].count(a)", "[b, a].index(a)", "(a, 1) == (b, 1)", "[a] == [b]", "{1: a} == {1: b}", "a in b", "isinstance(a, type(b))", "type(a) is type(b)", "a + b", "max(a, b)", "[a, b]", "(b, a)", "a or b", "{'k': a} | {'k': b}",
    "{a: 1}.get(b)", "b in {a}", "b in {a: 1}", "len({a, b})", "len({a: 1, b: 2})", "len(dict.fromkeys([a, b]))", "{a} == {b}", "{a: 1} == {b: 1}", "len({a} | {b})", "len({a} & {b})", "len({a} ^ {b})", "{a} <= {b}", "{a}.isdisjoint({b})", "{a}.issubset({b})", "frozenset([a]) == frozenset([b])", "frozenset([a]) in {frozenset([b])}", "(a, 1) in {(b, 1)}", "{(a, 1): 1}.get((b, 1))", "hash(a) == hash(b)", "{a: 1}.keys() == {b: 1}.keys()", "{a: 1}.items() == {b: 1}.items()", "len({a: 1}.keys() & {b})", "{**{a: 1}, **{b: 2}}.get(a)", "collections.Counter([a, b])[a]",
    "shown(changed(a)), shown(b)", "(shown(b), shown(changed(a)), shown(b))", "shown(changed(copy.copy(a))), shown(b), shown(a)", "shown(changed(copy.deepcopy([a, b])[0])), shown(b)", "copy.deepcopy([a, b])[0] is a", "(lambda d: (d[0] is d[1], shown(changed(d[0])), shown(d[1])))(copy.deepcopy([a, b]))", "shown(changed(O(p=a, q=b).p)), shown(b)", "shown(changed([a][0])), shown(b)", "(lambda: shown(changed(a)))(), shown(b)", "weakref.ref(a)() is b", "functools.partial(max, a).args[0] is b", "dict(k=a)['k'] is b", "[v for v in (a, b) if v is a]", "(print(end=''), shown(changed(a)), shown(b))", "(print(end=''), a is b)",
]  # fmt: skip
#: What a call brings, of the two.
BROUGHT = ["{a}, {b}", "{a}, {b}", "{a}, {b}", "[{a}, {b}]", "({a}, {b})", "{'a': {a}, 'b': {b}}", "O(a={a}, b={b})"]
_TAKEN = {"[": "a, b = held", "(": "a, b = held", "{": "a, b = held['a'], held['b']", "O": "a, b = held.a, held.b"}


def program(seed: int, backend: str | None = None) -> Program:
    """The program of a seed."""
    chance = random.Random(f"pairs {seed}")
    chosen = chance.choices(list(MIX), list(MIX.values()))[0]
    brought = chance.choice(BROUGHT)
    source = "\n".join([DECLARATIONS, *_function(chance, brought), "", *_calls(chance, brought)]) + "\n"
    return Program("pairs", seed, source, backend or chosen)


def _function(chance: random.Random, brought: str) -> list[str]:
    questions = [
        chance.choice(PAIRED) if chance.random() < 0.5 else chance.choice(ASKED).replace("{x}", chance.choice("ab"))
        for _ in range(chance.randint(1, 3))
    ]
    lines = ["def f(t, a, b):"] if brought.startswith("{a}") else ["def f(t, held):", f"    {_TAKEN[brought[0]]}"]
    lines.append("    told = []")
    for question in questions:
        if chance.random() < 0.5:
            lines.append(f"    told.append({question})")
        else:
            lines += [
                "    try:",
                f"        told.append({question})",
                "    except Exception as error:",
                "        told.append(type(error).__name__)",
            ]
    return [*lines, "    return t + 1, told"]


def _calls(chance: random.Random, brought: str) -> list[str]:
    """A call, and others beside which one thing changes, in an order in which each comes before and after the first."""
    first = chance.choice(KINDS)
    one, near = chance.random() < 0.5, _near(chance, first)
    ways = [
        (first, first, one),
        (first, first, not one),
        chance.choice([(first, near, False), (near, first, False), (near, near, one)]),
    ]
    order = chance.choice([[0, 1, 0], [0, 1, 2, 1], [0, 2, 0], [2, 0, 1, 0], [0, 0, 1, 2]])
    lines = [
        "def drive(compile, call, show, backward):",
        f"    g = compile(f, dynamic={chance.choice(['None', 'None', 'True', 'False'])})",
    ]
    for number in order:
        a, b, is_one = ways[number]
        given = brought.replace("{a}", "a").replace("{b}", "b")
        lines += [f"    a = {a}", f"    b = {'a' if is_one else b}", f"    call(g, whole((2,)), {given})"]
    return lines


def _near(chance: random.Random, kind: str) -> str:
    place = KINDS.index(kind) + chance.choice([-3, -2, -1, 1, 2, 3])
    return KINDS[place % len(KINDS)] if chance.random() < 0.7 else chance.choice(KINDS)
