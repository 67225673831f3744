"""What of the caller's memory the backward may depend on, and when a write to it is an error: as in eager.

In: a `Joint`, the backward graph. Out: the nodes that own memory which eager's nodes do not save (saving one means saving a copy, at its full
price), how writes to what is saved are noticed, and what is watched besides. Parameters are left out: an optimizer writes them when the
backward is done, and saving them instead of what is computed from them is what makes a graph lean.
"""

from __future__ import annotations

from torch.fx import GraphModule, Node

from ..joint.record import Joint
from ..passes.facts import alias_root, is_tensor
from ..records import SavedSpec, WatchedSpec


def exposed(joint: Joint) -> set[Node]:
    """Inputs and owners of results. An input that the graph itself writes is not among them: its old contents are copied in any case."""
    saved = {(spec.kind, spec.index) for spec in joint.watched}
    found = {
        item.node
        for item in joint.inputs
        if item.is_tensor and not item.is_parameter and ("input", item.index) not in saved
    }
    shown = {spec.index for spec in joint.analysis.outputs if spec.kind in ("graph", "view_of_base")}
    for index in shown:
        result = joint.results[index]
        if isinstance(result, Node) and is_tensor(result) and ("output", index) not in saved:
            found.add(alias_root(result))
    return found - {joint.inputs[m.index].node for m in joint.analysis.mutations}


def is_checked(joint: Joint, kind: str, index: int) -> bool:
    """Whether any write to a saved input or result is an error, whichever gradients come in; if not, it is watched."""
    if kind == "input" and joint.inputs[index].is_parameter:
        return True
    spec = next((spec for spec in joint.watched if (spec.kind, spec.index) == (kind, index)), None)
    return spec is None or len(spec.reached) == len(joint.differentiable)


def watched(joint: Joint, saved: tuple[SavedSpec, ...]) -> tuple[WatchedSpec, ...]:
    """What eager saves and no saved value checks."""
    checked = {(spec.kind, spec.index) for spec in saved if spec.checked}
    return tuple(spec for spec in joint.watched if spec.kept or (spec.kind, spec.index) not in checked)


def read_elsewhere(joint: Joint, backward: GraphModule, saved: tuple[SavedSpec, ...]) -> list[int]:
    """The places of saved values that the backward reads for a gradient for which eager does not save them: no write may reach them there."""
    eagers = {(spec.kind, spec.index): set(spec.reached) for spec in joint.watched}
    return [
        place
        for place, (spec, readers) in enumerate(zip(saved, _readers(backward, len(saved))))
        if not spec.checked
        and not readers <= eagers[("output", spec.shares) if spec.shares >= 0 else (spec.kind, spec.index)]
    ]


def _readers(backward: GraphModule, count: int) -> list[set[int]]:
    """For each of the first `count` inputs of a backward the tangents that it is multiplied with, so to say."""
    given = [node for node in backward.graph.nodes if node.op == "placeholder"]
    tangents = {node: {place} for place, node in enumerate(given[count:])}
    masks: dict[Node, set[int]] = {}
    for node in backward.graph.nodes:
        masks[node] = tangents.get(node, set()).union(*(masks[a] for a in node.all_input_nodes))
    readers: dict[Node, set[int]] = {}
    for node in reversed(backward.graph.nodes):
        # What depends on no tangent is read by what reads it.
        readers[node] = set().union(*(masks[u] or readers[u] for u in node.users))
    return [readers[node] for node in given[:count]]
