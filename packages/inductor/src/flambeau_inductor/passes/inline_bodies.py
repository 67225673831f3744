"""Calls of bodies that are worth more as part of the graph around them: used once, or so small that a call would cost more than they do.

In: ``invoke_subgraph`` nodes. Out: the nodes of their bodies in the place of the call. A body of several calls stays: it is compiled once then.
Valid in, valid out. A body is put in only where its fakes are those of the operands, symbols included.
"""

from __future__ import annotations

from collections import Counter
from operator import getitem
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..fingerprint import fingerprint
from ..rewrite.fakes import same_layout
from ..rewrite.splice import splice

#: A body of no more calls than this is put in wherever it is called.
SMALL = 3


def inline_bodies(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Put bodies in the place of their calls."""
    calls = [node for node in gm.graph.nodes if _is_call(node)]
    known = {id(body): fingerprint(body) for body in (_body(gm, node) for node in calls)}
    uses = Counter(known[id(_body(gm, node))] for node in calls)
    changed = False
    for node in calls:
        body = _body(gm, node)
        small = sum(inner.op == "call_function" for inner in body.graph.nodes) <= SMALL
        if (small or uses[known[id(body)]] == 1) and _fits(node, body):
            splice(gm, node, body, node.args[2:], str(_source(node).target))
            changed = True
    return changed


def _is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is torch.ops.higher_order.invoke_subgraph


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def _body(gm: fx.GraphModule, node: fx.Node) -> fx.GraphModule:
    return gm.get_submodule(str(_source(node).target))


def _fits(node: fx.Node, body: fx.GraphModule) -> bool:
    """Whether the body was traced for operands like these, and its results go to parts of the call alone."""
    places = body.graph.find_nodes(op="placeholder")
    operands = node.args[2:]
    if len(places) != len(operands) or not all(user.target is getitem for user in node.users):
        return False
    return all(map(_same, places, operands))


def _same(place: fx.Node, operand: Any) -> bool:
    wanted = place.meta.get("val")
    given = operand.meta.get("val") if isinstance(operand, fx.Node) else operand
    if isinstance(wanted, torch.Tensor):
        return same_layout(wanted, given)
    if isinstance(wanted, torch.SymInt) and isinstance(given, torch.SymInt):
        return bool(wanted.node.expr == given.node.expr)
    return type(wanted) is type(given) and wanted == given
