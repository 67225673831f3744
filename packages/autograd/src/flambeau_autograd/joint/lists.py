"""What eager's nodes of list ops (`torch._foreach_*`) save: torch shows it of no such node.

In: a list op that was just traced, its arguments and results. Out: its node and the tensors that it saves. Found by asking eager: the same call
with tensors of one number instead of the operands, with a gradient where these need one, tells through the hooks what it saves.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ..errors import UnsupportedGraph

#: How the names of the ops, and of their nodes in autograd's graph, begin. Those that write to their arguments leave a node of an ordinary op for each.
_OPS: Final = "_foreach_"
_NODES: Final = "Foreach"


def is_list_node(node: Any) -> bool:
    """Whether a node of autograd's graph stands for a whole list op."""
    return bool(node.name().startswith(_NODES))


def saved_by_list_op(target: Any, args: Any, kwargs: Any, results: Any) -> tuple[Any, list[torch.Tensor]] | None:
    """The node and what it saves; None for other calls and where there is no node. Raises `UnsupportedGraph` where eager cannot be asked."""
    name = getattr(target, "__name__", "")
    # One that writes has no node of its own, and eager may refuse to tell the history of what it wrote.
    if not name.startswith(_OPS) or name.endswith("_") or not isinstance(results, (list, tuple)):
        return None
    node = next((result.grad_fn for result in results if result.grad_fn is not None), None)
    if node is None or not is_list_node(node):
        return None
    traced, spec = pytree.tree_flatten((args, kwargs))
    factors = next(
        (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.dim() == 1), ()
    )
    saved: set[int] = set()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.add(tensor.data_ptr())
        return tensor

    with _disable_current_modes(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        asked = [_stand_in(value, len(results) if value is factors else 0) for value in traced]
        asked_args, asked_kwargs = pytree.tree_unflatten(asked, spec)
        try:
            found = target(*asked_args, **asked_kwargs)
        except RuntimeError as error:
            raise UnsupportedGraph(f"what {target.__name__} saves cannot be told: {error}") from error
    pairs = zip((*traced, *results), (*asked, *found))
    return node, [value for value, own in pairs if isinstance(own, torch.Tensor) and own.data_ptr() in saved]


def _stand_in(value: Any, length: int) -> Any:
    """A tensor without dimensions (or of the length given), in memory of its own; numbers as they are or 1."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return 1
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.ones([length] if length else [], dtype=value.dtype)
    return made.requires_grad_(value.requires_grad)
