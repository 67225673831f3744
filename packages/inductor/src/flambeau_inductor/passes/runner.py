"""Runs graph passes: names, times, checks and dumps each one.

In: a ``GraphModule`` and an ordered list of passes. Out: a rewritten copy; the caller's graph stays as it was. A pass is a function
``(GraphModule, CompileContext) -> bool`` that edits the graph in place, keeps it valid, and says whether it changed anything.
The bodies that a graph calls come before it, each once. Passes never print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from attrs import field, frozen
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..context import CompileContext
from ..errors import FlambeauInductorError, VerifyError
from ..log import PASS_DONE, logger


@frozen
class Pass:
    """A named rewrite. ``run`` edits the graph in place and answers whether anything changed. ``option``: the option without which it is left out."""

    name: str
    run: Callable[[fx.GraphModule, CompileContext], bool] = field(repr=False)
    option: str = ""


def run_passes(gm: fx.GraphModule, passes: Sequence[Pass], context: CompileContext) -> fx.GraphModule:
    """``gm`` after all ``passes``, in order; ``gm`` itself when none changed anything."""
    return _run(gm, passes, context, {})


def _run(
    gm: fx.GraphModule, passes: Sequence[Pass], context: CompileContext, done: dict[int, fx.GraphModule]
) -> fx.GraphModule:
    """``done`` has the bodies that were rewritten, by the identities of what they were."""
    work = _copy(gm)
    changed_any = False
    for name, body in bodies_of(gm).items():
        if id(body) not in done:
            done[id(body)] = _run(body, passes, context, done)
        if done[id(body)] is not body:
            parent, _, last = name.rpartition(".")
            setattr(work.get_submodule(parent), last, done[id(body)])
            changed_any = True
    for item in passes:
        if (item.option and not getattr(context.config, item.option)) or not context.allows(item.name):
            continue
        with context.stage(f"pass {item.name}"):
            try:
                changed = item.run(work, context)
            except FlambeauInductorError as error:
                error.add_context(f"running pass {item.name}")
                raise
        changed_any = changed_any or changed
        if changed:
            _check(work, item.name)
            if context.config.dump:
                context.dump(f"pass_{item.name}", str(work.graph))
        logger.debug(PASS_DONE, name=item.name, changed=changed)
    return work if changed_any else gm


def graphs_text(gm: fx.GraphModule) -> str:
    """The code of a graph, and of the bodies that it calls."""
    # The graph's own text: passes edit the graph, and the module's code is that of before.
    own = gm.graph.python_code("self").src.strip()
    return "\n\n".join([own, *map(graphs_text, bodies_of(gm).values())])


def bodies_of(gm: fx.GraphModule) -> dict[str, fx.GraphModule]:
    """The nested graphs that ``gm`` reads, by attribute."""
    names = dict.fromkeys(str(node.target) for node in gm.graph.find_nodes(op="get_attr"))
    found = {name: attrgetter(name)(gm) for name in names}
    return {name: body for name, body in found.items() if isinstance(body, fx.GraphModule)}


def _copy(gm: fx.GraphModule) -> fx.GraphModule:
    """A module that shares tensors with ``gm`` and has a graph of its own, ``meta`` included."""
    graph = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(gm.graph, mapping)
    last = graph.output(output)
    for old in gm.graph.nodes:
        if old.op == "output":
            last.meta = dict(old.meta)
    return _LazyGraphModule(gm, graph)


def _check(gm: fx.GraphModule, name: str) -> None:
    """The rules every pass keeps: a well-formed graph whose nodes carry their fake results."""
    try:
        gm.graph.lint()
    except RuntimeError as error:
        raise VerifyError(f"pass {name} left a broken graph: {error}") from error
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "call_function") and "val" not in node.meta:
            raise VerifyError(f"pass {name} left {node} without meta['val']")
