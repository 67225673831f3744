"""flambeau: a compiler for PyTorch programs.

Example:
    >>> import flambeau
    >>> model = flambeau.compile(model)
    >>> model(x)                                     # compiled on the first call
    >>> print(flambeau.explain(model)(x))            # what was compiled, and where graphs break
    >>> print(flambeau.profile(model)(x))            # which kernels take how long
"""

from __future__ import annotations

from .compat import check_environment

check_environment()

# Below the check: without it, an unsupported torch or Python would fail in one of these in words that say nothing.
from . import compiler, inductor  # noqa: E402
from .compile import compile  # noqa: E402
from .errors import FlambeauError  # noqa: E402
from .explain import explain  # noqa: E402
from .explanation import Explanation  # noqa: E402
from .log import configure_from_environment  # noqa: E402
from .profile import KernelProfile, profile  # noqa: E402
from .state import compile_in_place  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "Explanation",
    "FlambeauError",
    "KernelProfile",
    "__version__",
    "compile",
    "compile_in_place",
    "compiler",
    "explain",
    "inductor",
    "profile",
]

configure_from_environment()
