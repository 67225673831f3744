"""Declarations for random Python programs: what classes decide themselves, each with state that changes between the calls.

In: nothing. Out: `CLASS_KITS`, in the form of `python_kits.py`: metaclasses, descriptors, abstract classes, protocols and generics, data classes, enumerations.
"""

from __future__ import annotations

from .python_kits import Kit, kit_of

CLASS_KITS: list[Kit] = [
    kit_of(
        """
class Ruled(type):
    rate = 2
    def __new__(meta, name, bases, space, **options):
        made = super().__new__(meta, name, bases, dict(space))
        made.options = options
        return made
    def __init__(cls, name, bases, space, **options):
        super().__init__(name, bases, space)
        Ruled.made.append(name)
    def __call__(cls, *args, **kwargs):
        cls.count += 1
        made = super().__call__(*args, **kwargs)
        made.number = cls.count
        return made
    def __getitem__(cls, key):
        return cls.base + key
    def __len__(cls):
        return len(cls.members)
    def __iter__(cls):
        return iter(cls.members)
    def __contains__(cls, value):
        return value in cls.members
    def __instancecheck__(cls, value):
        return type.__instancecheck__(cls, value) or getattr(value, 'number', None) == cls.base
    def __subclasscheck__(cls, other):
        return type.__subclasscheck__(cls, other) or other in cls.members
    def __getattr__(cls, name):
        if name.startswith('auto_'):
            return len(name) + cls.rate
        raise AttributeError(name)
    def __setattr__(cls, name, value):
        type.__setattr__(cls, name, value + 1 if name == 'stepped' else value)
    def __add__(cls, other):
        return cls.base + other
    def __radd__(cls, other):
        return other + cls.base
    def __mul__(cls, other):
        return cls.base * other
    def __lt__(cls, other):
        return cls.base < other.base
    def __bool__(cls):
        return cls.base != 0
    def __repr__(cls):
        return f'<{cls.__name__} {cls.base}>'
    @property
    def both(cls):
        return cls.base * cls.rate
    @both.setter
    def both(cls, value):
        cls.base = value
    made = []
class Rule(metaclass=Ruled, wide=3):
    base, count, stepped = 2, 0, 0
    members = [1, int]
    def __init__(self, w=1):
        self.w = w
    def __call__(self, t):
        return t * self.w + type(self).rate
class Narrow(Rule):
    base = 1
    members = [3]
class Single(type):
    kept = {}
    def __call__(cls, *args):
        if cls not in Single.kept:
            Single.kept[cls] = super().__call__(*args)
        return Single.kept[cls]
class Only(metaclass=Single):
    def __init__(self, w=2):
        self.w = w
class Space(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1 if isinstance(value, int) else value)
class Prepared(type):
    @classmethod
    def __prepare__(meta, name, bases):
        return Space(extra=7)
    def mro(cls):
        return super().mro()
class Grown(metaclass=Prepared):
    one = 1
rule, narrow = Rule(3), Narrow()
""",
        ["Ruled.rate = {n}", "Rule.base = {n}", "Rule.both = {n}", "Rule.members = [{n}, str]", "Narrow.members.append({n})", "Rule.stepped = {n}", "Ruled.__getitem__ = lambda cls, key: {n} - key", "Ruled.__len__ = lambda cls: {n}", "Ruled.__bool__ = lambda cls: False", "Ruled.__call__ = type.__call__",
         "Ruled.__instancecheck__ = lambda cls, value: False", "Single.kept.clear()", "Narrow.base = {n}", "Ruled.__add__ = lambda cls, other: other", "rule.w = {n}", "Ruled.auto_x = {n}", "Ruled.__getattr__ = lambda cls, name: {n}", "Rule.auto_y = {n}", "Rule.count = {n}", "Ruled.both = {n}", "Rule.options['wide'] = {n}",
         "Grown.extra = {n}", "Only.w2 = {n}", "rule.number = {n}", "Ruled.__iter__ = lambda cls: iter([{n}])", "del Narrow.base"],
        ["rule", "Rule.count", "Rule.base", "Ruled.made", "Rule.members", "len(Single.kept)"],
        T=["{T} + Rule[{I}]", "Rule({I})({T})", "Narrow()({T})", "{T} * Rule.rate", "{T} + Rule.both", "Rule + {T}", "{T} + Rule", "Rule * {T}", "{T} + Rule.auto_ab", "sum(({T} * k for k in Rule if isinstance(k, int)), {T})", "{T} * Only({I}).w", "{T} + Grown.one", "{T} * (1 if Rule else 2)", "min(Rule, Narrow)()({T})", "type(rule)({I})({T})", "{T} + Rule.options['wide']"],
        I=["Rule[{I}]", "len(Rule)", "Rule.both", "Rule({I}).number", "Rule.count", "Rule.auto_abc", "getattr(Rule, 'auto_x')", "getattr(Rule, 'nothing', {I})", "Rule + {I}", "{I} + Narrow", "Rule * {I}", "Only({I}).w", "Grown.one + Grown.extra", "Rule.stepped", "max([Rule, Narrow]).base", "rule.number", "len(Ruled.made)", "len(list(Narrow))", "Only().w"],
        S=["repr(Rule)", "str(Narrow)", "f'{Rule}'", "Rule.__name__", "type(Rule).__name__", "sorted([Rule, Narrow])[0].__name__", "','.join(Ruled.made)", "type(rule).__qualname__"],
        B=["isinstance(rule, Rule)", "isinstance({I}, Rule)", "isinstance(narrow, Narrow)", "issubclass(int, Rule)", "issubclass(Narrow, Rule)", "{I} in Rule", "int in Rule", "bool(Rule)", "Rule < Narrow", "Only() is Only()", "hasattr(Rule, 'auto_q')", "hasattr(Rule, 'quiet')", "isinstance(Rule, Ruled)", "not Narrow", "Rule in {Rule: 1}", "isinstance(rule, (str, Narrow))", "type(rule) is Rule"],
        L=["[v for v in Rule if v != int][:3]", "[Rule[k] for k in {L}]", "[*Narrow]"],
        do=["Rule.base = {I}", "Rule.both = {I}", "Rule.stepped = {I}", "Narrow.members.append({I})", "Rule.base += 1", "made = Rule({I})\n{l}.append(made.number)", "class Late(Rule, wide={I}):\n    base = 5\n{l}.append(Late[1] + Late.options['wide'])", "Only().w = {I}", "try:\n    Rule.nothing\nexcept AttributeError as e:\n    {l}.append(len(e.args))",
            "Made = Ruled('Made', (Rule,), {'base': {I}})\n{l}.append(Made[1])", "Ruled.rate = {I}", "for k in Narrow:\n    {l}.append(k)", "match rule:\n    case Narrow():\n        {l}.append(1)\n    case Rule(w={I}):\n        {l}.append(2)\n    case Rule():\n        {l}.append(3)", "setattr(Rule, 'late', {I})\n{l}.append(narrow.late)", "if Rule:\n{body}"],
    ),
    kit_of(
        """
READS = []
class Checked:
    def __init__(self, low=0, made=int):
        self.low, self.made = low, made
    def __set_name__(self, owner, name):
        self.name, self.owner = name, owner
    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        READS.append(self.name)
        try:
            return instance.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None
    def __set__(self, instance, value):
        if isinstance(value, int) and value < self.low:
            raise ValueError(f'{self.name} < {self.low}')
        instance.__dict__[self.name] = value
    def __delete__(self, instance):
        instance.__dict__[self.name] = self.low
class Once:
    def __init__(self, function):
        self.function = function
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, instance, owner):
        if instance is None:
            return self
        made = instance.__dict__[self.name] = self.function(instance)
        return made
class OfClass:
    def __init__(self, function):
        self.function = function
    def __get__(self, instance, owner):
        return self.function(owner)
class Method:
    k = 2
    def __init__(self, function):
        self.function = function
    def __get__(self, instance, owner):
        return self if instance is None else functools.partial(self.function, instance, k=self.k)
class Part:
    width, depth = Checked(), Checked(1)
    factor = 3
    def __init__(self, width=2):
        self.width = width
        self.depth = 4
    @Once
    def area(self):
        READS.append('area')
        return self.width * self.depth
    @OfClass
    def label(cls):
        return cls.__name__ + str(cls.factor)
    @Method
    def scaled(self, t, k):
        return t * k + self.width
    @property
    def ratio(self):
        return self.width - self.depth
    @ratio.setter
    def ratio(self, value):
        self.width = value + self.depth
    @ratio.deleter
    def ratio(self):
        self.__dict__.pop('area', None)
    @functools.cached_property
    def weight(self):
        READS.append('weight')
        return torch.full((1,), self.width, dtype=torch.float64)
class Sub(Part):
    factor = 5
    @property
    def ratio(self):
        return super().ratio * 2
class Watched:
    def __init__(self, **values):
        object.__setattr__(self, 'values', values)
        object.__setattr__(self, 'log', [])
    def __getattribute__(self, name):
        if name == 'hidden':
            raise AttributeError(name)
        return object.__getattribute__(self, name)
    def __getattr__(self, name):
        values = object.__getattribute__(self, 'values')
        if name in values:
            return values[name]
        raise AttributeError(name)
    def __setattr__(self, name, value):
        self.log.append(name)
        self.values[name] = value
    def __delattr__(self, name):
        self.log.append('-' + name)
        del self.values[name]
    def __dir__(self):
        return sorted(self.values)
class Tight:
    __slots__ = ('x', '_y', '__dict__')
    z = 5
    @property
    def y(self):
        return getattr(self, '_y', 1)
    @y.setter
    def y(self, value):
        self._y = value
class Tighter(Tight):
    __slots__ = ('more',)
part, sub, watched, tight = Part(), Sub(3), Watched(a=1, b=2), Tighter()
tight.x, tight.more = 1, [2]
""",
        ["part.width = {n}", "part.__dict__['width'] = {n}", "Part.factor = {n}", "part.__dict__.pop('area', None)", "part.area = {n}", "Part.width.low = -{n}", "Part.ratio = {n}", "Part.area = {n}", "part.scaled = lambda t: t - {n}", "Method.k = {n}", "del part.depth", "Part.label = 'plain'", "part.__dict__.pop('weight', None)", "part.weight.add_({n})",
         "watched.a = {n}", "watched.values['c'] = {n}", "Watched.a = {n}", "Watched.__getattr__ = lambda self, name: {n}", "tight.y = {n}", "tight._y = {n}", "tight.later = {n}", "Tight.z = {n}", "tight.more.append({n})", "Checked.__get__ = lambda self, instance, owner=None: {n}", "Sub.ratio = property(lambda self: {n})", "sub.factor = {n}", "Part.weight = {n}", "Tighter.x = {n}",
         "part.ratio = {n}", "Sub.width = {n}", "Watched.__getattribute__ = object.__getattribute__", "Part.scaled = staticmethod(lambda t: t)", "READS.clear()", "vars(sub)['ratio'] = {n}", "Part.depth.__class__.low = {n}"],
        ["READS", "vars(part)", "vars(sub)", "watched.values", "tight"],
        T=["{T} * part.width", "{T} + part.area", "part.scaled({T})", "sub.scaled({T})", "{T} + sub.ratio", "{T} * part.weight", "part.weight * 2 + {T}", "{T} + watched.a", "{T} * tight.z", "{T} + tight.y", "Part({I}).scaled({T})", "{T} * getattr(watched, 'c', 2)", "{T} + Sub().area", "Part.scaled.function(part, {T}, 2)"],
        I=["part.width", "part.area", "part.ratio", "sub.ratio", "Part.width.low", "len(part.label)", "watched.a", "getattr(watched, 'c', {I})", "getattr(watched, 'hidden', {I})", "tight.y", "tight.x", "tight.z", "len(tight.more)", "len(READS)", "len(dir(watched))", "getattr(tight, 'later', {I})", "part.depth", "Sub({I} % 5).area", "len(vars(tight))", "sub.factor", "Part.depth.low", "len(watched.log)"],
        S=["part.label", "Sub.label", "Part.width.name", "Part.width.owner.__name__", "','.join(READS[-2:])", "','.join(dir(watched))", "','.join(watched.log[-3:])", "type(Part.__dict__['area']).__name__", "Part.area.name if isinstance(Part.area, Once) else ''"],
        B=["hasattr(part, 'area')", "'area' in vars(part)", "hasattr(watched, 'hidden')", "hasattr(watched, 'a')", "hasattr(tight, '_y')", "part.weight is part.weight", "isinstance(Part.ratio, property)", "hasattr(tight, 'x')", "hasattr(Part, 'label')", "'weight' in part.__dict__", "isinstance(Part.width, Checked)"],
        do=["part.width = {I}", "part.ratio = {I}", "del part.ratio", "del part.depth", "part.area = {I}", "try:\n    part.width = -9\nexcept ValueError as e:\n    {l}.append(len(str(e)))", "watched.a = {I}", "watched.held = {T}", "del watched.a", "try:\n    watched.nothing\nexcept AttributeError as e:\n    {l}.append(len(e.args))", "tight.y = {I}", "tight.later = {I}", "tight.x += 1", "try:\n    del tight.x\n    tight.x\nexcept AttributeError as e:\n    {l}.append(len(e.args))",
            "part.weight.add_({I})", "part.weight = {T}", "if 'weight' in vars(part):\n    del part.weight", "part.width += 1", "try:\n    sub.ratio = 1\nexcept AttributeError as e:\n    {l}.append(6)", "setattr(watched, {S}, {I})", "Part.factor = {I}", "part.scaled = {I}", "try:\n    vars(part).pop('width')\n    part.width\nexcept AttributeError as e:\n    {l}.append(len(e.args))", "object.__setattr__(watched, 'a', {I})",
            "class Own(Part):\n    height = Checked({I} % 2)\nown = Own()\nown.height = 4\n{l}.append(own.height + len(Own.height.owner.__name__))"],
    ),
    kit_of(
        """
class Layer(abc.ABC):
    made = []
    @abc.abstractmethod
    def run(self, t):
        return t + 1
    @property
    @abc.abstractmethod
    def width(self): ...
    @classmethod
    def __subclasshook__(cls, other):
        return True if cls is Layer and any('run_it' in vars(k) for k in other.__mro__) else NotImplemented
class Add(Layer):
    def __init__(self, n=1):
        self.n = n
    def run(self, t):
        return super().run(t) + self.n
    width = 2
class Half(Layer):
    width = 1
class Loose:
    def run_it(self, t):
        return t
class Stranger:
    def __init__(self, n=2):
        self.n = n
    def scale(self, t):
        return t * self.n
Layer.register(Stranger)
@typing.runtime_checkable
class Scales(typing.Protocol):
    n: int
    def scale(self, t): ...
@typing.runtime_checkable
class Closes(typing.Protocol):
    def close(self) -> None: ...
K_, V_ = typing.TypeVar('K_'), typing.TypeVar('V_')
class Slots(typing.Generic[K_, V_]):
    default = 3
    def __init__(self, items=()):
        self.items = dict(items)
    def put(self, key, value):
        self.items[key] = value
        return self
    def take(self, key):
        return self.items.get(key, self.default)
class IntSlots(Slots[str, int]):
    default = 4
class Loss(typing.NamedTuple):
    t: object
    scale: int = 2
    names: tuple = ()
    @property
    def scaled(self):
        return self.t * self.scale
    def plus(self, k):
        return self._replace(t=self.t + k)
    def __add__(self, other):
        return Loss(self.t + other.t, self.scale)
class Bag(collections.abc.MutableMapping):
    def __init__(self, **items):
        self.items_ = items
    def __getitem__(self, key):
        return self.items_[key]
    def __setitem__(self, key, value):
        self.items_[key] = value
    def __delitem__(self, key):
        del self.items_[key]
    def __iter__(self):
        return iter(self.items_)
    def __len__(self):
        return len(self.items_)
class Run(collections.abc.Sequence):
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, k):
        if not 0 <= k < self.n:
            raise IndexError(k)
        return k * 2
class Few(collections.abc.Set):
    def __init__(self, items):
        self.held = list(dict.fromkeys(items))
    def __contains__(self, v):
        return v in self.held
    def __iter__(self):
        return iter(self.held)
    def __len__(self):
        return len(self.held)
class Options(typing.TypedDict, total=False):
    a: int
    b: int
UserId = typing.NewType('UserId', int)
adder, stranger, slots, bag, few = Add(2), Stranger(), IntSlots({'k': 1}), Bag(a=1, b=2), Few([1, 2])
""",
        ["adder.n = {n}", "Layer.run = lambda self, t: t * {n}", "stranger.scale = lambda t: t - {n}", "Stranger.scale = lambda self, t: t + {n}", "del Stranger.scale", "stranger.n = {n}", "Layer.register(dict)", "Loose.run_it = None", "IntSlots.default = {n}", "slots.items['k'] = {n}", "bag['c'] = {n}", "bag.items_ = {'z': {n}}", "few.held.append({n})", "Loss.plus = lambda self, k: {n}",
         "Add.width = {n}", "Half.run = lambda self, t: t", "Half.__abstractmethods__ = frozenset()", "Stranger.close = lambda self: None", "Run.__len__ = lambda self: {n}", "Bag.__contains__ = lambda self, key: False", "Slots.take = lambda self, key: {n}", "del stranger.n", "Loss.__add__ = tuple.__add__", "Bag.get = lambda self, key, d=None: {n}"],
        ["vars(adder)", "slots.items", "bag.items_", "few.held"],
        T=["adder.run({T})", "Add({I}).run({T})", "stranger.scale({T})", "{T} * slots.take('k')", "Slots().put('t', {T}).take('t')", "Slots[str, object]({'t': {T}}).take('t') + 1", "Loss({T}).scaled", "Loss({T}, {I}).plus(1)[0]", "(Loss({T}) + Loss({T})).scaled", "{T} * bag['a']", "sum((v * {T} for v in bag.values()), {T})", "{T} + sum(Run(3))", "typing.cast(object, {T}) * 2", "{T} + UserId({I})", "{T} + Options(a={I})['a']"],
        I=["adder.n", "adder.width", "slots.take({S})", "IntSlots().take('q')", "len(bag)", "bag.get('a', {I})", "bag.setdefault('s', {I})", "bag.pop('b', {I})", "sum(bag.values())", "len(few & {1, {I}})", "sum(few | {5})", "len(few ^ {1})", "sum(few - {1})", "len(Run(4))", "Run(5).index(4)", "Run(5).count(2)", "max(reversed(Run(3)))", "Loss(1, {I}).scaled", "UserId({I})", "typing.cast(int, {I})", "Options(a={I}).get('b', 1)", "len(Layer.__abstractmethods__)", "len(typing.get_type_hints(Loss))", "len(Slots.__parameters__)"],
        S=["type(adder).__name__", "IntSlots.__orig_bases__[0].__args__[0].__name__", "Slots[int, str].__origin__.__name__", "UserId.__name__", "','.join(Loss._fields)", "repr(Loss(1))", "','.join(sorted(Half.__abstractmethods__))", "','.join(bag)", "str(Loss._field_defaults['scale'])"],
        B=["isinstance(adder, Layer)", "isinstance(stranger, Layer)", "issubclass(Loose, Layer)", "isinstance(stranger, Scales)", "isinstance(adder, Scales)", "isinstance({t}, Closes)", "isinstance(stranger, Closes)", "isinstance(bag, collections.abc.Mapping)", "isinstance({l}, collections.abc.Iterable)", "isinstance({d}, Layer)", "'a' in bag", "few <= {1, 2, 3}", "few == {1, 2}", "few.isdisjoint({I} for _ in 'a')", "bag == {'a': 1, 'b': 2}", "issubclass(IntSlots, Slots)", "isinstance(slots, Slots)", "isinstance(Loss(1), tuple)", "isinstance({I}, collections.abc.Hashable)", "1 in Run(2)", "isinstance(len, collections.abc.Callable)"],
        L=["list(bag.values())", "list(Run({I} % 5))", "sorted(few | {{I}})", "[*reversed(Run(3))]", "[v for v in slots.items.values()]", "[*Loss({I}, 2)[:2]]"],
        D=["dict(bag)", "{**bag, 'q': {I}}", "dict(slots.items)", "Options(a=1, b={I})", "{k: v for k, v in bag.items()}"],
        do=["try:\n    Half()\n    {l}.append(0)\nexcept TypeError as e:\n    {l}.append(1)", "adder.n = {I}", "slots.put({S}, {I})", "bag[{S}] = {I}", "bag.update(u={I})", "del bag['a']", "bag.popitem()", "few.held.append({I})", "match Loss({T}, {I}):\n    case Loss(t, 2):\n        {t} = t\n    case Loss(scale=k):\n        {l}.append(k)", "match bag:\n    case {'a': v, **rest}:\n        {l}.append(v + len(rest))\n    case _:\n        {l}.append(-1)", "match Run(3):\n    case [a, *b]:\n        {l}.append(len(b))",
            "class Ok(Half):\n    def run(self, t):\n        return t * {I}\n{t} = Ok().run({t})", "stranger.n += 1", "try:\n    Layer.register(Layer)\n    {l}.append(2)\nexcept (RuntimeError, TypeError):\n    {l}.append(3)", "try:\n    bag['missing']\nexcept KeyError as e:\n    {l}.append(len(e.args[0]))", "t, k, _ = Loss({T}, {I})\n{t} = t * k", "@Layer.register\nclass Joined:\n    pass\n{l}.append(int(isinstance(Joined(), Layer)))"],
    ),
    kit_of(
        """
@dataclasses.dataclass
class Sized:
    w: int = 2
    parts: list = dataclasses.field(default_factory=lambda: [1])
    table: dict = dataclasses.field(default_factory=dict, compare=False, repr=False)
    seed: dataclasses.InitVar[int] = 3
    total: int = dataclasses.field(init=False, default=0)
    kind: typing.ClassVar[str] = 'sized'
    def __post_init__(self, seed):
        self.total = self.w * seed
        MADE.append(self.w)
    @property
    def twice(self):
        return self.w * 2
@dataclasses.dataclass(kw_only=True)
class Named(Sized):
    name: str
    bias: object = None
    def __call__(self, t):
        return t * self.w if self.bias is None else t * self.w + self.bias
@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Key:
    a: int
    b: int = 1
    def up(self):
        return dataclasses.replace(self, a=self.a + 1)
@dataclasses.dataclass(eq=False)
class Plain:
    t: object
    _: dataclasses.KW_ONLY
    k: int = 2
@dataclasses.dataclass(unsafe_hash=True)
class Hashed:
    n: int
    note: str = dataclasses.field(default='', hash=False, compare=False)
Dyn = dataclasses.make_dataclass('Dyn', [('x', int), ('y', int, 5)], namespace={'sum': lambda self: self.x + self.y})
MADE = []
sized, named, key, hashed = Sized(3), Named(4, name='n'), Key(1), Hashed(1)
by_key = {Key(1): 4, Key(2, 2): 5}
""",
        ["sized.w = {n}", "Sized.w = {n}", "sized.parts = [{n}]", "sized.parts.append({n})", "named.bias = whole((1,), torch.float64, {n})", "named.bias = {n}", "Sized.kind = 'other'", "object.__setattr__(key, 'a', {n})", "global key; key = Key({n})", "hashed.note = 'x'", "Named.__call__ = lambda self, t: t - {n}", "Sized.__post_init__ = lambda self, seed: None", "Key.up = lambda self: self", "by_key[Key({n})] = 9", "by_key.clear()",
         "Sized.__init__.__defaults__ = ({n}, *Sized.__init__.__defaults__[1:])", "Dyn.sum = lambda self: {n}", "named.extra = {n}", "MADE.clear()", "Plain.__eq__ = lambda a, b: True", "Hashed.__hash__ = lambda self: {n}", "del sized.total", "Sized.__dataclass_fields__['w'].default = {n}", "named.table['q'] = {n}", "Key.__lt__ = lambda a, b: True"],
        ["sized", "named", "key", "MADE", "hashed", "by_key.values()"],
        T=["{T} * sized.w", "named({T})", "Named({I}, name='q', bias={T})({T})", "{T} + key.up().a", "Plain({T}).t * 2", "Plain({T}, k={I}).k + {T}", "dataclasses.replace(Plain({T}), k=3).t", "{T} + by_key.get(key, 1)", "{T} + Dyn({I}).sum()", "{T} + sized.twice", "{T} * getattr(named, 'extra', 2)", "sum((v * {T} for v in dataclasses.astuple(key)), {T})", "{T} + sized.total"],
        I=["sized.w", "sized.total", "Sized({I}, seed=2).total", "sized.twice", "len(sized.parts)", "key.up().a", "key.b", "by_key.get(Key(1), {I})", "by_key.get(Key(2, 2), 0)", "Dyn({I}).sum()", "Dyn({I}, y=1).x", "len(MADE)", "len(dataclasses.fields(Named))", "dataclasses.asdict(sized)['w']", "len(dataclasses.asdict(named))", "sum(dataclasses.astuple(Key({I})))", "max(Key({I}), key).a", "sorted([Key(2), key])[0].a", "hash(Hashed({I})) == hash(Hashed({I}, 'q'))", "Sized().parts[0]"],
        S=["repr(sized)", "repr(key)", "repr(Named(1, name={S}))", "sized.kind", "named.name", "Sized.__match_args__[0]", "dataclasses.fields(sized)[0].name", "repr(Dyn(1))", "str(Hashed(1, {S}))", "type(dataclasses.replace(named, w={I})).__name__"],
        B=["sized == Sized(3)", "Key({I}) == key", "Key(1) < key", "key in by_key", "Plain(1) == Plain(1)", "Sized().parts is Sized().parts", "Hashed(1) == Hashed(1, {S})", "dataclasses.is_dataclass(Dyn)", "{Hashed(1): 2}.get(hashed, 0) == 2", "hasattr(key, '__dict__')", "dataclasses.replace(sized, seed=1).parts is sized.parts", "Key(1) >= Key({I})", "hasattr(sized, 'seed')"],
        L=["sized.parts", "[*dataclasses.astuple(key)]", "[k.a for k in sorted(by_key)]", "Sized({I}).parts + [1]", "copy.copy(sized).parts", "copy.deepcopy(sized).parts"],
        D=["dataclasses.asdict(key)", "dict(vars(hashed)) and {'n': hashed.n}", "{f.name: {I} for f in dataclasses.fields(Key)}", "dataclasses.asdict(Key({I}), dict_factory=dict)"],
        do=["sized.w = {I}", "sized.parts.append({I})", "named.bias = {T}", "global key\nkey = key.up()", "key = dataclasses.replace(globals()['key'], b={I})\n{l}.append(key.b)", "try:\n    Key(1).a = 2\nexcept dataclasses.FrozenInstanceError as e:\n    {l}.append(len(str(e)))", "try:\n    Named(1)\nexcept TypeError as e:\n    {l}.append(len(e.args))", "by_key[Key({I})] = 7", "match key:\n    case Key(1, b):\n        {l}.append(b)\n    case Key(a=a) if a > 2:\n        {l}.append(a)",
            "hashed.n = {I}", "sized.total += 1", "@dataclasses.dataclass\nclass Inner:\n    v: object = {I}\n    w: list = dataclasses.field(default_factory=list)\ninner = Inner()\ninner.w.append(1)\n{l}.append(inner.v + len(Inner().w))", "copied = copy.copy(named)\ncopied.parts.append({I})\ncopied.w = 9\n{l}.append(len(named.parts))", "try:\n    dataclasses.replace(named, missing=1)\nexcept TypeError as e:\n    {l}.append(2)", "named.table[{S}] = {I}"],
    ),
    kit_of(
        """
class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()
    RW = R | W
class Strict(enum.IntFlag, boundary=enum.STRICT):
    A = 1
    B = 2
class Op(enum.Enum):
    ADD = 'add'
    MUL = 'mul'
    PLUS = 'add'
    def __call__(self, a, b):
        return TABLE[self](a, b)
    @classmethod
    def default(cls):
        return cls.ADD
    @property
    def swapped(self):
        return Op.MUL if self is Op.ADD else Op.ADD
    @classmethod
    def _missing_(cls, value):
        return cls.MUL if value == 'times' else None
class Planet(enum.Enum):
    EARTH = (5, 2)
    MARS = (3, 1)
    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius
    @property
    def pull(self):
        return self.mass * self.radius
class Ordered(enum.IntEnum):
    def _generate_next_value_(name, start, count, last):
        return count * 10
    LOW = enum.auto()
    MID = enum.auto()
    HIGH = enum.auto()
class Tagged(str, enum.Enum):
    RED = 'red'
    BLUE = 'blue'
    def __str__(self):
        return '#' + self.value
@enum.unique
class Unique(enum.Enum):
    ONE = enum.auto()
    TWO = enum.auto()
    ignored = enum.nonmember(3)
Made = enum.Enum('Made', ['A', 'B', 'C'])
TABLE = {Op.ADD: operator.add, Op.MUL: operator.mul}
op, perm, planet, level, tagged = Op.ADD, Perm.R, Planet.EARTH, Ordered.MID, Tagged.RED
counts = {member: 0 for member in Op}
""",
        ["global op; op = Op.MUL", "global perm; perm = Perm.RW", "global perm; perm = perm | Perm.X", "global planet; planet = Planet.MARS", "global level; level = Ordered.HIGH", "global level; level = {n}", "TABLE[Op.ADD] = operator.sub", "Planet.EARTH.mass = {n}", "Op.default = classmethod(lambda cls: cls.MUL)", "Op.__call__ = lambda self, a, b: a", "global tagged; tagged = Tagged.BLUE", "counts[Op.MUL] = {n}", "Planet.pull = property(lambda self: {n})", "Op.ADD.extra = {n}", "Tagged.__str__ = lambda self: 'x'", "Unique.ignored = {n}", "Op.swapped = {n}"],
        ["op", "perm", "planet", "level", "counts", "Planet.EARTH.mass"],
        T=["op({T}, {T})", "op({T}, {I})", "Op('mul')({T}, 2)", "op.swapped({T}, {I})", "{T} * planet.pull", "{T} + level", "{T} * Made.B.value", "TABLE[op]({T}, {I})", "{T} + perm.value", "Op['PLUS']({T}, {T})", "{T} + Ordered.MID * 2", "{T} + len(tagged)", "Op('times')({T}, 3)", "{T} * int(Strict.A | Strict.B)"],
        I=["planet.mass", "planet.pull", "perm.value", "level + 1", "len(Op)", "len(Op.__members__)", "len(Perm.RW)", "(~perm).value", "(perm ^ Perm.W).value", "(perm & Perm.RW).value", "sum(m.value for m in perm)", "Made.C.value", "Ordered(10)", "max(Ordered)", "Planet((3, 1)).mass", "counts[op]", "getattr(Op.ADD, 'extra', {I})", "Made['A'].value", "len(list(Perm))", "list(Op).index(op)", "hash(Op.ADD) == hash(Op.PLUS)", "Unique.ignored"],
        S=["op.name", "str(op)", "repr(op)", "Op.PLUS.name", "repr(perm)", "str(Perm.R | Perm.X)", "str(tagged)", "f'{tagged}'", "tagged.upper()", "tagged + 'x'", "repr(planet)", "f'{level:>4}'", "str(level)", "repr(Perm(0))", "Made(2).name", "','.join(m.name for m in Made)", "','.join(Op.__members__)", "f'{Ordered.LOW!r}'", "'%s %d' % (op, Ordered.MID)"],
        B=["op is Op.PLUS", "op is Op('add')", "Perm.R in perm", "perm == Perm.RW", "bool(perm & Perm.X)", "level > Ordered.LOW", "tagged == 'red'", "tagged is Tagged('blue')", "isinstance(op, Op)", "op in Op", "'add' in Op.__members__", "Op.ADD != Op.MUL", "op in {Op.ADD: 1}", "isinstance(Ordered.LOW, int)", "not Perm(0)", "level in Ordered.__members__.values()", "op in (Op.MUL,)", "Op.default() is op"],
        L=["[m.value for m in Perm]", "[int(m) for m in Ordered]", "sorted(m.value for m in Made)", "[counts[m] for m in Op]", "[p.mass for p in Planet]", "[m.value for m in perm]"],
        D=["{m.name: m.value for m in Made}", "{m.value: counts[m] for m in Op}", "{p.name: p.pull for p in Planet}"],
        do=["counts[op] += 1", "global op\nop = op.swapped", "try:\n    Op('none')\nexcept ValueError as e:\n    {l}.append(len(e.args))", "try:\n    Op['none']\nexcept KeyError as e:\n    {l}.append(len(e.args[0]))", "try:\n    Op.ADD = 3\nexcept AttributeError as e:\n    {l}.append(1)", "match op:\n    case Op.MUL:\n        {l}.append(1)\n    case Op.ADD | Op.PLUS:\n        {l}.append(2)", "match level:\n    case Ordered.LOW:\n        {l}.append(0)\n    case 10:\n        {l}.append(1)\n    case _:\n        {l}.append(2)", "planet.mass = {I}", "global perm\nperm |= Perm.W", "try:\n    Strict(8)\nexcept ValueError as e:\n    {l}.append(8)",
            "Local = enum.Enum('Local', {'P': {I}, 'Q': 77})\n{l}.append(Local.P.value)", "class Inner(enum.IntEnum):\n    A = 1\n    B = enum.auto()\n{l}.append(Inner.B + {I})", "for m in Perm:\n    if m in perm:\n        {l}.append(m.value)", "TABLE[op] = operator.mul"],
    ),
]  # fmt: skip
