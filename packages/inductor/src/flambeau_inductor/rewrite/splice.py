"""A graph in the place of one call of another graph.

In: a call, and a graph of its operands that gives its results. Out: the nodes of that graph where the call was; what it closes over is read
through an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from typing import Any

from torch import fx

from .fakes import PROVENANCE
from .names import fresh_name


def splice(gm: fx.GraphModule, call: fx.Node, body: fx.GraphModule, operands: Sequence[Any], path: str = "") -> None:
    """Put ``body`` in the place of ``call``, which nothing but parts of it reads. ``path`` is the attribute that ``body`` is already."""
    copies: dict[fx.Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
    if not path and body.graph.find_nodes(op="get_attr"):
        path = fresh_name(gm, f"{call.name}_parts")
        gm.add_module(path, body)
    notes = {key: value for key, value in call.meta.items() if key in PROVENANCE}
    with gm.graph.inserting_before(call):
        for inner in body.graph.nodes:
            if inner.op in ("placeholder", "output"):
                continue
            copy = copies[inner] = gm.graph.node_copy(inner, copies.__getitem__)
            copy.meta = {**notes, **copy.meta}
            if inner.op == "get_attr":
                copy.target = f"{path}.{inner.target}"
    (results,) = body.graph.output_node().args
    _replace(gm, call, fx.node.map_arg(results, copies.__getitem__))


def _replace(gm: fx.GraphModule, node: fx.Node, values: Any) -> None:
    """Parts of ``node`` are ``values``, parts of parts included."""
    for user in list(node.users):
        assert user.target is getitem
        value = values[user.args[1]]
        if isinstance(value, fx.Node):
            user.replace_all_uses_with(value)
            gm.graph.erase_node(user)
        elif isinstance(value, tuple | list):
            _replace(gm, user, value)
        else:
            # A number, or nothing.
            for reader in list(user.users):
                reader.args, reader.kwargs = (
                    fx.node.map_arg(part, lambda n, user=user, value=value: value if n is user else n)
                    for part in (reader.args, reader.kwargs)
                )
            gm.graph.erase_node(user)
    gm.graph.erase_node(node)
