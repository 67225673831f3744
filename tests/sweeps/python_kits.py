"""Declarations that random Python programs are made of: classes, functions, globals, with what can be said of them.

In: nothing. Out: `KITS`. A kit is a text of declarations and templates by the type of what they give: `T` a tensor of one dimension, `I` an int,
`S` a str, `B` a bool, `L` a list of ints, `D` a dict from str to int, `do` statements, `change` what another part of the program may do between two calls.
In a template `{T}`, `{I}`, ... stand for any expression of that type, `{t}`, `{l}`, `{d}`, `{i}` for a variable.
"""

from __future__ import annotations

from typing import Any

from attrs import Factory, frozen


@frozen
class Kit:
    """Declarations, and what they make possible.

    Attributes:
        text: the declarations.
        uses: type (or `do`) -> templates.
        changes: statements for between two calls.
        shown: what to look at afterwards.
    """

    text: str
    uses: dict[str, list[str]] = Factory(dict)
    changes: list[str] = Factory(list)
    shown: list[str] = Factory(list)


def kit_of(text: str, changes: Any = (), shown: Any = (), **uses: list[str]) -> Kit:
    """A kit of what is given by name."""
    return Kit(text.strip("\n"), uses, list(changes), list(shown))


KITS: list[Kit] = [
    kit_of(
        """
class Point:
    scale = 2
    def __init__(self, w, tag='p'):
        self.w = w
        self.tag = tag
    @property
    def double(self):
        return self.w * 2
    @double.setter
    def double(self, value):
        self.w = value // 2
    @classmethod
    def make(cls, w):
        return cls(w, cls.__name__)
    @staticmethod
    def plain(t):
        return t + 1
    def __call__(self, t):
        return t * self.w + self.scale
    def __len__(self):
        return 3
    def __getitem__(self, key):
        return self.w + key
    def __eq__(self, other):
        return isinstance(other, Point) and self.w == other.w
    def __hash__(self):
        return hash(self.w)
    def __repr__(self):
        return f'Point({self.w})'
    def __add__(self, other):
        return Point(self.w + other.w)
    def __contains__(self, n):
        return n == self.w
    def __lt__(self, other):
        return self.w < other.w
p1 = Point(3)
p2 = Point(1, 'q')
""",
        ["Point.scale = {n}", "p1.w = {n}", "Point.__call__ = lambda self, t: t - self.w", "p1.extra = {n}", "del p2.tag; p2.tag = 'z'", "Point.plain = staticmethod(lambda t: t * 3)",
         "Point.double = property(lambda self: {n})", "p1.__dict__['w'] = {n}", "p2.__class__ = Point", "Point.later = {n}", "global p1; p1 = Point({n})"],
        ["p1", "p2", "Point.scale"],
        T=["p1({T})", "Point.plain({T})", "Point.make({I})({T})", "(p1 + p2)({T})", "{T} * p1.w", "{T} + p1[{I}]", "getattr(p1, 'w') * {T}", "max(p1, p2)({T})", "sorted([p1, p2])[0]({T})"],
        I=["p1.w", "p2.double", "len(p1)", "p1[{I}]", "Point.scale", "getattr(p1, 'missing', {I})", "vars(p1)['w']", "p1.__dict__.get('w', 0)", "hash(p2)", "max([p1, p2], key=lambda p: p.w).w",
           "operator.attrgetter('w')(p1)", "copy.copy(p1).w", "len(vars(p1))", "len({p1, p2, Point(3)})", "getattr(Point, 'later', 0)"],
        B=["p1 == p2", "{I} in p1", "p1 < p2", "isinstance(p1, Point)", "hasattr(p1, 'tag')", "p1 is p2", "p1 in [p2]", "p1 in {p2: 1}", "callable(p1)"],
        S=["p1.tag", "repr(p1)", "f'{p1!r} {p2}'", "type(p1).__name__", "str(p1)", "Point.make(1).tag", "p1.__class__.__qualname__", "'{0.w} {1}'.format(p1, p2)"],
        do=["p1.w = {I}", "p2.double = {I}", "p1.w += 1", "setattr(p2, 'tag', {S})", "Point.scale = {I}", "p1.note = {T}", "vars(p2)['w'] = {I}", "p2.__dict__.update(w={I})", "p1.tag, p2.tag = p2.tag, p1.tag",
            "if hasattr(p1, 'extra'):\n    del p1.extra", "object.__setattr__(p1, 'w', {I})", "p1.tag = {S}"],
    ),
    kit_of(
        """
class Base:
    kind = 'base'
    limit = 4
    def __init__(self):
        self.seen = []
    def step(self, t):
        self.seen.append(self.kind)
        return t + self.limit
    def twice(self, t):
        return self.step(self.step(t))
class Mixin:
    def step(self, t):
        return super().step(t) * 2
class Child(Mixin, Base):
    kind = 'child'
    def __init__(self, more=1):
        super().__init__()
        self.more = more
    def step(self, t):
        return super().step(t) + self.more
child = Child()
""",
        ["Base.limit = {n}", "child.more = {n}", "child.kind = 'own'", "Mixin.step = lambda self, t: t", "Child.kind = 'other'", "child.step = lambda t: t * {n}", "child.seen = []", "del child.seen[:]", "Base.step = Base.twice if False else Base.step"],
        ["child", "Base.limit"],
        T=["child.step({T})", "child.twice({T})", "Child({I}).step({T})", "Base.step(child, {T})", "super(Child, child).step({T})", "Base().twice({T})", "operator.methodcaller('step', {T})(child)", "getattr(child, 'st' + 'ep')({T})"],
        I=["child.limit", "len(child.seen)", "len(Child.__mro__)", "child.more", "sum(len(k.__name__) for k in type(child).__mro__)"],
        S=["child.kind", "Child.kind", "'-'.join(child.seen[:3])", "Child.__mro__[1].__name__", "type(child).__bases__[0].__name__"],
        B=["issubclass(Child, Base)", "isinstance(child, (int, Mixin))", "'child' in child.seen", "Child.step is Base.step", "type(child) is Child", "type(child) == Base"],
        do=["child.more = {I}", "child.seen.append({S})", "child.seen.clear()", "Child.kind = {S}", "child.seen = [*child.seen, {S}]", "Child.limit = {I}"],
    ),
    kit_of(
        """
class Slotted:
    __slots__ = ('a', 'b', 'items')
    def __init__(self, a, b=None):
        self.a = a
        self.items = [a]
        if b is not None:
            self.b = b
    def total(self):
        return self.a + getattr(self, 'b', 0)
slotted = Slotted(2)
""",
        ["slotted.a = {n}", "slotted.b = {n}", "slotted.items = [1, {n}]", "Slotted.total = lambda self: self.a - 1"],
        ["slotted"],
        T=["{T} * slotted.a", "{T} + slotted.total()", "{T} * Slotted({I}, {I}).b", "{T} + copy.copy(slotted).a", "{T} + copy.deepcopy(slotted).items[0]"],
        I=["slotted.total()", "Slotted({I}).total()", "len(slotted.items)", "copy.copy(slotted).total()", "getattr(slotted, 'b', -1)"],
        B=["hasattr(slotted, 'b')", "hasattr(slotted, '__dict__')", "copy.copy(slotted).items is slotted.items", "copy.deepcopy(slotted).items is slotted.items"],
        do=["slotted.a = {I}", "slotted.b = {I}", "slotted.items.append({I})", "if hasattr(slotted, 'b'):\n    del slotted.b", "try:\n    slotted.c = 1\nexcept AttributeError as e:\n    {l}.append(len(str(e)) % 7)"],
    ),
    kit_of(
        """
@dataclasses.dataclass
class Config:
    size: int = 3
    name: str = 'cfg'
    parts: list = dataclasses.field(default_factory=list)
    def __post_init__(self):
        self.area = self.size * 2
@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    x: int
    y: int = 0
@dataclasses.dataclass(slots=True)
class Lean:
    t: object
    n: int = 1
config = Config()
frozen = Frozen(1, 2)
""",
        ["config.size = {n}", "config.parts.append({n})", "global frozen; frozen = Frozen({n})", "config.name = 'new'", "Config.name = 'class'", "object.__setattr__(frozen, 'y', {n})"],
        ["config", "frozen"],
        T=["{T} * config.size", "{T} + Config({I}).area", "{T} + dataclasses.replace(frozen, x={I}).x", "Lean({T}).t * 2", "Lean({T}, n={I}).t + 1", "{T} + sum(dataclasses.astuple(frozen))", "dataclasses.replace(Lean({T}), n=2).t"],
        I=["config.size", "config.area", "frozen.x", "Config(size={I}).area", "len(dataclasses.fields(Config))", "dataclasses.asdict(frozen)['y']", "len(config.parts)", "hash(frozen) % 5", "{Frozen(1, 2): 4, frozen: 5}[frozen]"],
        S=["config.name", "repr(frozen)", "repr(Config(2))", "str(Lean(1, 2))", "[f.name for f in dataclasses.fields(config)][1]"],
        B=["frozen == Frozen(1, 2)", "Config() == config", "frozen < Frozen(2)", "dataclasses.is_dataclass(config)", "Config().parts is Config().parts", "frozen in {frozen}"],
        do=["config.size = {I}", "config.parts.append({I})", "config.area += 1", "config.parts = config.parts + [{I}]", "try:\n    frozen.x = 1\nexcept dataclasses.FrozenInstanceError as e:\n    {l}.append(len(e.args))"],
    ),
    kit_of(
        """
class Color(enum.Enum):
    RED = 1
    BLUE = 2
    def shift(self, t):
        return t + self.value
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5
class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()
color = Color.RED
level = Level.LOW
""",
        ["global color; color = Color.BLUE", "global level; level = Level.HIGH"],
        ["color", "level"],
        T=["color.shift({T})", "{T} * level", "{T} + Color['BLUE'].value", "{T} + Level(5)", "{T} + len(Color)", "{T} + sum(c.value for c in Color)"],
        I=["color.value", "level + 1", "int(Level.HIGH)", "len(list(Color))", "max(Level).value", "(Flags.A | Flags.B).value", "Color(2).value", "{Color.RED: 3, Color.BLUE: 4}[color]"],
        S=["color.name", "str(color)", "f'{level}'", "repr(Level.HIGH)", "f'{color!s:>12}'"],
        B=["color is Color.RED", "color == Color.BLUE", "level < Level.HIGH", "Color.RED in Color", "isinstance(level, int)", "bool(Flags.A & Flags.B)", "Flags.A in (Flags.A | Flags.B)"],
        do=["try:\n    Color(9)\nexcept ValueError as e:\n    {l}.append(len(e.args))"],
    ),
    kit_of(
        """
G = 2
COUNT = 0
ITEMS = [1, 2]
TABLE = {'a': 1}
SEEN = set()
BIAS = whole((3,), torch.float64, 5)
def bump(n=1):
    global COUNT
    COUNT += n
    return COUNT
""",
        ["global G; G = {n}", "ITEMS.append({n})", "TABLE['a'] = {n}", "TABLE['new'] = {n}", "global ITEMS; ITEMS = [{n}]", "SEEN.add({n})", "BIAS.add_(1)", "global BIAS; BIAS = BIAS * 2", "global bump; bump = lambda n=1: n",
         "TABLE.pop('a', None)", "global COUNT; COUNT = {n}", "SEEN.clear()", "globals()['G'] = {n}", "bump.__defaults__ = ({n},)", "ITEMS.reverse()", "global TABLE; TABLE = dict(reversed(TABLE.items()))"],
        ["G", "COUNT", "ITEMS", "TABLE", "SEEN", "BIAS"],
        T=["{T} * G", "{T} + ITEMS[-1]", "{T} + TABLE.get('a', 0)", "{T} + BIAS.sum()", "{T} + bump()", "{T} + globals()['G']", "BIAS[:1] + {T}"],
        I=["G", "len(ITEMS)", "TABLE.get('a', 7)", "bump()", "bump({I})", "COUNT", "len(SEEN)", "sum(TABLE.values())", "sum(ITEMS)", "max(SEEN, default=0)", "list(TABLE.values())[0] if TABLE else 0"],
        B=["'a' in TABLE", "{I} in SEEN", "ITEMS == [1, 2]", "{I} in ITEMS", "bool(TABLE)", "'G' in globals()"],
        S=["','.join(TABLE)", "str(ITEMS)", "repr(TABLE)", "f'{G:03d}'", "f'{COUNT=}'", "str(sorted(SEEN))"],
        L=["ITEMS", "list(TABLE.values())", "ITEMS + [{I}]", "sorted(SEEN)", "ITEMS[::-1]"],
        D=["TABLE", "{**TABLE, 'z': {I}}", "dict(TABLE)", "TABLE | {'y': {I}}", "copy.copy(TABLE)"],
        do=["ITEMS.append({I})", "TABLE['a'] = {I}", "TABLE['k%d' % {I}] = {I}", "SEEN.add({I})", "BIAS.add_(1)", "ITEMS[0] = {I}", "SEEN.discard({I})", "TABLE.update(b={I})", "bump()", "ITEMS.sort()", "TABLE.setdefault('c', {I})",
            "BIAS[0] = {I}", "del ITEMS[1:]", "ITEMS += [{I}]", "TABLE |= {'w': {I}}", "SEEN |= {1, {I}}", "SEEN.update([{I}, 3])", "global G\nG = {I}", "ITEMS *= 2", "TABLE.clear()"],
    ),
    kit_of(
        """
def outer(start):
    count = start
    log = []
    def add(n=1, *rest, **named):
        nonlocal count
        count += n + sum(rest) + named.get('extra', 0)
        log.append(count)
        return count
    def look():
        return count, list(log)
    return add, look
add, look = outer(1)
def make_scaler(k):
    return lambda t, b=0: t * k + b
scale = make_scaler(3)
scalers = [lambda t: t + i for i in range(3)]
bound = [lambda t, i=i: t + i for i in range(3)]
""",
        ["add({n})", "global scale; scale = make_scaler({n})", "global add, look; add, look = outer({n})", "scale.__defaults__ = ({n},)", "scalers.append(lambda t: t * {n})", "global make_scaler; make_scaler = lambda k: (lambda t, b=0: t - k)"],
        ["look()"],
        T=["scale({T})", "scale({T}, {I})", "make_scaler({I})({T})", "scalers[0]({T})", "bound[-1]({T})", "{T} + add()", "functools.reduce(lambda t, g: g(t), scalers, {T})", "(lambda a, *b: a + sum(b))({T}, {I}, {I})"],
        I=["add({I})", "add(1, {I}, extra={I})", "look()[0]", "len(look()[1])", "outer({I})[0](2)", "add.__closure__[0].cell_contents", "scale.__code__.co_argcount", "len(scale.__closure__)"],
        S=["scale.__name__", "add.__qualname__", "outer.__code__.co_varnames[0]"],
        B=["scale is scale", "callable(add)", "scalers[0] is scalers[1]", "add.__closure__ is None"],
        do=["add({I})", "add(*[1, {I}], **{'extra': 1})", "fresh, peek = outer({I})\nfresh(2)\n{l}.append(peek()[0])", "{l}.extend(look()[1][:2])"],
    ),
    kit_of(
        """
def note(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        inner.calls += 1
        return function(*args, **kwargs)
    inner.calls = 0
    return inner
@note
def shifted(t, by=1):
    '''Shift.'''
    return t + by
def with_rest(t, *rest, scale=1, **named):
    return (t + len(rest)) * scale + sum(named.values())
def only(a, /, b, *, c=2):
    return a * b + c
@functools.lru_cache(maxsize=None)
def slow(n):
    return n * n + 1
@functools.lru_cache(maxsize=8)
def kept(n):
    return [n, n + 1]
@functools.singledispatch
def kind(x):
    return 0
@kind.register
def _(x: int):
    return 1
@kind.register(list)
def _(x):
    return 2
half = functools.partial(only, b=2)
""",
        ["shifted.__wrapped__ = None", "global half; half = functools.partial(only, b={n}, c=1)", "slow.cache_clear()", "kept({n}).append(7)", "only.__kwdefaults__['c'] = {n}", "global only; only = lambda a, b, c=0: a", "with_rest.__kwdefaults__ = {'scale': {n}}",
         "half.keywords['b'] = {n}", "shifted.calls = {n}"],
        ["shifted.calls", "kept(1)", "half"],
        T=["shifted({T})", "shifted({T}, by={I})", "with_rest({T})", "with_rest({T}, 1, {I}, scale=2, z={I})", "only({T}, {I})", "only({T}, b={I}, c={I})", "half({T})", "half({T}, c={I})", "{T} * slow({I})", "with_rest(*[{T}, 1], **{'scale': 2})",
           "functools.partial(with_rest, {T}, 1)(2, scale={I})", "{T} + kept({I})[0]"],
        I=["slow({I})", "kind({I})", "kind({L})", "kind({S})", "shifted.calls", "len(kept({I}))", "kept.cache_info().maxsize", "only.__kwdefaults__['c']", "half.keywords['b']", "len(half.args)"],
        S=["shifted.__name__", "shifted.__doc__ or ''", "shifted.__wrapped__.__name__", "only.__code__.co_name"],
        B=["kept(1) is kept(1)", "shifted.__wrapped__ is not None", "half.func is only"],
        do=["kept({I}).append({I})", "slow({I})", "shifted.calls = 0", "try:\n    only({I})\nexcept TypeError as e:\n    {l}.append(len(e.args))", "try:\n    only(a=1, b=2)\nexcept TypeError as e:\n    {l}.append(3)"],
    ),
    kit_of(
        """
class Problem(Exception):
    def __init__(self, text, value=0):
        super().__init__(text, value)
        self.value = value
class Worse(Problem, KeyError):
    pass
def risky(t, n):
    if n > 2:
        raise Problem('too many', n)
    if n < 0:
        raise Worse('negative', n)
    return t * n
def careful(t, n):
    try:
        return risky(t, n)
    except Worse as e:
        return t - e.value
    except Problem:
        return t
    finally:
        FINALLY.append(n)
def chained(n):
    try:
        return {}[n]
    except KeyError as e:
        raise Problem('chained', n) from e
FINALLY = []
""",
        ["FINALLY.clear()", "global risky; risky = lambda t, n: t", "Problem.value = {n}", "global FINALLY; FINALLY = []"],
        ["FINALLY"],
        T=["careful({T}, {I})", "risky({T}, 1)", "careful({T}, -1)", "risky({T}, {I})"],
        I=["len(FINALLY)", "Problem('x', {I}).value", "len(Worse('a').args)"],
        S=["str(Problem('t', {I}))", "repr(Worse('r'))", "Worse.__mro__[2].__name__"],
        B=["issubclass(Worse, KeyError)", "isinstance(Worse(''), Problem)"],
        do=["try:\n    risky({t}, {I})\nexcept Problem as e:\n    {l}.append(e.value)", "try:\n    chained({I})\nexcept Problem as e:\n    {l}.append(e.value)\n    {l}.append(len(e.__cause__.args))",
            "try:\n    raise Worse({S}, {I})\nexcept KeyError as e:\n    {l}.append(e.args[1])\nelse:\n    {l}.append(99)\nfinally:\n    {l}.append(5)", "try:\n    try:\n        risky({t}, 9)\n    finally:\n        {l}.append(1)\nexcept Problem as e:\n    {l}.append(e.args[1])",
            "try:\n    try:\n        raise ValueError({I})\n    except ValueError as e:\n        raise Problem('again', {I})\nexcept Problem as e:\n    {l}.append(e.__context__.args[0])", "try:\n    try:\n        raise Problem({S}, {I})\n    except Problem:\n        raise\nexcept Exception as e:\n    {l}.append(e.args[1])",
            "try:\n    raise Problem('tensor', {T})\nexcept Problem as e:\n    {t} = e.value * 2", "error = None\ntry:\n    {l}.index(1000)\nexcept ValueError as e:\n    error = e\n{l}.append(len(error.args))", "if {B}:\n    raise Problem({S}, {I})", "FINALLY.append({I})",
            "for _ in range(2):\n    try:\n        risky({t}, {I})\n    except Problem:\n        continue\n    finally:\n        FINALLY.append(_)", "try:\n    e = Problem('noted')\n    e.add_note('n')\n    raise e\nexcept Problem as e:\n    {l}.append(len(e.__notes__))",
            "try:\n    raise ExceptionGroup('g', [ValueError(1), Problem('p')])\nexcept* ValueError as g:\n    {l}.append(len(g.exceptions))\nexcept* Problem as g:\n    {l}.append(2)",
            "try:\n    assert {B}, {S}\nexcept AssertionError as e:\n    {l}.append(len(e.args))", "with contextlib.suppress(Problem, ZeroDivisionError):\n    {l}.append(1)\n    {l}.append(1 // ({I} - {I}))"],
    ),
    kit_of(
        """
def numbers(n, start=0):
    try:
        for i in range(start, n):
            yield i
    finally:
        CLOSED.append(n)
def talk(t):
    total = t
    while True:
        got = yield total
        if got is None:
            return
        total = total + got
def nested(n):
    yield from numbers(n)
    last = yield from [7, 8]
    yield last is None
CLOSED = []
class Counter:
    def __init__(self, top):
        self.top, self.now = top, 0
    def __iter__(self):
        return self
    def __next__(self):
        if self.now >= self.top:
            raise StopIteration
        self.now += 1
        return self.now
""",
        ["CLOSED.clear()", "global numbers; numbers = lambda n, start=0: iter([n])", "Counter.step = {n}"],
        ["CLOSED"],
        T=["sum(({t} * i for i in numbers(3)), {T})", "functools.reduce(operator.add, ({t} + i for i in numbers(2)), {T})", "next(talk({T}))", "list(itertools.accumulate([{T}, {T}]))[-1]", "torch.stack([{t} + i for i in Counter(2)]).sum(0)"],
        I=["sum(numbers({I} % 5))", "next(numbers(4, 1))", "len(list(nested({I} % 4)))", "sum(Counter({I} % 4))", "next(iter(Counter(0)), {I})", "max(numbers(3), default=0)", "len(CLOSED)", "list(zip(Counter(2), numbers(5)))[-1][1]"],
        L=["list(numbers({I} % 5))", "[*nested(2)]", "[i * 2 for i in numbers(4) if i % 2]", "sorted(Counter(3), reverse=True)", "[a + b for a, b in zip(numbers(3), Counter(3))]", "list(itertools.islice(numbers(9), 2, 5))", "list(map(lambda i: i + {i}, Counter(2)))", "[x for y in ([i, i + 1] for i in numbers(2)) for x in y]"],
        B=["any(i > 2 for i in numbers({I} % 6))", "all(Counter(2))", "3 in numbers(5)", "2 in Counter(3)"],
        do=["for i in numbers({I} % 4):\n    {l}.append(i)\n    if i == 1:\n        break", "g = numbers(3)\nnext(g)\n{l}.extend(g)", "g = talk({t})\nnext(g)\n{t} = g.send({I})\ng.close()", "it = iter([*{L}])\n{l}.append(next(it, 0))\nprint({I})\n{l}.extend(it)",
            "for i, j in enumerate(nested(1), start={I}):\n    {l}.append(i)", "g = (i * 2 for i in [*{L}])\n{l}.append(next(g, -1))\nprint('between')\n{l}.append(sum(g))", "try:\n    next(Counter(0))\nexcept StopIteration as e:\n    {l}.append(len(e.args))",
            "c = Counter(4)\nfor i in c:\n    if i == 2:\n        break\n{l}.append(next(c))", "a, *b, c = numbers(4)\n{l}.extend([a, len(b), c])"],
    ),
    kit_of(
        """
class Scope:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow
        self.log = []
    def __enter__(self):
        self.log.append('in')
        return self
    def __exit__(self, kind, value, trace):
        self.log.append('out' if kind is None else kind.__name__)
        return self.swallow
@contextlib.contextmanager
def shifted_by(n):
    STACK.append(n)
    try:
        yield n * 2
    finally:
        STACK.pop()
STACK = []
scope = Scope('s', True)
""",
        ["scope.swallow = not scope.swallow", "STACK.append({n})", "scope.log.clear()", "Scope.__enter__ = lambda self: self", "global STACK; STACK = []"],
        ["scope", "STACK"],
        I=["len(scope.log)", "len(STACK)", "sum(STACK)"],
        S=["','.join(scope.log[-2:])", "scope.name"],
        B=["scope.swallow", "bool(STACK)"],
        do=["with shifted_by({I}) as k:\n    {t} = {t} + k", "with scope:\n    {l}.append({I})", "with scope as s, shifted_by(2) as k:\n    {t} = {t} * k\n    s.name = {S}", "with Scope('x', True) as s:\n    raise ValueError({I})\n{l}.append(len(s.log))",
            "with scope:\n    {l}.append(1)\n    {l}[100]\n    {l}.append(2)", "with contextlib.ExitStack() as stack:\n    k = stack.enter_context(shifted_by(3))\n    {l}.append(k)", "for i in range(2):\n    with shifted_by(i):\n        if i:\n            break\n        {l}.append(len(STACK))",
            "with contextlib.nullcontext({I}) as k:\n    {l}.append(k)", "try:\n    with shifted_by(1):\n        raise KeyError({S})\nexcept KeyError as e:\n    {l}.append(len(STACK))", "with torch.no_grad():\n    {t} = {t} * 2", "with contextlib.redirect_stdout(io_of()) as out:\n    print('hidden')" if False else "with scope:\n    pass"],
    ),
    kit_of(
        """
Pair = collections.namedtuple('Pair', ['left', 'right'], defaults=[0])
class Row(typing.NamedTuple):
    t: object
    n: int = 2
queue = collections.deque([1, 2, 3], maxlen=5)
tally = collections.Counter('abca')
groups = collections.defaultdict(list)
ordered = collections.OrderedDict(x=1, y=2)
chain = collections.ChainMap({'a': 1}, {'b': 2})
""",
        ["queue.append({n})", "tally['a'] = {n}", "groups['k'].append({n})", "ordered.move_to_end('x')", "chain['a'] = {n}", "queue.rotate({n})", "groups.clear()", "ordered['z'] = {n}", "global queue; queue = collections.deque(maxlen=2)", "groups.default_factory = set"],
        ["queue", "tally", "groups", "ordered"],
        T=["Pair({T}).left + 1", "Row({T}).t * 2", "Row({T})._replace(n={I}).t", "{T} + queue[0]", "sum(Pair({T}, {I}))", "{T} * ordered['x']", "Row(n={I}, t={T})[0]", "(lambda p: p.left + p.right)(Pair({T}, {T}))"],
        I=["Pair({I}).right", "queue[-1]", "len(queue)", "tally['a']", "tally['missing']", "tally.most_common(1)[0][1]", "ordered['x']", "sum(ordered.values())", "chain['b']", "len(groups)", "Row(1)[1]", "Pair(1, {I})._asdict()['right']", "queue.count(2)", "sum(tally.values())", "Pair._fields.index('right')",
           "chain.get('q', {I})", "queue.maxlen or 0"],
        L=["list(queue)", "list(ordered.values())", "sorted(tally.values())", "[*Pair({I}, 2)]", "list(reversed(queue))", "list(tally.elements())[:0] + [1]", "list(map(len, groups.values()))"],
        S=["repr(Pair(1))", "','.join(ordered)", "''.join(sorted(tally))", "repr(queue)", "str(tally)", "repr(ordered)", "next(iter(ordered))"],
        B=["2 in queue", "'x' in ordered", "Pair(1) == (1, 0)", "isinstance(Pair(1), tuple)", "'a' in chain", "'k' in groups", "ordered == {'x': 1, 'y': 2}"],
        do=["queue.append({I})", "queue.appendleft({I})", "queue.rotate(1)", "tally.update('ab')", "tally['z'] += {I}", "groups[{S}].append({I})", "ordered.move_to_end('x')", "{l}.append(queue.popleft() if queue else 0)", "ordered['n'] = {I}", "groups['t'].append({T})", "left, right = Pair({I}, 3)\n{l}.append(left)",
            "chain['c'] = {I}", "queue.extend([1, {I}])", "tally.subtract('a')", "{l}.append(ordered.popitem()[1] if ordered else 0)", "queue[0] = {I}", "match Pair({I}, 2):\n    case Pair(1, r):\n        {l}.append(r)\n    case Pair(left=l1):\n        {l}.append(l1)"],
    ),
    kit_of(
        """
class Lazy:
    def __getattr__(self, name):
        if name.startswith('get_'):
            return len(name)
        raise AttributeError(name)
class Descriptor:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 5)
    def __set__(self, instance, value):
        setattr(instance, self.name, value)
class Holder:
    size = Descriptor()
    shared = []
    def __init__(self):
        self.cache = {}
    @functools.cached_property
    def heavy(self):
        self.cache['heavy'] = self.cache.get('heavy', 0) + 1
        return self.size * 10
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
    def __delattr__(self, name):
        object.__delattr__(self, name)
class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.born = 'meta'
        return made
class Made(metaclass=Meta):
    def __init__(self, n=1):
        self.n = n
lazy, holder, made = Lazy(), Holder(), Made()
""",
        ["holder.size = {n}", "holder.__dict__.pop('heavy', None)", "Holder.shared.append({n})", "lazy.get_it = {n}", "made.n = {n}", "Lazy.__getattr__ = lambda self, name: {n}", "holder.cache['x'] = {n}", "Holder.size = {n}"],
        ["holder.__dict__", "Holder.shared", "made"],
        T=["{T} * holder.size", "{T} + holder.heavy", "{T} + lazy.get_it", "{T} + Made({I}).n", "{T} + len(Holder.shared)"],
        I=["holder.size", "holder.heavy", "lazy.get_this", "getattr(lazy, 'nothing', {I})", "made.n", "holder.cache.get('heavy', 0)", "Made({I}).n", "len(holder.shared)", "getattr(holder, 'si' + 'ze')"],
        S=["made.born", "type(Made).__name__", "type(holder).size.name if hasattr(type(holder).size, 'name') else ''"],
        B=["hasattr(lazy, 'nothing')", "hasattr(lazy, 'get_x')", "'heavy' in vars(holder)", "holder.shared is Holder.shared", "isinstance(made, Made)", "isinstance(Made, Meta)"],
        do=["holder.size = {I}", "holder.shared.append({I})", "made.n += {I}", "holder.cache[{S}] = {I}", "lazy.get_own = {I}", "if 'heavy' in vars(holder):\n    del holder.heavy", "try:\n    lazy.nothing\nexcept AttributeError as e:\n    {l}.append(len(e.args))", "holder.t = {T}", "del holder.cache\nholder.cache = {}"],
    ),
    kit_of(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = parameter((3,), torch.float64, 2)
        self.buf = nn.Buffer(whole((3,), torch.float64, 3))
        self.steps = 0
        self.history = []
        self.inner = nn.ModuleList([nn.Identity(), nn.ReLU()])
        self.by_name = nn.ModuleDict({'a': nn.Identity(), 'b': nn.ReLU()})
    def forward(self, t, extra=None):
        self.steps += 1
        for layer in self.inner:
            t = layer(t)
        if self.training:
            self.buf.add_(1)
        return t * self.w.sum() + self.buf[0] + (0 if extra is None else extra)
net = Net()
""",
        ["net.eval()", "net.train()", "net.steps = {n}", "net.inner.append(nn.ReLU())", "net.w.data.add_(1)", "net.register_forward_hook(lambda m, a, r: r + 1)", "net.buf = torch.zeros(3, dtype=torch.float64)", "net.inner[0] = nn.ReLU()", "net.w = nn.Parameter(net.w.detach() * 2)",
         "net.forward = lambda t, extra=None: t + {n}", "net.register_forward_pre_hook(lambda m, a: (a[0] * 2,))", "net.requires_grad_(False)"],
        ["net"],
        T=["net({T}).detach()", "net({T}, {I}).detach()", "net(t={T}, extra=1).detach()", "net.by_name['b']({T})", "{T} + net.steps", "net.inner[-1]({T})", "{T} + net.w.detach().sum()", "nn.Sequential(nn.ReLU(), net.inner[0])({T})", "net.get_parameter('w').detach().sum() + {T}"],
        I=["net.steps", "len(list(net.parameters()))", "len(net.inner)", "net.w.shape[0]", "sum(p.numel() for p in net.parameters())", "len(net.state_dict())", "len(list(net.modules()))", "len(dict(net.named_buffers()))"],
        S=["','.join(n for n, _ in net.named_parameters())", "','.join(net.by_name)", "type(net.inner[0]).__name__", "','.join(net.state_dict())"],
        B=["net.training", "'a' in net.by_name", "isinstance(net.inner[0], nn.Identity)", "net.w.requires_grad", "hasattr(net, 'missing')"],
        do=["net.steps += 1", "net.history.append({I})", "net.buf.add_({I})", "net.training = {B}", "net.eval()", "net.buf = {t}.detach()[:3] * 1", "net.note = {S}", "for name, child in net.named_children():\n    {l}.append(len(name))", "with torch.no_grad():\n    net.w.mul_(2)", "net.history = net.history[-2:]"],
    ),
]  # fmt: skip
