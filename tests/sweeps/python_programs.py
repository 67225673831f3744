"""Random Python programs around tensors: classes, containers, closures, exceptions, generators, context managers, the standard library.

In: a seed. Out: a `Program`. A few kits (`python_kits.py` and those beside it) give declarations; statements and expressions are grown from their templates and from
the general ones here, tried in plain Python as they are drawn; between the calls the program changes what the function read.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import re
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from attrs import define

from .names import NAMES
from .program import Program
from .python_class_kits import CLASS_KITS
from .python_kits import KITS, Kit
from .python_language_kits import LANGUAGE_KITS
from .python_library_kits import LIBRARY_KITS
from .python_torch_kits import TORCH_KITS
from .restored import restored

#: How often each backend is taken when none is named: what is wrong with Python is wrong in capture.
MIX = {"eager": 12, "aot_eager": 2, "lowered": 1}
#: How many programs replace functions of torch or of the standard library.
_REPLACING = 0.2
_HOLE = re.compile(r"\{([TISBLDtlid])\}")
#: A loop that runs longer than this may never end.
_MOST_LINES = 4000
_MOST_ELEMENTS = 50_000
_FIRST_CALL = "f(whole((3,), torch.float64, 1), 2, [3, 1, 2], {'a': 1, 'b': 5})"
#: How often the calls of a program are drawn again where they have no end, or what is changed between them fails.
_MOST_DRIVERS = 6
#: Plays the part of `run.run_plain`.
_DRIVEN = """
def _called(function, *args):
    try:
        function(*args)
    except Exception:
        pass
