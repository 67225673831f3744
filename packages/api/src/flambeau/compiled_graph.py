"""What is kept of a compiled graph: the joining signature, the artifacts, what was assumed about sizes.

In: what autograd, inductor and the C++ compiler made. Out: `CompiledGraph`, as bytes and back; `Fresh` has the constants too that it does not carry.
"""

from __future__ import annotations

import json
import struct

import torch
from attrs import frozen

import flambeau_autograd as autograd
import flambeau_runtime as runtime

_SIZE = struct.Struct("<Q")


@frozen
class CompiledGraph:
    """Everything a cached graph needs: the joining signature and one artifact per direction.

    ``folding``, ``watched``, ``kept``: of a frozen graph, as in ``inductor.FrozenArtifact``. ``lines``, ``modules``: of the captured graph, as in ``Places``.
    """

    signature: autograd.Signature
    forward: runtime.Artifact
    backward: runtime.Artifact | None
    guards: tuple[str, ...] = ()
    folding: runtime.Artifact | None = None
    watched: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[tuple[str, runtime.Artifact], ...]:
        """The artifacts that there are, by what they do."""
        every = (("forward", self.forward), ("backward", self.backward), ("folding", self.folding))
        return tuple((kind, artifact) for kind, artifact in every if artifact is not None)

    def to_bytes(self) -> bytes:
        """The size of a JSON header, that, the artifacts as they are: most of it are binaries and sources."""
        parts = [artifact.to_bytes() for _, artifact in self.programs]
        fields = {
            "signature": self.signature.to_json(),
            "guards": self.guards,
            "programs": [(kind, len(part)) for (kind, _), part in zip(self.programs, parts, strict=True)],
            "watched": self.watched,
            "kept": self.kept,
            "lines": self.lines,
            "modules": self.modules,
        }
        header = json.dumps(fields).encode()
        return b"".join((_SIZE.pack(len(header)), header, *parts))

    @classmethod
    def from_bytes(cls, data: bytes) -> CompiledGraph:
        """Inverse of `to_bytes`; raises `ValueError` for anything else."""
        if len(data) < _SIZE.size:
            raise ValueError("a cached graph without a header")
        (header_size,) = _SIZE.unpack_from(data)
        end = _SIZE.size + header_size
        fields = json.loads(data[_SIZE.size : end])
        programs: dict[str, runtime.Artifact] = {}
        for kind, size in fields["programs"]:
            programs[kind] = runtime.Artifact.from_bytes(data[end : end + size])
            end += size
        return cls(
            autograd.Signature.from_json(fields["signature"]),
            programs["forward"],
            programs.get("backward"),
            tuple(fields["guards"]),
            programs.get("folding"),
            tuple(fields["watched"]),
            tuple(fields["kept"]),
            tuple(fields["lines"]),
            tuple(fields["modules"]),
        )


@frozen
class Fresh:
    """A graph that was just compiled, with the constants that each of its programs does not carry itself."""

    graph: CompiledGraph
    constants: tuple[list[torch.Tensor], ...]
