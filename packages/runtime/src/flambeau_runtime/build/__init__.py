"""From C++ source to loaded functions: find a compiler, compile, load."""

from __future__ import annotations

from .compile import build_libraries, compile_library
from .library import load_library
from .toolchain import Toolchain, find_toolchain

__all__ = ["Toolchain", "build_libraries", "compile_library", "find_toolchain", "load_library"]