drive(lambda function, **options: function, _called, lambda *values: None, None)
"""

#: Type -> templates of expressions that need no kit.
EXPRESSIONS: dict[str, list[str]] = {
    "T": ["{t}", "{t}", "{t}", "{T} + {I}", "{T} * 2", "-{T}", "{T} - {T}", "torch.relu({T})", "{T}.abs()", "{T}.sum()", "torch.stack([{T}.sum(), {T}.sum()])", "{T}.clone()", "sum([{T}, {T}])", "{T} if {B} else {T}", "max([{T}.sum(), {T}.sum()], key=lambda v: 1)",
          "functools.reduce(operator.add, [{T}, {T}])", "operator.mul({T}, {I})", "(lambda v: v + {I})({T})", "[{T}, {T}][{I} % 2]", "dict(k={T})['k']", "({T}, 1)[0]", "copy.copy({T})", "torch.tensor({L}).sum() + {T}", "torch.full((3,), {I}, dtype=torch.float64) + {T}", "next(iter([{T}]))",
          "[v * {I} for v in ({T}, {T})][0]", "{T}.reshape(-1)[:1] + {t}", "sum(v * {t} for v in {L})", "{t}[{I} % 2:]", "{T} @ {T}", "{T}.to(torch.float64)", "torch.arange(3) + {T}", "math.prod([{T}, {I}])", "(w := {T}) + w", "torch.as_tensor({I}) + {T}", "{T}.new_tensor({L}).sum()", "{T} ** 2", "({T} > {I}) * {T}"],
    "I": ["{i}", "{i}", "1", "2", "3", "0", "-1", "{I} + {I}", "{I} - 1", "{I} * 2", "len({L})", "len({S})", "{t}.shape[0]", "{t}.dim()", "{l}[0]", "{d}.get('a', {I})", "sum({L})", "max({L}, default=0)", "min({I}, {I})", "{I} if {B} else {I}", "abs({I})", "{I} % 3", "{I} // 2", "int({B})", "{L}[-1] if {l} else {I}", "math.gcd({I}, 6)",
          "divmod({I}, 3)[1]", "round({I} / 3)", "pow({I}, 2, 7)", "int(math.floor({I} / 2))", "hash({I}) % 5", "bisect.bisect([1, 3, 5], {I})", "functools.reduce(lambda a, b: a - b, {L}, {I})", "int('0x1f', 16)", "{L}.count({I})", "len({D})", "sum({D}.values())", "len(set({L}))", "{t}.numel()", "operator.index({I})",
          "ord({S}[:1] or 'a') % 7", "len(list(itertools.chain({L}, {L})))", "sum(1 for _ in itertools.product({L}[:2], [1, 2]))", "math.comb(5, abs({I}) % 5)", "int(math.sqrt(abs({I})))", "~{I}", "{I} ^ 3", "len(range({I} % 9))", "len({L}[1:])", "operator.itemgetter(0)([{I}, 2])", "[*{L}, {I}][0]", "len(str({I}))", "max({I}, {I}, key=lambda v: -v)",
          "int({I} < {I} < 5)", "{t}.stride()[0] if {t}.dim() else 0", "dict(zip('ab', [{I}, 2]))['a']", "list(enumerate({L}, 1))[0][0] if {l} else 0", "sum(map(int, '12'))", "heapq.nlargest(1, [{I}, 2])[0]", "({I}).bit_length()", "int(1e3) % 7", "len({t}.shape)", "sum(a * b for a, b in zip({L}, {L}))"],
    "S": ["'x'", "'abc'", "str({I})", "f'{{I}}-{{S}}'", "f'{{I}:>4}|{{I}:+d}'", "{S} + {S}", "{S}.upper()", "'-'.join(map(str, {L}))", "repr({L})", "{S} * 2", "'%d/%s' % ({I}, {S})", "'{} {}'.format({I}, {S})", "type({T}).__name__", "{S}[::-1]", "str({t}.dtype)", "{S}.replace('a', 'b')", "str(tuple({t}.shape))", "' '.join(sorted({D}))", "{S}.strip('x').center(5, '.')",
          "f'{{I} / 2:.2f}'", "str({B})", "'a' if {B} else 'b'", "{S}[:2]", "string.ascii_lowercase[:{I} % 4]", "repr({S})", "str({D})", "f'{{L}!r:>10}'", "chr(97 + {I} % 3)", "','.join(f'{k}={v}' for k, v in {D}.items())", "str({t}.device)", "str({t}.shape)", "'{0:{1}}'.format({I}, 5)", "{S}.split('b')[0]", "{S}.partition('-')[0]", "','.join(str(v) for v in reversed({L}))"],
    "B": ["True", "{I} > {I}", "{I} == 2", "{t}.shape[0] > 2", "not {B}", "{B} and {B}", "{B} or {B}", "{I} in {L}", "'a' in {D}", "{S} == 'x'", "bool({L})", "isinstance({I}, int)", "{l} is {l}", "{t}.dim() == 1", "any(v > 2 for v in {L})", "all({L})", "{S}.startswith('a')", "{t}.requires_grad", "{I} is None", "1 < {I} <= 4", "{L} == {L}", "torch.is_grad_enabled()", "{t}.dtype == torch.float64", "{L} < {L}", "len({L}) % 2 == 0",
          "isinstance({t}, torch.Tensor)", "{t}.is_contiguous()", "set({L}) <= {1, 2, 3}", "{D} == {D}", "{S} in ('x', 'abc')", "{D}.keys() == {'a', 'b'}", "{d}.keys() >= {'a'}", "callable({I})", "{S}.isdigit()", "torch.is_tensor({l})", "hasattr({t}, 'shape')", "issubclass(bool, int)", "{t} is {t}", "operator.lt({I}, 3)", "math.isclose({I}, 2.0)"],
    "L": ["{l}", "[{I}, {I}]", "{l}[1:]", "{l}[::-1]", "sorted({L})", "list(range({I} % 5))", "[v + 1 for v in {L}]", "[v for v in {L} if v > 1]", "{L} + [{I}]", "list(reversed({L}))", "list({D}.values())", "[*{L}, *{L}]", "list(map(abs, {L}))", "sorted({L}, key=lambda v: -v)", "list(filter(None, {L}))", "list(itertools.accumulate({L}))", "[a - b for a, b in zip({L}, {L})]", "list(dict.fromkeys({L}))", "sorted(set({L}))",
          "list(itertools.chain.from_iterable([{L}, [{I}]]))", "[i for i, v in enumerate({L})]", "{l}.copy()", "copy.deepcopy({L})", "{L} * 2", "list(itertools.islice(itertools.cycle([1, {I}]), 3))", "[x for x in range(3) for _ in range(2)]", "list({t}.shape)", "[len(s) for s in 'a bc'.split()]", "list(itertools.takewhile(lambda v: v < 3, {L}))", "heapq.nsmallest(2, {L})", "[(v, {I}) for v in {L}][0][:1] and [1]", "list(map(operator.add, {L}, {L}))",
          "[{i} for _ in {L}]", "list(itertools.zip_longest({L}, [1], fillvalue={I}))[-1:] and [2]", "sum([[1], {L}], [])", "[k for k, g in itertools.groupby(sorted({L}))]", "list(itertools.starmap(operator.sub, [(3, {I})]))", "[v for v, in zip({L})]", "list(bytes([1, 2]))", "list(itertools.combinations({L}[:3], 2))[:0] + [4]", "{l}[-2:]", "[*range({I} % 4, 0, -1)]"],
    "D": ["{d}", "{'k': {I}}", "dict({D})", "{**{D}, 'n': {I}}", "{k: v + 1 for k, v in {D}.items()}", "dict(zip('xy', {L}))", "{D} | {'m': {I}}", "dict(sorted({D}.items()))", "{k: {I} for k in 'pq'}", "{str(v): v for v in {L}}", "copy.copy({D})", "copy.deepcopy({D})", "dict(a={I}, z=2)", "dict.fromkeys('uv', {I})", "{v: k for k, v in enumerate('st')}", "{k: v for k, v in {D}.items() if v > 1}", "dict(collections.Counter({S}))", "dict(reversed({D}.items()))"],
}  # fmt: skip

#: Statements that need no kit; `{body}` is one or two further statements, indented.
STATEMENTS = [
    "{t} = {T}", "{t} = {T}", "{t} = {T}", "{i} = {I}", "{i} = {I}", "{l} = {L}", "{d} = {D}", "{t} += {I}", "{i} += {I}", "{l}.append({I})", "{l}.extend({L})", "{l} += {L}", "{l}[0] = {I}", "{l}.insert(0, {I})", "{l}.pop()", "{l}.sort()", "{l}.reverse()", "del {l}[0]", "{l}[1:] = {L}", "{l}.remove({l}[0])", "{l}.sort(key=lambda v: -v)",
    "{d}['k'] = {I}", "{d}[{S}] = {I}", "{d}.update(u={I})", "{d}.pop('a', None)", "{d}.setdefault('s', {I})", "{d}['a'] += 1", "del {d}['b']", "{d} |= {'o': {I}}", "{d}.popitem()", "{d}.clear()", "print({S}, {I})", "print(f'{{I}} {{S}}', end=';')", "print({l}, {d}, sep='/')", "fresh = {T}", "aside = ({I}, {S})",
    "if {B}:\n{body}", "if {B}:\n{body}\nelse:\n{body}", "if {B}:\n{body}\nelif {B}:\n{body}", "for k in range({I} % 4):\n{body}", "for v in {L}:\n{body}", "for k, v in list({d}.items()):\n    {l}.append(v)", "for k, v in enumerate({L}):\n    {t} = {t} + v", "for a, b in zip({L}, {L}):\n    if a > b:\n        continue\n    {l}.append(a)",
    "j = 0\nwhile j < {I} % 4:\n    j += 1\n{body}", "for v in {L}:\n    if v == {I}:\n        break\nelse:\n{body}", "try:\n{body}\nexcept (ValueError, IndexError):\n    {l}.append(1)", "try:\n{body}\nfinally:\n    {l}.append({I})", "try:\n    raise ValueError({S}, {I})\nexcept ValueError as e:\n    {l}.append(e.args[1])", "try:\n    {l}[{I} * 100]\nexcept IndexError as e:\n    {l}.append(len(str(e)))",
    "try:\n    {d}['missing']\nexcept KeyError as e:\n    {l}.append(len(e.args[0]))", "try:\n    1 // ({i} - {i})\nexcept ZeroDivisionError as e:\n    {l}.append(2)", "try:\n    int({S})\nexcept ValueError:\n    {l}.append(3)\nelse:\n    {l}.append(4)", "def inner(v, k={I}):\n    return v * k\n{t} = inner({t})", "def inner(*a, **k):\n    return len(a) + len(k)\n{l}.append(inner(*{L}, **{'x': 1}))",
    "total = {I}\ndef grow(v):\n    nonlocal total\n    total += v\n    return total\n{l}.append(grow({I}) + grow(1))\n{l}.append(total)", "first, *others = [*{L}, 1]\n{l}.append(first + len(others))", "(a, b), c = ({I}, {I}), {I}\n{l}.append(a + b - c)", "if (n := len({L})) > 1:\n    {l}.append(n)", "match {I}:\n    case 1 | 2:\n        {l}.append(10)\n    case v if v > 3:\n        {l}.append(v)\n    case _:\n        {l}.append(0)",
    "match {d}:\n    case {'a': v, **rest}:\n        {l}.append(len(rest))\n    case {}:\n        {l}.append(-1)", "match {l}:\n    case [a, b, *_]:\n        {l}.append(a)\n    case []:\n        {l}.append(1)", "squares = {v: v * v for v in {L}}\n{l}.append(len(squares))", "pairs = [(v, {t} * v) for v in {L}[:2]]\nfor v, part in pairs:\n    {t} = {t} + part.sum()",
    "gen = (v + {I} for v in [*{L}])\n{l}.extend(gen)", "it = iter([*{L}])\n{l}.append(next(it, 0))\n{l}.extend(it)", "{t}.add_(1)", "{t}.mul_({I})", "{t}[0] = {I}", "alias = {l}\nalias.append({I})", "alias = {t}\nalias += 1", "held = {d}\nheld['h'] = {I}", "{l}[0], {l}[-1] = {l}[-1], {l}[0]", "bisect.insort({l}, {I})", "heapq.heappush({l}, {I})", "random.seed({I}); {l}.append(random.randint(0, 5))",
    "operator.setitem({l}, 0, {I})", "operator.iadd({l}, [{I}])", "list.append({l}, {I})", "dict.update({d}, e={I})", "assert {B}, {S}", "return {t}, {l}", "for v in {L}:\n    for w in {L}:\n        if v == w:\n            break\n        {l} = [*{l}, v]", "class Local:\n    k = {I}\n    def __init__(self, t):\n        self.t = t\n    def get(self):\n        return self.t * self.k\n{t} = Local({T}).get()",
    "rows = [[{I}] * 2 for _ in range(2)]\nrows[0][1] = {I}\n{l}.append(sum(map(sum, rows)))", "with contextlib.suppress(KeyError):\n    del {d}['q']\n    {l}.append(1)", "with torch.no_grad():\n{body}", "torch.manual_seed({I})\n{t} = {t} + torch.randint(0, 3, (1,))", "setattr({t}, 'mark', {I})\n{l}.append({t}.mark)", "warnings.warn({S})", "text = io_text = {S}\nprint(text is io_text)", "g = lambda v: [v, {I}]\n{l}.extend(g({I}))",
    "spare = {l}[:]\nspare.clear()", "del {l}[::2]", "{l}[:] = sorted({L})", "{l}.append({l}.index({l}[-1]))", "nested = {'x': {'y': [{I}]}}\nnested['x']['y'].append({I})\n{l}.extend(nested['x']['y'])", "try:\n    for k in {d}:\n        {d}[k + 'x'] = 1\nexcept RuntimeError as e:\n    {l}.append(7)", "zipped = dict(zip({L}, itertools.count()))\n{l}.append(len(zipped))", "state = copy.deepcopy([{l}, {l}])\nstate[0].append(1)\n{l}.append(len(state[1]))",
    "if {t}.sum() > {I}:\n    {t} = {t} - 1", "{l}.append(int({t}.sum()))", "{l}.append({t}.sum().item() > 2)", "for row in {t}:\n    {l}.append(row.dim())", "{t} = {t}.detach()", "s = {1, {I}}\ns.add({I})\ns |= {4}\n{l}.extend(sorted(s))", "try:\n    {t}.view(7, 9)\nexcept RuntimeError as e:\n    {l}.append(8)", "try:\n    raise KeyError({I}) from ValueError({S})\nexcept KeyError as e:\n    {l}.append(len(e.__cause__.args))",
    "try:\n    undefined_name\nexcept NameError as e:\n    {l}.append(len(e.name))", "try:\n    {i}.missing\nexcept AttributeError as e:\n    {l}.append(len(e.name))", "try:\n    {i} + {S}\nexcept TypeError as e:\n    {l}.append(len(e.args))", "try:\n    a, b = {L}\n    {l}.append(a)\nexcept ValueError as e:\n    {l}.append(len(str(e)))",
]  # fmt: skip


@define
class _Draw:
    """A program being drawn: every decision, the kits taken, and their templates together with the general ones."""

    chance: random.Random
    kits: list[Kit]
    expressions: dict[str, list[tuple[list[str], int]]]
    statements: list[tuple[list[str], int]]

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a type."""
        if depth <= 0:
            simple = {
                "T": "t",
                "I": self.chance.choice(["n", "n", "1", "2", "3"]),
                "S": self.chance.choice(["'x'", "'ab'"]),
            }
            return simple.get(kind) or {"B": "n > 1", "L": "xs", "D": "d"}[kind]
        pools = self.expressions[kind]
        ((templates, _),) = self.chance.choices(pools, [weight for _, weight in pools])
        return self.filled(self.chance.choice(templates), depth)

    def filled(self, template: str, depth: int) -> str:
        """A template with its holes filled."""
        names = {"t": "t", "l": "xs", "d": "d", "i": "n"}
        text = _HOLE.sub(lambda hole: names.get(hole[1]) or self._bracketed(hole[1], depth - 1), template)
        return re.sub(r"^( *)\{body\}", lambda hole: self._body(depth), text, flags=re.M)

    def _bracketed(self, kind: str, depth: int) -> str:
        text = self.expression(kind, depth)
        return text if re.fullmatch(r"[\w.']+|\w+\([^()]*\)|\[[^\[\]]*\]|\([^()]*\)", text) else f"({text})"

    def statement(self, depth: int) -> str:
        """A statement of one or more lines."""
        ((templates, _),) = self.chance.choices(self.statements, [weight for _, weight in self.statements])
        return self.filled(self.chance.choice(templates), depth)

    def _body(self, depth: int) -> str:
        lines = (
            [self.statement(depth - 1) for _ in range(self.chance.choice([1, 1, 2]))] if depth > 0 else ["xs.append(1)"]
        )
        return "\n".join("    " + line for text in lines for line in text.split("\n"))


