"""Graphs of models under DistributedDataParallel, cut where one of its buckets of gradients is full.

In: a backend. Out: the same, for graphs that are captured in such a wrapper's forward called with one part of the graph after the other. Each part has a
backward of its own: gradients of the last layers are reduced while those of the first are still computed. What would tell the parts from the
whole is not cut: values written in place or views of such, tuples, regions that are computed again, settings that the graph changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from flambeau_capture.hook import call_disabled

from .backends import Backend
from .calling import one_by_one
from .graph_nodes import name_of
from .log import logger

_WHOLE = ("starts_anew", "may_start_anew", "is_open", "assumes", "wrappers")
"""Notes of capture on a graph that must run, or raise, as one."""


_WRITING = frozenset(
    name
    for stem in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    )
    for name in (f"i{stem}", f"__i{stem}")
) | {"setitem", "__setitem"}
"""Functions of Python's operators, and methods without the underscores at their ends."""


@frozen
class Part:
    """One part of a graph.

    Attributes:
        module: it.
        takes: places of its inputs among all values: the graph's inputs first, then the results of the parts in their order.
        example: what the backend is given for them.
        drops: places that no later part reads, and that are no result.
    """

    module: fx.GraphModule
    takes: tuple[int, ...]
    example: list[Any]
    drops: tuple[int, ...]


