"""A shape environment that does not import torch's own compiler.

Three habits of `ShapeEnv` import it, with the exporter and more, at the first symbolic size: half a second and more in a fresh
process. Its initialiser asks torch's validator of guards whether it is on; to note which frame outside torch's machinery asked for a
symbol, it loads that machinery to know the names of its files; and it describes the symbol to a trace log whose handler, unless
`TORCH_TRACE` is set, does nothing with its first record but leave. Here the setting is read where it stands, the frame is found by
torch's folder, and such a handler leaves before.

In: the arguments of `ShapeEnv`. Out: `new_shape_env()`, one in every other respect. Where the package is loaded anyway or the
validator is on, it is the ordinary one. Imports sympy: only for compiles with symbolic sizes.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
from types import FrameType, FunctionType, SimpleNamespace
from typing import Any

import torch
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from .fake_mode import COMPILER

_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_VALIDATOR = "torch.fx.experimental.validator"
_SWITCH = "translation_validation_enabled"


def _import(name: str, table: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> Any:
    """`__import__`, but for the question whether guards are validated."""
    if name == _VALIDATOR and tuple(wanted or ()) == (_SWITCH,):
        return SimpleNamespace(**{_SWITCH: lambda: False})
    return builtins.__import__(name, table, local, wanted, level)


def _without_validator(function: Any) -> Any:
    """The same function with `_import` for its import statements; whatever is not a plain function is left as it is."""
    if type(function) is not FunctionType:
        return function
    table = {**function.__globals__, "__builtins__": {**vars(builtins), "__import__": _import}}
    made = FunctionType(function.__code__, table, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


class LeanShapeEnv(ShapeEnv):
    """A `ShapeEnv` whose making and whose notes about frames import nothing."""

    __init__ = _without_validator(ShapeEnv.__init__)
    _init = _without_validator(ShapeEnv._init)

    def _get_user_frame(self) -> FrameType | None:
        """The innermost frame whose code is not torch's."""
        # Not this frame itself: in a variable of its own it would stay, and the program's frames with it, until Python's collector finds it.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
            frame = frame.f_back
        return frame


def new_shape_env(**arguments: Any) -> ShapeEnv:
    """A fresh environment; `arguments` are those of `ShapeEnv`."""
    if COMPILER in sys.modules or _config.translation_validation:
        return ShapeEnv(**arguments)
    _drop_idle_trace()
    return LeanShapeEnv(**arguments)


def _drop_idle_trace() -> None:
    """Remove the trace log's handler where it has no folder and is in no place that has one: it would remove itself."""
    if not hasattr(torch.version, "git_version") or "MAST_HPC_JOB_NAME" in os.environ:
        return
    trace_log = logging.getLogger("torch.__trace")
    for handler in list(trace_log.handlers):
        if type(handler).__name__ == "LazyTraceHandler" and getattr(handler, "root_dir", "") is None:
            trace_log.removeHandler(handler)