def program(seed: int, backend: str | None = None) -> Program:
    """The program of a seed."""
    chance = random.Random(f"python {seed}")
    chosen = chance.choices(list(MIX), list(MIX.values()))[0]
    kits = chance.sample(KITS + LANGUAGE_KITS + CLASS_KITS + LIBRARY_KITS, chance.choice([1, 1, 2, 2, 3]))
    if chance.random() < _REPLACING:
        kits.append(chance.choice(TORCH_KITS))
    share = max(6 // len(kits), 2)
    expressions = {
        kind: [(general, 8), *((kit.uses[kind], share) for kit in kits if kit.uses.get(kind))]
        for kind, general in EXPRESSIONS.items()
    }
    statements = [(STATEMENTS, 9), *((kit.uses["do"], share) for kit in kits if kit.uses.get("do"))]
    draw = _Draw(chance, kits, expressions, statements)
    body = _statements(draw)
    text = "\n".join([*(kit.text for kit in kits), "", *_function(body), ""])
    source = f"{text}\n" + "\n".join(_working_driver(draw, text)) + "\n"
    return Program("python", seed, source, backend or chosen)


def _working_driver(draw: _Draw, text: str) -> list[str]:
    """Calls that come to an end with the changes between them, which themselves pass."""
    for _ in range(_MOST_DRIVERS):
        lines = _driver(draw)
        if _run_bounded("\n".join([text, *lines, _DRIVEN]), calls=4) == "fine":
            return lines
    return ["def drive(compile, call, show, backward):", f"    {_FIRST_CALL.replace('f(', 'call(compile(f), ', 1)}"]


def _statements(draw: _Draw) -> list[str]:
    taken: list[str] = []
    wanted = draw.chance.randint(2, 8)
    for _ in range(40):
        if len(taken) >= wanted:
            break
        text = draw.statement(draw.chance.choice([1, 2, 2, 3]))
        verdict = _tried(draw, [*taken, text])
        if verdict == "fine" or (verdict == "raises" and draw.chance.random() < 0.04):
            taken.append(text)
            if verdict == "raises" or text.startswith("return"):
                break
    return taken


def _function(body: list[str]) -> list[str]:
    lines = [line for text in body for line in text.split("\n")]
    announced = list(dict.fromkeys(line.strip() for line in lines if line.strip().startswith("global ")))
    lines = [line for line in lines if not line.strip().startswith("global ")]
    return ["def f(t, n, xs, d):", *(f"    {line}" for line in [*announced, *lines]), "    return t, n, xs, d"]


def _tried(draw: _Draw, body: list[str]) -> str:
    """What plain Python makes of a function of these statements."""
    return _run_bounded("\n".join([*(kit.text for kit in draw.kits), *_function(body), _FIRST_CALL]))


def _run_bounded(source: str, calls: int = 1) -> str:
    """What becomes of a text in plain Python: "fine", "raises", or "useless" where it is none or has no end."""
    module = types.ModuleType("sweep_program")
    vars(module).update(NAMES)
    sys.modules["sweep_program"] = module
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
            restored(),
            _bounded(calls * _MOST_LINES),
        ):
            warnings.simplefilter("ignore")
            exec(compile(source, "<trial>", "exec"), vars(module))
    except (SyntaxError, _Endless):
        return "useless"
    except Exception:
        return "raises"
    finally:
        torch.set_grad_enabled(True)
    return "fine"


