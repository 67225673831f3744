"""The errors of ahead-of-time autograd.

In: what went wrong, in words. Out: an exception with a stable code and a hint.
`UnsupportedGraph` means "run this graph in eager"; `InternalError` means that we are at fault.
"""

from __future__ import annotations

from typing import Any, ClassVar

from .error_root import FlambeauError


class AutogradError(FlambeauError):
    """Root of everything ahead-of-time autograd raises."""

    code: ClassVar[str] = "FB200"


class UnsupportedGraph(AutogradError, NotImplementedError):
    """The graph holds something this package does not model; the caller runs it in eager."""

    code = "FB201"


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

    code = "FB202"


class UnsupportedDoubleBackward(AutogradError, RuntimeError):
    """`create_graph=True` was asked for a graph whose backward cannot be differentiated again."""

    code = "FB203"


class OptionError(AutogradError, ValueError):
    """An option, or the environment variable that stands for it, has a value that it does not take."""

    code = "FB207"


class InternalError(AutogradError, AssertionError):
    """A promise between two stages was broken, or a stage failed where torch by itself does not: please report."""

    code = "FB290"
    hint = (
        "a fault of flambeau: FLAMBEAU_LOGS=graph_code prints the graph; please report it with this text, "
        "and compile with backend='eager' until it is mended"
    )
