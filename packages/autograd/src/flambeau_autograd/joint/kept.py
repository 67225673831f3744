"""What eager's nodes save of memory that the caller may write before the backward.

In: autograd's graph of the trace (`Reach`), the inputs, and what the results are. Out: `Kept`. The backward raises for a write where eager's
would; the partition saves no memory of the caller's that eager does not save (`partition/exposed.py`).
"""

from __future__ import annotations

import torch
from attrs import define, field, frozen
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from ..analysis.signature import Analysis
from ..functional.recorder import Recorder
from ..records import WatchedSpec
from .inputs import TracedInput
from .reach import Reach


@frozen
class Kept:
    """See `Signature`; here `watched` has what the compiled graph saves as well. `nodes`: the trace's, of all that is saved."""

    watched: tuple[WatchedSpec, ...]
    frees: tuple[tuple[int, ...], ...]
    nodes: frozenset[Node] = frozenset()


@define
class _Place:
    reached: set[int] = field(factory=set)
    kept: bool = False


def kept_by_eager(recorder: Recorder, reach: Reach, inputs: list[TracedInput], analysis: Analysis) -> Kept:
    """Look at what each node saves. Before the graph is freed."""
    results = analysis.results
    rewritten = {m.index for m in analysis.mutations if m.mode == "wrapper"}
    places = {
        recorder.value_of(r).cell: i for i, r in reversed(list(enumerate(results))) if isinstance(r, torch.Tensor)
    }
    found: dict[tuple[str, int], _Place] = {}
    frees: list[set[int]] = [set() for _ in reach.ends]
    nodes: set[Node] = set()
    for tensor, reached in reach.saved():
        for end in reached:
            frees[end].update(reached)
        if not isinstance(tensor, FakeTensor):
            continue  # nothing, or a number that autograd keeps in a tensor of its own
        value = recorder.value_of(tensor)
        cell = value.cell
        if value.version == cell.version:
            nodes.add(value.node)
        index = cell.input_index
        if index >= 0:
            place = found.setdefault(("written" if index in rewritten else "input", index), _Place())
        elif cell in places:
            place = found.setdefault(("output", places[cell]), _Place())
        else:
            continue
        place.reached.update(reached)
        own = inputs[index].seen if index >= 0 else results[places[cell]]
        # A parameter stays a leaf when it is detached. Another input may be a leaf in one call and none in the next.
        is_parameter = index >= 0 and inputs[index].is_parameter
        place.kept = place.kept or (tensor is own and tensor.requires_grad and not is_parameter)
    watched = tuple(WatchedSpec(*key, tuple(sorted(place.reached)), place.kept) for key, place in found.items())
    return Kept(watched, tuple(tuple(sorted(places)) for places in frees), frozenset(nodes))
