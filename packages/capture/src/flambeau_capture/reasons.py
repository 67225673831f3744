"""Why tracing stops: a table of stable codes, each with an explanation and a hint.

In: `GraphBreak(code, ...)` raised anywhere in the interpreter. Out: `describe(code) -> Reason`, used by errors and by `explain`.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Reason:
    """One way in which tracing stops."""

    code: str
    explanation: str
    hint: str


_TABLE: dict[str, Reason] = {}


def register(code: str, explanation: str, hint: str) -> Reason:
    """Add a reason; a code is given once."""
    if code in _TABLE:
        raise ValueError(f"break reason {code!r} registered twice")
    _TABLE[code] = reason = Reason(code, explanation, hint)
    return reason


def describe(code: str) -> Reason:
    """The reason registered under `code`."""
    return _TABLE[code]


def all_reasons() -> tuple[Reason, ...]:
    """Every reason, in order of registration."""
    return tuple(_TABLE.values())


for _code, _explanation, _hint in (
    ("data-dependent-branch", "a branch depends on the values inside a tensor", "compute both sides and choose with torch.where, or move the branch out of the compiled function"),
    ("data-dependent-value", "a Python number is read out of a tensor", "keep the value in a tensor, or read it outside the compiled function"),
    ("dynamic-output-shape", "the shape of an operator's result depends on the values inside a tensor", "use an operator with a fixed result shape (masking instead of selecting)"),
    ("open-size", "the program needs a relation between sizes marked unbacked that this call's inputs do not have", "use mark_dynamic: such sizes are looked at while tracing"),
    ("operator-error", "an operator refuses its arguments", "run the function without compiling it to see the error in eager"),
    ("uncaught-exception", "the function raises an exception that it does not catch", "the exception is raised as in eager"),
    ("unsupported-call", "a callable that cannot be traced is called", "call it outside the compiled function, or mark it with allow_in_graph or disable"),
    ("unsupported-attribute", "an attribute is read in a way that cannot be traced", "read it outside the compiled function"),
    ("unsupported-store", "an attribute or item is written in a way that cannot be traced", "write it outside the compiled function"),
    ("unsupported-operation", "an operation on values that cannot be traced", "do it outside the compiled function"),
    ("unsupported-instruction", "a bytecode instruction that the interpreter does not know", "rewrite the statement in a simpler form"),
    ("unsupported-argument", "a value that cannot be an argument of a graph operation", "pass tensors, numbers, strings or containers of these"),
    ("input-output", "the program prints, logs, reads input or warns", "harmless: the call runs between two graphs; remove it for one graph"),
    ("generator-function", "the frame is a generator or coroutine", "the function runs in eager; functions that it calls are compiled"),
    ("unsupported-tensor", "a tensor of a kind that is not traced (sparse, nested, quantised or a subclass)", "convert it to a dense tensor first"),
    ("autograd-call", "autograd is asked for what leads beyond the graph", "let the compiled function hold the forward that is differentiated, from leaves on"),
    ("autograd-function", "an autograd.Function cannot be part of the graph", "give it tensors and constants as arguments, and no effects"),
    ("control-flow-operator", "a control-flow or other higher-order operator of torch is called in a way that is no part of a graph", "let its functions return new tensors alike, and change nothing outside of them"),
    ("triton-kernel", "a Triton kernel is launched", "make an operator of the launch with torch.library.triton_op, which says what it writes"),
    ("tensor-hook", "a hook is registered on a tensor", "register hooks outside the compiled function"),
    ("numpy", "something of NumPy is used that torch has no equal for", "use torch operations, or do it outside the compiled function"),
    ("external-mutation", "a change to an object that cannot be replayed", "make the change outside the compiled function"),
    ("user-requested", "graph_break() was called", "remove the call"),
    ("disallowed-function", "a function marked with disallow_in_graph is called", "remove the mark"),
    ("skipped-frame", "skip_frame() was called", "remove the call"),
    ("step-unsupported", "step_unsupported() was called", "remove the call"),
    ("disabled-function", "a function marked with disable is called", "remove the mark"),
    ("too-deep", "inlined calls are nested too deeply", "reduce the recursion"),
    ("too-long", "too many instructions were traced in one frame", "move the loop into a tensor operation"),
    ("cannot-rebuild", "a value that lives across a graph break cannot be rebuilt", "avoid keeping it alive across the break"),
):  # fmt: skip
    register(_code, _explanation, _hint)
