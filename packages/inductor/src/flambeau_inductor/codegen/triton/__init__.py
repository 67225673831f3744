"""Triton kernels from kernel bodies. Start reading at ``kernel.py``."""

from ..errors import UnsupportedKernel
from .kernel import KernelText, kernel_text
from .module import generate, generated, support, unsupported
from .options import Config

__all__ = [
    "Config",
    "KernelText",
    "UnsupportedKernel",
    "generate",
    "generated",
    "kernel_text",
    "support",
    "unsupported",
]
