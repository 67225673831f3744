"""Names for what a graph's module gets besides.

In: a module and the name that something should have. Out: that name, or one like it that is free.
"""

from __future__ import annotations

from torch import nn


def fresh_name(module: nn.Module, name: str) -> str:
    """``name``, or with a number where an attribute is called that."""
    number, found = 0, name
    while hasattr(module, found):
        number += 1
        found = f"{name}_{number}"
    return found
