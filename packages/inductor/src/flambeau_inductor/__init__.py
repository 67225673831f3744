"""Lowering, fusion and code generation: an ATen graph goes in, a ``flambeau_runtime`` artifact comes out.

``compile_graph(gm, inputs, options)`` compiles; ``decompositions()`` is the table to trace graphs with; ``rewrite_joint`` may be called on a
joint graph of forward and backward before it is cut in two. Read ``pipeline.py`` first.

The compiler is loaded when one of its functions is first asked for: whoever only wants `Config` or the errors, as for the key of a graph that
was compiled before, does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .config import Config
from .errors import (
    CompileError,
    ExtensionError,
    FlambeauInductorError,
    InternalError,
    OptionError,
    UnsupportedGraphError,
)

if TYPE_CHECKING:
    from .context import CompileContext
    from .decomposition_table import decompositions
    from .pipeline import (
        FrozenArtifact,
        compile_frozen,
        compile_graph,
        interpret_graph,
        rewrite_joint,
        run_joint_passes,
    )

__version__ = "0.1.0"

__all__ = [
    "CompileContext",
    "CompileError",
    "Config",
    "ExtensionError",
    "FlambeauInductorError",
    "FrozenArtifact",
    "InternalError",
    "OptionError",
    "UnsupportedGraphError",
    "__version__",
    "compile_frozen",
    "compile_graph",
    "decompositions",
    "interpret_graph",
    "rewrite_joint",
    "run_joint_passes",
]


_LAZY = (
    "CompileContext",
    "FrozenArtifact",
    "compile_frozen",
    "compile_graph",
    "decompositions",
    "interpret_graph",
    "rewrite_joint",
    "run_joint_passes",
)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .context import CompileContext
    from .decomposition_table import decompositions
    from .pipeline import (
        FrozenArtifact,
        compile_frozen,
        compile_graph,
        interpret_graph,
        rewrite_joint,
        run_joint_passes,
    )

    found = (
        CompileContext,
        FrozenArtifact,
        compile_frozen,
        compile_graph,
        decompositions,
        interpret_graph,
        rewrite_joint,
        run_joint_passes,
    )
    globals().update(zip(_LAZY, found, strict=True))
    return globals()[name]
