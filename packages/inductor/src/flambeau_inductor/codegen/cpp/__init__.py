"""C++ kernels for the CPU: ``generate`` writes functions, ``translation_unit`` joins them with the support header."""

from .generate import generate
from .unit import FLAGS, translation_unit

__all__ = ["FLAGS", "generate", "translation_unit"]
