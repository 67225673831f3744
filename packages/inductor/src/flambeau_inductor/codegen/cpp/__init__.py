"""C++ kernels for the CPU: ``generate`` writes functions, ``support`` says what they call."""

from .generate import generate
from .unit import FLAGS, support

__all__ = ["FLAGS", "generate", "support"]
