"""The operators that are traced through: name -> what records a call of it.

Each is called with the replay of the graph that the call stands in and with the operator's own arguments, and returns the results as tensors of
that trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .branches import cond

OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "cond": cond,
}
