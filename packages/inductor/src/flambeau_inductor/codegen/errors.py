"""The one error of code generation."""

from __future__ import annotations


class UnsupportedKernel(NotImplementedError):
    """A kernel body that its language cannot express; the message says why. The pipeline makes it library calls.

    ``origins`` name the FX nodes of the refused bodies, where ``generate`` raised it.
    """

    def __init__(self, message: str, origins: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.origins = origins
