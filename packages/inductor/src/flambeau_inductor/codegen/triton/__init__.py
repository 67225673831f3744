"""Triton kernels from kernel bodies. Start reading at ``kernel.py``."""

from .errors import UnsupportedKernel
from .kernel import KernelText, kernel_text
from .module import GeneratedKernel, generate, module_source, unsupported
from .options import Config

__all__ = ["Config", "GeneratedKernel", "KernelText", "UnsupportedKernel", "generate", "kernel_text", "module_source", "unsupported"]
