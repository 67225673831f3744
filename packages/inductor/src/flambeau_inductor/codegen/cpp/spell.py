"""Values of the kernel IR as C++.

In: an expression. Out: its text; ``functions`` collects the support functions that texts call. What is one value for all lanes is a plain number; ``W``
lanes are a ``fb::Vec``, or a ``fb::Mask`` of truth values. An index is spelt as that of the first lane, since lanes that are neighbours in memory are
loaded at once, or as that of a lane with a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ... import expr as ex
from ... import kernel_ir as kir
from ...kernel_ir import Node, Variable
from ...kernel_ir.rules import PLACED
from ...kernel_ir.strides import lane_step
from ...ops.dtypes import HALVES
from .dtypes import held, is_free, literal, vector
from .ops import Operation, op_text, reports_failure
from .rough import ROUGH
from .short_nans import ShortNans

_COMBINED = {
    "sum": "Add", "prod": "Multiply", "xor_sum": "Xor", "max": "Maximum", "min": "Minimum", "any": "Any", "all": "All",
}  # fmt: skip
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*"}
#: Ops of floats made of nothing but what a processor rounds alike in lanes and alone. The support functions of others may give lanes other bits, or look at all lanes at once.
EXACT = frozenset((
    "abs", "add", "ceil", "copysign", "eq", "floor", "fma", "fmax", "fmin", "fmod", "ge", "gt", "isinf", "isnan", "le", "lt", "maximum", "minimum", "mul", "ne",
    "neg", "nextafter", "reciprocal", "relu", "round", "rsqrt", "sign", "signbit", "sqrt", "sub", "truediv", "trunc", "where",
))  # fmt: skip


class Speller:
    """``spelled`` are variables with another text than their name, ``arrays`` the memory of the call, ``fails`` whether a value may report a failure.
    ``paired``: a value in lanes takes two registers (``pairs.py``); ``short_nans`` knows what is rounded without thought of NaNs, ``rough`` are the ops
    that a function of half the instructions computes. ``one_by_one``: functions are computed for each lane by itself, as for a single value."""

    def __init__(self, short_nans: ShortNans, paired: bool) -> None:
        self.short_nans = short_nans
        self.paired = paired
        self.rough: frozenset[kir.Op] = frozenset()
        self.one_by_one = False
        #: What makes a unit have the operations on two registers comes with the loads of them.
        self.functions: set[str] = {"load_two"} if paired else set()
        self.fails = False
        self.spelled: dict[str, str] = {}
        self.arrays: set[str] = set()

    def call(self, function: str, *arguments: str, of: str = "") -> str:
        """A call of a support function, ``of`` its template arguments."""
        return f"fb::{self.need(function)}{f'<{of}>' if of else ''}({', '.join(arguments)})"

    def need(self, function: str) -> str:
        """The name of a support function or type."""
        self.functions.add(function)
        return function

    def text(self, node: Node) -> str:
        """A value."""
        return _NODES[type(node)](self, node)

    def in_lanes(self, node: Node) -> str:
        """A value as a register, whether it differs from lane to lane or not."""
        return self.text(node) if node.tiles else f"{self.lanes_of(element_of(node))}({self.text(node)})"

    def lanes_of(self, dtype: torch.dtype) -> str:
        """The type of W values."""
        return vector(dtype, self.paired)

    def _operand(self, node: Node, lanes: bool) -> str:
        return self.in_lanes(node) if lanes else self.text(node)

    def predicate(self, mask: Node | None) -> str:
        """Which lanes an access has."""
        return "fb::Full{}" if mask is None else self.text(mask)

    def combined(self, kind: str, a: str, b: str) -> str:
        """Two running results, or one and a value."""
        if kind == "logaddexp":
            return self.call("logaddexp", a, b)
        return f"fb::{self.need(_COMBINED[kind])}{{}}({a}, {b})"

    def position(self, node: Node, lane: str = "") -> str:
        """An index: that of the first lane, or of the lane of this name."""
        if isinstance(node, kir.Index):
            names = {symbol: self._coordinate(part, lane) for symbol, part in node.names}
            return ex.render(node.expression, "cpp", names.__getitem__)
        if isinstance(node, Variable | kir.AsIndex):
            return self._coordinate(node, lane)
        if isinstance(node, kir.Lanes):
            return lane or "0"
        if isinstance(node, kir.Arith):
            if isinstance(node.right, kir.Lanes) and node.op == "add" and not lane:
                return self.position(node.left)
            left, right = self.bound(node.left, lane), self.bound(node.right, lane)
            if node.op == "min":
                return self.call("smaller", self.position(node.left, lane), self.position(node.right, lane))
            return f"{left} {_SYMBOLS[node.op]} {right}"
        return self.text(node)

    def bound(self, node: Node, lane: str = "") -> str:
        """The same as an operand."""
        text = self.position(node, lane)
        simple = isinstance(node, kir.Index) and (node.expression.is_int or node.expression.is_symbol)
        compound = (isinstance(node, kir.Index) and not simple) or (isinstance(node, kir.Arith) and node.op != "min")
        return f"({text})" if compound else text

    def _coordinate(self, node: Node, lane: str) -> str:
        if isinstance(node, kir.AsIndex):
            return f"(int64_t){self.text(node.value)}" + (f"[{lane}]" if node.value.tiles else "")
        return f"({self.text(node)} + {lane})" if node.tiles and lane else self.text(node)

    def each(self, text: str) -> str:
        """A function of the lane ``k``."""
        return f"[&](int k) {{ return {text}; }}"

    def place(self, s: kir.Load | kir.Store) -> str:
        """Where an access begins."""
        return f"{s.pointer.name} + ({self.position(s.index)})"

    def _variable(self, n: Variable) -> str:
        return self.spelled.get(n.name, n.name)

    def _all(self, n: kir.All) -> str:
        predicate, mask = n.parts
        return self.call("both", self.text(predicate), self.text(mask), of="W")

    def _full(self, n: kir.Full) -> str:
        assert isinstance(n.value, kir.Number)
        return literal(n.value.value, element_of(n))

    def _cast(self, n: kir.Cast) -> str:
        kind = held(n.dtype)
        if isinstance(n.value, kir.Index):
            return self._places(n.value, kind)
        if n.tiles:
            return f"fb::cast<{kind}>({self.text(n.value)})"
        return f"({kind})({self.text(n.value)})"

    def _places(self, index: kir.Index, kind: str) -> str:
        """Positions as values."""
        if not index.tiles:
            return f"({kind})({self.position(index)})"
        step = lane_step(index)
        if step is None:
            text = self.call("lanes_i64", self.each(f"(int64_t)({self.position(index, 'k')})"), of="W")
            return text if kind == "int64_t" else f"fb::cast<{kind}>({text})"
        first = f"({kind})({self.position(index)})"
        if step is ex.ONE:
            return self.call("iota", first, of=f"{kind}, W")
        steps = f"{self.call('iota', f'({kind})0', of=f'{kind}, W')} * fb::Vec<{kind}, W>(({kind})({self._step(index, step)}))"
        return f"fb::Vec<{kind}, W>({first}) + {steps}"

    def _step(self, index: Node, step: ex.Expr) -> str:
        names = dict(index.names) if isinstance(index, kir.Index) else {}
        return ex.render(step, "cpp", lambda symbol: self._coordinate(names[symbol], ""))

    def _op(self, n: kir.Op) -> str:
        if n.name in ("to_dtype", "bitcast"):
            return self._converted(n)
        lanes = bool(n.tiles)
        if n in self.rough:
            return self.call(ROUGH[n.name], *map(self.text, n.operands))
        if n.name == "truediv" and lanes and not (n.operands[1].tiles or self.one_by_one) and n.dtype is torch.float32:
            return self.call("divide_all", *map(self.text, n.operands))
        domain = element_of(n.operands[-1] if n.name == "where" else n.operands[0])
        self.fails = self.fails or reports_failure(n.name, domain)
        texts = [self._operand(part, lanes) for part in n.operands]
        if self.one_by_one and lanes and n.name not in EXACT and domain.is_floating_point:
            names = "vw"[: len(texts)]
            takes = ", ".join(f"{held(domain)} {name}" for name in names)
            single = op_text(Operation(n.name, names, domain, False, "", self.call))
            return f"fb::each([]({takes}) {{ return {single}; }}, {', '.join(texts)})"
        mask = self.text(n.mask) if n.mask is not None else ""
        return op_text(Operation(n.name, texts, domain, lanes, mask, self.call))

    def _converted(self, n: kir.Op) -> str:
        (operand,) = n.operands
        source, target = element_of(operand), element_of(n)
        text = self.text(operand)
        if n.name == "bitcast":
            return self.call("bitcast", text, of=held(target))
        if held(source) != held(target):
            text = self.call("cast", text, of=held(target))
        if target in HALVES and not is_free(source, target):
            text = self.call(self._rounding(target, operand), text)
        return text

    def _rounding(self, target: torch.dtype, operand: Node) -> str:
        if target is torch.float16:
            return "round_f16"
        return "round_bf16_short" if self.short_nans(operand) else "round_bf16"

    def _load(self, n: kir.Load) -> str:
        name = n.pointer.name
        if not n.index.tiles:
            at = self.position(n.index)
            text = f"{name}[{at}]" if name in self.arrays else self.call("load1", f"{name} + ({at})")
            return text if n.mask is None else f"{self.text(n.mask)} ? {text} : {held(n.pointer.dtype)}(0)"
        mask, step = self.predicate(n.mask), lane_step(n.index)
        if step is ex.ONE:
            return self.call("load_two" if self.paired else "load", self.place(n), mask, of="W")
        if step is not None:
            return self.call("gather", self.place(n), mask, self.each(f"k * ({self._step(n.index, step)})"), of="W")
        return self.call("gather", name, mask, self.each(self.position(n.index, "k")), of="W")

    def _combine(self, n: kir.Combine) -> str:
        lanes = bool(n.tiles)
        old, new = self.text(n.old[0]), self._operand(n.new[0], lanes)
        if n.kind in PLACED:
            most, at = "true" if n.kind == "argmax" else "false", self.position(n.new[1])
            if not lanes:
                return self.call("best", old, new, at, of=most)
            bits = 8 * element_of(n).itemsize
            live = self.call("lane_mask", self.predicate(n.mask), of="W")
            return self.call("best_lanes", old, new, f"(int{bits}_t)({at})", live, of=most)
        text = self.combined(n.kind, old, new)
        return text if n.mask is None else self.call("keep", self.text(n.mask), text, old, of="W")

    def _reduce(self, n: kir.Reduce) -> str:
        value = self.text(n.operands[0])
        if n.kind in PLACED:
            best = self.call("fold_best", value, of="true" if n.kind == "argmax" else "false")
            return self.call("larger", f"{best}.index", "0")
        return self.call("fold", f"fb::{self.need(_COMBINED[n.kind])}{{}}", value)


def element_of(node: Node) -> torch.dtype:
    """The type of a value that is no position."""
    dtype = node.dtype
    assert isinstance(dtype, torch.dtype)
    return dtype


_NODES: dict[type, Callable[[Any, Any], str]] = {
    Variable: Speller._variable,
    kir.Number: lambda speller, n: str(n.value),
    kir.BlockSize: lambda speller, n: "W",
    kir.Index: Speller.position,
    kir.Arith: Speller.position,
    kir.AsIndex: Speller.position,
    kir.All: Speller._all,
    kir.AnyLane: lambda speller, n: f"{n.mask.name}.bits",
    kir.Full: Speller._full,
    kir.Cast: Speller._cast,
    kir.Broadcast: lambda speller, n: speller.in_lanes(n.value),
    kir.Op: Speller._op,
    kir.Load: Speller._load,
    kir.Combine: Speller._combine,
    kir.Reduce: Speller._reduce,
}
