"""The outer program as data: ``assemble`` goes all the way, ``build`` makes the artifact, ``memory`` plans in-place results."""

from .assemble import assemble
from .build import BuiltProgram, build
from .memory import share_memory

__all__ = ["BuiltProgram", "assemble", "build", "share_memory"]
