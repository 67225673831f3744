"""The sweeps by name."""

from __future__ import annotations

from . import pairs, python_programs, states, tensors
from .program import Generator

GENERATORS: dict[str, Generator] = {
    "tensors": tensors.program,
    "python": python_programs.program,
    "states": states.program,
    "pairs": pairs.program,
}
