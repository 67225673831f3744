"""Take the library's fused recurrent cells apart where their gradients are not wanted.

In: a functional graph. Out: the same graph with ``_thnn_fused_lstm_cell`` and ``_thnn_fused_gru_cell`` as the pointwise operations that
they stand for, which one generated kernel does together with what surrounds them: the parts of a product, the cell's own output.

The library's kernels also write what their gradients need. Where a graph reads that, the cell stays.

Rounding: the library computes in float32 (float64 for float64) from the gates to the new states and rounds these once, in the order
of the formulas here. A cell is a row of ``_CELLS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..context import CompileContext
from .engine import Editor, Match, Rule
from .patterns import Anything, Like, Operand, call

aten = torch.ops.aten


@frozen
class _Gates:
    """Both products of a cell with their biases: ``input``, ``hidden`` and where these have one ``input_bias``, ``hidden_bias``."""

    edit: Editor
    count: int
    values: dict[str, fx.Node]
    stored: torch.dtype

    def widen(self, value: fx.Node) -> fx.Node:
        """In the type that the library computes in."""
        if self.stored not in (torch.float16, torch.bfloat16):
            return value
        return self.edit.call(aten._to_copy.default, value, dtype=torch.float32)

    def sum(self, n: int, *names: str) -> fx.Node:
        """Gate ``n`` of what ``names`` name, added up in that order."""
        # Each gate from its own columns: a sum of whole rows would be read once for each, and so be stored.
        total, *pieces = [self.widen(self._columns(self.values[name], n)) for name in names if name in self.values]
        for piece in pieces:
            total = self.edit.call(aten.add.Tensor, total, piece)
        return total

    def _columns(self, value: fx.Node, n: int) -> fx.Node:
        val = value.meta["val"]
        width = val.shape[-1] // self.count
        return self.edit.call(aten.slice.Tensor, value, val.dim() - 1, n * width, (n + 1) * width)


_ALL = ("input", "hidden", "input_bias", "hidden_bias")


def _lstm(gates: _Gates, memory: fx.Node) -> tuple[fx.Node, fx.Node]:
    """``c' = f c + i g`` and ``h' = o tanh(c')``."""
    make = gates.edit.call
    parts = [gates.sum(n, *_ALL) for n in range(4)]
    enter, forget, leave = (make(aten.sigmoid.default, parts[n]) for n in (0, 1, 3))
    cell = make(aten.tanh.default, parts[2])
    kept = make(aten.mul.Tensor, forget, gates.widen(memory))
    added = make(aten.mul.Tensor, enter, cell)
    result = make(aten.add.Tensor, kept, added)
    return make(aten.mul.Tensor, leave, make(aten.tanh.default, result)), result


def _gru(gates: _Gates, memory: fx.Node) -> tuple[fx.Node]:
    """``h' = n + z (h - n)`` with ``n = tanh(x_n + r h_n)``."""
    make = gates.edit.call
    reset, update = (make(aten.sigmoid.default, gates.sum(n, *_ALL)) for n in range(2))
    own = make(aten.mul.Tensor, reset, gates.sum(2, "hidden", "hidden_bias"))
    new = make(aten.tanh.default, make(aten.add.Tensor, gates.sum(2, "input", "input_bias"), own))
    change = make(aten.sub.Tensor, gates.widen(memory), new)
    return (make(aten.add.Tensor, new, make(aten.mul.Tensor, update, change)),)


#: Cell -> how many gates, how many new states come first among its results, the formula, and that in words.
_CELLS: dict[Any, tuple[int, int, Callable[[_Gates, fx.Node], Sequence[fx.Node]], str]] = {
    aten._thnn_fused_lstm_cell.default: (4, 2, _lstm, "c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c')"),
    aten._thnn_fused_gru_cell.default: (3, 1, _gru, "n = tanh(x_n + sigmoid(r) h_n), h' = n + sigmoid(z) (h - n)"),
}  # fmt: skip


def _has_kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels


def _is_open(match: Match, context: CompileContext) -> bool:
    """Whether only the new states are read, and all sizes that matter here are numbers."""
    _, states, *_ = _CELLS[match.root.target]
    if any(user.users and not (user.target is getitem and user.args[1] in range(states)) for user in match.root.users):
        return False
    return isinstance(match.val("input").shape[1], int)


def _opened(match: Match, edit: Editor) -> list[fx.Node]:
    count, _, formula, _ = _CELLS[match.root.target]
    stored = match.val("memory").dtype
    given = {name: match[name] for name in _ALL if match[name] is not None}
    results = formula(_Gates(edit, count, given, stored), match["memory"])
    return [
        value if value.meta["val"].dtype is stored else edit.call(aten._to_copy.default, value, dtype=stored)
        for value in results
    ]


def _rule(op: Any) -> Rule:
    *_, words = _CELLS[op]
    return Rule(
        name=op.overloadpacket.__name__.strip("_"),
        identity=f"{words}, in float32 or float64, rounded once",
        pattern=call(
            op,
            Operand("input", Like(ranks=(2,))),
            Operand("hidden"),
            Operand("memory"),
            input_bias=Anything("input_bias"),
            hidden_bias=Anything("hidden_bias"),
        ),
        check=_is_open,
        replace=_opened,
        when=_has_kernels,
    )


RULES = tuple(map(_rule, _CELLS))
