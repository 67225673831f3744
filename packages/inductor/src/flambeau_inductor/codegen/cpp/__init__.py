"""C++ kernels for the CPU: ``generate`` and ``generate_templates`` write functions, ``support`` says what they call."""

from .attention import generate_templates
from .generate import generate
from .unit import FLAGS, support

__all__ = ["FLAGS", "generate", "generate_templates", "support"]