def by_buckets(backend: Backend) -> Backend:
    """The backend, given graphs of models under DistributedDataParallel bucket by bucket.

    Whether there is such a model is asked at each graph: the group of processes may be made after the model was handed to `compile`.
    """

    @functools.wraps(backend, updated=())
    def compile_parts(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        wrapper = torch.nn.parallel.DistributedDataParallel._get_active_ddp_module()
        ends = [] if wrapper is None else _ends(gm.graph, _limits(wrapper))
        if len(ends) < 2:
            return backend(gm, inputs)
        parts, results = _cut(gm, ends)
        logger.info(
            "ddp_graphs", artifact="ddp_graphs", parts=len(parts), nodes=[len(p.module.graph.nodes) for p in parts]
        )
        compiled = [_callable(backend, part) for part in parts]
        return functools.partial(_run, parts, compiled, results)

    compile_parts.__name__ = getattr(backend, "__name__", None) or type(backend).__name__
    for name in ("wants_real_inputs", "wants_code"):
        if hasattr(backend, name):
            setattr(compile_parts, name, getattr(backend, name))
    return compile_parts


def _callable(backend: Backend, part: Part) -> Callable[..., Any]:
    compiled = one_by_one(backend(part.module, part.example))
    return call_disabled(compiled, rescue=part.module.meta.get("rescue"))


def _run(
    parts: Sequence[Part], compiled: Sequence[Callable[..., Any]], results: tuple[int, ...], *inputs: Any
) -> tuple[Any, ...]:
    values: list[Any] = list(inputs)
    for part, run in zip(parts, compiled, strict=True):
        values.extend(run(*[values[place] for place in part.takes]))
        for place in part.drops:
            values[place] = None
    return tuple(values[place] for place in results)


def _limits(wrapper: Any) -> tuple[int, int]:
    """Bytes of the bucket that is full first, and of the others."""
    most = int(wrapper.bucket_bytes_cap)
    first = getattr(torch.distributed, "_DEFAULT_FIRST_BUCKET_BYTES", most)
    return min(first, most), most


def _ends(graph: fx.Graph, limits: tuple[int, int]) -> list[int]:
    """The number of operations before the end of each part, in their order; one where the graph stays whole."""
    if any(graph.owning_module.meta.get(note) for note in _WHOLE):
        return []
    operations = _operations(graph)
    if any(node.meta.get("val") is None and node.op != "get_attr" for node in operations):
        return []  # it changes settings
    allowed = _places_to_cut(operations, graph.find_nodes(op="placeholder"))
    found, counted, size = [len(operations)], set[fx.Node](), 0
    for place in range(len(operations) - 1, -1, -1):
        for node in operations[place].all_input_nodes:
            value = node.meta.get("val")
            if (
                node.op == "placeholder"
                and isinstance(value, torch.nn.Parameter)
                and value.requires_grad
                and node not in counted
            ):
                counted.add(node)
                size += value.nbytes
        if size >= limits[len(found) > 1] and place in allowed:
            found.append(place)
            size = 0
    if len(found) > 1 and not size:
        found.pop()  # what comes first has no parameters of its own
    return found[::-1]


def _operations(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op not in ("placeholder", "output")]


def _places_to_cut(operations: list[fx.Node], inputs: Iterable[fx.Node]) -> set[int]:
    """Before which operations the graph can be cut."""
    order = {node: place for place, node in enumerate(operations)}
    last = {
        node: max([order[user] for user in node.users if user in order], default=order[node]) for node in operations
    }
    barred: list[tuple[int, int]] = []
    shared: dict[int, list[fx.Node]] = {}
    for node in operations:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            shared.setdefault(_memory(value), []).append(node)
        elif not isinstance(value, (int, torch.SymInt)) or node.op == "get_attr":
            barred.append((order[node], last[node]))
    written = {_memory(node.meta["val"]) for node in inputs if _is_written(node)}
    for memory, nodes in shared.items():
        if memory in written or any(map(_is_written, nodes)):
            users = {user for node in nodes for user in (node, *node.users) if user in order}
            writers = [order[user] for user in users if _may_write(user)] or [last[node] for node in nodes]
            barred.append((min(order[node] for node in nodes), max(writers)))
    again: dict[Any, list[int]] = {}
    for node in operations:
        if node.meta.get("checkpoint") is not None:
            again.setdefault(node.meta["checkpoint"], []).append(order[node])
    barred += [(min(places), max(places)) for places in again.values()]
    within = {place for first, end in barred for place in range(first + 1, end + 1)}
    return set(range(1, len(operations))) - within


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage()._cdata


def _is_written(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_inference() and value._version > 0


def _may_write(node: fx.Node) -> bool:
    """Whether an operation may write to an operand, by its name and by what it is given: a flag, or where to put its result."""
    name = name_of(node)
    flags = (value is True for value in (*node.args, *node.kwargs.values()))
    return (
        name.rstrip("_") in _WRITING
        or (name.endswith("_") and not name.endswith("__"))
        or "out" in node.kwargs
        or any(flags)
    )


def _cut(gm: fx.GraphModule, ends: list[int]) -> tuple[list[Part], tuple[int, ...]]:
    """The parts, and the places of the graph's results among all values."""
    inputs, operations = gm.graph.find_nodes(op="placeholder"), _operations(gm.graph)
    (output,) = gm.graph.find_nodes(op="output")
    place = {node: number for number, node in enumerate(inputs)}
    made: list[Part] = []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        own = operations[start:end]
        inside = set(own)
        taken = list(dict.fromkeys(n for node in own for n in node.all_input_nodes if n not in inside))
        given = [node for node in own if node.op != "get_attr" and any(user not in inside for user in node.users)]
        graph = fx.Graph()
        copies = {node: graph.placeholder(node.name) for node in taken}
        for node in taken:
            copies[node].meta = dict(node.meta)
            copies[node].meta["val"] = _as_input(node)
        for node in own:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        closing = graph.output(tuple(copies[node] for node in given))
        closing.meta.update(val=tuple(node.meta["val"] for node in given), stack=())
        module = fx.GraphModule(gm, graph, "CapturedPart")
        module.meta = {name: value for name, value in gm.meta.items() if name != "rescue"}
        takes = tuple(place[node] for node in taken)
        for node in given:
            place[node] = len(place)
        made.append(Part(module, takes, [copies[node].meta["val"] for node in taken], ()))
    results = tuple(place[node] for node in output.args[0])
    read: set[int] = set(results)
    for number in range(len(made) - 1, -1, -1):
        part = made[number]
        made[number] = Part(part.module, part.takes, part.example, tuple(p for p in part.takes if p not in read))
        read.update(part.takes)
    return made, results


def _as_input(node: fx.Node) -> Any:
    """What stands for a value where a part takes it: a tensor without the history that it has in the whole graph."""
    value = node.meta["val"]
    if node.op == "placeholder" or not isinstance(value, torch.Tensor):
        return value
    with value.fake_mode, torch.no_grad():
        if value._version and not (value.is_conj() or value.is_neg()):
            # What was written before the part is a tensor like any other for it.
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
            return made.requires_grad_(value.requires_grad)
        return value.detach().requires_grad_(value.requires_grad)
