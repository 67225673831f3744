"""Declarations for random Python programs: the standard library around state that changes between the calls.

In: nothing. Out: `LIBRARY_KITS`, in the form of `python_kits.py`: dispatch, caches and partial functions, context managers, patterns and formats, exact numbers
and dates, containers, copies, weak references.
"""

from __future__ import annotations

from .python_kits import Kit, kit_of

LIBRARY_KITS: list[Kit] = [
    kit_of(
        """
CALLS = []
@functools.singledispatch
def act(x, k=1):
    return k
@act.register
def _(x: int, k=1):
    return x + k
@act.register(list)
@act.register(tuple)
def act_rows(x, k=1):
    return len(x) * k
@act.register
def act_tensor(x: torch.Tensor, k=1):
    CALLS.append('t')
    return x * k
class Actor:
    k = 2
    @functools.singledispatchmethod
    def run(self, x):
        return x
    @run.register
    def _(self, x: int):
        return x * self.k
    @run.register(torch.Tensor)
    def _(self, x):
        return x + self.k
    @functools.singledispatchmethod
    @classmethod
    def of(cls, x):
        return cls.__name__
    @of.register
    @classmethod
    def _(cls, x: int):
        return str(x + cls.k)
    def power(self, t, by=1, *, plus=0):
        return t * by * self.k + plus
    double = functools.partialmethod(power, by=2)
    added = functools.partialmethod(power, 1, plus=3)
@functools.total_ordering
class Ranked:
    def __init__(self, rank, name=''):
        self.rank, self.name = rank, name
    def __eq__(self, other):
        return self.rank == other.rank if isinstance(other, Ranked) else NotImplemented
    def __lt__(self, other):
        CALLS.append('<')
        return self.rank < other.rank if isinstance(other, Ranked) else NotImplemented
    __hash__ = None
@functools.lru_cache(maxsize=2)
def table(n, *, extra=0):
    CALLS.append(n)
    return n * 10 + extra + OFFSET
@functools.cache
def shared(n):
    return [n] * 2
@functools.lru_cache
def made(n):
    return torch.full((1,), n, dtype=torch.float64)
def traced(function=None, *, tag='t'):
    if function is None:
        return functools.partial(traced, tag=tag)
    @functools.wraps(function, updated=())
    def inner(*args, **kwargs):
        inner.count += 1
        CALLS.append(tag)
        return function(*args, **kwargs)
    inner.count = 0
    return inner
@traced(tag='s')
def shift(t, by=1):
    return t + by
def compare(a, b):
    return (b > a) - (b < a) if DOWN else (a > b) - (a < b)
OFFSET, DOWN = 1, True
by = functools.partial(shift, by=2)
then = functools.partial(functools.partial(operator.mul), 3)
actor = Actor()
ranks = [Ranked(3, 'c'), Ranked(1, 'a'), Ranked(2, 'b')]
""",
        ["act.register(int, lambda x, k=1: x - k)", "act.register(float, lambda x, k=1: {n})", "act.register(torch.Tensor, lambda x, k=1: x + {n})", "act.register(object, lambda x, k=1: {n})", "Actor.k = {n}", "actor.k = {n}", "Actor.power = lambda self, t, by=1, *, plus=0: t - by", "Actor.run.register(int, lambda self, x: {n}) if hasattr(Actor.run, 'register') else None", "Actor.double = functools.partialmethod(Actor.power, by={n})", "global OFFSET; OFFSET = {n}", "table.cache_clear()", "shared({n}).append(5)",
         "made({n}).add_(1)", "global by; by = functools.partial(shift, by={n})", "by.keywords['by'] = {n}", "shift.count = {n}", "shift.__wrapped__.__defaults__ = ({n},)", "global DOWN; DOWN = not DOWN", "Ranked.__lt__ = lambda a, b: a.rank > b.rank", "ranks[0].rank = {n}", "Ranked.__gt__ = lambda a, b: False", "CALLS.clear()", "global table; table = functools.lru_cache(lambda n, *, extra=0: {n})", "global shift; shift = shift.__wrapped__", "made.cache_clear()", "act.dispatch(list).__defaults__ = ({n},)", "global act; act = functools.singledispatch(lambda x, k=1: {n})", "actor.run = lambda x: x", "Actor.added = {n}", "by.note = {n}", "by.__setstate__((operator.add, ({n},), {}, None))"],
        ["CALLS", "shared(1)", "made(2)", "vars(actor)", "by.keywords"],
        T=["act({T})", "act({T}, {I})", "act({T}, k={I})", "actor.run({T})", "actor.double({T})", "actor.added({T})", "Actor.double(actor, {T})", "shift({T})", "by({T})", "then({T})", "by({T}, by={I})", "{T} + table({I})", "{T} + made({I})", "{T} * len(shared({I}))", "functools.reduce(lambda a, b: a * b, [{T}, 2, {I}])", "functools.reduce(operator.add, {L}, {T})", "max(ranks).rank * {T}", "{T} + act({L})", "shift.__wrapped__({T})", "operator.methodcaller('power', {T}, {I}, plus=1)(actor)", "functools.partial(actor.power, {T})(by={I})", "Actor.run.__get__(actor, Actor)({T})", "act.dispatch(torch.Tensor)({T})"],
        I=["act({I})", "act({L})", "act(({I}, 2), 3)", "act({S})", "act({B})", "act(1.5)", "actor.run({I})", "table({I})", "table({I}, extra=1)", "table.cache_info().currsize", "table.cache_info().hits", "len(shared({I}))", "shift.count", "len(CALLS)", "max(ranks).rank", "min(ranks).rank", "sorted(ranks, reverse=True)[0].rank", "sorted({L} + [0], key=functools.cmp_to_key(compare))[0]", "len(act.registry)", "by.keywords.get('by', 0)", "getattr(by, 'note', {I})", "actor.power({I})", "min([2, {I}], key=functools.cmp_to_key(compare))", "functools.reduce(max, {L}, {I})"],
        S=["Actor.of({S})", "Actor.of({I})", "actor.run({S})", "shift.__name__", "','.join(r.name for r in sorted(ranks))", "act.dispatch(bool).__name__", "str(table.cache_parameters()['maxsize'])", "','.join(map(str, CALLS[-3:]))", "by.func.__name__"],
        B=["ranks[0] > ranks[1]", "ranks[0] >= ranks[2]", "ranks[1] <= Ranked({I})", "ranks[0] != Ranked(3)", "shared({I}) is shared({I})", "made(2) is made(2)", "act.dispatch(int) is act.dispatch(bool)", "ranks[0] == 3", "isinstance(by, functools.partial)", "hasattr(shift, '__wrapped__')", "list(act.registry)[0] is object"],
        L=["sorted({L}, key=functools.cmp_to_key(compare))", "shared({I})", "[r.rank for r in sorted(ranks)]", "[act(v) for v in {L}]", "[table(v) for v in {L}]", "list(map(functools.partial(operator.sub, {I}), {L}))", "[*by.args, 1]"],
        do=["ranks.sort()", "ranks.append(Ranked({I}))", "shared({I}).append({I})", "made({I}).add_(1)", "global OFFSET\nOFFSET = {I}", "table.cache_clear()", "try:\n    table([1])\nexcept TypeError as e:\n    {l}.append(len(e.args))", "try:\n    hash(ranks[0])\nexcept TypeError as e:\n    {l}.append(1)", "try:\n    ranks[0] < 3\nexcept TypeError as e:\n    {l}.append(2)", "@act.register\ndef _(x: str, k=1):\n    return len(x) + k\n{l}.append(act({S}))", "@functools.lru_cache(maxsize=None)\ndef local(n):\n    return n + {I}\n{l}.append(local(1) + local(1))", "@functools.singledispatch\ndef near(x):\n    return 0\nnear.register(list, len)\n{l}.append(near({L}))", "actor.k += 1", "@traced\ndef inner_of(v):\n    return v * {I}\n{t} = inner_of({t})\n{l}.append(inner_of.count)", "shift.count = 0", "p = functools.partial({l}.append, {I})\np()"],
    ),
    kit_of(
        """
LOG = []
depth = 0
@contextlib.contextmanager
def entered(name, swallow=()):
    global depth
    depth += 1
    LOG.append('+' + name)
    try:
        yield depth
    except swallow as e:
        LOG.append('!' + type(e).__name__)
    finally:
        depth -= 1
        LOG.append('-' + name)
@contextlib.contextmanager
def translated():
    try:
        yield
    except KeyError as e:
        raise ValueError('translated', *e.args) from e
    except IndexError:
        raise LookupError('lookup')
@contextlib.contextmanager
def scaled(owner, k):
    before = owner.k
    owner.k = k
    try:
        yield owner
    finally:
        owner.k = before
@contextlib.contextmanager
def never():
    if LOG is None:
        yield
class Owner:
    k = 2
    def __init__(self):
        self.open = 0
    def close(self):
        LOG.append('closed')
        self.open -= 1
    def __enter__(self):
        self.open += 1
        return self
    def __exit__(self, kind, value, trace):
        self.open -= 1
        if value is not None:
            LOG.append(value.args)
        return self.swallows and kind is not None and issubclass(kind, ArithmeticError)
    swallows = True
class Deco(contextlib.ContextDecorator):
    def __init__(self, k=1):
        self.k = k
    def __enter__(self):
        LOG.append(self.k)
        return self
    def __exit__(self, *error):
        LOG.append(-self.k)
        return False
@Deco(3)
def decorated(t):
    return t + len(LOG)
@entered('gen')
def twice(t):
    return t * 2 + depth
class Pool(contextlib.AbstractContextManager):
    kept = []
    def __exit__(self, *error):
        self.kept.append(len([e for e in error if e is None]))
        return None
owner, pool, stack_ = Owner(), Pool(), contextlib.ExitStack()
out = io.StringIO()
null = contextlib.nullcontext(5)
""",
        ["LOG.clear()", "owner.k = {n}", "Owner.k = {n}", "Owner.swallows = not Owner.swallows", "owner.swallows = True", "Owner.__exit__ = lambda self, *e: True", "Owner.close = lambda self: LOG.append({n})", "Pool.__enter__ = lambda self: {n}", "global entered; entered = lambda name, swallow=(): contextlib.nullcontext({n})", "global depth; depth = {n}", "Deco.__exit__ = lambda self, *e: True", "global null; null = contextlib.nullcontext({n})", "null.enter_result = {n}", "stack_.callback(LOG.append, {n})", "stack_.close()", "global scaled; scaled = lambda owner, k: contextlib.nullcontext(owner)", "out.truncate(0); out.seek(0)", "Owner.__enter__ = lambda self: Owner()", "twice.__wrapped__.__code__ = (lambda t: t + {n}).__code__"],
        ["LOG", "owner.open", "owner.k", "Pool.kept", "out.getvalue()", "depth"],
        T=["decorated({T})", "twice({T})", "{T} * owner.k", "{T} + len(LOG)", "{T} + depth", "{T} * null.enter_result"],
        I=["owner.k", "owner.open", "depth", "len(LOG)", "len(Pool.kept)", "len(out.getvalue())", "null.enter_result"],
        S=["str(LOG[-2:])", "out.getvalue()[-4:]", "twice.__name__", "type(pool).__name__"],
        B=["bool(LOG)", "owner.open > 0", "isinstance(pool, contextlib.AbstractContextManager)", "isinstance(owner, contextlib.AbstractContextManager)", "Owner.swallows", "depth == 0"],
        do=["with entered('a') as k:\n    {t} = {t} + k\n{body}", "with entered('a'), entered('b', KeyError) as k:\n    {l}.append(k)\n    {d}['missing']\n{l}.append(depth)", "try:\n    with translated():\n        {d}[{S}]\n    {l}.append(1)\nexcept ValueError as e:\n    {l}.append(len(e.args))\n    {l}.append(len(e.__cause__.args))", "try:\n    with translated():\n        {l}[99]\nexcept LookupError as e:\n    {l}.append(len(e.args))\n    print(type(e.__context__).__name__, e.__cause__ is None)", "with scaled(owner, {I}) as o:\n    {t} = {t} * o.k\n    with scaled(o, 7):\n        {t} = {t} + o.k\n{l}.append(owner.k)",
            "try:\n    with never():\n        pass\nexcept RuntimeError as e:\n    {l}.append(len(str(e)))", "with owner:\n    {l}.append(owner.open)\n    1 // ({I} - {I})\n{l}.append(owner.open)", "try:\n    with owner:\n        raise KeyError({S}, {I})\nexcept KeyError as e:\n    {l}.append(len(e.args))", "with contextlib.ExitStack() as stack:\n    stack.callback({l}.append, {I})\n    stack.callback(LOG.append, 'cb')\n    for name in 'ab':\n        {l}.append(stack.enter_context(entered(name)))\n    {t} = {t} + depth", "with contextlib.ExitStack() as stack:\n    stack.enter_context(entered('o', ValueError))\n    stack.callback(lambda: LOG.append({I}))\n    stack.enter_context(owner)\n    raise ValueError({S})\n{l}.append(len(LOG))", "try:\n    with contextlib.ExitStack() as stack:\n        stack.callback(lambda: 1 // 0)\n        raise ValueError({I})\nexcept ZeroDivisionError as e:\n    {l}.append(e.__context__.args[0])",
            "with contextlib.ExitStack() as stack:\n    stack.push(lambda *e: LOG.append(e[0]) or True)\n    {d}['none']\n{l}.append(4)", "with contextlib.ExitStack() as stack:\n    stack.enter_context(entered('p'))\n    later = stack.pop_all()\n{l}.append(depth)\nlater.close()\n{l}.append(depth)", "with contextlib.closing(Owner()) as made:\n    {t} = {t} * made.k\n{l}.append(made.open)", "with contextlib.suppress(KeyError, ZeroDivisionError):\n    {l}.append(1)\n    {d}['gone']\n    {l}.append(2)\n{l}.append(3)", "with contextlib.redirect_stdout(out):\n    print({S}, {I})\nprint(len(out.getvalue()))", "with contextlib.redirect_stdout(out), entered('r'):\n    print(depth)\n    {t} = {t} * 2", "with null as k:\n    {t} = {t} + k", "with contextlib.nullcontext({T}) as v:\n    {t} = v", "with pool as p:\n    {l}.append({I})", "try:\n    with pool:\n        raise OSError({I})\nexcept OSError as e:\n    {l}.append(e.args[0])",
            "with Deco({I}) as deco:\n    {l}.append(deco.k)\n    {t} = decorated({t})", "def local():\n    with entered('l'):\n        return depth\n{l}.append(local() + depth)", "for k in range(3):\n    with entered(str(k), ValueError):\n        if k == 1:\n            raise ValueError(k)\n        if k == {I}:\n            break\n        {l}.append(k)", "@contextlib.contextmanager\ndef here(v):\n    {l}.append(v)\n    yield v * 2\n    {l}.append(-v)\nwith here({I}) as v:\n    {t} = {t} + v", "try:\n    try:\n        raise ValueError({I})\n    finally:\n        with entered('f'):\n            {l}.append(depth)\nexcept ValueError as e:\n    {l}.append(len(e.args))", "with torch.no_grad(), entered('g'):\n    {t} = {t} * 2\n{l}.append(int(torch.is_grad_enabled()))", "try:\n    with entered('x'):\n        raise KeyError(1)\nexcept KeyError as e:\n    try:\n        raise ValueError(2)\n    except ValueError as g:\n        {l}.append(len(g.__context__.args))"],
    ),
    kit_of(
        """
WORD = re.compile(r'(?P<key>[a-z]+)=(?P<value>\\d+)')
PACK = struct.Struct('<hI')
SCHEMA = {'width': 3, 'names': ['a', 'b'], 'deep': {'k': [1, 2.5, None, True]}}
TEXT = 'a=1, bb=22; c=x'
TEMPLATE = '{name}:{width:>{fill}}'
DUMPED = '{"w": 2, "list": [1, 2], "s": "x"}'
class Encoder(json.JSONEncoder):
    def default(self, value):
        return {'shape': list(value.shape)} if isinstance(value, torch.Tensor) else super().default(value)
class Fmt(string.Formatter):
    def get_value(self, key, args, kwargs):
        return super().get_value(key, args, kwargs) if isinstance(key, int) else kwargs.get(key, '?')
class Shown:
    def __init__(self, n):
        self.n = n
    def __format__(self, spec):
        return f'<{self.n}|{spec}>'
    def __str__(self):
        return f's{self.n}'
    def __repr__(self):
        return f'r{self.n}'
fmt, shown = Fmt(), Shown(2)
FIELDS = {'w': 2, 'f': 3.25}
buffer = bytearray(struct.pack('<4h', 1, 2, 3, 4))
""",
        ["global TEXT; TEXT = 'q={n}'", "global WORD; WORD = re.compile('(?P<key>b+)=(?P<value>.)')", "SCHEMA['width'] = {n}", "SCHEMA['names'].append('z')", "SCHEMA['deep']['k'][0] = {n}", "global TEMPLATE; TEMPLATE = '{width}/{name}/{fill}'", "shown.n = {n}", "Shown.__format__ = lambda self, spec: 'new'", "Shown.__repr__ = lambda self: 'other'", "FIELDS['w'] = {n}", "global DUMPED; DUMPED = json.dumps(dict(w={n}))", "buffer[0] = {n}", "buffer.append({n})", "Encoder.default = lambda self, value: {n}", "Fmt.get_value = lambda self, key, args, kwargs: {n}", "struct.pack_into('<h', buffer, 2, {n})"],
        ["SCHEMA", "FIELDS", "bytes(buffer)", "shown.n"],
        T=["{T} * json.loads(DUMPED)['w']", "{T} + PACK.unpack(PACK.pack(1, 2))[1]", "{T} * SCHEMA['width']", "{T} + len(WORD.findall(TEXT))", "{T} + sum(struct.unpack('<4h', buffer[:8]))", "{T} * FIELDS['w']", "{T} + memoryview(buffer)[0]", "{T} + int(WORD.search(TEXT)['value']) if WORD.search(TEXT) and TEXT[-1] != 'x' else {T}", "torch.tensor(json.loads('[1.0, 2.0]'), dtype=torch.float64).sum() + {T}"],
        I=["len(WORD.findall(TEXT))", "json.loads(DUMPED)['w']", "len(json.dumps(SCHEMA))", "PACK.size", "struct.calcsize('<hI')", "sum(struct.pack('<i', {I}))", "int.from_bytes(buffer[:2], 'little')", "len(re.split('[,;]', TEXT))", "len(re.sub('[a-c]', '', TEXT))", "SCHEMA['deep']['k'][0]", "(re.match('a', TEXT) or re.search('=', TEXT)).start()", "len(f'{shown}')", "buffer.count(0)", "len(bytes(buffer))", "len({I}.to_bytes(4, 'big', signed=True)) if isinstance({I}, int) else 4"],
        S=["json.dumps({D}, sort_keys=True)", "json.dumps([{I}, {S}, None], separators=(',', ':'))", "json.dumps({T}.detach(), cls=Encoder)", "TEMPLATE.format(name={S}, width={I}, fill=4)", "TEMPLATE.format_map(dict(name=1, width=2, fill=3))", "fmt.format('{} {missing}', {I})", "f'{shown} {shown!r} {shown!s:>5} {shown:x}'", "'{:y} {!r}'.format(shown, shown)", "'%s %r' % (shown, shown)", "re.sub(r'(\\w)=(\\w)', r'\\2:\\1', TEXT)", "WORD.sub(lambda m: m['value'] + m['key'], TEXT)", "','.join(m.group('key') for m in WORD.finditer(TEXT))", "textwrap.dedent('  a\\n    ' + {S})", "textwrap.fill('aa bb cc ' * 2, 7)", "textwrap.indent({S}, '> ')", "textwrap.shorten('one two three', 9)", "string.Template('$a-${b}').safe_substitute(a={I})", "f'{{I}:08.3f}|{{I}:+,d}|{{I}:#x}'", "f'{FIELDS[\"f\"]:6.1f}|{FIELDS[\"w\"]:>3}'", "f'{1234.5:{6}.{2}e}'", "'{0[a]:>3}{1}'.format({'a': {I}}, {S})", "buffer.hex()", "str(PACK.pack(1, {I} % 9))", "repr(WORD.pattern)", "f'{SCHEMA[\"names\"]!r:>14}'", "'{:%}'.format(0.25)", "'%(w)03d %(f).1f' % FIELDS", "string.capwords({S})", "re.escape({S} + '.')", "f'{ {I}=:>4} { {S}=!s}'", "{S}.encode().decode('ascii')", "'{:_}'.format(10000 + {I})", "format({I}, 'b').rjust(6, '0')"],
        B=["bool(WORD.search({S}))", "json.loads(DUMPED) == {'w': 2}", "bool(re.fullmatch('[ab]+', {S}))", "SCHEMA['names'] == ['a', 'b']", "buffer == b'\\x01'", "{S}.isidentifier()", "json.loads(json.dumps(SCHEMA)) == SCHEMA", "str(shown) < repr(shown)", "b'a' in buffer"],
        L=["json.loads(json.dumps({L}))", "list(buffer)", "list(struct.unpack('<4h', buffer[:8]))", "[int(v) for v in re.findall('\\\\d+', TEXT)]", "[len(v) for v in re.split(' ', TEXT)]", "list(memoryview(buffer)[:2])", "[m.start() for m in WORD.finditer(TEXT)]", "[v for (v,) in struct.iter_unpack('<h', buffer[:8])]"],
        D=["{m['key']: int(m['value']) for m in WORD.finditer(TEXT) if m['value'].isdigit()}", "json.loads(json.dumps({D}))", "{k: len(k) for k in SCHEMA}", "dict(w=FIELDS['w'])"],
        do=["SCHEMA['width'] += 1", "SCHEMA['names'].append({S})", "global TEXT\nTEXT = TEXT + ', z={I}'", "buffer[1] = abs({I}) % 200", "struct.pack_into('<h', buffer, 0, {I} % 100)", "try:\n    json.loads('{bad')\nexcept json.JSONDecodeError as e:\n    {l}.append(e.pos)", "try:\n    struct.pack('<b', 1000)\nexcept struct.error as e:\n    {l}.append(len(e.args))", "try:\n    '{:d}'.format({S})\nexcept ValueError as e:\n    {l}.append(len(e.args))", "match = WORD.match(TEXT)\nif match:\n    {l}.append(len(match['value']))\n    print(match.groupdict(), match.span())", "FIELDS[{S}] = {I}", "if (m := re.search('b+', {S})):\n    {l}.append(m.end())", "shown.n = {I}", "print(f'{shown:>{3}}', f'{SCHEMA}')", "try:\n    json.dumps({1, 2})\nexcept TypeError as e:\n    {l}.append(1)", "buf = io.StringIO()\nbuf.write({S})\nprint('x', file=buf)\n{l}.append(len(buf.getvalue()))", "for number, line in enumerate('a\\nb'.splitlines()):\n    {l}.append(number + len(line))", "view = memoryview(buffer)\nview[0] = 7\nview.release()"],
    ),
    kit_of(
        """
Dec, Frac = decimal.Decimal, fractions.Fraction
price, share = Dec('1.25'), Frac(3, 4)
day = datetime.date(2024, 2, 28)
moment = datetime.datetime(2024, 1, 31, 22, 30)
step = datetime.timedelta(days=1, hours=2)
PRICES = {'a': Dec('0.5'), 'b': Dec(2)}
class Cents(decimal.Decimal):
    def __add__(self, other):
        return Cents(decimal.Decimal.__add__(self, other))
class Ratio(fractions.Fraction):
    def twice(self):
        return Ratio(self * 2)
class Vec(complex):
    def __abs__(self):
        return 5
z = Vec(1, 2)
data = [3, 1, 2, 2]
context = decimal.Context(prec=3)
""",
        ["global price; price = Dec({n})", "global share; share = Frac({n}, 5)", "PRICES['a'] = Dec({n})", "PRICES['c'] = Dec(1)", "global day; day = datetime.date(2024, 3, 1 + {n})", "global step; step = datetime.timedelta(minutes={n})", "context.prec = {n} + 1", "data.append({n})", "Ratio.twice = lambda self: self", "global moment; moment = moment.replace(hour={n})", "Cents.__add__ = lambda self, other: Cents({n})", "Vec.__abs__ = lambda self: {n}", "global z; z = Vec({n}, 1)"],
        ["price", "share", "PRICES", "day", "moment", "step", "data"],
        T=["{T} * int(price * 4)", "{T} + float(share)", "{T} * share.numerator", "{T} + day.day", "{T} + (moment + step).day", "{T} * float(PRICES['a'])", "{T} + len(str(price))", "{T} + step.days", "{T} * int(sum(PRICES.values()))", "{T} + abs(z)", "{T} * z.real", "{T} + float(Dec({I}))", "{T} * (Frac({I}, 2) * 2).numerator", "{T} + max(data)"],
        I=["int(price * 100)", "share.numerator", "(share + {I}).denominator", "day.day", "(day + step).month", "(moment - datetime.datetime(2024, 1, 1)).days", "int(step.total_seconds()) % 97", "day.weekday()", "int(Dec({I}) ** 2)", "int(round(share * 10))", "math.floor(share)", "int(price.quantize(Dec('1')))", "len(price.as_tuple().digits)", "int(z.imag)", "abs(z)", "hash(share) % 7", "int(sum(PRICES.values()))", "Frac({I}, 3).limit_denominator(2).numerator", "int(Cents(1) + Cents({I}))", "Ratio(1, 2).twice().numerator", "moment.toordinal() % 100", "int(context.divide(Dec(10), Dec(3)) * 10)", "round(2.675, 2) == 2.67", "int((0.1 + 0.2) * 10)", "len(data)", "round({I} / 7, 3) > 0", "int(math.hypot(3, 4))", "math.isqrt(abs({I}))", "int.bit_count(abs({I}))", "int(math.fsum([0.5, {I}]))", "math.trunc(-2.5)", "divmod(-7, 3)[1]", "int(float.fromhex('0x1p3'))", "(2.5).as_integer_ratio()[0]", "int(math.copysign(3, -0.0))", "int(math.dist([0, 0], [3, 4]))"],
        S=["str(price)", "repr(share)", "day.isoformat()", "moment.strftime('%Y/%m %H')", "f'{moment:%d.%m} {price:>8} {share}'", "str(step)", "str(price / 3)[:6]", "f'{price:.1f}'", "repr(Dec({I}) / 4)", "str(moment + step)", "str(z)", "repr(Cents(2) + 1)", "str(context.sqrt(Dec(2)))", "f'{float(share):.3g}'", "str(day - datetime.timedelta({I}))", "str({I} / 4)", "repr(1e16 + {I})", "repr(float({I}))", "f'{2 ** 70}'", "str(-0.0)", "str(1.0 * {I})", "repr((1 + 2j) * {I})", "repr(float('inf') - {I})", "str(Frac({I}, 4) + share)"],
        B=["price > 1", "share == 0.75", "day < datetime.date(2024, 3, 1)", "Dec('0.1') + Dec('0.2') == Dec('0.3')", "isinstance(price, Dec)", "isinstance(share, Frac)", "price == Frac(5, 4)", "bool(step)", "moment.date() == day", "Dec('nan') == Dec('nan')", "z == 1 + 2j", "float('nan') in [float('nan')]", "math.isnan(float('nan'))", "PRICES == {'a': Dec('0.5'), 'b': 2}", "price in PRICES.values()", "0.1 + 0.2 == 0.3", "-0.0 == 0.0"],
        L=["[int(p) for p in PRICES.values()]", "[d.day for d in [day, day + step]]", "[*price.as_tuple().digits]", "sorted(data)", "[int(Frac(v, 2)) for v in {L}]", "[share.numerator, share.denominator]", "[*moment.timetuple()[:3]]"],
        D=["{k: int(v * 2) for k, v in PRICES.items()}", "{day.isoformat(): {I}}"],
        do=["global price\nprice += Dec({I})", "global share\nshare = share + Frac(1, 2)", "PRICES['a'] *= 2", "global day\nday += datetime.timedelta({I})", "data.sort()", "try:\n    Dec('x')\nexcept decimal.InvalidOperation as e:\n    {l}.append(len(e.args))", "try:\n    Frac({I}, 0)\nexcept ZeroDivisionError as e:\n    {l}.append(len(e.args))", "try:\n    datetime.date(2024, 13, 1)\nexcept ValueError as e:\n    {l}.append(3)", "with decimal.localcontext() as ctx:\n    ctx.prec = 3\n    print(Dec(1) / 3)\nprint(Dec(2) / 3)", "price2 = PRICES[{S}] if {S} in PRICES else Dec(1)\n{l}.append(int(price2))", "for name, p in sorted(PRICES.items()):\n    {l}.append(int(p * 2))", "try:\n    price + 1.5\nexcept TypeError as e:\n    {l}.append(2)", "try:\n    math.sqrt(-1)\nexcept ValueError as e:\n    {l}.append(len(e.args))", "try:\n    2.0 ** 5000\nexcept OverflowError as e:\n    {l}.append(len(e.args))"],
    ),
    kit_of(
        """
Row = collections.namedtuple('Row', 'x y z', defaults=[2, None])
class Rich(collections.namedtuple('Rich', ['t', 'n'])):
    __slots__ = ()
    def __new__(cls, t, n=3):
        return super().__new__(cls, t, n + 1)
    @property
    def twice(self):
        return self.n * 2
class Logged(collections.UserDict):
    def __getitem__(self, key):
        ASKED.append(key)
        return super().__getitem__(key)
    def __missing__(self, key):
        return len(str(key))
    def __delitem__(self, key):
        ASKED.append('del')
        super().__delitem__(key)
class Doubled(collections.UserList):
    def append(self, item):
        super().append(item)
        super().append(item)
class Loud(collections.UserString):
    def upper(self):
        return super().upper() + '!'
class Limited(collections.OrderedDict):
    most = 2
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self.most:
            self.popitem(last=False)
class Depth(collections.defaultdict):
    def __missing__(self, key):
        ASKED.append(key)
        return super().__missing__(key)
class Bag(collections.Counter):
    def __missing__(self, key):
        return -1
ASKED = []
recent, logged, doubled, loud = Limited(a=1, b=2), Logged(a=1), Doubled([1]), Loud('ab')
depth, bag = Depth(list), Bag('aab')
window = collections.deque([1, 2, 3], maxlen=3)
scopes = collections.ChainMap({'a': 1}, {'a': 5, 'b': 2}, recent)
row, rich = Row(1), Rich(2)
tree = collections.defaultdict(lambda: collections.defaultdict(int))
frozen = types.MappingProxyType(recent)
space = types.SimpleNamespace(w=2, parts=[1])
tensors = collections.OrderedDict(w=whole((3,), torch.float64, 4), b=whole((1,), torch.float64, 5))
""",
        ["recent['c'] = {n}", "Limited.most = {n} + 1", "logged['a'] = {n}", "logged.data['z'] = {n}", "Logged.__missing__ = lambda self, key: {n}", "doubled.append({n})", "Doubled.append = collections.UserList.append", "loud.data = 'new'", "depth['q'].append({n})", "depth.default_factory = None", "depth.default_factory = lambda: [{n}]", "bag['a'] = {n}", "Bag.__missing__ = lambda self, key: {n}", "window.append({n})", "window.rotate({n})", "global window; window = collections.deque(window, maxlen=2)", "scopes.maps.append({'d': {n}})", "scopes.maps[1]['b'] = {n}", "scopes['new'] = {n}",
         "global row; row = row._replace(y={n})", "global row; row = Row({n}, {n}, {n})", "Row.__new__.__defaults__ = ({n}, {n})", "tree['a']['b'] = {n}", "space.w = {n}", "space.later = {n}", "space.parts = [{n}]", "tensors['w'].add_({n})", "tensors['n'] = whole((1,), torch.float64, {n})", "tensors.move_to_end('w')", "tensors.pop('b', None)", "ASKED.clear()", "Rich.twice = property(lambda self: {n})", "recent.clear()", "vars(space).update(w={n})", "Limited.__setitem__ = dict.__setitem__"],
        ["recent", "logged.data", "doubled.data", "depth", "bag", "window", "scopes.maps", "row", "tree", "space", "tensors", "ASKED"],
        T=["{T} * row.y if row.y else {T}", "Rich({T}).t * 2", "{T} + Rich(1, {I}).n", "{T} + rich.twice", "{T} + logged['a']", "{T} * logged['zz']", "{T} + sum(window)", "{T} + scopes['a']", "{T} + scopes.get('new', 2)", "{T} + bag['a']", "{T} * bag['none']", "{T} + len(depth['k'])", "{T} + space.w", "{T} * tensors['w'].sum()", "sum(tensors.values()) + {T}", "{T} + tree['a']['b']", "{T} + frozen.get('a', 3)", "next(iter(tensors.values())) * {T}", "{T} + len(doubled)", "list(tensors.values())[-1].sum() + {T}", "Row({T}, 1)._asdict()['x'] + 1", "Row._make([{T}, 2, 3]).x"],
        I=["row.x", "row[1] or 0", "len(row)", "rich.twice", "rich.n", "len(Rich({I}))", "logged['a']", "logged['abc']", "logged.get('q', {I})", "len(logged)", "doubled[0]", "len(doubled + [1])", "doubled.count(1)", "len(loud)", "len(loud.upper())", "len(depth)", "bag['a']", "bag['zz']", "bag.total()", "sum((bag + bag).values())", "len(-bag)", "window[0]", "window.maxlen", "len(window)", "window.index(3) if 3 in window else 9", "scopes['b']", "len(scopes)", "scopes.new_child()['a']", "len(scopes.parents)", "tree['a']['c']", "len(tree)", "space.w", "getattr(space, 'later', {I})", "len(space.parts)", "frozen.get('c', {I})", "len(frozen)", "recent.get('a', {I})", "Limited.most", "list(recent.values())[-1] if recent else 0", "len(tensors)", "bag.most_common()[0][1]"],
        S=["repr(row)", "repr(rich)", "repr(Rich(1))", "str(loud + {S})", "loud.upper()", "str(loud)", "repr(doubled)", "repr(window)", "','.join(recent)", "repr(space)", "repr(logged)", "','.join(scopes)", "repr(bag)", "','.join(tensors)", "type(loud.upper()).__name__", "str(Row._field_defaults)", "next(reversed(recent), '')", "repr(frozen)", "'|'.join(map(str, row))", "type(depth).__name__", "type(Row(1)._replace(x=2)).__name__"],
        B=["row == (1, 2, None)", "'a' in logged", "'zz' in logged", "2 in window", "'b' in scopes", "recent == {'a': 1, 'b': 2}", "recent == collections.OrderedDict(b=2, a=1)", "bag >= collections.Counter('a')", "doubled == [1]", "loud == 'ab'", "'q' in depth", "space == types.SimpleNamespace(w=2, parts=[1])", "isinstance(logged, dict)", "isinstance(row, tuple)", "window == collections.deque([1, 2, 3])", "'x' in row._fields", "'w' in tensors", "frozen == recent", "hasattr(space, 'later')"],
        L=["list(window)", "doubled.data", "[*doubled]", "list(recent.values())", "[len(v) for v in depth.values()]", "list(scopes.values())", "sorted(bag.values())", "[v or 0 for v in row]", "list(reversed(window))", "list(logged.values())", "space.parts", "list(frozen.values())", "[t.dim() for t in tensors.values()]"],
        D=["dict(recent)", "{**logged}", "dict(scopes)", "dict(bag)", "dict(frozen)", "{k: v.dim() for k, v in tensors.items()}", "{**recent, 'n': {I}}", "dict(collections.ChainMap({D}, {'u': 1}))", "vars(space) and {'w': space.w}", "scopes.maps[0]"],
        do=["recent[{S}] = {I}", "recent.move_to_end(next(iter(recent)), last={B}) if recent else None", "logged[{S}] = {I}", "logged.update(u={I})", "{l}.append(logged.pop('a', 0))", "doubled.append({I})", "doubled.extend({L})", "depth[{S}].append({I})", "try:\n    depth['deep'].append(1)\nexcept KeyError as e:\n    {l}.append(len(e.args))", "bag.update({S})", "bag['n'] += 1", "global bag\nbag -= collections.Counter('a')", "window.appendleft({I})", "window.extend({L})", "window.rotate({I})", "try:\n    window.insert(0, 1)\nexcept IndexError as e:\n    {l}.append(1)", "scopes['s'] = {I}", "scopes.pop('s', 0)", "try:\n    del scopes['b']\nexcept KeyError as e:\n    {l}.append(len(e.args[0]))", "tree[{S}]['k'] += {I}", "space.w += 1", "space.note = {T}", "del space.parts[:1]", "tensors['w'] = {T}", "tensors['m'] = {T}\ntensors.move_to_end('m', last=False)", "tensors['w'].add_(1)", "for name, v in tensors.items():\n    {t} = {t} + v.sum()\n    print(name)", "x, y, z = row\n{l}.append(x)", "match row:\n    case Row(1, y, z):\n        {l}.append(y or 0)\n    case (a, *_):\n        {l}.append(a)", "try:\n    row.x = 1\nexcept AttributeError as e:\n    {l}.append(2)", "try:\n    frozen['q'] = 1\nexcept TypeError as e:\n    {l}.append(3)", "{l}.append(recent.popitem(last=False)[1] if recent else 0)", "for key in list(logged):\n    {l}.append(logged[key])", "if {B}:\n    window.clear()", "Point = collections.namedtuple('Point', ['t', 'k'])\n{t}, k = Point({T}, {I})\n{l}.append(k)", "try:\n    for v in window:\n        window.append(v)\n        if len({l}) > 20:\n            break\nexcept RuntimeError as e:\n    {l}.append(5)"],
    ),
    kit_of(
        """
class Copied:
    made = 0
    def __init__(self, n=1, parts=None):
        self.n, self.parts = n, [1] if parts is None else parts
    def __copy__(self):
        Copied.made += 1
        return Copied(self.n + 1, self.parts)
    def __deepcopy__(self, memo):
        memo['seen'] = memo.get('seen', 0) + 1
        return Copied(self.n + 10, copy.deepcopy(self.parts, memo))
class Reduced:
    def __init__(self, k):
        self.k, self.extra = k, 0
    def __reduce__(self):
        return (Reduced, (self.k + 1,), {'extra': self.extra})
class Stateful:
    def __init__(self):
        self.a, self.t = 1, None
    def __getstate__(self):
        return {'a': self.a + 1}
    def __setstate__(self, state):
        self.__dict__.update(state, t='set')
class Task:
    __slots__ = ('rank', 'name', '__weakref__')
    def __init__(self, rank, name=''):
        self.rank, self.name = rank, name
    def __lt__(self, other):
        return self.rank < other.rank
class Owner:
    def __init__(self, n=2):
        self.n = n
    def get(self):
        return self.n
shared = [1, 2]
graph = {'left': shared, 'right': shared, 'self': None}
graph['self'] = graph
copied, reduced, stateful = Copied(), Reduced(2), Stateful()
owner, other = Owner(), Owner(5)
ref, bound_ref = weakref.ref(owner), weakref.WeakMethod(owner.get)
proxy = weakref.proxy(owner)
by_owner = weakref.WeakKeyDictionary({owner: 3})
by_name = weakref.WeakValueDictionary(o=owner, p=other)
alive = weakref.WeakSet([owner])
heap = [(3, 'c'), (1, 'a'), (2, 'b')]
heapq.heapify(heap)
tasks = [Task(2, 'x'), Task(1, 'y')]
sorted_ = [1, 3, 5, 7]
cache = {}
w = whole((3,), torch.float64, 6)
held = [w, w, {'w': w}]
""",
        ["copied.n = {n}", "copied.parts.append({n})", "Copied.__copy__ = lambda self: self", "Copied.__deepcopy__ = lambda self, memo: {n}", "reduced.extra = {n}", "stateful.a = {n}", "shared.append({n})", "graph['right'] = [{n}]", "owner.n = {n}", "global owner; owner = Owner({n})", "global other; other = None", "by_owner[owner] = {n}", "by_name['q'] = owner", "by_name.pop('p', None)", "alive.add(other) if other else None", "heapq.heappush(heap, ({n}, 'n'))", "tasks[0].rank = {n}", "bisect.insort(sorted_, {n})", "Task.__lt__ = lambda a, b: a.rank > b.rank", "w.add_({n})", "held[0] = w * {n}", "held[2]['w'] = held[0]", "global ref; ref = weakref.ref(other or owner)", "Owner.get = lambda self: {n}", "sorted_.clear()", "cache.clear()", "del Copied.__copy__", "Stateful.__setstate__ = lambda self, state: None", "heap.clear(); heap.append(({n}, 'only'))", "proxy.n = {n}", "global w; w = w + {n}"],
        ["copied", "reduced", "stateful", "shared", "owner", "heap", "tasks", "sorted_", "held", "len(by_owner)", "sorted(by_name)", "Copied.made", "w"],
        T=["{T} * copy.copy(copied).n", "{T} + copy.deepcopy(copied).n", "{T} + copy.copy(reduced).k", "{T} * ref().n if ref() else {T}", "{T} + proxy.n", "{T} + by_owner.get(owner, 1)", "{T} + heap[0][0]", "{T} * min(tasks).rank", "copy.copy(w).sum() + {T}", "copy.deepcopy(w) + {T}.sum()", "copy.deepcopy(held)[2]['w'].sum() + {T}", "{T} + bisect.bisect_left(sorted_, {I})", "operator.attrgetter('n')(owner) * {T}", "held[0].sum() * {T}", "operator.itemgetter(0, 1)([{T}, 2])[0]", "copy.copy([{T}, 1])[0]", "{T} + len(alive)", "heapq.merge([1], [{I}]).__next__() * {T}", "operator.matmul({T}.reshape(-1)[:1], w[:1]) + {T}", "operator.neg({T})", "operator.truth({B}) * {T}", "bound_ref()() * {T} if bound_ref() else {T}"],
        I=["copy.copy(copied).n", "copy.deepcopy(copied).n", "len(copy.copy(copied).parts)", "Copied.made", "copy.copy(reduced).k", "copy.copy(reduced).extra", "copy.copy(stateful).a", "ref().n if ref() else -1", "proxy.n", "len(by_owner)", "len(by_name)", "len(alive)", "by_owner.get(owner, {I})", "heap[0][0]", "heapq.nlargest(2, heap)[-1][0]", "heapq.nsmallest(1, tasks)[0].rank", "bisect.bisect(sorted_, {I})", "bisect.bisect_left([t.rank for t in tasks], {I})", "bisect.bisect(tasks, {I}, key=lambda t: t.rank)", "len(copy.deepcopy(graph)['left'])", "operator.indexOf({L} + [{I}], {I})", "operator.countOf({L}, 1)", "operator.length_hint({L})", "operator.concat({L}, [1])[-1]", "operator.floordiv({I}, 3)", "operator.call(owner.get)", "weakref.getweakrefcount(owner) > 0", "operator.methodcaller('get')(owner)", "operator.attrgetter('n', 'get')(owner)[0]", "next(heapq.merge({L}[:0], [{I}]))", "bound_ref()() if bound_ref() else 0", "operator.getitem({d}, 'a') if 'a' in {d} else 0", "operator.inv({I})"],
        S=["min(tasks).name", "heap[0][1]", "type(copy.copy(reduced)).__name__", "str(copy.copy(stateful).t)", "operator.attrgetter('__class__.__name__')(owner)", "','.join(sorted(by_name))", "type(ref).__name__", "repr(copy.copy({L}))", "operator.mod('%d', {I})", "','.join(n for _, n in sorted(heap))", "str(operator.itemgetter(slice(1))({S}))"],
        B=["copy.copy(copied).parts is copied.parts", "copy.deepcopy(copied).parts is copied.parts", "ref() is owner", "ref() is None", "owner in by_owner", "owner in alive", "'p' in by_name", "graph['left'] is graph['right']", "copy.deepcopy(graph)['self'] is graph", "copy.copy(graph)['left'] is shared", "copy.copy(w) is w", "held[0] is held[1]", "copy.deepcopy(held)[0] is copy.deepcopy(held)[1]", "proxy == owner", "weakref.ref(owner) is weakref.ref(owner)", "ref == weakref.ref(owner)", "operator.is_(owner, ref())", "operator.contains({L}, {I})", "operator.not_({B})", "copy.copy({I}) is copy.copy({I})", "operator.xor({B}, {B})", "bound_ref() == owner.get"],
        L=["copy.deepcopy(graph)['left']", "sorted_", "[k for k, _ in heap]", "[t.rank for t in sorted(tasks)]", "list(heapq.merge(sorted({L}), sorted_))", "copy.copy(shared)", "heapq.nsmallest(2, {L})", "operator.add({L}, [1])", "list(by_owner.values())", "list(operator.itemgetter(0, -1)([*{L}, 1]))", "[o.n for o in by_name.values()]", "operator.mul({L}, 2)"],
        D=["copy.copy({D})", "copy.deepcopy({D})", "operator.or_({D}, {'o': {I}})", "{'n': owner.n}", "dict(cache)"],
        do=["copied.n = {I}", "copied.parts.append({I})", "shared.append({I})", "heapq.heappush(heap, ({I}, {S}))", "{l}.append(heapq.heappop(heap)[0] if heap else 0)", "{l}.append(heapq.heappushpop(sorted_, {I}))\nsorted_.sort()", "bisect.insort(sorted_, {I})", "bisect.insort(tasks, Task({I}), key=lambda t: t.rank)", "tasks.sort(key=operator.attrgetter('rank', 'name'))", "owner.n = {I}", "by_owner[owner] = {I}", "alive.discard(owner)", "local = Owner({I})\nalive.add(local)\nby_name['l'] = local\n{l}.append(len(alive))\ndel local\n{l}.append(len(alive) + len(by_name))", "seen = []\nlocal = Owner()\nlocal_ref = weakref.ref(local, lambda r: seen.append(1))\n{l}.append(local_ref().n)\nlocal = None\n{l}.append(len(seen))", "marks = []\nlocal = Owner({I})\nfin = weakref.finalize(local, marks.append, 3)\n{l}.append(int(fin.alive))\ndel local\n{l}.append(len(marks))", "held.append({T})", "held[2]['w'].add_(1)", "twin = copy.copy(held)\ntwin[0] = {T}\n{l}.append(int(twin[1] is held[1]))", "deep = copy.deepcopy(held)\ndeep[0].add_(5)\n{l}.append(int(deep[0] is deep[2]['w']))\n{t} = {t} + deep[1].sum()", "w.mul_(2)", "alias = w\nalias += 1", "cache[{S}] = {I}", "operator.setitem(cache, {S}, {I})", "operator.delitem({d}, 'a')", "try:\n    weakref.ref({I})\nexcept TypeError as e:\n    {l}.append(1)", "gone = weakref.proxy(Owner())\ntry:\n    gone.n\nexcept ReferenceError as e:\n    {l}.append(4)", "t_ref = weakref.ref({t})\n{l}.append(int(t_ref() is {t}))", "reduced.extra += 1", "stateful.t = {T}", "old = operator.iadd({l}, [1])\n{l}.append(int(old is {l}))", "global w\nw = {T}"],
    ),
]  # fmt: skip
