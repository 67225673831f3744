"""Which frames are captured: one table of places, one function.

In: a code object. Out: a `Decision`. A frame that is *traced* becomes the root of a capture; a *skipped* one runs in eager and frames it
calls are looked at; under an *opaque* one nothing is looked at. Inlining decisions may ask the same table through `owner_of`.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import Final

from .library import functools, weakref


class Decision(Enum):
    """What to do with a frame that starts inside a region."""

    TRACE = "trace"
    SKIP = "skip"
    OPAQUE = "opaque"


class Owner(Enum):
    """Whose code a file is."""

    USER = "user"
    TORCH_MODULE = "torch module"
    TORCH_WRAPPER = "torch wrapper"
    TORCH = "torch"
    STANDARD_LIBRARY = "standard library"
    NUMPY = "NumPy"
    FLAMBEAU = "flambeau"
    GENERATED = "generated"


# Files of torch that hold Python written against torch's public operators, so capture looks inside.
_TRACED_IN_TORCH: Final = (
    "nn/modules/",
    "nn/utils/parametrize.py",
    "nn/utils/parametrizations.py",
    "nn/utils/stateless.py",
    "nn/attention/",
    "optim/",
    "distributions/",
    "ao/nn/",
    "_refs/",
    "functional.py",
    "nn/functional.py",
    "nn/init.py",
    "utils/_contextlib.py",
    "utils/checkpoint.py",
    "amp/",
    "_export/db/examples/",
)
# Files of torch that only call the user's module: their own frames run as they are, the module's are looked at.
_PASSED_THROUGH_IN_TORCH: Final = ("nn/parallel/", "distributed/fsdp/fully_sharded_data_parallel.py")
_DECISIONS: Final = {
    Owner.USER: Decision.TRACE,
    Owner.TORCH_MODULE: Decision.TRACE,
    Owner.TORCH_WRAPPER: Decision.SKIP,
    Owner.TORCH: Decision.OPAQUE,
    Owner.STANDARD_LIBRARY: Decision.SKIP,
    Owner.NUMPY: Decision.SKIP,
    Owner.FLAMBEAU: Decision.OPAQUE,
    Owner.GENERATED: Decision.TRACE,
}


_REPEATS: Final = "/torch/utils/checkpoint.py"
"""Runs a function twice, and asks of the second run what the first one saved: both are eager's, with all that they call."""
_OPTIMIZER_ROOTS: Final = ("step", "wrapper", "_single_tensor", "_multi_tensor", "_fused", "zero_grad")
"""The functions of torch.optim that may be captured by themselves. Its helpers ask whether they are being compiled: all of a step must
get the same answer, so that they are never the only part that is captured."""
_PARTS: Final = ("<module>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Parts of functions with frames of their own, which loop over an iterator that exists already: the functions they call are captured."""


_TOOLS: Final = ("attr", "attrs", "filelock", "structlog", "triton")
"""What compiling itself calls. Some of it runs at any time (filelock listens to the interpreter's audit events)."""
_HOOKS: Final = frozenset(
    ("__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__len__", "__iter__", "__bool__", "__hash__", "__repr__", "__str__",
     "find_spec")
)  # fmt: skip
"""Methods that Python calls behind an expression or an import, once for every name or object: each would need an entry. Functions they call are captured."""


_WRAPPERS: Final = (
    "wrap_numpy.<locals>.wrap",
    "Scope.__call__.<locals>.scoped",
    "nested_compile_region.<locals>.call",
    "nonstrict_trace.<locals>.call",
    "leaf_function.<locals>.call",
    "substitute_in_graph.<locals>.register.<locals>.call",
    "wrap_dunder_call_ctx_manager.<locals>.inner",
)
"""What torch or we make of a function of the user's that it calls: traced as that is."""


_LEFT: weakref.WeakSet[CodeType] = weakref.WeakSet()


def leave_rest(code: CodeType) -> None:
    """Have the resume functions that rewritten code calls run in plain Python from now on."""
    _LEFT.update(part for part in code.co_consts if isinstance(part, CodeType) and ".resume_at_" in part.co_qualname)


def decide(code: CodeType) -> Decision:
    """What to do with a frame of this code as a root."""
    if code in _LEFT:
        return Decision.SKIP
    if code.co_qualname in _WRAPPERS and owner_of(code.co_filename) in (Owner.TORCH, Owner.FLAMBEAU):
        return Decision.TRACE
    if code.co_name in _PARTS or code.co_name in _HOOKS:
        return Decision.SKIP
    if "/torch/optim/" in code.co_filename and not code.co_name.startswith(_OPTIMIZER_ROOTS):
        return Decision.SKIP
    if code.co_filename.startswith(_tool_roots()) or code.co_filename.endswith(_REPEATS):
        return Decision.OPAQUE
    return _DECISIONS[owner_of(code.co_filename)]


@functools.lru_cache(maxsize=4096)
def owner_of(filename: str) -> Owner:
    """Whose file this is; a file in site-packages that is nobody else's is the user's."""
    if filename.startswith("<frozen"):
        return Owner.STANDARD_LIBRARY
    if filename.startswith("<"):
        return Owner.GENERATED
    torch_root = _package_root("torch")
    if torch_root and filename.startswith(torch_root):
        inside = filename[len(torch_root) :]
        if inside.startswith(_PASSED_THROUGH_IN_TORCH):
            return Owner.TORCH_WRAPPER
        return Owner.TORCH_MODULE if inside.startswith(_TRACED_IN_TORCH) else Owner.TORCH
    if (numpy_root := _package_root("numpy")) and filename.startswith(numpy_root):
        return Owner.NUMPY
    if filename.startswith(_flambeau_roots()):
        return Owner.FLAMBEAU
    if "site-packages" not in filename and filename.startswith(_standard_library()):
        return Owner.STANDARD_LIBRARY
    return Owner.USER


@functools.cache
def _package_root(name: str) -> str:
    spec = importlib.util.find_spec(name)
    return "" if spec is None or spec.origin is None else str(Path(spec.origin).parent) + "/"


def _tool_roots() -> tuple[str, ...]:
    return tuple(root for name in _TOOLS if name in sys.modules and (root := _package_root(name)))


def _flambeau_roots() -> tuple[str, ...]:
    names = ("flambeau", "flambeau_capture", "flambeau_autograd", "flambeau_inductor", "flambeau_runtime")
    return tuple(root for name in names if name in sys.modules and (root := _package_root(name)))


@functools.cache
def _standard_library() -> str:
    return sysconfig.get_path("stdlib") + "/"
