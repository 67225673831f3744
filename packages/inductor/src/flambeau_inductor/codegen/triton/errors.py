"""The one error of Triton code generation."""

from __future__ import annotations


class UnsupportedKernel(NotImplementedError):
    """A kernel body that has no Triton text; the message says why. The pipeline makes it library calls.

    ``origins`` name the FX nodes of the refused bodies, where ``generate`` raised it.
    """

    def __init__(self, message: str, origins: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.origins = origins
