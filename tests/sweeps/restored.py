"""Give back what a program has put in the place of functions of torch and of the standard library.

In: nothing. Out: `restored`, a context in which anything may be replaced.
"""

from __future__ import annotations

import bisect
import contextlib
import heapq
import itertools
import json
import math
import operator
import random
import string
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

#: Whose functions a program may replace.
_OWNERS: tuple[Any, ...] = (
    torch, torch.linalg, torch.special, nn.functional, Tensor, nn.Module, nn.ReLU, nn.Identity, nn.Sequential, bisect, heapq, itertools, json, math, operator, random, string, textwrap,
)  # fmt: skip


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """What is under a name at the end is what was there at the beginning; modules that were imported meanwhile stay."""
    before = [(owner, dict(vars(owner))) for owner in _OWNERS]
    try:
        yield
    finally:
        for owner, names in before:
            for name, value in [*vars(owner).items()]:
                if name not in names and not isinstance(value, types.ModuleType):
                    delattr(owner, name)
                elif name in names and value is not names[name]:
                    setattr(owner, name, names[name])
            for name in names.keys() - vars(owner).keys():
                setattr(owner, name, names[name])
