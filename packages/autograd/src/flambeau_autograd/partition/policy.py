"""Selective activation checkpointing: which operations of a checkpointed region the program would have saved.

In: a node of the joint graph and the policy of its region: operators, or a function as `torch.utils.checkpoint` takes it, which gets a context, the
operator, its arguments and keyword arguments (as fakes). Out: whether the partitioner may save the node's result.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Node, map_arg
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


def may_be_saved(node: Node, policy: Any) -> bool:
    """What the policy answers; it may be a truth value, as older ones gave."""
    if isinstance(policy, tuple):
        return node.target in policy
    args, kwargs = map_arg((node.args, node.kwargs), lambda used: used.meta.get("val"))
    answer = policy(SelectiveCheckpointContext(is_recompute=False), node.target, *args, **kwargs)
    return answer is True or answer in _SAVED
