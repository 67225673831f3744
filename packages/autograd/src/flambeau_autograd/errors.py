"""The errors of ahead-of-time autograd.

In: what went wrong, in words. Out: an exception with a stable code and a hint.
`UnsupportedGraph` means "run this graph in eager"; `InternalError` means that we are at fault.
"""

from __future__ import annotations

from typing import Any


class AutogradError(Exception):
    """Root of the package's errors: `code`, `message`, `hint`."""

    code = "A000"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"[{self.code}] {message}" + (f"\n  hint: {hint}" if hint else ""))
        self.message = message
        self.hint = hint


class UnsupportedGraph(AutogradError):
    """The graph holds something this package does not model; the caller runs it in eager."""

    code = "A001"


class WrappedGradient(UnsupportedGraph):
    """The gradient of input `index` is the wrapper tensor `gradient`; the input is a plain tensor, or, where `index` counts those of the graph
    before it was flattened (`outer`), a wrapper that is made otherwise."""

    def __init__(self, index: int, gradient: Any, *, outer: bool = False) -> None:
        super().__init__(f"the gradient of input {index} is a {type(gradient).__name__} that is made otherwise")
        self.index = index
        self.gradient = gradient
        self.outer = outer


class UnsupportedMutation(UnsupportedGraph):
    """A mutation whose effect outside the graph cannot be reproduced (resize, set, aliased inputs)."""

    code = "A002"


class UnsupportedDoubleBackward(AutogradError, RuntimeError):
    """`create_graph=True` was asked for a graph whose backward cannot be differentiated again."""

    code = "A003"


class OptionError(AutogradError, ValueError):
    """An option, or the environment variable that stands for it, has a value that it does not take."""

    code = "A004"


class InternalError(AutogradError):
    """A promise between two stages was broken, or a stage failed where torch by itself does not: please report."""

    code = "A900"

    def __init__(
        self,
        message: str,
        hint: str = "a fault of flambeau: FLAMBEAU_LOGS=graph_code prints the graph; please report it with this text, "
        "and compile with backend='eager' until it is mended",
    ) -> None:
        super().__init__(message, hint)
