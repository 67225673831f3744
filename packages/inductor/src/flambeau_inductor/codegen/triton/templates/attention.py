"""Attention with score and mask functions, and its gradients: no block of scores leaves the registers.

In: ``Template``s of the three kinds. Out: kernels. Each program has a block of rows (of queries; of keys for the keys' gradients) and walks over the blocks of
the other side that the block mask names: first those in which the mask function is asked, then the full ones; or over those that a window of distances
touches, of which those inside it are not asked. Sums are float32, products take 16 bits (or float32 in TF32, once or in three parts);
exponentials are to the base 2. A position beyond the end stands where the last one does, so that what bodies look up exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from attrs import evolve

from flambeau_runtime.triton_kernels import WAIT

from .... import expr as ex
from ....devices import AttentionShape, device_facts
from ....ir import scalar as sc
from ....ir.layout import Ref
from ....ir.loops import Template
from ....ir.scalar import Scalar
from ....ir.templates import LEAST_SIDE
from ...kernel import GeneratedKernel
from ..function import Function, positions
from ..helpers import NEAREST_TF32
from ..types import signature_text, type_text
from .addresses import bytes_of, integers, lane_strides, stepped
from .bodies import Bodies, always, is_plain
from .short import exact, factor_of, shortened, times
from .walks import Walk, Window, power_above, power_in

_LOG2E = 1 / math.log(2)
#: What gradients read one number a query of, and the variables that hold it.
_NUMBERS = (("lse", "logs"), ("total", "logs"), ("peak", "tops"), ("less", "extra"))
#: What has a row of numbers for each query or key.
_ROWS = frozenset(("out", "dq", "dk", "dv"))

#: Rows that leave most of a product of matrices unused.
_FEW = 32
#: Bytes of shared memory: what a stage may take for what functions read of pairs, and what Triton takes for itself.
_PAIRS, _SCRATCH = 32 << 10, 2 << 10


def forward(template: Template, name: str) -> GeneratedKernel:
    """Results, the logarithms of the rows' sums of exponentials, and the rows' largest scores, both to the base 2."""
    w = _Writer(template, name, ("b", "h", "m", "n"), "forward")
    late = f" * {_LOG2E!r}" if w.natural else ""
    w.load_rows("q", "queries")
    w.head += [
        'peak = tl.full([XBLOCK], float("-inf"), tl.float32)',
        "total = tl.zeros([XBLOCK], tl.float32)",
        f"result = tl.zeros([XBLOCK, {w.wide('v')}], tl.float32)",
    ]
    for walk in w.walks("kv"):
        w.begin(walk)
        w.load_step("k", "keys")
        w.products("queries", "keys")
        scores, factor = w.scores()
        w.body.line(f"higher = tl.maximum(peak, tl.max({scores}, 1){factor})")
        # Rows of which nothing takes part yet have no maximum to subtract.
        w.body.line('base = tl.where(higher == float("-inf"), 0.0, higher)')
        w.body.line(f"shares = tl.exp2(({scores}{factor} - base[:, None]){late})")
        w.body.line(f"fade = tl.exp2((peak - base){late})")
        w.body.line("total = total * fade + tl.sum(shares, 1)")
        w.load_step("v", "values")
        w.body.line(f"result = {w.dot('shares', 'values', 'result * fade[:, None]')}")
        w.body.line("peak = higher")
        w.end()
    # A row of which nothing takes part is 0 under a block mask, and what 0 / 0 is where a program wrote the softmax out.
    nothing = w.windowed and w.parts == 1 and not w.empty_is_zero
    w.tail += [f"result = result * (1.0 / {'total' if nothing else 'tl.where(total == 0.0, 1.0, total)'})[:, None]"]
    w.store_rows("out", "result")
    for number, text in (("lse", f"peak{late} + tl.log2(total)"), ("total", "tl.log2(total)"), ("peak", "peak")):
        if number in w.outs:
            w.store_numbers(number, text)
    return w.kernel()


def query_gradient(template: Template, name: str) -> GeneratedKernel:
    """The gradient of the queries."""
    w = _Writer(template, name, ("b", "h", "m", "n"), "query_gradient")
    w.load_rows("q", "queries")
    w.load_rows("grad", "grads")
    w.load_row_numbers()
    w.head += [f"dq = tl.zeros([XBLOCK, {w.wide('q')}], tl.float32)"]
    for walk in w.walks("kv"):
        w.begin(walk)
        w.load_step("k", "keys")
        w.load_step("v", "values")
        w.products("queries", "keys")
        w.products("grads", "values", "pulls")
        shares = w.shares("[:, None]")
        slope = w.slope(shares, "extra[:, None]")
        w.body.line(f"dq = {w.dot(slope, 'keys', 'dq')}")
        w.end()
    w.store_rows("dq", f"dq * {w.scale!r}")
    return w.kernel()


def key_gradients(template: Template, name: str) -> GeneratedKernel:
    """The gradients of keys and values, over all queries that share them."""
    w = _Writer(template, name, ("b", "h", "n", "m"), "key_gradients")
    w.load_rows("k", "keys")
    w.load_rows("v", "values")
    w.head += [
        f"dk = tl.zeros([XBLOCK, {w.wide('k')}], tl.float32)",
        f"dv = tl.zeros([XBLOCK, {w.wide('v')}], tl.float32)",
    ]
    for walk in w.walks("q"):
        w.begin(walk)
        w.load_step("q", "queries")
        w.load_step("grad", "grads")
        w.load_step_numbers()
        w.products("keys", "queries")
        w.products("values", "grads", "pulls")
        shares = w.shares("")
        w.body.line(f"dv = {w.dot(shares, 'grads', 'dv')}")
        slope = w.slope(shares, "extra")
        w.body.line(f"dk = {w.dot(slope, 'queries', 'dk')}")
        w.end()
    w.store_rows("dk", f"dk * {w.scale!r}")
    w.store_rows("dv", "dv")
    return w.kernel()


class _Writer:
    """The text of one kernel: a block of rows along ``points[2]``, steps along ``points[3]``."""

    def __init__(self, template: Template, name: str, points: tuple[str, str, str, str], kind: str) -> None:
        self.name, self.facts, self.given = name, template.facts, template.bodies
        self.operands, self.outs = template.operands, template.outs
        axes = {axis.symbol.name: axis for axis in template.axes}
        self.sizes = {key: int(axis.size) for key, axis in axes.items()}
        self.row, self.place = points[2:]
        self.by_keys = self.row == "n"
        batch, heads = integers(self.operands["k"].sizes)[:2]
        self.sharing = (self.sizes["b"] // batch, self.sizes["h"] // heads)
        #: Whether a program goes over all heads that share its keys; gradients that are ``apart`` are of each head.
        self.gathers = self.by_keys and not self.facts.get("apart")
        #: How many programs have the same rows, each with a part of the places, and whether rows are those of all heads that share keys.
        self.parts = int(self.facts.get("parts", 1))
        self.packed = bool(self.facts.get("packed"))
        moving = frozenset(axes[p].symbol for p, count in zip("bh", self.sharing) if self.gathers and count > 1)
        along = frozenset((axes["h"].symbol,)) if self.packed else frozenset()
        self.scale = float(self.facts["scale"])
        #: Whether the pairs that take part are those of a window, not of a block mask.
        self.windowed = "window" in self.facts
        self.template = template = evolve(template, bodies={key: self._of_products(b) for key, b in self.given.items()})
        self.body = Bodies(template, axes[self.row].symbol, axes[self.place].symbol, moving, along)
        self.half = self.operands["q"].dtype
        self.dtype = type_text(self.half)
        self.empty_is_zero = not self.windowed or bool(self.facts.get("empty_is_zero"))
        names = {} if self.windowed else {"m": "query_block", "n": "key_block"}
        self.blocks = {point: int(self.facts[fact]) for point, fact in names.items()}
        self.walk = Walk()
        #: Whether gradients ask the mask behind the exponential, which is finite wherever a score is.
        self.masks_late = is_plain(self.given["score"], "score") and not self.windowed
        #: Whether scores stay to the base e until their maximum is subtracted: some would be infinite to the base 2.
        self.natural = bool(self.facts.get("far"))
        self.precision = f", input_precision={self.facts['precision']!r}" if self.facts.get("precision") else ""
        self.rows = self.sizes[self.row] * (self.sharing[1] if self.packed else 1)
        self.shape = self._fitted(kind)
        self.parameters = [*self.operands, *self.body.pointers.values(), *(f"out_{out}" for out in self.outs)]
        count = -(-self.rows // self.shape.rows)
        lanes = (batch, heads) if self.gathers else (self.sizes["b"], heads if self.packed else self.sizes["h"])
        self.programs = count * lanes[0] * lanes[1] * self.parts
        self.head: list[str] = [
            "pid = tl.program_id(0)",
            f"turn = pid // {lanes[0] * lanes[1]}",
            *(
                [f"part = turn % {self.parts}", f"turn = turn // {self.parts}"]
                if self.parts > 1
                else self._order(count)
            ),
            "start = turn * XBLOCK",
            f"ahead = pid % {lanes[1]}",
            f"abatch = pid // {lanes[1]} % {lanes[0]}",
            WAIT,
            "xi = start + tl.arange(0, XBLOCK)",
            f"rows = {'xi' if self.rows % self.shape.rows == 0 else f'tl.minimum(xi, {self.rows - 1})'}",
        ]
        if self.packed:
            length = self.sizes["m"]
            self.head += [
                f"m = (rows % {length})[:, None]",
                f"h = (ahead * {self.sharing[1]} + rows // {length})[:, None]",
                "b = abatch",
            ]
        else:
            self.head.append(f"{self.row} = rows[:, None]")
            pairs = (("b", "abatch"), ("h", "ahead"))
            self.head += [f"{axis} = {lane}" for axis, lane in pairs if axes[axis].symbol not in moving]
        #: Pointers of a head, where its loops begin, the loops of a head, and what follows after all of them.
        self.pointers: list[str] = []
        self.openings: list[str] = []
        self.loops: list[str] = []
        self.tail: list[str] = []

    def _order(self, count: int) -> list[str]:
        """Which block of rows is done when. Of a causal mask the last queries see most keys, and the first keys are seen by most queries: the longest
        programs come first. Where all run at once, two beside each other, the second half goes the other way: each pair has the same to do."""
        lines = []
        if self.programs <= 2 * device_facts(self.template.device).multiprocessors:
            half = (count + 1) // 2
            lines.append(f"turn = tl.where(turn < {half}, turn, {count + half - 1} - turn)")
        return lines if self.by_keys else [*lines, f"turn = {count - 1} - turn"]

    def _of_products(self, body: Scalar) -> Scalar:
        """``body`` of the products themselves in the place of scores, which are these times the scale; a program's own roundings stay."""
        score = sc.reduced("score", torch.float32)
        body = sc.transform(body, lambda node: times(score, self.scale) if node is score else None)
        return exact(body) if self.windowed else shortened(body)

    # -- facts -----------------------------------------------------------------------------------------------------------

    def _fitted(self, kind: str) -> AttentionShape:
        """The shape for this width, in blocks that the mask's blocks are multiples of, with as many stages as shared memory holds."""
        width = max(self.wide("q"), self.wide("v"))
        facts = device_facts(self.template.device)
        kind = "decode" if kind == "forward" and self.rows <= _FEW else kind
        shape = facts.tuning.attention.shape(kind if self.half.itemsize == 2 else "single", width)
        rows, step = (
            min(
                most,
                power_above(count),
                *(
                    power_in(size)
                    for at, size in self.blocks.items()
                    if at == point and not (self.packed and at == self.row)
                ),
            )
            for most, point, count in (
                (shape.rows, self.row, self.rows),
                (shape.step, self.place, self.sizes[self.place]),
            )
        )
        both = self.half.itemsize * (self.wide("q") + self.wide("v"))
        while rows * step * self.body.pair_bytes > _PAIRS and step > LEAST_SIDE:
            step //= 2
        room = facts.shared - rows * both - _SCRATCH
        stages = max(1, min(shape.num_stages, room // (step * (both + rows * self.body.pair_bytes))))
        return AttentionShape(rows, step, shape.num_warps if rows >= 64 else 4, stages)

    def wide(self, operand: str) -> int:
        """The head width of an operand, as a power of two."""
        return power_above(int(self.operands[operand].sizes[-1]))

    def walks(self, side: str) -> Sequence[Walk]:
        """Over partial blocks, and over full ones where the block mask has any; of a window, before, inside and behind what holds for all rows."""
        if self.windowed:
            low, high = self.facts["window"]
            if self.by_keys:
                low, high = (None if end is None else -end for end in (high, low))
            ends = ("0", str(self.sizes["m"] - 1)) if self.packed else ("start", f"start + {self.shape.rows - 1}")
            window = Window(low, high, self.sizes[self.place], self.shape.step, *ends, self.parts)
            self.head += window.lines()
            return window.walks()
        partial = Walk(side, inside=self._fits(self.place, self.shape.step))
        return (partial, evolve(partial, full=True)) if f"full_{side}_num" in self.operands else (partial,)

    def _inside(self, text: str, point: str, block: int) -> str:
        """A position, that of the last one for those beyond."""
        return text if self._fits(point, block) else f"tl.minimum({text}, {self.sizes[point] - 1})"

    def _fits(self, point: str, block: int) -> bool:
        """Whether no block of positions goes beyond the end."""
        size = self.sizes[point]
        if point == self.row or size % block or self.windowed:
            return size % block == 0
        tables = (ref for name, ref in self.operands.items() if name.endswith("_at"))
        named = max(int(table.sizes[3]) for table in tables)
        # A table may name no block beyond its own width, which a mask made for more positions has more of.
        return named == 1 or named * self.blocks[point] <= size

    # -- products --------------------------------------------------------------------------------------------------------

    def dot(self, left: str, right: str, sums: str) -> str:
        """``sums`` and the product of numbers computed here, rounded to what operands have, with an operand."""
        return f"tl.dot({self._rounded(f'{left}.to({self.dtype})')}, {self._rounded(right)}, {sums}{self.precision})"

    def scalar_products(self, first: str, second: str) -> str:
        """The scalar products of the rows of two operands."""
        return f"tl.dot({self._rounded(first)}, tl.trans({self._rounded(second)}){self.precision})"

    def _rounded(self, text: str) -> str:
        if self.facts.get("precision") != "tf32":
            return text
        self.body.helpers.add(NEAREST_TF32)
        return f"{NEAREST_TF32}({text})"

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _base(self, name: str, ref: Ref, lanes: tuple[str, str]) -> str:
        """The first element of one head."""
        parts = [
            f"{lane}.to(tl.int64) * {stride}" for lane, stride in zip(lanes, lane_strides(ref), strict=True) if stride
        ]
        return " + ".join([name, *([str(int(ref.offset))] if int(ref.offset) else []), *parts])

    def _lanes(self, name: str) -> tuple[str, str]:
        """Batch and head of an operand."""
        if name in ("k", "v", "dk", "dv"):
            b, h = self.sharing
            if self.packed:
                return (f"(b // {b})", "ahead")
            if self.by_keys and name in self.outs:
                return ("abatch", "ahead")
            return ("abatch", "ahead") if self.gathers else (f"(b // {b})", f"(h // {h})")
        return ("b", f"(ahead * {self.sharing[1]})") if self.packed else ("b", "h")

    def _row(self, ref: Ref, variable: str) -> str:
        """The offset of a row of queries among those of its program's heads."""
        if not self.packed:
            return stepped(variable, ref.strides[2])
        length = self.sizes["m"]
        return f"({variable} // {length} * {lane_strides(ref)[1]} + {variable} % {length} * {int(ref.strides[2])})"

    def _columns(self, name: str, ref: Ref) -> tuple[str, str]:
        """The offsets of a row's elements, and which of them exist."""
        width = int(ref.sizes[-1])
        block = power_above(width)
        columns = f"tl.arange(0, {block})[None, :]"
        return stepped(columns, ref.strides[-1]), "" if width == block else f"{columns} < {width}"

    def load_rows(self, name: str, variable: str) -> None:
        """The program's rows of an operand."""
        ref = self.operands[name]
        columns, exists = self._columns(name, ref)
        mask = f", mask={exists}, other=0.0" if exists else ""
        self.head.append(f"{variable}_at = {self._base(name, ref, self._lanes(name))}")
        self.head.append(f"{variable} = tl.load({variable}_at + ({self._row(ref, 'rows[:, None]')} + {columns}){mask})")

    def load_step(self, name: str, variable: str) -> None:
        """What a step has of an operand."""
        ref = self.operands[name]
        columns, exists = self._columns(name, ref)
        mask = f", mask={exists}, other=0.0" if exists else ""
        self._point(f"{variable}_at = {self._base(name, ref, self._lanes(name))}")
        self.body.line(
            f"{variable} = tl.load({variable}_at + ({stepped('places[:, None]', ref.strides[2])} + {columns}){mask})"
        )

    def load_row_numbers(self) -> None:
        """What the gradient knows of each row."""
        for name, variable in self._numbers():
            ref = self.operands[name]
            self.head.append(
                f"{variable} = tl.load({self._base(name, ref, ('b', 'h'))} + {stepped('rows', ref.strides[2])})"
            )
        self.head += self._without_empty()

    def load_step_numbers(self) -> None:
        """The same of each place."""
        for name, variable in self._numbers():
            ref = self.operands[name]
            self._point(f"{variable}_at = {self._base(name, ref, ('b', 'h'))}")
            self.body.line(f"{variable} = tl.load({variable}_at + {stepped('places', ref.strides[2])})[None, :]")
        for line in self._without_empty():
            self.body.line(line)

    def _numbers(self) -> list[tuple[str, str]]:
        return [(name, variable) for name, variable in _NUMBERS if name in self.operands]

    def _without_empty(self) -> list[str]:
        """A row of which nothing takes part has shares of zero, or what 0 / 0 is where a program wrote the softmax out."""
        if not self.empty_is_zero or self.masks_late:
            return []
        least = 'float("-inf")'
        tops = [f"tops = tl.where(tops == {least}, 0.0, tops)"] if "peak" in self.operands else []
        return [f'logs = tl.where(logs == {least}, float("inf"), logs)', *tops]

    def store_rows(self, name: str, text: str) -> None:
        """A result of the program's rows."""
        ref = self._result(name)
        columns, exists = self._columns(name, ref)
        masks = [f"(xi < {self.rows})[:, None]"] if self.rows % self.shape.rows else []
        mask = " & ".join([*masks, *([f"({exists})"] if exists else [])])
        pointer = f"{self._result_base(name, ref)} + ({self._row(ref, 'xi[:, None]')} + {columns})"
        self.tail.append(f"tl.store({pointer}, ({text}).to({type_text(ref.dtype)}){', mask=' + mask if mask else ''})")

    def _result(self, name: str) -> Ref:
        """Where a result lies (of parts, the first one's), by batch and head; that of written attention has one dimension for both."""
        ref = Ref.whole(self.outs[name])
        if self.parts > 1:
            return evolve(ref, sizes=ref.sizes[1:], strides=ref.strides[1:])
        if name not in _ROWS or len(ref.sizes) == 4:
            return ref
        heads, (lane, *strides) = self.sizes["h"], ref.strides
        sizes: list[ex.Expr | int] = [self.sizes["b"], heads, *ref.sizes[1:]]
        return evolve(ref, sizes=sizes, strides=(lane * heads, lane, *strides))

    def _result_base(self, name: str, ref: Ref) -> str:
        """The first element of the program's heads in a result."""
        base = self._base(f"out_{name}", ref, self._lanes(name))
        return f"{base} + part.to(tl.int64) * {int(self.outs[name].layout.strides[0])}" if self.parts > 1 else base

    def store_numbers(self, name: str, text: str) -> None:
        """One number for each row."""
        ref = self._result(name)
        mask = f", mask=xi < {self.rows}" if self.rows % self.shape.rows else ""
        self.tail.append(f"tl.store({self._result_base(name, ref)} + {self._row(ref, 'xi')}, {text}{mask})")

    # -- loops -----------------------------------------------------------------------------------------------------------

    def _point(self, line: str) -> None:
        """A pointer that all loops of a head share."""
        if line not in self.pointers:
            self.pointers.append(line)

    def begin(self, walk: Walk) -> None:
        """Enter a loop."""
        self.walk = walk
        if walk.side:
            self._begin_blocks(walk)
        else:
            self.loops += [f"for place in range({walk.first}, {walk.last}, RBLOCK):"]
            self.body.begin()
            self.body.line("ri = place + tl.arange(0, RBLOCK)")
        self.body.line(f"places = {'ri' if walk.inside else f'tl.minimum(ri, {self.sizes[self.place] - 1})'}")
        self.body.line(f"{self.place} = places[None, :]")

    def _begin_blocks(self, walk: Walk) -> None:
        """The walk over the blocks that a table names. The next block's number is read a step ahead, the first one's before the loops."""
        prefix = f"full_{walk.side}" if walk.full else walk.side
        block, size = self.blocks[self.place], self.sizes[self.place]
        pieces = -(-min(block, size) // self.shape.step)
        number, table = self.operands[f"{prefix}_num"], self.operands[f"{prefix}_at"]
        row = "0" if self.packed else f"(start // {self.blocks[self.row]})"
        steps, at, following = (f"{prefix}_{name}" for name in ("steps", "table", "following"))
        blocks = f"tl.load({self._base(f'{prefix}_num', number, ('b', 'h'))} + {stepped(row, number.strides[2])})"
        self.openings += [
            f"{steps} = {blocks}{'' if pieces == 1 else f' * {pieces}'}",
            f"{at} = {self._base(f'{prefix}_at', table, ('b', 'h'))} + {stepped(row, table.strides[2])}",
        ]
        if self.parts == 1:
            # Whether or not there is a block: where there is none, nothing is read of the one that the table happens to begin with.
            self.openings.append(f"{following} = tl.load({at})")
            self.loops.append(f"for step in range(0, {steps}):")
        else:
            first = f"{prefix}_first"
            place = stepped(f"({first} // {pieces})", table.strides[3])
            self.openings += [
                f"span = tl.cdiv({steps}, {self.parts})",
                f"{first} = part * span",
                f"{steps} = tl.minimum({first} + span, {steps})",
                f"{following} = tl.load({at} + {place}, mask={first} < {steps}, other=0)",
            ]
            self.loops.append(f"for step in range({first}, {steps}):")
        self.body.begin()
        ahead = "(step + 1)" if pieces == 1 else f"((step + 1) // {pieces})"
        piece = "" if pieces == 1 else f" + step % {pieces} * RBLOCK"
        self.body.line(f"ri = {following} * {min(block, size)}{piece} + tl.arange(0, RBLOCK)")
        self.body.line(
            f"{following} = tl.load({at} + {stepped(ahead, table.strides[3])}, mask=step + 1 < {steps}, other=0)"
        )

    def end(self) -> None:
        """Leave it."""
        self.loops += ["    " + line for line in self.body.lines]

    def products(self, first: str, second: str, variable: str = "plain") -> None:
        """The products of a block, without their scale."""
        self.body.line(f"{variable} = {self.scalar_products(first, second)}")

    def scores(self) -> tuple[str, str]:
        """The scores of a block, minus infinity for what takes no part, and the factor, as text, that makes them those to the base 2 (none if they are ``natural``)."""
        scores, factor = self._scores()
        return self._kept(scores, 'float("-inf")'), factor

    def _scores(self) -> tuple[str, str]:
        """The same of all pairs. The factor is left to who subtracts from them: both are one instruction."""
        base = 1.0 if self.natural else _LOG2E
        if is_plain(self.given[self.walk.score], "score"):
            scores, factor = "plain", self.scale * base
        else:
            body, factor = self.template.bodies[self.walk.score], base
            if not self.windowed:
                core, part = factor_of(body)
                body, factor = (core, part * base) if part > 0 else (body, base)
            scores = self.body.value(body, {"score": "plain"}, torch.float32)
        if factor > 0 and not self.natural:
            return scores, "" if factor == 1.0 else f" * {factor!r}"
        if factor != 1.0:
            self.body.line(f"scaled = {scores} * {factor!r}")
            scores = "scaled"
        return scores, ""

    def shares(self, column: str) -> str:
        """What each pair had of its row's sum; ``column`` makes a column of numbers where rows are those of queries."""
        scores, factor = self._scores() if self.masks_late else self.scores()
        if "peak" in self.operands:
            late = f" * {_LOG2E!r}" if self.natural else ""
            scores, factor = f"({scores}{factor} - tops{column}){late}", ""
        self.body.line(f"shares = tl.exp2({scores}{factor} - logs{column})")
        return self._kept("shares", "0.0") if self.masks_late else "shares"

    def slope(self, shares: str, less: str) -> str:
        """The gradient of the products, without their scale. Added to the products themselves, ``less`` would be where they start, which is not read ahead."""
        self.body.line(f"slope = {shares} * pulls + {shares} * {less}")
        body = self.template.bodies["inner_slope" if self.walk.score == "inner" else "slope"]
        if is_plain(body, "slope"):
            return "slope"
        slope = self.body.value(body, {"score": "plain", "slope": "slope"}, torch.float32)
        return self._kept(slope, "0.0")

    def _kept(self, value: str, other: str) -> str:
        """A block with ``other`` for pairs that take no part."""
        keep = []
        if not self.walk.full and not always(self.template.bodies["mask"]):
            keep.append(self.body.value(self.template.bodies["mask"], {}, torch.bool))
        if not self.walk.inside:
            keep.append(f"(ri < {self.sizes[self.place]})[None, :]")
        if not keep:
            return value
        self.body.line(f"kept_{value} = tl.where({' & '.join(keep)}, {value}, {other})")
        return f"kept_{value}"

    # -- the whole -------------------------------------------------------------------------------------------------------

    def kernel(self) -> GeneratedKernel:
        """All of it."""
        lines = [*self.head, *self.body.once, *self._members([*self.pointers, *self.openings, *self.loops]), *self.tail]
        buffers = [
            *(ref.buffer for ref in self.operands.values()),
            *self.body.pointers,
            *(out.name for out in self.outs.values()),
        ]
        dtypes = [
            *(ref.dtype for ref in self.operands.values()),
            *self.body.dtypes,
            *(out.layout.dtype for out in self.outs.values()),
        ]
        parameters = (*self.parameters, "XBLOCK: tl.constexpr", "RBLOCK: tl.constexpr")
        function = Function(parameters, tuple(lines), positions(self.template.stacks))
        compiled = {
            "signature": {p: "*" + signature_text(d) for p, d in zip(self.parameters, dtypes, strict=True)},
            "constexprs": {"XBLOCK": self.shape.rows, "RBLOCK": self.shape.step},
            "divisible": self._divisible(),
            "num_warps": self.shape.num_warps,
            "num_stages": self.shape.num_stages,
            "asserts": self.body.asserts,
            "helpers": sorted(self.body.helpers),
        }
        return GeneratedKernel(
            name=self.name,
            source=function.text(self.name),
            buffers=tuple(buffers),
            dtypes=tuple(dtypes),
            scalars=(),
            scalar_kinds="",
            extent=ex.Int(self.programs),
            grain=1,
            checks=("index out of range",) if self.body.asserts else (),
            meta={
                **compiled,
                "bytes": sum(bytes_of(r.sizes, r.dtype) for r in self.operands.values())
                + sum(bytes_of(o.layout.sizes, o.layout.dtype) for o in self.outs.values()),
                "origins": list(self.template.origins),
            },
            code=(function, repr(compiled)),
        )

    def _members(self, lines: list[str]) -> list[str]:
        """``lines`` for every head that shares the program's rows."""
        batches, heads = self.sharing
        if not self.gathers or batches * heads == 1:
            return lines
        # One batch of keys alone is shared by several batches: the first one.
        lanes = [f"b = abatch + member // {heads}"] if batches > 1 else []
        lanes += [f"h = ahead * {heads} + member % {heads}"] if heads > 1 else []
        return [f"for member in range(0, {batches * heads}):", *("    " + line for line in [*lanes, *lines])]

    def _divisible(self) -> list[str]:
        """The results, which are memory of their own, and operands whose buffers start at multiples of 16 bytes, as the facts say."""
        return [name for name in self.parameters if name.startswith("out_") or name in self.facts["aligned"]]
