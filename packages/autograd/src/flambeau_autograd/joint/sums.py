"""The sums that the engine makes of gradients which reach one place.

In: the trace's autograd graph (`Reach`), before it is differentiated. Out: each such sum as eager makes it. Where the second gradient is
added to the memory of the first, the sum lies as the first; fakes are never added to in place. Where the outputs that one side comes from
have no gradient in a call, eager has no such side; the compiled backward, which computes it from zeros, leaves it out by a flag that it is
given: nan may have come of the zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from itertools import compress
from operator import or_
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..functional.layout import hint, is_dense
from ..functional.recorder import Recorder
from ..functional.values import Cell
from ..wrappers.forms import is_wrapper, plain_parts
from .reach import Reach, summarised

aten = torch.ops.aten


def _tensors(grads: Iterable[Any]) -> list[torch.Tensor]:
    return [part for grad in grads if isinstance(grad, torch.Tensor) for part in plain_parts(grad)]


class Sums:
    """Follows the engine from node to node, as long as the context lasts.

    `flags`: sets of places among the tangents, with the placeholder that says whether one of them has a gradient.
    """

    def __init__(self, recorder: Recorder, reach: Reach, tangents: list[Node]) -> None:
        self.flags: dict[tuple[int, ...], torch.Tensor] = {}
        self._recorder = recorder
        self._reach = reach
        #: How many gradients wait, by the memory that they lie in.
        self._held: Counter[Cell] = Counter()
        #: By node, and by the place of its result: the zeros without memory that came there, and to which something may be added.
        self._joined: dict[Any, dict[int, list[torch.Tensor]]] = {}
        self._arriving: tuple[Any, ...] = ()
        #: The tangents that a node of the graph comes of, as the bits of a number.
        self._masks = {node: 1 << place for place, node in enumerate(tangents)}
        self._devices = [node.meta["val"].device for node in tangents]
        self._last = tangents[-1]

    def __enter__(self) -> Sums:
        self._handles = [node.register_hook(partial(self._after, node)) for node in self._reach.nodes]
        # Asked before each node, since the engine adds up what comes to one without telling.
        self._handles += [node.register_prehook(partial(self._before, node)) for node in self._reach.joining()]
        self._recorder.sums = self
        return self

    def __exit__(self, *error: Any) -> None:
        self._recorder.sums = None
        for handle in self._handles:
            handle.remove()

    def _after(self, node: Any, found: Any, taken: Any) -> tuple[Any, ...]:
        """A node has made the gradients `found` of those that waited for it, for those behind its edges. Returns them."""
        edges = node.next_functions
        children = [child for child, _ in edges]
        found = tuple(map(self._in_memory, found, edges))
        self._held.subtract(self._cells(taken))
        self._arriving = tuple(compress(found, children))
        self._held.update(self._cells(self._arriving))
        # Also zeros that no gradient decides come only where the node is given one.
        decided = self._mask_of(taken)
        for grad in _tensors(self._arriving):
            self._masks[self._recorder.node_of(grad)] = self._mask(grad) | decided
        if (body := summarised(node)) is not None:
            # One operator computes all of its gradients from all of its tangents.
            for place, grad in enumerate(found):
                if isinstance(grad, torch.Tensor):
                    given = [taken[result] for result in body.decided(place)]
                    self._masks[self._recorder.node_of(grad)] = self._mask_of(given)
        return found

    def given(self, tangents: Sequence[Any], device: torch.device) -> torch.Tensor | None:
        """Whether a call of the backward has a gradient for one of these tangents, as a recorded bool; None where every call has one."""
        mask = self._mask_of(tangents)
        places = tuple(place for place in range(len(self._devices)) if mask >> place & 1)
        if len(places) == len(self._devices):
            return None
        flag = self._flag(places)
        if flag.device != device:
            flag = self._recorder.call(aten._to_copy.default, flag, device=device)
        return flag

    def _in_memory(self, grad: Any, edge: tuple[Any, int]) -> Any:
        """Zeros for an input as they will be; of zeros without memory torch makes zeros, also with infinity and nan, before the recorder sees it."""
        child, place = edge
        if child is None or not isinstance(grad, torch.Tensor) or is_wrapper(grad) or not grad._is_zerotensor():
            return grad
        if child.next_functions:
            if self._reach.arriving[edge] > 1:
                self._joined.setdefault(child, {}).setdefault(place, []).append(grad)
            return grad
        return self._recorder.call(aten.full.default, grad.shape, 0, dtype=grad.dtype, device=grad.device)

    def _before(self, node: Any, taken: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """A node is about to take gradients, each a sum already. Of one with zeros without memory, `add` saw nothing: it is the other side."""
        if node not in self._joined:
            return None
        given = list(taken)
        for place, zeros in self._joined[node].items():
            if given[place]._is_zerotensor():
                continue
            other = self._mask_of(zeros)
            given[place] = self._where_given(given[place], self._mask(given[place]), other)
        self._held.subtract(self._cells(taken))
        self._held.update(self._cells(given))
        return tuple(given)

    def _cells(self, grads: Iterable[Any]) -> list[Cell]:
        return [self._recorder.value_of(grad).cell for grad in _tensors(grads)]

    def is_of_engine(self, second: Any) -> bool:
        """Whether the engine is adding this gradient to another that came before."""
        return any(second is grad for grad in _tensors(self._arriving))

    def add(self, func: OpOverload, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The sum, recorded."""
        plain: torch.Tensor = self._recorder.without_special(func, first, second)
        one, other = self._mask(first), self._mask(second)
        sides = self._where_given(first, one, other), self._where_given(second, other, one)
        total = plain if sides[0] is first and sides[1] is second else self._recorder.without_special(func, *sides)
        wanted = first if self._is_ours(first) else plain
        if list(map(hint, wanted.stride())) != list(map(hint, total.stride())):
            total = self._recorder.with_strides(total, wanted.stride())
        self._held.subtract(self._cells((first, second)))
        self._held.update(self._cells((total,)))
        return total

    def _is_ours(self, grad: torch.Tensor) -> bool:
        """Whether nobody else looks at the memory, of which the gradient is no view."""
        value = self._recorder.value_of(grad)
        made = value.cell.base.op == "call_function" and bool(value.cell.base.meta.get("backward"))
        return made and not value.chain and self._held[value.cell] == 1 and is_dense(grad)

    def _mask_of(self, grads: Iterable[Any]) -> int:
        return reduce(or_, map(self._mask, _tensors(grads)), 0)

    def _mask(self, grad: torch.Tensor) -> int:
        node = self._last
        while (node := node.next).op != "root":
            # A size that is read from a tangent is known without its gradient.
            sources = () if isinstance(node.meta.get("val"), torch.SymInt) else node.all_input_nodes
            self._masks[node] = reduce(or_, (self._masks.get(source, 0) for source in sources), 0)
            self._last = node
        return self._masks.get(self._recorder.node_of(grad), 0)

    def _where_given(self, grad: torch.Tensor, mask: int, other: int) -> torch.Tensor:
        """`grad`, or zeros in a call where none of the tangents of `mask` has a gradient and one of `other` has."""
        places = tuple(place for place in range(len(self._devices)) if mask >> place & 1)
        if not places or not other & ~mask or self._devices[places[0]] != grad.device:
            return grad
        zero = self._recorder.call(aten.scalar_tensor.default, 0, dtype=grad.dtype, device=grad.device)
        found: torch.Tensor = self._recorder.call(aten.where.self, self._flag(places), grad, zero)
        return found

    def _flag(self, places: tuple[int, ...]) -> torch.Tensor:
        if places not in self.flags:
            node = self._recorder.graph.placeholder(f"given_{len(self.flags)}")
            with self._recorder.fake_mode, torch.no_grad():
                flag = torch.empty((), dtype=torch.bool, device=self._devices[places[0]])
            node.meta.update(val=flag, stack=(), backward=True)
            self._recorder.bind_input(flag, node, -1)
            self.flags[places] = flag
        return self.flags[places]
