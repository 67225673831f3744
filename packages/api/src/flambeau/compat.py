"""The supported Pythons and torches, checked once at import.

Out: nothing, or `UnsupportedEnvironment` with the versions found and the range supported.
"""

from __future__ import annotations

import sys

import torch

from .errors import UnsupportedEnvironment

PYTHON_RANGE = ((3, 11), (3, 13))
TORCH_RANGE = ((2, 11), (2, 15))


def torch_version(text: str) -> tuple[int, int]:
    """`"2.13.0+cpu"` -> `(2, 13)`."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def check_environment(python: tuple[int, int] | None = None, torch_text: str | None = None) -> None:
    """Refuse an unsupported interpreter or torch.

    Args:
        python: (major, minor); the running one by default.
        torch_text: torch's version string; the installed one by default.

    Raises:
        UnsupportedEnvironment: when either is outside its range.
    """
    python = python or (sys.version_info.major, sys.version_info.minor)
    if not PYTHON_RANGE[0] <= python <= PYTHON_RANGE[1]:
        raise UnsupportedEnvironment(f"Python {python[0]}.{python[1]} is not supported")
    text = torch_text or torch.__version__
    if not TORCH_RANGE[0] <= torch_version(text) <= TORCH_RANGE[1]:
        raise UnsupportedEnvironment(f"torch {text} is not supported")
