"""Run convolutions channels-last where that pays, and keep that layout through everything in between.

In: a functional graph. Out: the same graph in which the inputs and weights of convolutions are made channels-last once, the
fake results of all that follows say so, and results of the graph are put back into the layout that eager gives them.

The plan is made on fake tensors first (nothing is edited), then weighed: bytes that the added copies move against bytes that the
library would move to get the layout its kernels want.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import define, field
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from .constants import is_constant
from .fakes import bytes_of, fake_mode_of, hint_of, insert_call, quietly, values_of

aten = torch.ops.aten

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
#: Convolutions of fewer channels than this are narrow.
FEWEST_CHANNELS = 8
#: How much must be gained over all convolutions.
WORTHWHILE = 0.9
#: What must be moved for the layout, against what the library moves without it.
WORTH = 0.75
#: On a CPU the library packs its weights at every call whatever their layout is: only large activations pay for a copy of them.
CPU_ACTIVATIONS_PER_WEIGHT = 16

#: Results that depend on the strides of an operand, not only on its elements.
STRIDE_READERS = frozenset({"as_strided", "as_strided_scatter", "as_strided_copy", "sym_stride", "sym_storage_offset", "view_as_real", "view_as_complex"})  # fmt: skip


def channels_last(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite ``gm`` where the plan is worth it."""
    (output,) = [node for node in gm.graph.nodes if node.op == "output"]
    results = output.all_input_nodes
    kept = make_channels_last(gm.graph, results, context)
    for result, copy in (kept or {}).items():
        output.replace_input_with(result, copy)
    return kept is not None


def make_channels_last(
    graph: fx.Graph, results: Sequence[fx.Node], context: CompileContext
) -> dict[fx.Node, fx.Node] | None:
    """Rewrite ``graph`` (with or without an output node) where that is worth it; None where nothing was changed.

    Returns copies of those ``results`` whose layout changed, in the layout they had: the caller puts them in the results' place.
    Given a joint graph of forward and backward before it is cut in two, saved activations and gradients stay channels-last.
    """
    if not context.config.layout_optimization:
        return None
    mode, forced = fake_mode_of(graph), context.config.force_layout_optimization
    convolutions = [node for node in graph.nodes if _eligible(node, forced=forced)]
    if mode is None or not convolutions or not (forced or _pays(convolutions)):
        return None
    with quietly(mode):
        plan = _Plan(graph, frozenset(convolutions))
        if not plan.make(results) or not (forced or plan.is_worth_it(convolutions)):
            return None
    return plan.apply(results)


