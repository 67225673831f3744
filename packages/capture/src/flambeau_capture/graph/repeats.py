"""`Region`: what would be seen if operations ran a second time, or not at all, as those of a checkpointed region or of a body do.

In: each operator that ran on fakes meanwhile. Out: whether one drew random numbers, whether one wrote to a tensor that was there before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

#: Arguments that say how often an operator draws: at 0 it does not.
_RATES = ("dropout_p", "dropout")
#: What batch norms write in training, whether their schema says so or not.
_STATISTICS = ("running_mean", "running_var")
_TRAINING = ("training", "train")


class Region:
    """The operators of one region, and of the regions inside of it; one with a number is computed again for the backward."""

    def __init__(self, number: int | None, outer: Region | None, policy: Any = None) -> None:
        self.number = number
        #: Which operations the program would save: operators, or a function as `torch.utils.checkpoint` takes it.
        self.policy = policy
        self.outer = outer
        #: Whether the operations run at first without gradients, and then with them.
        self.reentrant = False
        self.draws = False
        #: Memory from outside that was written to, by its address; held, so that the address stays its name.
        self.written: dict[int, Any] = {}
        self._made: dict[int, Any] = {}

    @property
    def writes(self) -> bool:
        """Whether an operation has written to a tensor that was there before."""
        return bool(self.written)

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """One operator has run."""
        if self.outer is not None:
            self.outer.note(func, args, kwargs, out)
        given = {
            argument.name: (
                argument,
                args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value),
            )
            for place, argument in enumerate(func._schema.arguments)
        }
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.draws = self.draws or all(given[name][1] != 0 for name in _RATES if name in given)
        trains = any(name in given and given[name][1] is True for name in _TRAINING)
        known = set[int]()
        for name, (argument, value) in given.items():
            tensors = _storages(value)
            known |= tensors.keys()
            if (argument.alias_info is not None and argument.alias_info.is_write) or (name in _STATISTICS and trains):
                self.written |= {key: storage for key, storage in tensors.items() if key not in self._made}
        self._made |= {key: storage for key, storage in _storages(out).items() if key not in known}


def _storages(value: Any) -> dict[int, Any]:
    """The memory of the tensors of a value; held, so that its address stays its name."""
    found = {}
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            storage = leaf.untyped_storage()
            found[storage._cdata] = storage
    return found
