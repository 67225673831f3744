"""Replacements of a program's own: where a graph computes what one function computes, call another one.

In: ``Replacement``s, whose functions are traced by who registers them (``trace``), and graph patterns with a handler. Out: the pass that applies them to each functional
graph, before ours. What stands in the midst of a match and is read from outside of it keeps the match from being replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch._ops import OpOverload

from ..context import CompileContext
from ..errors import ExtensionError
from ..log import RULE_APPLIED, logger
from ..ops.aten import aten_op
from ..rewrite.engine import Editor, Match, Rule, RuleSet
from ..rewrite.fakes import PROVENANCE, fake_mode_of, insert_run, laid_out, quietly, same_size
from ..rewrite.patterns import Call
from ..rewrite.subgraph import Found, find, results_of
from .calls import facts, told
from .table import Entry, Registration, checked_uuid, entries

KIND = "replacement"
PATTERN_KIND = "graph pattern"

#: A function and its fake operands -> what it computes, as a functional graph that returns a tuple.
Trace = Callable[[Callable[..., Any], Sequence[torch.Tensor]], fx.GraphModule]


@frozen(kw_only=True)
class Replacement:
    """``pattern`` is ``search`` traced with examples: what is looked for. Where it is found, ``search`` is traced with the operands that are there, has to be what the graph
    computes to the last number, and ``replace`` is traced in its place. ``check(operands)``, fakes by the name of the parameter, may refuse."""

    name: str
    search: Callable[..., Any]
    replace: Callable[..., Any]
    parameters: tuple[str, ...]
    pattern: fx.Graph
    trace: Trace
    check: Callable[[dict[str, torch.Tensor]], bool] | None = None


def register_replacement(replacement: Replacement, *, uuid: str | None = None) -> Registration:
    """Have ``replacement`` applied. ExtensionError for a search function that computes nothing, draws random numbers, or returns an operand."""
    check_pattern(replacement.name, replacement.pattern)
    return Registration.of(Entry(KIND, replacement.name, checked_uuid(uuid), replacement))


def register_graph_pattern(
    pattern: Call,
    handler: Callable[[Match, Editor], Any] | None = None,
    *,
    extra_check: Callable[[Match], bool] | None = None,
    name: str = "",
    uuid: str | None = None,
) -> Registration:
    """Have ``handler`` replace calls that match ``pattern``."""
    if not isinstance(pattern, Call):
        raise ExtensionError(
            f"a pattern is a call of operators, not {pattern!r}", hint="call(op, Operand('x'), Constant('n'))"
        )
    uuid = checked_uuid(uuid)

    def enter(function: Callable[[Match, Editor], Any]) -> list[Entry]:
        own = name or getattr(function, "__qualname__", type(function).__qualname__)

        def check(match: Match, context: CompileContext) -> bool:
            return extra_check is None or bool(told(own, partial(extra_check, match)))

        def replace(match: Match, editor: Editor) -> fx.Node | None:
            made = told(own, partial(function, match, editor))
            return None if made is None else _fitting(own, made, match, editor)

        rule = Rule(own, "the program's own", pattern, replace, check)
        return [Entry(PATTERN_KIND, own, uuid, rule)]

    return Registration(enter, handler)


def _fitting(name: str, made: Any, match: Match, editor: Editor) -> fx.Node:
    """What a handler made, held to what it replaces, in the strides of that."""
    old, new = match.root.meta["val"], made.meta.get("val") if isinstance(made, fx.Node) else made
    if not isinstance(old, torch.Tensor):
        raise ExtensionError(f"{name}: {match.root.target} gives several results; patterns replace one tensor")
    if not _are_alike(old, new):
        raise ExtensionError(f"{name} gives {facts(new)}, what it replaces is {facts(old)}")
    return laid_out(editor.call, made, old)


def apply_registered(gm: fx.GraphModule, context: CompileContext) -> bool:
    """The pass: replacements in the order of their registration, then graph patterns until none applies."""
    changed = False
    for entry in entries(KIND):
        changed |= _apply(entry.payload, gm)
    rules = tuple(entry.payload for entry in entries(PATTERN_KIND))
    return (bool(rules) and RuleSet(rules).run(gm, context)) or changed


def check_pattern(name: str, pattern: fx.Graph) -> None:
    """ExtensionError for what cannot be looked for."""
    for result in results_of(pattern):
        if not isinstance(result, fx.Node) or result.op != "call_function":
            raise ExtensionError(f"replacement {name}: the search function returns what it does not compute: {result}")
    for node in pattern.nodes:
        if node.op == "get_attr":
            raise ExtensionError(f"replacement {name}: the search function reads a tensor that is no operand of it")
        if isinstance(node.target, OpOverload) and (aten_op(node.target).draws or node.target._schema.is_mutable):
            raise ExtensionError(f"replacement {name}: {node.target} has effects, which are not replaced")
        if node.op == "placeholder" and not node.users:
            raise ExtensionError(f"replacement {name}: the search function does not use its operand {node.name}")


def _apply(replacement: Replacement, gm: fx.GraphModule) -> bool:
    last, changed = results_of(replacement.pattern)[-1], False
    # Found from the end, so that the largest of several that overlap is seen first.
    for root in reversed(gm.graph.find_nodes(op="call_function", target=last.target)):
        if root.users:
            changed |= any(
                _replaced(replacement, gm, root, found) for found in find(replacement.pattern, root, loosely=True)
            )
    return changed


def _replaced(replacement: Replacement, gm: fx.GraphModule, root: fx.Node, found: Found) -> bool:
    nodes = [found.nodes[node] for node in replacement.pattern.find_nodes(op="placeholder")]
    fakes = [_like(node.meta["val"], gm.graph) for node in nodes]
    exact = told(replacement.name, partial(replacement.trace, replacement.search, fakes)).graph
    if results_of(exact)[-1].target != root.target:
        return False
    same = next((one for one in find(exact, root, operands=nodes) if _is_closed(one, exact)), None)
    if same is None:
        return False
    given = dict(zip(replacement.parameters, fakes, strict=True))
    if replacement.check is not None and not told(replacement.name, partial(replacement.check, given)):
        return False
    fakes = [_like(node.meta["val"], gm.graph) for node in nodes]
    made = told(replacement.name, partial(replacement.trace, replacement.replace, fakes))
    results = [same.nodes[node] for node in results_of(exact)]
    first = _first_reader(gm.graph, results, nodes, same)
    if first is None:
        return False
    _check_results(replacement.name, results, results_of(made.graph))
    _put(gm.graph, replacement.name, first, results, nodes, made, same)
    logger.debug(RULE_APPLIED, rule=replacement.name, node=root.name)
    return True


def _like(val: torch.Tensor, graph: fx.Graph) -> torch.Tensor:
    """A fake of the graph's mode with the layout of ``val``, that no trace has seen."""
    mode = fake_mode_of(graph)
    assert mode is not None
    with quietly(mode):
        return torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device=val.device)


