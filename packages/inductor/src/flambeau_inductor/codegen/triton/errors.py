"""The one error of Triton code generation."""

from __future__ import annotations


class UnsupportedKernel(NotImplementedError):
    """A kernel body that has no Triton text; the message says why. The caller makes it a library call."""
