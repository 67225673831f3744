"""Triton kernels from kernel bodies. Start reading at ``kernel.py``."""

from .errors import UnsupportedKernel
from .kernel import KernelText, kernel_text
from .module import FLAGS, generate, generated, support, unsupported
from .options import Config

__all__ = [
    "FLAGS",
    "Config",
    "KernelText",
    "UnsupportedKernel",
    "generate",
    "generated",
    "kernel_text",
    "support",
    "unsupported",
]