def _is_closed(found: Found, pattern: fx.Graph) -> bool:
    """Whether nothing but results is read from outside, so that all else can go."""
    calls = set(found.calls())
    results = {found.nodes[node] for node in results_of(pattern)}
    return all(user in calls or _is_dead(user) for node in calls - results for user in node.users)


def _is_dead(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is getitem and not node.users


def _check_results(name: str, results: Sequence[fx.Node], made: Sequence[fx.Node]) -> None:
    if len(results) != len(made):
        raise ExtensionError(f"replacement {name} gives {len(made)} results, what it replaces {len(results)}")
    for place, (before, after) in enumerate(zip(results, made, strict=True)):
        old, new = before.meta["val"], after.meta["val"] if isinstance(after, fx.Node) else after
        if not _are_alike(old, new):
            raise ExtensionError(f"replacement {name}: result {place} is {facts(new)}, what it replaces {facts(old)}")


def _are_alike(old: torch.Tensor, new: Any) -> bool:
    alike = isinstance(new, torch.Tensor) and new.dtype is old.dtype and new.device == old.device
    return alike and new.dim() == old.dim() and all(map(same_size, new.shape, old.shape))


def _first_reader(
    graph: fx.Graph, results: Sequence[fx.Node], operands: Sequence[fx.Node], found: Found
) -> fx.Node | None:
    """The first node outside that reads a result, where all operands are computed before it."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    inside = set(found.calls())
    first = min((user for node in results for user in node.users if user not in inside), key=order.__getitem__)
    return first if all(order[node] < order[first] for node in operands) else None


def _put(
    graph: fx.Graph,
    name: str,
    first: fx.Node,
    results: Sequence[fx.Node],
    operands: Sequence[fx.Node],
    made: fx.GraphModule,
    found: Found,
) -> None:
    """The nodes of ``made`` in the place of what was found, in front of ``first``."""
    old = set(found.calls())
    copies: dict[fx.Node, Any] = dict(zip(made.graph.find_nodes(op="placeholder"), operands, strict=True))
    notes = {key: value for key, value in results[-1].meta.items() if key in PROVENANCE}

    def call(target: Any, *args: Any) -> fx.Node:
        node = insert_run(graph, first, target, *args)
        node.meta |= notes
        return node

    with graph.inserting_before(first):
        for node in made.graph.nodes:
            if node.op == "get_attr":
                raise ExtensionError(f"replacement {name}: it reads a tensor that is no operand of it")
            if node.op == "call_function":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                copies[node].meta = {**{k: v for k, v in node.meta.items() if k not in PROVENANCE}, **notes}
    for before, after in zip(results, results_of(made.graph), strict=True):
        new = laid_out(call, copies[after], before.meta["val"])
        before.replace_all_uses_with(new, delete_user_cb=lambda user: user not in old)
    for node in reversed(list(graph.nodes)):
        if node in old and not node.users:
            graph.erase_node(node)
