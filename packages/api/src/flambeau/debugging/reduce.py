"""Smaller graphs that still fail: delta debugging over results, operations, inputs and numbers.

In: a graph, its inputs, and a question "does this fail alike?". Out: a graph and inputs that do, of which nothing that was tried can be left out.
An operation that is left out becomes an input that holds what eager computes there; so any set of operations can be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from .compare import copies
from .delta import fewest
from .graphs import operations


@frozen
class Candidate:
    """A graph with inputs in the order of its placeholders."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Calls in the graph."""
        return operations(self.graph)


Fails = Callable[[Candidate], bool]


def reduced(start: Candidate, fails: Fails, tell: Callable[[str], None] = lambda words: None) -> Candidate:
    """The smallest candidate found; `start` fails."""
    best, size = start, -1
    while size != (size := _measure(best)):
        for step in (_prefix, _fewer_results, _fewer_operations, _fewer_inputs, _smaller_sizes, _simpler_arguments):
            best = step(best, fails)
            tell(f"{step.__name__.strip('_').replace('_', ' ')}: {best.size} operations, {len(best.inputs)} inputs")
    return best


def _measure(found: Candidate) -> int:
    elements = sum(value.numel() if isinstance(value, Tensor) else 1 for value in found.inputs)
    return (found.size << 32) + (len(found.inputs) << 24) + min(elements, (1 << 24) - 1)


# the steps


def _prefix(found: Candidate, fails: Fails) -> Candidate:
    """The graph up to a call whose result is the result: the earliest, by halves."""
    calls = [node for node in found.graph.graph.nodes if node.op.startswith("call_")]
    low, high, best = 0, len(calls) - 1, found
    while low < high:
        middle = (low + high) // 2
        tried = _ending_at(found, calls[: middle + 1])
        if tried is not None and fails(tried):
            best, high = tried, middle
        else:
            low = middle + 1
    return best


def _ending_at(found: Candidate, calls: Sequence[fx.Node]) -> Candidate | None:
    kept = {node.name for node in calls}
    unread = [n.name for n in calls if not any(user.name in kept for user in n.users)]
    return _built(found, keep=kept, results=unread)


def _fewer_results(found: Candidate, fails: Fails) -> Candidate:
    names = _result_names(found)
    kept = _ddmin(names, lambda chosen: _built(found, results=chosen) if chosen else None, fails)
    return kept or found


def _fewer_operations(found: Candidate, fails: Fails) -> Candidate:
    names = [node.name for node in found.graph.graph.nodes if node.op.startswith("call_")]
    best = found

    def without(chosen: Sequence[str]) -> Candidate | None:
        return _built(found, keep=set(chosen), results=_result_names(found)) if chosen else None

    return _ddmin(names, without, fails) or best


def _fewer_inputs(found: Candidate, fails: Fails) -> Candidate:
    """Without gradients, and with the same tensor twice where two are alike."""
    best = found
    for place, value in enumerate(found.inputs):
        if isinstance(value, Tensor) and value.requires_grad:
            tried = _with_input(best, place, value.detach())
            best = tried if fails(tried) else best
    return best


