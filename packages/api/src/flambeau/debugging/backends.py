"""A backend that stops early, so that lowering and code generation can be told apart: loops run by the interpreter of the loop IR.

In: a captured graph. Out: a callable. Slow, and made for `bisect.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

import flambeau_autograd as autograd
import flambeau_inductor as inductor
from flambeau_capture import no_warnings, unpatched


def loops(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Passes and lowering of the default backend, then the interpreter of the loop IR: no kernels. For graphs on a CPU."""
    with unpatched(), no_warnings():
        return autograd.compile_joint(
            gm, inputs, forward_compiler=inductor.interpret_graph, decompositions=inductor.decompositions()
        )
