"""What the stages after capture assumed about symbolic sizes, as text that a cache can keep.

In: the fake inputs of a graph. Out: the expressions that their `ShapeEnv` holds; and, on a cache hit, the same expressions
asserted again in the new `ShapeEnv`, so that capture turns them into guards exactly as after a full compilation.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as shape_functions

#: torch's functions of sizes, which are read before sympy's of the same name.
_FUNCTIONS: dict[str, Any] = {name: value for name, value in vars(shape_functions).items() if inspect.isclass(value)}


def shape_env_of(inputs: Sequence[Any]) -> ShapeEnv | None:
    """The one `ShapeEnv` behind the symbolic sizes of a graph's inputs; None when every size is a number."""
    for value in inputs:
        if isinstance(value, torch.Tensor):
            mode = getattr(value, "fake_mode", None)
            if mode is not None and mode.shape_env is not None:
                return mode.shape_env
        elif isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return value.node.shape_env
    return None


def shape_guards(inputs: Sequence[Any]) -> list[str]:
    """Every expression assumed so far, in order; of those put off until sizes are known, the ones about inputs (programs check theirs)."""
    env = shape_env_of(inputs)
    if env is None:
        return []
    known = set().union(*(value.node.expr.free_symbols for value in _symbolic(inputs)))
    deferred = itertools.chain.from_iterable(env.deferred_runtime_asserts.values())
    about_inputs = [asserted for asserted in deferred if asserted.expr.free_symbols <= known]
    return [written(guard.expr) for guard in (*env.guards, *about_inputs)]


def _symbolic(inputs: Sequence[Any]) -> Iterator[torch.SymInt | torch.SymFloat | torch.SymBool]:
    for value in inputs:
        sizes = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        yield from (size for size in sizes if isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool))


def written(expression: sympy.Basic) -> str:
    """The text of an expression of sizes, for `read`.

    Not `str`, which writes a floor division as Python does: what sympy reads then is the floor of a quotient, whose bounds torch cannot tell.
    """
    return str(sympy.srepr(expression))


def read(text: str, symbols: Mapping[str, sympy.Symbol]) -> sympy.Basic:
    """The expression that was written, about these symbols by name; one that is not among them is another symbol."""
    names = {**_FUNCTIONS, "Symbol": lambda name, **_: symbols.get(name, sympy.Symbol(name))}
    return sympy.sympify(text, locals=names)


def replay_guards(guards: Sequence[str], inputs: Sequence[Any]) -> bool:
    """Assume the expressions again.

    Returns:
        False when one does not hold for the sizes at hand, or names a symbol that is not there: then the entry is of no use.
    """
    env = shape_env_of(inputs)
    if env is None or not guards:
        return not guards
    symbols = {str(symbol): symbol for symbol in env.var_to_range}
    for text in guards:
        expression = read(text, symbols)
        if not all(str(symbol) in symbols for symbol in expression.free_symbols):
            return False
        if not env.guard_or_defer_runtime_assert(expression, "assumed when the graph was compiled"):
            return False
    return True
