"""Writes to tensors, recorded as new values.

In: calls of ops that write to an argument, that change its shape in place, or fill it, on fakes. Out: nodes of their functional twins in the recorder's
graph; what was written is the tensor's contents from there on, and through the chain of views that of everything that shares its memory. What has no
functional meaning, or reads memory that it overwrites, raises `UnsupportedMutation`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import InternalError, UnsupportedMutation
from .layout import fill_order, hint
from .opaque import tensors_in
from .ops import is_random, short_name, view_twin, write_plan
from .overlap import MOVES, collides, lies_within, overlaps
from .random import fills_in_memory_order
from .scatter import is_absolute, is_strided, scatter_back
from .values import Cell, Value

aten = torch.ops.aten


class Mutations:
    """What a recorder (`recorder.py`) does about writes."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder

    def by_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plan = write_plan(func)
        if plan is None:
            raise InternalError(f"no write plan for {func}")
        arguments = func._schema.arguments
        kept = tuple(args[i] if i < len(args) else arguments[i].default_value for i in plan.keep)
        named = {k: kwargs[k] for k in plan.keep_kwargs if k in kwargs}
        targets = [kwargs[t] if isinstance(t, str) else args[t] for t in plan.targets]
        if plan.factory:
            named.update(dtype=targets[0].dtype, device=targets[0].device)
        for target in tensors_in(targets):
            self.refuse_collisions(target, (kept, named))
        if short_name(func) in MOVES:
            self._refuse_moves(args[0], (kept[1:], named))
        self._refuse_repeated(list(tensors_in(targets)))
        self._refuse_crossed(targets, (kept, named))
        out = (
            self._filled(func, plan.functional, kept, named)
            if is_random(func)
            else self.recorder.call(plan.functional, *kept, **named)
        )
        results = [out] if len(targets) == 1 else list(out)
        for target, result in zip(targets, results):
            pairs = zip(target, result) if isinstance(target, (list, tuple)) else ((target, result),)
            for tensor, new in pairs:
                self.write(tensor, self._conform(func, args, kwargs, tensor, new))
            if isinstance(target, (list, tuple)):
                # The kernels of list ops count each write, not autograd's part of them.
                torch.autograd.graph.increment_version(target)
        # An op may write more arguments than it gives back, the first of them (`_amp_update_scale_`).
        given = targets[: len(func._schema.returns)]
        return None if not given else given[0] if len(given) == 1 else tuple(given)

    def refuse_collisions(self, target: torch.Tensor, operands: Any) -> None:
        """Raise `UnsupportedMutation` when `target` partly lies over another operand: eager raises its own error."""
        cell = self.recorder.value_of(target).cell
        for other in tensors_in(operands):
            if other is target or not isinstance(other, FakeTensor) or self.recorder.value_of(other).cell is not cell:
                continue
            if collides(target, other):
                raise UnsupportedMutation("a write reads memory that it overwrites")

    def refuse_beside(self, source: torch.Tensor, view: torch.Tensor) -> None:
        """Raise `UnsupportedMutation` when `view` looks beside the elements of memory that is not an input's as it came."""
        cell = self.recorder.value_of(source).cell
        if (cell.version or cell.input_index < 0) and not lies_within(view, cell.meta):
            raise UnsupportedMutation(
                "a view in strides reads memory beside the elements of a tensor that the graph made or wrote"
            )

    def _refuse_moves(self, target: torch.Tensor, operands: Any) -> None:
        """Raise `UnsupportedMutation` when elements would be taken from the memory that they are put into, at other places."""
        cell = self.recorder.value_of(target).cell
        for other in tensors_in(operands):
            if isinstance(other, FakeTensor) and self.recorder.value_of(other).cell is cell and overlaps(target, other):
                raise UnsupportedMutation("a write takes its new elements from the memory that it overwrites")

    def _refuse_repeated(self, targets: list[torch.Tensor]) -> None:
        """Raise `UnsupportedMutation` when one call writes the same memory twice: a list op writes one tensor after the other."""
        seen: dict[Cell, list[torch.Tensor]] = {}
        for target in targets:
            others = seen.setdefault(self.recorder.value_of(target).cell, [])
            if any(overlaps(target, other) for other in others):
                raise UnsupportedMutation("a call writes the same memory twice")
            others.append(target)

    def _refuse_crossed(self, targets: list[Any], operands: Any) -> None:
        """Raise `UnsupportedMutation` when a list op reads for one tensor what it has written for another."""
        lists = [part for part in (*operands[0], *operands[1].values()) if isinstance(part, (list, tuple))]
        for target in targets:
            for at, written in enumerate(target if isinstance(target, (list, tuple)) else ()):
                cell = self.recorder.value_of(written).cell
                read = [part for other in lists for part in other[at + 1 :] if isinstance(part, FakeTensor)]
                if any(self.recorder.value_of(part).cell is cell and overlaps(written, part) for part in read):
                    raise UnsupportedMutation("a call reads for one tensor what it has written for another")

    def _filled(self, func: Any, functional: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The new contents of a tensor that is filled with random numbers, in the order in which eager fills its memory."""
        target = args[0]
        if not isinstance(target, torch.Tensor) or not fills_in_memory_order(func, target):
            return self.recorder.call(functional, *args, **kwargs)
        order = fill_order(target)
        if order == tuple(range(len(order))):
            return self.recorder.call(functional, *args, **kwargs)
        inverse = [0] * len(order)
        for place, dim in enumerate(order):
            inverse[dim] = place
        flat = self.recorder.call(
            functional, self.recorder.call(aten.permute.default, target, list(order)), *args[1:], **kwargs
        )
        return self.recorder.call(aten.permute.default, flat, inverse)

    def _conform(self, func: Any, args: Any, kwargs: Any, target: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """`new` with the target's dtype and layout; an impossible write raises what eager raises."""
        if new.shape != target.shape or not torch.can_cast(new.dtype, target.dtype):
            func(*args, **kwargs)
            raise UnsupportedMutation(f"{func} resizes its target from {tuple(target.shape)} to {tuple(new.shape)}")
        if new.dtype != target.dtype:
            new = self.recorder.call(aten._to_copy.default, new, dtype=target.dtype)
        return self.match_layout(target, new)

    def match_layout(self, target: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """`new` with the strides of `target` where later views could tell the difference."""
        if tuple(new.stride()) == tuple(target.stride()) or self.recorder.value_of(target).chain:
            return new
        return self.recorder.with_strides(new, target.stride())

    def write(self, target: torch.Tensor, new: torch.Tensor) -> None:
        """From here on the contents of `target` (and of what shares its storage) are those of `new`."""
        value = self.recorder.value_of(target)
        cell = value.cell
        if self.recorder.differentiates and cell.looked_beside:
            # Eager then takes the view, and its gradient, of the base at once; of fakes autograd takes each view of the one before.
            raise UnsupportedMutation(
                "a write comes after a view in strides that looks beside the view it was taken of"
            )
        node = self.recorder.node_of(new)
        if not value.chain:
            cell.base = node
        else:
            if any(
                is_strided(s.op) and not is_absolute(s) and hint(s.source.storage_offset()) != 0 for s in value.chain
            ):
                raise UnsupportedMutation("a write goes through a view in strides that starts where another view does")
            self.recorder.refuse_unknown_start(value)
            # What came before an absolute view does not matter: it starts at the storage again.
            first = max((i for i, step in enumerate(value.chain) if is_absolute(step)), default=0)
            chain = value.chain[first:]
            bases = [self.recorder.tensor_at(cell.base)]
            for step in chain[:-1]:
                bases.append(self.recorder.tensor_at(self.recorder.replay(step, self.recorder.node_of(bases[-1]))))
            current = self.recorder.tensor_at(node)
            for step, base in zip(reversed(chain), reversed(bases)):
                current = scatter_back(self.recorder.call, step, base, current, cell.meta)
            cell.base = self.recorder.node_of(self.recorder.laid_out_as(current, cell.meta))
        cell.version += 1
        if not value.chain or node.meta["val"].stride() == target.stride():
            value.node, value.version = node, cell.version

    def of_metadata(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        value = self.recorder.value_of(target)
        if value.cell.input_index >= 0:
            raise UnsupportedMutation(f"{func} changes the shape of a graph input")
        twin = view_twin(func)
        if twin is None:
            raise UnsupportedMutation(f"{func} has no functional twin")
        if self.recorder.differentiates and (target._is_view() or self._has_views(value.cell)):
            # Autograd takes views again of what their base has become, and knows nothing of its former shape.
            raise UnsupportedMutation(f"{func} changes the shape of a tensor with views that may have a history")
        before = self.recorder.node_of(target)
        with self.recorder.fake_mode, torch.no_grad():
            shown = target.detach()
        if value.cell.meta is target:
            # Other views are taken of the memory as it was made.
            value.cell.meta = shown
            shown._flambeau = Value(self.recorder, value.cell, (), before, value.version)
        self._show_instead(target, shown)
        view = self.recorder.call(twin, *args, **kwargs)
        func(*args, **kwargs)
        target._flambeau = self.recorder.value_of(view)
        return target

    def _has_views(self, cell: Cell) -> bool:
        """Whether autograd knows of views of the cell."""
        shown = (tensor for node in self.recorder.graph.nodes for tensor in tensors_in(node.meta.get("val")))
        return any(t._is_view() and hasattr(t, "_flambeau") and t._flambeau.cell is cell for t in shown)

    def _show_instead(self, tensor: torch.Tensor, shown: torch.Tensor) -> None:
        """Nodes and views that were recorded with `tensor` show `shown` from here on: its own shape is about to change."""

        def other(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return tuple(map(other, value))
            return shown if value is tensor else value

        for node in self.recorder.graph.nodes:
            seen = node.meta.get("val")
            for part in tensors_in(seen):
                value = getattr(part, "_flambeau", None)
                for step in value.chain[-1:] if value is not None else ():
                    step.source, step.out = other(step.source), other(step.out)
            if any(part is tensor for part in tensors_in(seen)):
                node.meta["val"] = other(seen)
