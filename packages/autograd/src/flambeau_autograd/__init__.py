"""Ahead-of-time autograd: a captured graph becomes functional forward and backward ATen graphs.

In: a `torch.fx.GraphModule` of torch-level calls with fake-tensor inputs. Out: a callable with the same inputs and
outputs, made of a compiled forward, a compiled backward and a native node that joins them for torch's autograd engine.
"""

from __future__ import annotations

from .backend import aot_autograd
from .config import Config
from .decompose.registry import core_table, merged
from .errors import AutogradError, OptionError, UnsupportedDoubleBackward, UnsupportedGraph, UnsupportedMutation
from .partition.min_cut import min_cut
from .partition.simple import default as default_partition
from .pipeline import assemble, compile_joint, prepare
from .records import Prepared, Signature

__version__ = "0.1.0"

__all__ = [
    "AutogradError",
    "Config",
    "OptionError",
    "Prepared",
    "Signature",
    "UnsupportedDoubleBackward",
    "UnsupportedGraph",
    "UnsupportedMutation",
    "aot_autograd",
    "assemble",
    "compile_joint",
    "core_table",
    "default_partition",
    "merged",
    "min_cut",
    "prepare",
]
