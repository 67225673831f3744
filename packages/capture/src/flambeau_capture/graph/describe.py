"""Symbolic sizes in words, for the log of dynamic shapes.

In: the builder of a graph that has symbols, and what earlier compiles of the frame taught. Out: one line for each symbol (source, value in
this call, range), each specialisation, each guard on sizes with the user's line, and each input that changed between compiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..guards.explain import describe
from .shapes import shape_guards

if TYPE_CHECKING:
    from ..graph.dynamics import Dynamics
    from .builder import GraphBuilder


def symbols_text(builder: GraphBuilder, learnt: Dynamics) -> str:
    """What became symbolic and why, what it may be, and what the program fixed."""
    env = builder.shape_env
    # The field was renamed between torch versions.
    values = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
    lines = []
    for symbol, bounds in env.var_to_range.items():
        source = builder.symbol_sources.get(str(symbol))
        origin = "the data of a tensor" if source is None else source.name
        now = f", {values[symbol]} in this call" if symbol in values else ""
        bounded = f"[{bounds.lower}, {bounds.upper}]".replace("int_oo", "inf")
        lines.append(f"{symbol} = {origin}{now}, range {bounded}")
    for symbol, replacement in env.replacements.items():
        word = "is" if replacement.free_symbols else "is specialised to"
        lines.append(f"{symbol} {word} {replacement}")
    for spec in shape_guards(builder):
        at = "" if spec.position is None else " (assumed at {}:{} in {})".format(*spec.position)
        lines.append(f"guard {describe(spec)}{at}")
    for name, dims in learnt.changed_dims.items():
        lines += [f"dimension {dim} of {name} changed between compiles" for dim in sorted(dims)]
    lines += [f"{name} changed between compiles" for name in sorted(learnt.changed_numbers)]
    return "\n".join(lines) + "\n"
