"""What of a graph takes part in a loss over many classes: everything that has an element for each class, and what reads that.

In: the product that gives the scores. Out: a ``Region``, if all that follows from them is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import define, field
from torch import fx

from .class_pieces import NotInPieces, is_followed
from .fakes import is_row_major

aten = torch.ops.aten

#: What makes a tensor of some size and of its first argument's type, with the value, or where that is among the arguments.
FILLS = {aten.new_zeros.default: 0, aten.new_full.default: None}
TURNS = (aten.t.default, aten.permute.default, aten.transpose.int)


@define
class Region:
    """What follows from the scores that ``product`` gives, as far as it has an element for each class, and what reads that.

    ``wide``: nodes with an element for each class, in order; ``pure``: those in which no softmax takes part. ``readers``: nodes of the forward with
    one number a row. ``ends``: nodes of the backward that sum over rows or classes. ``fills``: new tensors that are like one of ``wide`` in their type alone.
    """

    product: fx.Node
    results: frozenset[fx.Node]
    wide: dict[fx.Node, None] = field(factory=dict)
    pure: set[fx.Node] = field(factory=set)
    turned: dict[fx.Node, fx.Node] = field(factory=dict)
    readers: list[fx.Node] = field(factory=list)
    ends: list[fx.Node] = field(factory=list)
    fills: list[fx.Node] = field(factory=list)
    scores: dict[fx.Node, None] = field(factory=dict)

    @property
    def classes(self) -> int:
        return int(self.product.meta["val"].shape[1])

    def collect(self) -> bool:
        """Find everything; whether it is all known and worth it."""
        self.wide[self.product] = None
        self.pure.add(self.product)
        if self.product in self.results:
            return False
        node = self.product.next
        while node.op != "root":
            if any(a in self.wide or a in self.turned for a in node.all_input_nodes) and not self._take(node):
                return False
            node = node.next
        return bool(self.scores) and bool(self.readers)

    def pure_behind(self, source: fx.Node) -> list[fx.Node]:
        """The nodes that no softmax takes part in and that ``source`` is computed from, through others at most."""
        found: dict[fx.Node, None] = {}
        pending = [source]
        while pending:
            node = pending.pop()
            if node in self.pure:
                found[node] = None
            elif node in self.wide:
                pending += node.all_input_nodes
        return list(found)

    def bring(self, place: fx.Node, nodes: Sequence[fx.Node]) -> None:
        """Move what ``nodes`` read from outside in front of ``place``. Raises ``NotInPieces`` where that follows from the region."""
        inside = {*self.wide, *self.turned, *self.readers, *self.ends}
        found: set[fx.Node] = set()
        pending = [a for node in nodes for a in node.all_input_nodes if a not in inside]
        while pending:
            node = pending.pop()
            if node in found or node < place:
                continue
            if node in inside or node.op != "call_function" or node.meta.get("checks"):
                raise NotInPieces(str(node))
            found.add(node)
            pending += node.all_input_nodes
        for node in sorted(found):
            place.prepend(node)

    def _take(self, node: fx.Node) -> bool:
        if node.op != "call_function" or any(node.meta.get(note) for note in ("refused", "checks")):
            return False
        if node.meta.get("checkpoint") is not None:
            return False
        if self._is_reader(node):
            self.readers.append(node)
            return not node.meta.get("backward")
        if node.target in FILLS and node.meta["val"].shape[-1:] != (self.classes,):
            self.fills.append(node)
            return True
        if self._is_end(node):
            self.ends.append(node)
            return bool(node.meta.get("backward"))
        if node in self.results:
            return False
        if node.target in TURNS and turns(node):
            self.turned[node] = node.args[0]
            return True
        if any(a in self.turned for a in node.all_input_nodes):
            return False
        rule = _WIDE.get(node.target)
        if not (is_followed(node, self.classes) if rule is None else rule(self, node)):
            return False
        if any(not isinstance(size, int) for size in node.meta["val"].shape):
            return False
        self.wide[node] = None
        if rule is None and all(a in self.pure for a in node.all_input_nodes if a in self.wide):
            self.pure.add(node)
        return True

    def _is_reader(self, node: fx.Node) -> bool:
        source: Any = node.args[0] if node.args else None
        if source not in self.wide or not source.meta["val"].dtype.is_floating_point:
            return False
        rank = source.meta["val"].dim()
        if node.target is aten.gather.default:
            index: Any = node.args[2]
            sizes = source.meta["val"].shape
            same = index not in self.wide and [*index.meta["val"].shape] == [*sizes[:-1], 1]
            return bool(same and node.args[1] % rank == rank - 1)
        if node.target not in (aten.logsumexp.default, aten.sum.dim_IntList):
            return False
        dims: Any = node.args[1]
        if not dims or [d % rank for d in dims] != [rank - 1]:
            return False
        if node.target is aten.logsumexp.default:
            self.scores[source] = None
            return source in self.pure
        return True

    def _is_end(self, node: fx.Node) -> bool:
        if node.target is aten.sum.dim_IntList:
            return node.args[0] in self.wide and node.args[1] == [0] and node.args[0].meta["val"].dim() == 2
        if node.target is not aten.mm.default or not is_row_major(node.meta["val"]):
            return False
        left, right = node.args
        inside = [a in self.wide or a in self.turned for a in (left, right)]
        # What a turned matrix multiplies from the right has no classes in the result's rows.
        return inside == [True, False] or (inside == [False, True] and right in self.wide)

    def _is_softmax(self, node: fx.Node) -> bool:
        source, dim = node.args[:2]
        if source not in self.pure or dim % source.meta["val"].dim() != source.meta["val"].dim() - 1:
            return False
        self.scores[source] = None
        return True

    def _is_targets_gradient(self, node: fx.Node) -> bool:
        used = [a for a in node.all_input_nodes if a in self.wide]
        return used == [node.args[1]] and node.meta["val"].dim() == 2

    def _is_through_softmax(self, node: fx.Node) -> bool:
        logarithms: Any = node.args[1]
        return logarithms in self.wide and logarithms.target is aten._log_softmax.default


_WIDE: dict[Any, Callable[[Region, fx.Node], bool]] = {
    aten._log_softmax.default: Region._is_softmax,
    aten.nll_loss_backward.default: Region._is_targets_gradient,
    aten._log_softmax_backward_data.default: Region._is_through_softmax,
}


def turns(node: fx.Node) -> bool:
    val = node.meta["val"]
    if val.dim() != 2:
        return False
    order = (
        [1, 0]
        if node.target is aten.t.default
        else [d % 2 for d in (node.args[1] if node.target is aten.permute.default else node.args[1:])]
    )
    return order in ([1, 0], [0, 1]) and (node.target is not aten.permute.default or order == [1, 0])