class _Endless(BaseException):
    """Too many lines ran, or what they made grows and grows."""


def _is_huge(value: Any) -> bool:
    if type(value) is int:
        return value.bit_length() > _MOST_ELEMENTS
    return type(value) in (list, tuple, str, dict, set) and len(value) > _MOST_ELEMENTS


@contextlib.contextmanager
def _bounded(left: int) -> Iterator[None]:
    """Stop what runs for too many lines: counted, so that a program is the same on a slow machine."""

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        # CPython 3.13.0 crashes where the variables of a module or class are asked for in one of its comprehensions.
        variables = frame.f_locals if left % 8 == 0 and frame.f_code.co_flags & inspect.CO_OPTIMIZED else {}
        if left < 0 or any(map(_is_huge, list(variables.values()))):
            raise _Endless
        return trace if frame.f_code.co_filename == "<trial>" else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _driver(draw: _Draw) -> list[str]:
    """The calls, with changes in between."""
    chance = draw.chance
    lines = [f"    g = compile(f, dynamic={chance.choice([None, None, None, True, False])})"]
    changes = [change for kit in draw.kits for change in kit.changes]
    sizes = chance.choice([[3], [3], [3, 4, 5], [3, 2]])
    number = chance.choice([2, 3, 3, 4])
    lists = chance.choice([["[3, 1, 2]"], ["[3, 1, 2]", "[1]", "[5, 4, 2, 2]", "[]"]])
    dicts = chance.choice([["{'a': 1, 'b': 5}"], ["{'a': 1, 'b': 5}", "{'b': 2, 'a': 3}", "{'c': 4}", "{'a': 2}"]])
    ints = chance.choice([["2"], ["2", "3", "5", "1"], ["2", "1", "0", "-1"], ["2", "True", "7", "2"]])
    if chance.random() < 0.3:
        lines.append("    keep = [1, 2]")
    for place in range(number):
        if place:
            lines += [
                f"    {_numbered(chance.choice(changes), chance)}"
                for _ in range(chance.choice([0, 1, 1, 2]))
                if changes
            ]
        tensor = f"whole(({sizes[place % len(sizes)]},), torch.float64, {place + 1})"
        if chance.random() < 0.15:
            tensor += ".requires_grad_()"
        given = "keep" if "    keep = [1, 2]" in lines and chance.random() < 0.6 else lists[place % len(lists)]
        lines.append(f"    call(g, {tensor}, {ints[place % len(ints)]}, {given}, {dicts[place % len(dicts)]})")
    shown = [name for kit in draw.kits for name in kit.shown]
    lines.append(f"    show({', '.join(shown)})")
    return ["def drive(compile, call, show, backward):", *_hoisted(lines)]


def _numbered(change: str, chance: random.Random) -> str:
    return change.replace("{n}", str(chance.choice([0, 1, 2, 4, 6])))


def _hoisted(lines: list[str]) -> list[str]:
    """`global` statements at the top, where Python wants them."""
    names: dict[str, None] = {}
    kept = []
    for line in lines:
        found = re.match(r"    global ([\w, ]+); (.*)", line)
        if found:
            names.update(dict.fromkeys(found[1].split(", ")))
            line = f"    {found[2]}"
        kept.append(line)
    return [f"    global {', '.join(names)}", *kept] if names else kept