def _is_convolution(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in (
        aten.convolution.default,
        aten.convolution_backward.default,
    )


def _operands(node: fx.Node) -> tuple[int, ...]:
    """Positions of the tensors that share the layout: (input, weight), or (gradient, input, weight)."""
    return (0, 1) if node.target is aten.convolution.default else (0, 1, 2)


def _groups(node: fx.Node) -> int:
    """The number of groups, of one that is a size that in the example."""
    groups: Any = node.args[8 if node.target is aten.convolution.default else 9]
    return int(hint_of(groups.meta["val"] if isinstance(groups, fx.Node) else groups))


def _eligible(node: fx.Node, *, forced: bool) -> bool:
    if not _is_convolution(node):
        return False
    operands = [node.args[n] for n in _operands(node)]
    vals = [operand.meta.get("val") if isinstance(operand, fx.Node) else None for operand in operands]
    if any(not isinstance(val, torch.Tensor) or val.dim() not in FORMATS for val in vals):
        return False
    return forced or _fast_channels_last(vals[0])


def _fast_channels_last(val: Any) -> bool:
    """Whether the library's channels-last kernels for this device and dtype are the fast ones, under the flags in force."""
    return device_of(val.device).libraries.channels_last(val.dtype)


def _pays(convolutions: list[fx.Node]) -> bool:
    """Whether the convolutions together gain: each counts by its arithmetic, times what the layout does to its kind."""
    total = weighted = 0.0
    for node in convolutions:
        image, weight = (node.args[n].meta["val"] for n in _operands(node)[-2:])
        per_group, groups = hint_of(weight.shape[1]), _groups(node)
        work = float(bytes_of(weight) * bytes_of(image))
        total += work
        narrow = min(hint_of(weight.shape[0]), per_group * groups) < FEWEST_CHANNELS
        share = device_of(image.device).libraries.last_shares
        kind = share.narrow if narrow else share.depthwise if per_group == 1 else share.grouped
        weighted += work * (share.dense if groups == 1 and not narrow else kind)
    return weighted < WORTHWHILE * total


def _is_last(val: torch.Tensor) -> bool:
    return val.is_contiguous(memory_format=FORMATS[val.dim()])


@define
class _Plan:
    """New fake results by node, and the copies to be made: (node, "last" or "kept") -> the copy's fake result."""

    graph: fx.Graph
    convolutions: frozenset[fx.Node]
    values: dict[fx.Node, Any] = field(factory=dict)
    copies: dict[tuple[fx.Node, str], torch.Tensor] = field(factory=dict)
    #: (user, operand, "last" or "kept"); no user for a result of the graph.
    uses: list[tuple[fx.Node | None, fx.Node, str]] = field(factory=list)

    def make(self, results: Sequence[fx.Node]) -> bool:
        """Fill in the plan; False where it changes nothing, or some result could not be given its layout back."""
        for node in self.graph.nodes:
            if node.op != "call_function":
                continue
            if node in self.convolutions:
                self._convolution(node)
            elif any(source in self.values for source in node.all_input_nodes):
                if not self._follow(node):
                    return False
        return bool(self.uses) and all(self._keep(None, result) for result in results)

    def _convolution(self, node: fx.Node) -> None:
        seen = dict(self.values)
        for position in _operands(node):
            source: Any = node.args[position]
            val = seen.get(source, source.meta["val"])
            if not _is_last(val):
                self.uses.append((node, source, "last"))
                val = self.copies.get((source, "last"))
                if val is None:
                    val = self._last(seen.get(source, source.meta["val"]))
                    self.copies[(source, "last")] = val
        # The library answers in the layout of its operands; ``program`` has that checked at run time.
        val = node.meta["val"]
        results = val if isinstance(val, list | tuple) else (val,)
        changed = [
            self._last(item)
            if isinstance(item, torch.Tensor) and item.dim() in FORMATS and not _is_last(item)
            else item
            for item in results
        ]
        if any(new is not old for new, old in zip(changed, results, strict=True)):
            self.values[node] = type(val)(changed) if isinstance(val, list | tuple) else changed[0]

    def _last(self, val: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(val, memory_format=FORMATS[val.dim()])

    def _follow(self, node: fx.Node) -> bool:
        """Run ``node`` on the new layouts; where it will not have them, on the old ones."""
        target: Any = node.target
        if target is aten.copy_.default:
            return True
        if not self._reads_strides(target):
            try:
                result = target(*values_of(node.args, self.values), **values_of(node.kwargs, self.values))
            except (RuntimeError, ValueError):
                return all(self._keep(node, source) for source in node.all_input_nodes)
            if _differs(result, node.meta.get("val")):
                self.values[node] = result
            return True
        return all(self._keep(node, source) for source in node.all_input_nodes)

    def _reads_strides(self, target: Any) -> bool:
        schema = getattr(target, "_schema", None)
        if schema is None:
            return getattr(target, "__name__", "") != "getitem"
        # Random numbers are dealt out in memory order.
        seeded = torch.Tag.nondeterministic_seeded in target.tags
        return seeded or schema.name.removeprefix("aten::") in STRIDE_READERS

    def _keep(self, user: fx.Node | None, source: fx.Node) -> bool:
        """Let ``user`` see ``source`` in the layout it had before; False where a copy cannot give it that."""
        if source not in self.values:
            return True
        old = source.meta["val"]
        if not isinstance(old, torch.Tensor) or not (old.is_contiguous() or (old.dim() in FORMATS and _is_last(old))):
            return False
        self.copies.setdefault((source, "kept"), old)
        self.uses.append((user, source, "kept"))
        return True

    def is_worth_it(self, convolutions: list[fx.Node]) -> bool:
        """Weigh the copies against the library's own."""
        # A copy of what is frozen is made once.
        paid = {key: val for key, val in self.copies.items() if not is_constant(key[0])}
        cost = 2 * sum(map(bytes_of, paid.values()))
        operands = {node.args[n] for node in convolutions for n in _operands(node)}
        weights = {node.args[_operands(node)[-1]] for node in convolutions}
        results = sum(_result_bytes(node) for node in convolutions)
        activations = results + sum(bytes_of(n.meta["val"]) for n in operands - weights)
        if device_of(next(iter(weights)).meta["val"].device).libraries.weights_are_reordered:
            converted = sum(bytes_of(val) for (source, _), val in paid.items() if source in weights)
            return cost < WORTH * 2 * activations and activations > CPU_ACTIVATIONS_PER_WEIGHT * converted
        return cost < WORTH * 2 * (activations + sum(bytes_of(n.meta["val"]) for n in weights))

    def apply(self, results: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
        """Edit the graph as planned; the copies that stand for ``results``."""
        order = {node: number for number, node in enumerate(self.graph.nodes)}
        made: dict[tuple[fx.Node, str], fx.Node] = {}
        for user, source, kind in sorted(self.uses, key=lambda use: order[use[0]] if use[0] else len(order)):
            copy = made.get((source, kind))
            if copy is None:
                copy = made[(source, kind)] = self._copy(user or source.next, source, kind)
            if user is not None:
                user.replace_input_with(source, copy)
        for node, val in self.values.items():
            node.meta["val"] = val
        return {result: made[(result, "kept")] for result in results if (result, "kept") in made}

    def _copy(self, before: fx.Node, source: fx.Node, kind: str) -> fx.Node:
        val = self.copies[(source, kind)]
        last = kind == "last" or not val.is_contiguous()
        memory_format = FORMATS[val.dim()] if last else torch.contiguous_format
        copy = insert_call(self.graph, before, aten.clone.default, (source,), val, memory_format=memory_format)
        # In the joint graph a node knows which half it belongs to, and what region of the user's.
        origin = before if kind == "last" else source
        copy.meta = {**{key: value for key, value in origin.meta.items() if key not in ("val", "static")}, "val": val}
        return copy


def _result_bytes(node: fx.Node) -> int:
    val = node.meta["val"]
    return sum(bytes_of(item) for item in (val if isinstance(val, list | tuple) else (val,)))


def _differs(new: Any, old: Any) -> bool:
    """Whether any tensor of a result lies otherwise than before."""
    if isinstance(new, list | tuple):
        return any(_differs(a, b) for a, b in zip(new, old, strict=True))
    if not isinstance(new, torch.Tensor) or not isinstance(old, torch.Tensor):
        return False
    return [str(s) for s in new.stride()] != [str(s) for s in old.stride()]
