"""Where the nodes of an FX graph come from, for comments, names and profiles.

In: nodes with the user's frames in ``meta["stack"]`` and the module's path in ``meta["module"]``. Out: what ``Graph`` keeps of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

_TORCH = str(Path(torch.__file__).parent)


def origins(nodes: Sequence[fx.Node]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """By the names of the nodes that have them: the user's lines, the paths of modules, the names of operations."""
    calls = [node for node in nodes if node.op == "call_function"]
    lines = {node.name: line for node in calls if (line := line_of(node))}
    modules = {node.name: node.meta["module"] for node in nodes if node.meta.get("module")}
    return lines, modules, {node.name: op_name(node.target) for node in calls}


def line_of(node: fx.Node) -> str:
    """``file:line in function``: the innermost line that is not torch's own (that of a layer's ``forward`` says nothing); "" where none is known."""
    stack = node.meta.get("stack")
    if stack:
        users = [frame for frame in stack if not str(frame[0]).startswith(_TORCH)]
        file, line, function = (users or stack)[-1][:3]
        return f"{file}:{line} in {function}"
    trace = node.meta.get("stack_trace") or ""
    lines = [part.strip() for part in str(trace).splitlines() if part.strip()]
    return lines[-1] if lines else ""


def op_name(target: Any) -> str:
    """The operation without its overload."""
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet))