def _smaller_sizes(found: Candidate, fails: Fails) -> Candidate:
    """Each size as far down as it goes, in all inputs at once."""
    best = found
    sizes = sorted(
        {n for value in found.inputs if isinstance(value, Tensor) for n in value.shape if n > 2}, reverse=True
    )
    for size in sizes:
        for smaller in sorted({2, 3, size // 8, size // 2, size - 1} - {0, 1}):
            if smaller >= size:
                continue
            tried = _resized(best, size, smaller)
            if tried is not None and fails(tried):
                best = tried
                break
    return best


def _simpler_arguments(found: Candidate, fails: Fails) -> Candidate:
    """Without keyword arguments, and with plain numbers."""
    best = found
    for node in list(found.graph.graph.nodes):
        for name in node.kwargs:
            tried = _edited(best, node.name, partial(_drop, name=name))
            best = tried if fails(tried) else best
        for place, argument in enumerate(node.args):
            if isinstance(argument, float) and argument not in (1.0, 2.0):
                tried = _edited(best, node.name, partial(_set_number, place=place))
                best = tried if fails(tried) else best
    return best


def _drop(node: fx.Node, name: str) -> None:
    node.kwargs = {key: value for key, value in node.kwargs.items() if key != name}


def _set_number(node: fx.Node, place: int) -> None:
    node.update_arg(place, 2.0)


def _ddmin(names: Sequence[str], make: Callable[[Sequence[str]], Candidate | None], fails: Fails) -> Candidate | None:
    """The candidate of the fewest names that fails; None for all."""
    best: Candidate | None = None

    def alone(chosen: Sequence[str]) -> bool:
        nonlocal best
        tried = make(chosen)
        if tried is None or not fails(tried):
            return False
        best = tried
        return True

    fewest(names, alone)
    return best


# building


def _result_names(found: Candidate) -> list[str]:
    (output,) = found.graph.graph.find_nodes(op="output")
    return list(dict.fromkeys(node.name for node in output.all_input_nodes))


def _built(found: Candidate, *, keep: set[str] | None = None, results: Sequence[str] = ()) -> Candidate | None:
    """The graph with the calls `keep` alone, and `results`; what other calls give and is read becomes inputs. None where that cannot be."""
    old = found.graph.graph
    calls = {node.name for node in old.nodes if node.op.startswith("call_")}
    is_chosen = keep is not None
    keep = calls if keep is None else keep & calls
    lost = calls - keep
    values = _values(found) if lost else {}
    graph, made, inputs = fx.Graph(), dict[fx.Node, Any](), list[Any]()
    given = iter(found.inputs)
    needed = _needed(old, keep, set(results), is_chosen=is_chosen)
    late: list[tuple[fx.Node, Any]] = []
    first: fx.Node | None = None
    for node in old.nodes:
        value = next(given) if node.op == "placeholder" else None
        if node not in needed or node.op == "output":
            continue
        if node.name in lost:
            if node.name not in values:
                return None
            late.append((node, values[node.name]))
            with graph.inserting_before(first) if first is not None else graph.inserting_after():
                made[node] = _placeholder(graph, node)
            inputs.append(values[node.name])
        elif node.op == "placeholder":
            made[node] = _placeholder(graph, node)
            inputs.append(value)
        else:
            copy = graph.node_copy(node, lambda n: made[n])
            first = first or copy
            made[node] = copy
    ends = {node for node in old.nodes if node.name in keep and node in made and (is_chosen and not made[node].users)}
    leaving = [made[n] for n in old.nodes if n in made and n.name in keep and (n.name in results or n in ends)]
    if not leaving:
        return None
    graph.output(tuple(leaving))
    # Placeholders come in the order of the graph.
    return Candidate(fx.GraphModule(found.graph, graph), _in_order(graph, made, needed, inputs, old, lost))


def _in_order(
    graph: fx.Graph, made: Any, needed: Any, inputs: list[Any], old: fx.Graph, lost: set[str]
) -> tuple[Any, ...]:
    sources = [node for node in old.nodes if node in needed and (node.op == "placeholder" or node.name in lost)]
    by_node = {made[node]: value for node, value in zip(sources, inputs, strict=True)}
    return tuple(by_node[node] for node in graph.find_nodes(op="placeholder"))


def _placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    return graph.create_node("placeholder", node.name, name=node.name)


def _needed(old: fx.Graph, keep: set[str], results: set[str], *, is_chosen: bool) -> set[fx.Node]:
    """The calls that stay, and what they read: all of `keep` where those were chosen, else what leads to results and what nobody reads."""
    needed: set[fx.Node] = set()
    for node in reversed(old.nodes):
        if node.name in keep and (is_chosen or node.name in results or not node.users):
            needed.add(node)
        if node in needed and node.name in keep:
            needed.update(node.all_input_nodes)
    return needed


def _values(found: Candidate) -> dict[str, Any]:
    """What eager computes at each call, where that is one tensor or number; read right after the call."""
    known: dict[str, Any] = {}

    class Reader(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, Tensor):
                known[n.name] = (
                    value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)
                )
            elif isinstance(value, (int, float, bool)):
                known[n.name] = value
            return value

    state = torch.random.get_rng_state()
    try:
        Reader(found.graph).run(*copies(found.inputs))
    except Exception:
        return {}  # eager fails where nothing may: such a candidate is none
    finally:
        torch.random.set_rng_state(state)
    return known


def _with_input(found: Candidate, place: int, value: Any) -> Candidate:
    return Candidate(found.graph, (*found.inputs[:place], value, *found.inputs[place + 1 :]))


def _resized(found: Candidate, size: int, smaller: int) -> Candidate | None:
    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor) or size not in value.shape:
            return value
        part = value.detach()
        for dim, length in enumerate(value.shape):
            part = part.narrow(dim, 0, smaller) if length == size else part
        return part.clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)

    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in found.graph.graph.nodes:
        copy = made[node] = graph.node_copy(node, lambda n: made[n])
        if node.op.startswith("call_"):
            copy.args = pytree.tree_map(lambda a: smaller if type(a) is int and a == size else a, copy.args)
    tried = Candidate(fx.GraphModule(found.graph, graph), tuple(map(cut, found.inputs)))
    return tried if _values(tried) else None


def _edited(found: Candidate, name: str, edit: Callable[[fx.Node], None]) -> Candidate:
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in found.graph.graph.nodes:
        made[node] = graph.node_copy(node, lambda n: made[n])
        if node.name == name:
            edit(made[node])
    return Candidate(fx.GraphModule(found.graph, graph), found.inputs)
