"""Lowering, fusion and code generation: an ATen graph goes in, a ``flambeau_runtime`` artifact comes out.

``compile_graph(gm, inputs, options)`` compiles; ``decompositions()`` is the table to trace graphs with; ``rewrite_joint`` may be called on a
joint graph of forward and backward before it is cut in two. Read ``pipeline.py`` first.
"""

from __future__ import annotations

from .config import Config
from .context import CompileContext
from .decompositions import decompositions
from .errors import CompileError, FlambeauInductorError, InternalError, OptionError, UnsupportedGraphError
from .pipeline import compile_graph, rewrite_joint

__version__ = "0.1.0"

__all__ = [
    "CompileContext",
    "CompileError",
    "Config",
    "FlambeauInductorError",
    "InternalError",
    "OptionError",
    "UnsupportedGraphError",
    "__version__",
    "compile_graph",
    "decompositions",
    "rewrite_joint",
]
