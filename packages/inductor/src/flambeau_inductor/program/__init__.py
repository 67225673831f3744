"""The outer program as data: ``build`` makes the artifact, ``memory`` plans in-place results."""

from .build import BuiltProgram, build
from .memory import share_memory

__all__ = ["BuiltProgram", "build", "share_memory"]
