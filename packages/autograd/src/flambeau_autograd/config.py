"""Options of ahead-of-time autograd: one frozen record, resolved once per compilation.

In: keyword arguments or environment variables (`option_fields.py`). Out: `Config`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import frozen

from .errors import OptionError
from .option_fields import Condition, OptionRecord, option

_NOT_NEGATIVE: Condition = (lambda value: value >= 0, "at least 0")
_SHARE: Condition = (lambda value: 0 <= value <= 1, "from 0 to 1")


@frozen
class Config(OptionRecord):
    """What is saved for the backward, and how both halves are joined."""

    prefix: ClassVar[str] = "FLAMBEAU_AUTOGRAD_"
    error: ClassVar[type[Any]] = OptionError

    activation_memory_budget: float = option(
        1.0, "saved activations as a share of what the default cut saves (0..1)", user=True, accepts=_SHARE
    )
    ban_recompute_long_fusible_chains: bool = option(
        True, "save a value of a chain of pointwise ops that is long, rather than compute all of it again", user=True
    )
    ban_recompute_not_in_allowlist: bool = option(
        True, "compute nothing again but pointwise ops and views; False: whatever saves bytes, products too", user=True
    )
    ban_recompute_reductions: bool = option(True, "compute no reduction again", user=True)
    aggressive_recomputation: bool = option(
        False, "compute again whatever saves bytes, reductions and long chains included", user=True
    )
    joint_graph_constant_folding: bool = option(
        True, "drop ops that change nothing (a copy of the same type and layout) before a graph is compiled", user=True
    )
    recompute_fusible: bool = option(
        True, "recompute chains of pointwise ops and views in the backward when that saves bytes"
    )
    max_recompute_chain: int = option(
        16, "how many fusible nodes in a row may be recomputed before one is saved", accepts=_NOT_NEGATIVE
    )
    disabled_joint_passes: str = option(
        "",
        "passes over joint graphs, and 'min_cut', that are left out, separated by commas: to find the one at fault",
        user=True,
    )
    native: bool = option(True, "use the C++ node; off, the Python twin runs", key=False)
    log_passes: bool = option(False, "log what each pass did, and the seconds", key=False)
