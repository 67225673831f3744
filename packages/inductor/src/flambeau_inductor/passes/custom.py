"""Passes of the user on graphs (`post_grad_custom_pre_pass` and its like): functions of an ``fx.Graph`` that edit it in place.

In: a graph, with an output node or with the nodes that leave it, and the function. Out: the same graph, whose new nodes have fake results; and what
stands for the nodes that left it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from ..context import CompileContext
from ..errors import OptionError
from ..rewrite.fakes import fake_mode_of, quietly, values_of
from .runner import Pass

CustomPass = Callable[[fx.Graph], Any]


def custom_pass(name: str, run: CustomPass | None) -> tuple[Pass, ...]:
    """The user's pass as one of ours; nothing where there is none."""
    if run is None:
        return ()

    def on_module(gm: fx.GraphModule, context: CompileContext) -> bool:
        before = str(gm.graph)
        run_custom(name, run, gm.graph)
        return str(gm.graph) != before

    return (Pass(name, on_module),)


def run_custom(
    name: str, run: CustomPass | None, graph: fx.Graph, results: Sequence[fx.Node] | None = None
) -> Mapping[fx.Node, fx.Node]:
    """Let ``run``, the option ``name``, edit ``graph``. ``results``: the nodes that leave a graph without an output node; those that were replaced are
    answered, with what stands for them.

    Raises OptionError for what the pass raises, for a graph that it leaves broken, and where a result is no node any more.
    """
    if run is None:
        return {}
    output = None if results is None else graph.output(tuple(results))
    try:
        run(graph)
        _fill_in(graph)
        graph.lint()
    except Exception as error:
        raise OptionError(
            f"{name} failed: {type(error).__name__}: {error}", hint="it gets an fx.Graph and edits it in place"
        ) from error
    if output is None:
        return {}
    now: Any = output.args[0]
    graph.erase_node(output)
    if len(now) != len(results or ()) or not all(isinstance(node, fx.Node) for node in now):
        raise OptionError(
            f"{name} changed how many results there are", hint="it may replace results, but not drop them"
        )
    return {before: after for before, after in zip(results or (), now, strict=True) if after is not before}


def _fill_in(graph: fx.Graph) -> None:
    """Fake results for the calls that the pass made."""
    mode = fake_mode_of(graph)
    fresh = [node for node in graph.nodes if node.op == "call_function" and "val" not in node.meta]
    if not fresh or mode is None:
        return
    values: dict[fx.Node, Any] = {}
    with quietly(mode):
        for node in fresh:
            args, kwargs = values_of((node.args, node.kwargs), values)
            node.meta["val"] = node.target(*args, **kwargs)
