"""The compiled form of one graph: kernels, a linear program over registers, constants by reference.

In: what a compiler decided (``flambeau_inductor.program`` fills the records of ``records.py``, tests write them by hand).
Out: an immutable, content-hashed value that can be printed, checked, saved without pickle, and run by
``flambeau_runtime.load``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from .devices import without_ordinals
from .encode import decode, encode
from .records import (
    FORMAT_VERSION,
    OPCODES,
    SUBPROGRAMS,
    Alloc,
    Call,
    Check,
    Compute,
    ConstantSpec,
    Copy,
    Free,
    Hold,
    InputSpec,
    Instruction,
    Item,
    Kernel,
    Launch,
    Library,
    Operand,
    OutputSpec,
    Program,
    Python,
    Reg,
    Scalar,
    Size,
    Size1D,
    Subprogram,
    Symbol,
    View,
    as_tuple,
)
from .text import artifact_text
from .validate import validate

__all__ = [
    "FORMAT_VERSION",
    "OPCODES",
    "SUBPROGRAMS",
    "Alloc",
    "Artifact",
    "Call",
    "Check",
    "Compute",
    "ConstantSpec",
    "Copy",
    "Free",
    "Hold",
    "InputSpec",
    "Instruction",
    "Item",
    "Kernel",
    "Launch",
    "Library",
    "Operand",
    "OutputSpec",
    "Program",
    "Python",
    "Reg",
    "Scalar",
    "Size",
    "Size1D",
    "Subprogram",
    "Symbol",
    "View",
]


@frozen
class Artifact:
    """Everything needed to run one compiled graph except the large constants.

    It names no CUDA ordinal that an input carries: the same artifact runs on any device. ``meta`` holds JSON-able facts for
    people and tools; it is part of the digest.
    """

    program: Program = field(converter=without_ordinals)
    libraries: tuple[Library, ...] = field(default=(), converter=as_tuple)
    kernels: tuple[Kernel, ...] = field(default=(), converter=as_tuple)
    constants: tuple[ConstantSpec, ...] = field(default=(), converter=as_tuple)
    symbols: tuple[Symbol, ...] = field(default=(), converter=as_tuple)
    meta: dict[str, Any] = field(factory=dict, hash=False)
    version: int = FORMAT_VERSION

    @property
    def digest(self) -> str:
        """Hash of the content. Binaries are left out: they follow from the sources and the toolchain."""
        bare = evolve(self, libraries=tuple(evolve(library, binary=None) for library in self.libraries))
        return hashlib.sha256(encode(bare)).hexdigest()

    def text(self) -> str:
        """A readable program, one instruction a line, with the user's positions of kernels."""
        return artifact_text(self)

    def validate(self) -> Artifact:
        """Return self, or raise ``ArtifactError`` naming the first instruction that does not make sense."""
        validate(self)
        return self

    def to_bytes(self) -> bytes:
        """Serialise: a JSON header, then binaries and long texts, then a checksum. No pickle."""
        return encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> Artifact:
        """Read what ``to_bytes`` wrote. Raises ``ArtifactError`` on truncation, corruption or another version."""
        return decode(data, Artifact)

    def save(self, path: str | Path) -> None:
        """Write to ``path``."""
        Path(path).write_bytes(self.to_bytes())

    @staticmethod
    def load(path: str | Path) -> Artifact:
        """Read from ``path``; raises ``ArtifactError`` if the content is not an artifact, ``OSError`` if unreadable."""
        return Artifact.from_bytes(Path(path).read_bytes())
