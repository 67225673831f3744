"""More declarations for random Python programs: what the language has beside plain classes and functions.

In: nothing. Out: `LANGUAGE_KITS`, in the form of `python_kits.py`: generators that are sent and thrown things, cleanup on every way out of a
block, patterns, special methods, names that are deleted, classes made inside of functions, the rest of `functools`, `itertools`, `collections` and `enum`.
"""

from __future__ import annotations

from .python_kits import Kit, kit_of

LANGUAGE_KITS: list[Kit] = [
    kit_of(
        """
EVENTS = []
def echo(start):
    got = start
    while True:
        try:
            got = yield got * 2
            EVENTS.append(got)
        except ValueError as e:
            EVENTS.append(len(e.args))
            got = -1
        except GeneratorExit:
            EVENTS.append('closed')
            raise
def averager():
    total, count = 0, 0
    while (value := (yield total)) is not None:
        total, count = total + value, count + 1
    return total, count
def delegating(results):
    results.append((yield from averager()))
    yield 'done'
def cleaned(t):
    try:
        yield t
        yield t + 1
    finally:
        EVENTS.append('cleanup')
def flat(items):
    for item in items:
        if isinstance(item, list):
            yield from flat(item)
        else:
            yield item
""",
        ["EVENTS.clear()", "EVENTS.append({n})", "global echo; echo = averager", "global flat; flat = lambda items: iter([{n}])"],
        ["EVENTS"],
        T=["sum(cleaned({T}))", "next(cleaned({T}))", "[*cleaned({T})][-1]", "functools.reduce(operator.add, cleaned({T}))", "sum(v * {t} for v in flat([1, [2, {I}]]))"],
        I=["sum(flat([{I}, [1, [2]]]))", "len(EVENTS)", "next(echo({I}))", "max(flat([[{I}], 0]))", "len([*flat([{L}, [{L}]])])"],
        L=["[*flat([{L}, {I}])]", "list(flat([[1, {I}], [[2]]]))", "sorted(flat([{L}]))"],
        do=["g = echo({I})\nnext(g)\n{l}.append(g.send({I}))\n{l}.append(g.throw(ValueError('x')))\ng.close()", "results = []\ng = delegating(results)\nnext(g)\ng.send({I})\ng.send(2)\nprint(g.send(None), results)",
            "g = averager()\nnext(g)\ng.send({I})\ntry:\n    g.send(None)\nexcept StopIteration as e:\n    {l}.extend(e.value)", "g = echo(1)\nnext(g)\ntry:\n    g.throw(KeyError({S}))\nexcept KeyError as e:\n    {l}.append(len(e.args))\n{l}.append(next(g, 5))",
            "for v in cleaned({t}):\n    {t} = v * 2\n    if {B}:\n        break", "g = cleaned({t})\n{t} = next(g)\ng.close()\n{l}.append(len(EVENTS))", "g = averager()\nnext(g)\n{t} = g.send({T})\n{t} = g.send({t})", "def counted():\n    n = yield 1\n    return n\ng = counted()\nnext(g)\ntry:\n    g.send({I})\nexcept StopIteration as e:\n    {l}.append(e.value)",
            "g = echo({I})\ntry:\n    g.send(1)\nexcept TypeError as e:\n    {l}.append(len(e.args))", "pairs = ((a, b) for a in [1, 2] for b in [*{L}] if a != b)\n{l}.append(len(list(pairs)))"],
    ),
    kit_of(
        """
TRAIL = []
def early(t, n):
    try:
        if n > 1:
            return t * 2
        TRAIL.append(n)
    finally:
        TRAIL.append('f')
    return t
def overridden(n):
    for k in range(3):
        try:
            if k == n:
                return 'try'
        finally:
            TRAIL.append(k)
            if k == 1:
                break
    return 'end'
def swallowing(n):
    try:
        return 10 // n
    except ZeroDivisionError:
        return -1
    else:
        TRAIL.append('else')
    finally:
        TRAIL.append('finally')
def continued(items):
    for item in items:
        try:
            if item % 2:
                continue
            TRAIL.append(item)
        finally:
            TRAIL.append(-item)
    else:
        TRAIL.append('all')
class Managed(contextlib.ContextDecorator):
    def __init__(self, tag):
        self.tag = tag
    def __enter__(self):
        TRAIL.append('+' + self.tag)
        return self
    def __exit__(self, *exc):
        TRAIL.append('-' + self.tag)
        return exc[0] is KeyError
@Managed('deco')
def decorated(t):
    return t + len(TRAIL)
@contextlib.contextmanager
def catching(*kinds):
    try:
        yield TRAIL
    except kinds as e:
        TRAIL.append(type(e).__name__)
class Thing:
    def close(self):
        TRAIL.append('thing')
""",
        ["TRAIL.clear()", "TRAIL.append({n})", "Managed.__exit__ = lambda self, *exc: True", "global swallowing; swallowing = lambda n: n", "global early; early = lambda t, n: t"],
        ["TRAIL"],
        T=["early({T}, {I})", "decorated({T})"],
        I=["swallowing({I})", "len(TRAIL)"],
        S=["overridden({I})", "str(TRAIL[-1:])"],
        do=["continued({L})", "with contextlib.ExitStack() as stack:\n    stack.callback(TRAIL.append, {I})\n    m = stack.enter_context(Managed('x'))\n    {l}.append(len(m.tag))", "with contextlib.ExitStack() as stack:\n    stack.push(lambda *e: True)\n    stack.enter_context(Managed('y'))\n    raise ValueError({I})\n{l}.append(1)",
            "with contextlib.ExitStack() as stack:\n    for k in range(2):\n        stack.enter_context(Managed(str(k)))\n    kept = stack.pop_all()\nkept.close()", "with contextlib.suppress(KeyError, IndexError):\n    {l}[{I} * 50]\n    {l}.append(3)", "with catching(ValueError, KeyError) as trail:\n    {d}['nothing']\n{l}.append(len(trail))",
            "with contextlib.closing(Thing()) as thing:\n    {t} = {T}", "with (Managed('a') as a, Managed('b')):\n    {l}.append(len(a.tag))\n    raise KeyError({I})", "def way(k):\n    try:\n        if k:\n            return k\n        raise ValueError(k)\n    except ValueError:\n        return 'caught'\n    finally:\n        {l}.append(7)\nprint(way({I}))",
            "while True:\n    try:\n        {l}.append({I})\n        break\n    finally:\n        TRAIL.append('w')", "try:\n    with catching(ValueError):\n        raise IndexError({I})\nexcept IndexError as e:\n    {l}.append(len(e.args))", "for k in range(3):\n    with Managed('l'):\n        if k == {I}:\n            continue\n        if k > 1:\n            break\n{l}.append(k)",
            "try:\n    try:\n        raise ValueError({I})\n    finally:\n        TRAIL.append('inner')\nexcept ValueError as e:\n    {l}.append(e.args[0])", "try:\n    try:\n        raise ValueError(1)\n    except ValueError:\n        raise KeyError({I}) from None\nexcept KeyError as e:\n    {l}.append(int(e.__suppress_context__))",
            "try:\n    raise ExceptionGroup('outer', [ValueError({I}), ExceptionGroup('in', [KeyError('k'), TypeError('t')])])\nexcept* (KeyError, ValueError) as g:\n    {l}.append(len(g.exceptions))\nexcept* TypeError as g:\n    {l}.append(len(g.exceptions[0].exceptions))",
            "group = ExceptionGroup('g', [ValueError(1), KeyError(2)])\nmatched, rest = group.split(ValueError)\n{l}.append(len(matched.exceptions) + len(rest.exceptions))", "with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n    warnings.warn({S}, DeprecationWarning)\n{l}.append(len(caught))"],
    ),
    kit_of(
        """
class Shape:
    __match_args__ = ('w', 'h')
    def __init__(self, w, h=1):
        self.w, self.h = w, h
@dataclasses.dataclass
class Node:
    value: object
    left: object = None
    right: object = None
class Shapes(list):
    w = 1
class Kinds(enum.Enum):
    A = 'a'
    B = 'b'
def area(shape):
    match shape:
        case Shape(0, _) | Shape(_, 0):
            return 0
        case Shape(w, h) if w == h:
            return w * w
        case Shape(w=w, h=h):
            return w * h
        case [Shape() as first, *rest]:
            return area(first) + area(rest)
        case {'w': int(w), 'h': int(h), **more}:
            return w * h + len(more)
        case []:
            return 0
        case int() | float() as n:
            return n
        case str(text) if len(text) > 2:
            return len(text)
        case Kinds.A:
            return 11
        case None | True | False:
            return -2
        case _:
            return -1
def depth(node):
    match node:
        case None:
            return 0
        case Node(_, None, None):
            return 1
        case Node(left=l, right=r):
            return 1 + max(depth(l), depth(r))
def command(words):
    match words:
        case ['go', ('north' | 'south') as way]:
            return way
        case ['go', *_, last]:
            return last
        case [x] | [x, _]:
            return str(x)
        case (a, (b, c)):
            return 'nested'
    return 'none'
tree = Node(1, Node(2), Node(3, Node(4)))
shape = Shape(2, 3)
""",
        ["shape.w = {n}", "shape.h = shape.w", "tree.left = None", "Shape.__match_args__ = ('h', 'w')", "tree.right.left = Node({n})", "global shape; shape = Shapes([Shape(1), Shape({n}, 2)])"],
        ["tree"],
        T=["{T} * area(shape)", "{T} + depth(tree)", "Node({T}).value * 2"],
        I=["area(shape)", "area([Shape({I}), Shape(2, {I})])", "area({'w': {I}, 'h': 2, 'z': 1})", "area({I})", "area({S})", "area(Kinds('a'))", "area(None)", "depth(tree)", "depth(Node(1, Node({I})))", "area({B})"],
        S=["command(['go', 'north'])", "command(['go', 1, {S}])", "command([{I}])", "command((1, (2, {I})))", "command({L})", "command({S})"],
        do=["match {l}:\n    case [int(a), int(b), *rest] if a > b:\n        {l}.append(len(rest))\n    case [a, *_]:\n        {l}.append(a)", "match {d}:\n    case {'a': int(v)} if v > {I}:\n        {l}.append(v)\n    case {'a': v, 'b': w}:\n        {l}.append(w)\n    case _:\n        {l}.append(0)",
            "match ({I}, {S}):\n    case (1 | 2 as k, str() as s):\n        {l}.append(k + len(s))\n    case (k, _):\n        {l}.append(k)", "match {t}:\n    case torch.Tensor(shape=(3,)):\n        {l}.append(3)\n    case torch.Tensor():\n        {l}.append(0)", "match {'n': [{I}, {'m': 2}]}:\n    case {'n': [a, {'m': b}]}:\n        {l}.append(a * b)",
            "shape.w = {I}", "tree.left = Node({I})", "match {I}, {I}:\n    case a, b if a == b:\n        {l}.append(a)\n    case 0, _:\n        {l}.append(0)\n    case -1 | 1, b:\n        {l}.append(b)"],
    ),
    kit_of(
        """
@functools.total_ordering
class Money:
    __slots__ = ('n',)
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return self.n == (other.n if isinstance(other, Money) else other)
    def __lt__(self, other):
        return self.n < (other.n if isinstance(other, Money) else other)
    def __radd__(self, other):
        return other + self.n
    def __rmul__(self, other):
        return other * self.n
    def __iadd__(self, other):
        self.n += other
        return self
    def __neg__(self):
        return Money(-self.n)
    def __abs__(self):
        return Money(abs(self.n))
    def __bool__(self):
        return self.n != 0
    def __int__(self):
        return self.n
    def __index__(self):
        return self.n
    def __float__(self):
        return float(self.n)
    def __round__(self, digits=0):
        return self.n + digits
    def __format__(self, spec):
        return f'{self.n:{spec}}$' if spec else f'{self.n}$'
    def __floordiv__(self, other):
        return Money(self.n // other)
    def __pow__(self, other, mod=None):
        return self.n ** 2
    def __matmul__(self, other):
        return other * self.n
    def __hash__(self):
        return hash(self.n)
class Missing(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key]
class Stack(list):
    def push(self, item):
        self.append(item)
        return self
    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, slice) else list.__getitem__(self, -1 - key)
class Text(str):
    def shout(self):
        return Text(self.upper() + '!')
class Registry:
    known = {}
    def __init_subclass__(cls, tag=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Registry.known[tag or cls.__name__] = cls
    def __class_getitem__(cls, key):
        return cls.known[key]
class First(Registry, tag='one'):
    k = 1
class Guarded:
    def __init__(self):
        self._x = 1
    @property
    def x(self):
        return self._x
    @x.setter
    def x(self, value):
        if value < 0:
            raise ValueError('negative')
        self._x = value
    @x.deleter
    def x(self):
        self._x = 0
    def __getattribute__(self, name):
        return 42 if name == 'answer' else object.__getattribute__(self, name)
class NonData:
    def __get__(self, instance, owner):
        return owner.__name__ if instance is None else instance.__dict__.get('v', 3)
class Uses:
    auto = NonData()
    plain = functools.partialmethod(lambda self, a, b: a - b, 5)
    @functools.singledispatchmethod
    def show(self, x):
        return 'other'
    @show.register
    def _(self, x: int):
        return 'int'
money, missing, stack, guarded, uses = Money(2), Missing(), Stack([1, 2]), Guarded(), Uses()
""",
        ["money.n = {n}", "missing['q'] = {n}", "stack.append({n})", "guarded.x = {n}", "uses.auto = {n}", "uses.__dict__['v'] = {n}", "Money.__bool__ = lambda self: False", "First.k = {n}", "Missing.__missing__ = lambda self, key: {n}", "Registry.known.pop('two', None)"],
        ["money", "missing", "stack", "guarded", "vars(uses)", "First.k"],
        T=["{T} * int(money)", "{T} + money.n", "money @ {T}", "{T} + missing['ab']", "{T} * stack[0]", "{T} + guarded.x", "{T} + guarded.answer", "{T} + uses.auto", "{T} + Registry['one'].k", "{T}[:int(Money(1))]", "{T} * (money ** 2)"],
        I=["int(money)", "{I} + money", "{I} * money", "[4, 5, 6][Money(1)]", "round(money)", "int(-money)", "abs(Money({I})).n", "(money // 2).n", "missing[{S}]", "stack[0]", "len(stack)", "len(Stack([1]).push({I}))", "guarded.x", "guarded.answer", "uses.auto", "uses.plain({I})", "len(Registry.known)", "range(9)[money]", "sum([Money(1), Money({I})])", "operator.index(money)", "missing.get('zz', {I})"],
        S=["f'{money}'", "f'{money:>4}'", "format(money, '03d')", "Text({S}).shout()", "uses.show({I})", "uses.show({S})", "Uses.auto", "','.join(Registry.known)", "'{:{w}}|'.format({I}, w=4)", "f'{{I}!r:*^{5}}'", "f'{{I}=}'", "Text('a') + {S}", "type(Text({S}).shout()).__name__", "'{0!s:<5}{1:,}'.format({S}, 12345)", "f'{{B}!s:>6}'", "'%.1s' % {S}"],
        B=["money > 1", "money >= Money({I})", "money == 2", "bool(money)", "money in [Money(2)]", "'zz' in missing", "isinstance(missing, dict)", "max(money, Money({I})) is money", "stack == [1, 2]", "issubclass(First, Registry)", "Text('a') == 'a'", "not money", "money != 2"],
        L=["stack[:]", "list(stack)", "sorted([Money({I}).n, money.n])", "[v.n for v in sorted([Money(2), Money({I})])]", "list(missing.values())"],
        do=["global money\nmoney += {I}", "missing[{S}] += 1", "stack.push({I}).push(2)", "global stack\nstack += [{I}]", "guarded.x = {I}", "del guarded.x", "try:\n    guarded.x = -5\nexcept ValueError as e:\n    {l}.append(len(e.args))", "class Second(Registry, tag='two'):\n    k = {I}\n{l}.append(Registry['two'].k)",
            "uses.auto = {I}", "stack.reverse()", "del stack[-1]", "stack[0:1] = [{I}, 3]", "global missing\nmissing |= {'m': {I}}", "{l} += stack", "{l}.append(min(stack, default=0))", "try:\n    guarded.nothing\nexcept AttributeError as e:\n    {l}.append(len(e.name))", "missing.setdefault('s', {I})", "{l}.extend(Stack({L}))"],
    ),
    kit_of(
        """
def maker(n):
    class Inside:
        size = n
        double = size * 2
        names = [k for k in ('a', 'b')]
        def grow(self, by=size):
            nonlocal n
            n += by
            return n
        def me(self):
            return __class__.__name__, type(self) is __class__
        @classmethod
        def build(cls):
            return cls()
    return Inside
def chain_of(n):
    def one():
        def two():
            nonlocal n
            n += 1
            def three():
                return n * 10
            return three
        return two
    return one
def accumulate(*args, start=0, **kw):
    return start + sum(args) + sum(kw.values())
def defaults(a, b=[], *, c={}):
    b.append(a)
    c[a] = len(b)
    return len(b) + len(c)
def recursive(n):
    return 1 if n <= 1 else n * recursive(n - 1)
compose = lambda *fs: functools.reduce(lambda f, g: lambda x: g(f(x)), fs, lambda x: x)
T_ = typing.TypeVar('T_')
class Box(typing.Generic[T_]):
    def __init__(self, item: T_) -> None:
        self.item = item
class Entry(typing.NamedTuple):
    key: str
    n: int = 0
    def twice(self):
        return self.n * 2
    @property
    def big(self):
        return self.n > 2
""",
        ["defaults.__defaults__ = ([{n}],)", "global maker; maker = lambda n: type('Inside', (), {'size': n, 'double': n})", "accumulate.__kwdefaults__['start'] = {n}", "defaults.__kwdefaults__['c'].clear()", "global recursive; recursive = lambda n: n"],
        ["defaults.__defaults__", "defaults.__kwdefaults__"],
        T=["{T} * maker({I}).size", "compose(lambda v: v + 1, lambda v: v * 2)({T})", "accumulate({T}, {T}, start={I})", "accumulate(*[{T}, 1], **{'k': {I}})", "Box({T}).item * 2", "Box[int]({T}).item", "{T} + Entry('a', {I}).twice()"],
        I=["maker({I}).double", "maker({I})().grow()", "chain_of({I})()()()", "accumulate(*{L}, *[1], **{D})", "accumulate(*range({I} % 4), start={I})", "defaults({I})", "recursive({I} % 5)", "Entry('k', {I}).twice()", "len(Entry('k'))", "(lambda *a, k={I}, **kw: len(a) + k + len(kw))(*{L}, z=1)", "compose(abs, str, len)({I})", "[y := {I}, y ** 2][1]", "(lambda: (yield))().gi_running + {I}"],
        S=["maker(1).__qualname__", "Entry({S}).key", "maker(2)().me()[0]", "','.join(Entry._fields)", "Entry('a')._replace(key={S}).key", "Box.__name__"],
        B=["Entry('a', {I}).big", "maker(1) is maker(1)", "isinstance(Entry('a'), tuple)", "maker(3)().me()[1]", "any((hit := v) > 2 for v in {L})"],
        L=["[*range(3), *{L}, {I}]", "[last := v for v in {L}]", "[len(maker({I}).names)]", "[(y := v * 2) + y for v in {L}]", "[*{D}.values(), *(v for v in {L})]", "[a for a, *b in [{L} + [1], [2]]]"],
        D=["{**{D}, **{'z': {I}}}", "Entry('e', {I})._asdict() | {'key': 1}", "dict(**{D}) | dict(last={I})"],
        do=["a, (b, *c), d2 = 1, ({I}, 2, 3), 4\n{l}.extend([a, b, *c, d2])", "*init, tail = [*{L}, {I}]\n{l}.append(tail - len(init))", "gone = {I}\ndel gone\ntry:\n    gone\nexcept UnboundLocalError as e:\n    {l}.append(len(e.args))", "k = [{I}]\nk[0], k = 5, [k[0]]\n{l}.append(k[0])", "obj = maker({I})()\nobj.extra = 1\ndel obj.extra\n{l}.append(int(hasattr(obj, 'extra')))",
            "two = chain_of({I})()\n{l}.append(two()() + two()())", "counts = {}\nfor v in {L}:\n    counts[v] = counts.get(v, 0) + 1\n{l}.append(max(counts.values(), default=0))", "def outer_fn():\n    state = {I}\n    def setter(v):\n        nonlocal state\n        state, old = v, state\n        return old\n    return setter, lambda: state\nsetter, getter = outer_fn()\n{l}.append(setter(9) + getter())",
            "fs = []\nfor k in range(3):\n    fs.append(lambda x, k=k: x + k)\n{l}.append(sum(g(1) for g in fs))", "funcs = [lambda: k for k in range(3)]\n{l}.append(funcs[0]())", "while (n2 := len({l})) < 3:\n    {l}.append(n2)", "if {B} and (w := {I}) > 0:\n    {l}.append(w)", "del {l}[1:], {d}['a']", "x1 = x2 = [{I}]\nx1.append(1)\n{l}.append(len(x2))", "for {l}[0] in range(2):\n    pass",
            "def late():\n    return early_name\nearly_name = {I}\n{l}.append(late())", "class Local(dict):\n    def __getattr__(self, name):\n        return self.get(name, {I})\n{l}.append(Local(a=1).b)", "try:\n    accumulate(**{'start': 1}, start=2)\nexcept TypeError as e:\n    {l}.append(len(e.args))", "print(*{L}, sep=',', end=';')", "print(f'{{I}:>{4}}', f'{{L}}')"],
    ),
    kit_of(
        """
class Status(enum.StrEnum):
    ON = 'on'
    OFF = enum.auto()
class Level(enum.IntEnum):
    LOW, MID, HIGH = range(3)
    @property
    def next(self):
        return Level((self + 1) % 3)
    @classmethod
    def _missing_(cls, value):
        return cls.HIGH
class Perm(enum.IntFlag):
    R = 4
    W = 2
    X = 1
class UserMap(collections.UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)
tally = collections.Counter(a=2, b=1)
tree = collections.defaultdict(lambda: collections.defaultdict(int))
layers = collections.ChainMap({'a': 1}, {'a': 2, 'b': 3})
window = collections.deque(maxlen=3)
recent = collections.OrderedDict()
user = UserMap(a=1)
by_len = functools.cmp_to_key(lambda a, b: len(a) - len(b))
add3 = functools.partial(operator.add, 3)
perm = Perm.R | Perm.W
""",
        ["tally['a'] += {n}", "tree['x']['y'] = {n}", "layers['a'] = {n}", "window.append({n})", "recent['k'] = {n}", "user['z'] = {n}", "global perm; perm = Perm({n} % 8)", "global add3; add3 = functools.partial(operator.sub, {n})", "window.clear()", "layers.maps.insert(0, {'b': {n}})"],
        ["tally", "tree", "layers.maps", "window", "recent", "user.data"],
        T=["add3({T})", "{T} * Level.MID", "{T} + perm", "{T} + tally['a']", "{T} + tree['x']['y']", "{T} + layers['a']", "functools.reduce(operator.mul, [{T}, {T}, 2])", "operator.methodcaller('reshape', -1)({T})", "torch.stack([p for p, in itertools.product([{t}, {t}])]).sum(0)", "operator.itemgetter(slice(0, 1))({T})", "sum(itertools.repeat({T}, 2))"],
        I=["Level.LOW.next", "Level(7)", "int(perm)", "len(Perm)", "tally['b']", "sum((tally + collections.Counter('ab')).values())", "sum((tally - collections.Counter('a')).values())", "sum((tally & collections.Counter('aab')).values())", "tally.total()", "tree['x']['z']", "layers['b']", "len(layers)", "len(window)", "user['a']", "add3({I})",
           "layers.new_child({'b': {I}})['b']", "layers.parents['a']", "sum(a * b for a, b in itertools.pairwise({L}))", "len(list(itertools.permutations({L}[:3])))", "sum(itertools.compress({L}, [1, 0, 1]))", "list(itertools.accumulate({L}, operator.mul, initial=1))[-1] % 99", "operator.attrgetter('real', 'imag')({I})[1]", "sum(itertools.dropwhile(lambda v: v > 2, {L}))", "max(map(len, map(str, {L})), default=0)",
           "sum(map(operator.mul, {L}, itertools.count(1)))", "sum(next(zip(*[{L} + [1], [2]])))", "len([*itertools.combinations_with_replacement([1, 2], 2)])"],
        S=["Status.ON", "f'{Status.OFF}'", "Status('on').name", "str(Level.MID)", "repr(perm)", "tally.most_common(1)[0][0]", "'-'.join(sorted({'bb', 'a'}, key=by_len))", "repr(window)", "'{a}'.format_map({D} | {'a': 1})", "{S}.translate({97: 'z'})", "repr(user)", "''.join(k for k, _ in itertools.groupby({S}))", "{S}.removeprefix('a').title()", "{S}.zfill(4)", "'%5.1f|%-4s|%x' % ({I}, {S}, abs({I}))"],
        B=["Status.ON == 'on'", "Perm.W in perm", "Level.LOW < Level.HIGH", "Level(0) is Level.LOW", "'a' in layers", "tally <= collections.Counter('aabb')", "bool(perm & Perm.X)", "'q' in tree", "collections.Counter({S}) == collections.Counter('x')", "'a' in user"],
        L=["list(window)", "sorted(tally.elements())[:0] + [1]", "list(layers.values())", "list(itertools.filterfalse(lambda v: v > 2, {L}))", "[a - b for a, b in itertools.pairwise({L})]", "[sum(p) for p in itertools.product({L}[:2], [1, {I}])]", "list(itertools.chain.from_iterable(zip({L}, {L})))", "sorted({L}, key=functools.cmp_to_key(lambda a, b: b - a))", "[len(list(g)) for _, g in itertools.groupby({L}, lambda v: v > 1)]", "[int(m) for m in Perm]", "list(map(add3, {L}))",
           "list(operator.itemgetter(0, -1)([*{L}, {I}]))", "[*itertools.islice(itertools.count({I}, 2), 3)]", "list(recent.values())"],
        do=["a, b = itertools.tee([*{L}])\nnext(a, None)\n{l}.append(sum(a) - sum(b))", "tally.update({S})", "tally.subtract({'a': {I}})", "tree[{S}]['n'] += {I}", "layers['n'] = {I}", "window.extend({L})", "window.extendleft([1, {I}])", "window.insert(0, 1) if len(window) < 3 else window.pop()", "recent[{S}] = {I}\nrecent.move_to_end({S}, last=False)\nwhile len(recent) > 2:\n    recent.popitem(last=False)",
            "user['u'] = {I}", "user.update(v={I})", "layers.pop('n', 0)", "try:\n    Status('missing')\nexcept ValueError as e:\n    {l}.append(len(e.args))", "for key, group in itertools.groupby(sorted({L}), key=lambda v: v % 2):\n    {l}.append(len([*group]) * 10 + key)", "global tally\ntally += collections.Counter(c=1)",
            "it = itertools.chain([1], iter([*{L}]))\nnext(it)\n{l}.append(sum(it))", "by_kind = {}\nfor v in {L}:\n    by_kind.setdefault(v % 2, []).append(v)\n{l}.append(len(by_kind))", "global perm\nperm |= Perm.X", "best = max({d}, key={d}.get, default='')\n{l}.append(len(best))"],
    ),
]  # fmt: skip
