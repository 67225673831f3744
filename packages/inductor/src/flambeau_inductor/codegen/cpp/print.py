"""The kernel IR as C++: the only module that spells a statement.

In: the body of a kernel whose blocks are the lanes of a register. Out: its lines, the names of the support functions that they call, and whether the
kernel may report a failure. Values are spelt by ``spell.py``.

The body of a loop over lanes becomes a function of its predicate ``t``, which is called for full blocks and once for the rest: the compiler
writes it twice. A predicate says which lanes are there; a mask is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ... import expr as ex
from ... import kernel_ir as kir
from ...kernel_ir import Statement, Variable
from ...kernel_ir.rules import PLACED
from ...kernel_ir.statements import blocks_of
from ...kernel_ir.strides import lane_step
from .dtypes import MEMORY, held
from .rough import rough_ops
from .short_nans import ShortNans
from .spell import Speller, element_of

_INLINE = "__attribute__((always_inline))"
_INDENT = "  "


class Printer(Speller):
    """Writes the statements of one kernel. ``functions`` and ``fails`` are known when its lines are."""

    def __init__(self, body: kir.Block, paired: bool, in_order: bool = False) -> None:
        super().__init__(ShortNans(body), paired)
        self.one_by_one = in_order
        self.rough = frozenset() if in_order else rough_ops(body)
        self._changing = frozenset(_updated(body))
        self._begun: dict[str, kir.Begin] = {}
        self._in_function = False
        #: Whether some store goes past the caches; and whether what it writes of a row at a time is one register.
        self.streams = self.by_registers = False

    # ---- statements ---------------------------------------------------------------------------------------------------------
    def lines(self, block: Iterable[Statement]) -> list[str]:
        """A block."""
        found: list[str] = []
        for statement in block:
            _STATEMENTS[type(statement)](self, statement, found)
        return found

    def _indented(self, block: Iterable[Statement]) -> list[str]:
        return [_INDENT + line for line in self.lines(block)]

    def _braces(self, head: str, lines: Iterable[str]) -> list[str]:
        return [f"{head} {{" if head else "{", *(_INDENT + line for line in lines), "}"]

    def _assign(self, s: kir.Assign, found: list[str]) -> None:
        (target,) = s.targets
        if target.name in self._changing:
            kind = self.lanes_of(element_of(target)) if target.tiles else _number(target)
        else:
            kind = "const auto" if target.tiles else f"const {_number(target)}"
        found.append(f"{kind} {target.name} = {self.text(s.value)};")

    def _update(self, s: kir.Update, found: list[str]) -> None:
        found.append(f"{self.text(s.targets[0])} = {self.text(s.value)};")

    def _alias(self, s: kir.Alias, found: list[str]) -> None:
        kind = MEMORY[s.pointer.dtype]
        found.append(f"{kind}* const {s.pointer.name} = ({kind}*){s.source.name};")

    def _store(self, s: kir.Store, found: list[str]) -> None:
        name = s.pointer.name
        if not s.index.tiles:
            if name in self.arrays:
                found.append(f"{name}[{self.position(s.index)}] = {self.text(s.value)};")
            else:
                found.append(f"{self.call('store1', self.place(s), self.text(s.value))};")
            return
        value, mask = self.in_lanes(s.value), self.predicate(s.mask)
        if lane_step(s.index) is ex.ONE:
            function, given = "store_two" if self.paired else "store", [self.place(s), value, mask]
            if s.streamed:
                self.streams = True
                function, given = f"{function}_far", ["far", *given]
            found.append(f"{self.call(function, *given)};")
        else:
            found.append(f"{self.call('spread', name, value, mask, self.each(self.position(s.index, 'k')), of='W')};")

    def _check(self, s: kir.Check, found: list[str]) -> None:
        self.fails = True
        position, size = self.text(s.position), self.text(s.size)
        if s.position.tiles:
            test = self.call("outside", position, size, *map(self.predicate, s.masks))
        else:
            test = " && ".join([*map(self.text, s.masks), self.call("outside", position, size)])
        leave = "{ failed = 1; return; }" if self._in_function else "return 1;"
        found.append(f"if (__builtin_expect({test}, 0)) {leave}")

    def _if(self, s: kir.If, found: list[str]) -> None:
        found += self._braces(f"if ({self.text(s.condition)})", self.lines(s.then))
        if s.orelse:
            found += self._braces("else", self.lines(s.orelse))

    def _for(self, s: kir.For, found: list[str]) -> None:
        name, step = s.variable.name, self.bound(s.step)
        further = f"++{name}" if step == "1" else f"{name} += {step}"
        head = f"for (int64_t {name} = {self.bound(s.start)}; {name} < {self.bound(s.stop)}; {further})"
        found += self._braces(head, self.lines(s.body))

    def _points(self, s: kir.Points, found: list[str]) -> None:
        """The axes are counted without a division a point."""
        axes = [(variable.name, self.bound(size)) for variable, size in s.axes]
        lines = self.lines(s.body)
        if not axes:
            found += self._braces("", lines)
            return
        if len(axes) == 1:
            ((name, _),) = axes
            found += self._braces(f"for (int64_t {name} = begin; {name} < end; ++{name})", lines)
            return
        found.append(f"int64_t {', '.join(f'q_{name} = 0' for name, _ in axes)}, rest = begin;")
        found += [f"q_{name} = rest % {size}; rest /= {size};" for name, size in reversed(axes[1:])]
        found.append(f"q_{axes[0][0]} = rest;")
        step = f"++q_{axes[0][0]};"
        for name, size in axes[1:]:
            step = f"if (++q_{name} == {size}) {{ q_{name} = 0; {step} }}"
        known = [f"const int64_t {name} = q_{name};" for name, _ in axes]
        found += self._braces("for (int64_t point = begin; point < end; ++point)", [*known, step, *lines])

    def _begin(self, s: kir.Begin, found: list[str]) -> None:
        fields = []
        for part in s.accumulators:
            value, *place = part.targets
            start = self.text(part.start)
            self._begun[value.name] = s
            self.spelled[value.name] = f"a{s.label}.{value.name}" if value.tiles else value.name
            for other in place:
                self.spelled[other.name] = self.call("larger", f"{self.spelled[value.name]}.index", "0")
            fields.append(f"{self._accumulator(part)} {value.name} = {self._started(part, start)};")
        if any(target.tiles for target in s.targets):
            found.append(f"struct A{s.label} {{ {' '.join(fields)} }} a{s.label};")
        else:
            found += fields

    def _accumulator(self, part: kir.Accumulator) -> str:
        value = part.targets[0]
        dtype = element_of(value)
        if part.kind not in PLACED:
            return self.lanes_of(dtype) if value.tiles else held(dtype)
        if value.tiles:
            return f"fb::{self.need('BestLanes')}<{held(dtype)}, W>"
        return f"fb::{self.need('Best')}<{held(dtype)}>"

    def _started(self, part: kir.Accumulator, start: str) -> str:
        value = part.targets[0]
        dtype = element_of(value)
        if not value.tiles:
            return f"{{{start}, -1}}" if part.kind in PLACED else start
        if part.kind in PLACED:
            bits = 8 * dtype.itemsize
            return f"{{{self.lanes_of(dtype)}({start}), fb::Vec<int{bits}_t, W>((int{bits}_t)-1)}}"
        return f"{{{self.lanes_of(dtype)}({start})}}"

    @contextmanager
    def _function(self, spelled: Mapping[str, str]) -> Iterator[None]:
        """Inside a function that loops call, where accumulators have other names."""
        before = self.spelled, self._in_function
        self.spelled, self._in_function = {**self.spelled, **spelled}, True
        yield
        self.spelled, self._in_function = before

    def _for_lanes(self, s: kir.ForLanes, found: list[str]) -> None:
        begun = self._begun[s.carried[0].name] if s.carried else None
        with self._function({v.name: f"a.{v.name}" for v in s.carried}):
            lines = self.lines(s.body)
        parameters = f"auto {s.mask.name}, const int64_t {s.position.name}" + (f", A{begun.label}& a" if begun else "")
        found += self._braces(f"const auto {s.label} = [&]({parameters}) {_INLINE}", lines)
        found[-1] += ";"
        total = f"a{begun.label}" if begun else ""
        parts = [f"s{begun.label}_{k}" for k in range(s.parts)] if begun else []
        walk = [f"A{begun.label} {', '.join(parts)};"] if begun and parts else []
        walk += self._walk(s, parts or ([total] if begun else []))
        if begun and parts:
            for part in begun.accumulators:
                field = part.targets[0].name
                text = f"{parts[0]}.{field}"
                for name in parts[1:]:
                    text = self.combined(part.kind, text, f"{name}.{field}")
                walk.append(f"{total}.{field} = {self.combined(part.kind, f'{total}.{field}', text)};")
        found += self._braces("", walk)

    def _walk(self, s: kir.ForLanes, accumulators: list[str]) -> list[str]:
        """The calls of a body: for blocks side by side where there are several accumulators, for one, and for the lanes that are left."""
        high = self.bound(s.stop)
        lines = [f"int64_t at = {self.bound(s.start)};"]
        first = f", {accumulators[0]}" if accumulators else ""
        if len(accumulators) > 1:
            calls = " ".join(f"{s.label}(fb::Full{{}}, at + {k} * W, {name});" for k, name in enumerate(accumulators))
            step = f"{len(accumulators)} * W"
            lines.append(f"for (; at + {step} <= {high}; at += {step}) {{ {calls} }}")
        lines.append(f"for (; at + W <= {high}; at += W) {s.label}(fb::Full{{}}, at{first});")
        lines.append(f"if (at < {high}) {s.label}({self.call('first', f'{high} - at', of='W')}, at{first});")
        return lines

    def _squares(self, s: kir.Squares, found: list[str]) -> None:
        self.by_registers = True
        t, x, y, row = s.mask.name, s.position.name, s.row_position.name, s.row.name
        with self._function({}):
            lines = self.lines(s.body)
        body = self._braces(
            f"const auto body = [&](auto {t}, const int64_t {x}, const int64_t {y}, const int64_t {row}) {_INLINE}",
            lines,
        )
        body[-1] += ";"
        # The panels belong to one square: where its rows are unrolled they stay in registers.
        inside = [f"alignas(64) {MEMORY[p.array.dtype]} {p.array.name}[W * W];" for p in s.panels] + body
        inside += [self._turned(p) for p in s.panels if not p.stored]
        inside.append(
            f"for (int64_t {row} = 0; {row} < {row}s; ++{row}) body({t}, {x}, {y} + {row}, {row});",
        )
        inside += [self._turned(p) for p in s.panels if p.stored]
        parameters = f"auto {t}, const int64_t {x}, int64_t lanes, const int64_t {y}, int64_t {row}s"
        found += self._braces(f"const auto {s.label} = [&]({parameters}) {_INLINE}", inside)
        found[-1] += ";"
        size, low, high = map(self.bound, (s.size, s.start, s.stop))
        here = [
            f"const int64_t lanes = {self.call('smaller', 'W', f'{size} - at')}, rows = {self.call('smaller', 'W', f'{high} - top')};",
            f"if (lanes == W && rows == W) {s.label}(fb::Full{{}}, at, W, top, W);",
            f"else {s.label}({self.call('first', 'lanes', of='W')}, at, lanes, top, rows);",
        ]
        end = self.call("smaller", f"chunk + {s.chunk}", size)
        found.append(f"for (int64_t chunk = 0; chunk < {size}; chunk += {s.chunk})")
        found.append(f"  for (int64_t top = {low}; top < {high}; top += W)")
        inner = self._braces(f"for (int64_t at = chunk; at < {end}; at += W)", here)
        found += [_INDENT * 2 + line for line in inner]

    def _turned(self, panel: kir.Panel) -> str:
        at = f"{panel.memory.name} + ({self.position(panel.index)})"
        step = self.bound(panel.step)
        if panel.stored:
            return f"{self.call('turn', panel.array.name, 'W', 'rows', 'lanes', at, step, of='W')};"
        return f"{self.call('turn', at, step, 'lanes', 'rows', panel.array.name, 'W', of='W')};"

    def _local_array(self, s: kir.LocalArray, found: list[str]) -> None:
        name, kind, length = s.pointer.name, held(s.pointer.dtype), self.bound(s.length)
        self.arrays.add(name)
        if s.heap:
            found.append(f"fb::Scratch<{kind}> {name}_memory({length}); {kind}* const {name} = {name}_memory.data;")
        else:
            found.append(f"alignas(64) {kind} {name}[{length}];")
        if s.start is not None:
            found.append(f"for (int k = 0; k < {length}; ++k) {name}[k] = {self.text(s.start)};")

    def _run_in_place(self, s: kir.RunInPlace, found: list[str]) -> None:
        step = f"[](auto a, auto b) {{ return {self.combined(s.kind, 'a', 'b')}; }}"
        parts = (step, s.running.name, s.array.name, self.position(s.count))
        if s.in_any_order:
            found.append(f"{self.call('running_apart', *parts, of=str(s.most))};")
        else:
            found.append(f"{self.call('running', *parts)};")

    def _pack(self, s: kir.Pack, found: list[str]) -> None:
        source = f"{s.memory.name} + ({self.position(s.index)})"
        of = f"{s.columns}, {s.column_step}, {s.row_step}"
        found.append(f"{self.call('pack', source, str(s.rows), s.array.name, of=of)};")

    def _copy_rows(self, s: kir.CopyRows, found: list[str]) -> None:
        steps = self.position(s.row_step), self.position(s.column_step)
        source = f"{s.memory.name} + ({self.position(s.index)})"
        parts = (source, *steps, self.position(s.count), s.array.name)
        found.append(f"{self.call('copy_rows', *parts, of=f'{s.rows}, {s.columns}')};")

    def _multiply_rows(self, s: kir.MultiplyRows, found: list[str]) -> None:
        parts = (s.packed.name, self.position(s.first), self.position(s.last), s.result.name, str(s.result_step))
        left = (s.left.name, str(s.left_step), self.position(s.count))
        if s.along_terms:
            call = self.call("multiply_terms", *left, *parts, of=f"{s.columns}, {s.terms}")
        else:
            call = self.call("multiply_rows", *left, str(s.terms), *parts, of=str(s.columns))
        found.append(f"{call};")


def _number(variable: Variable) -> str:
    return held(variable.dtype) if isinstance(variable.dtype, torch.dtype) else "int64_t"


def _updated(block: kir.Block) -> Iterator[str]:
    """The variables that some statement gives another value."""
    for statement in block:
        if isinstance(statement, kir.Update):
            yield from (target.name for target in statement.targets)
        for inner in blocks_of(statement):
            yield from _updated(inner)


_STATEMENTS: dict[type, Callable[[Any, Any, list[str]], None]] = {
    kir.Assign: Printer._assign,
    kir.Update: Printer._update,
    kir.Alias: Printer._alias,
    kir.Store: Printer._store,
    kir.Check: Printer._check,
    kir.If: Printer._if,
    kir.For: Printer._for,
    kir.Points: Printer._points,
    kir.Begin: Printer._begin,
    kir.ForLanes: Printer._for_lanes,
    kir.Squares: Printer._squares,
    kir.LocalArray: Printer._local_array,
    kir.RunInPlace: Printer._run_in_place,
    kir.Pack: Printer._pack,
    kir.CopyRows: Printer._copy_rows,
    kir.MultiplyRows: Printer._multiply_rows,
}
