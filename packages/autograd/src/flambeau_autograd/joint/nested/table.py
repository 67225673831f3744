"""The operators that are traced through: name -> what records a call of it.

Each is called with the replay of the graph that the call stands in and with the operator's own arguments, and returns the results as tensors of
that trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .associative import associative_scan
from .attention import flex_attention
from .branches import cond
from .loops import while_loop, while_loop_stack_output
from .maps import map_impl
from .regions import invoke_subgraph
from .scans import scan

OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "associative_scan": associative_scan,
    "cond": cond,
    "flex_attention": flex_attention,
    "invoke_subgraph": invoke_subgraph,
    "map_impl": map_impl,
    "scan": scan,
    "while_loop": while_loop,
    "while_loop_stack_output": while_loop_stack_output,
}
