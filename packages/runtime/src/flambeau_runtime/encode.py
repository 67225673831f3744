"""Artifacts to bytes and back, without pickle.

Layout: magic, format version (u32), header length (u64), JSON header, blobs, SHA-256 of all before. The header is a
tree of plain JSON values; records, registers and torch constants are one-key objects; bytes are blob numbers, and so are long
texts: sources are most of the text, and reading them as JSON would be most of the reading. Programs stand in a table, each after
those nested in it, and equal nested ones once. Equal artifacts give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any, TypeVar

import attrs
import torch

from . import records
from .errors import ArtifactError

MAGIC = b"FLAMBEAU"
_PREFIX = struct.Struct("<8sIQ")
_CHECKSUM_BYTES = 32
_LONG_TEXT = 1024

_RECORDS: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        records.Reg, records.Scalar, records.Library, records.Kernel, records.Alloc, records.View, records.Launch,
        records.Call, records.Hold, records.Compute, records.Size, records.Item, records.Check, records.Free,
        records.Copy, records.Subprogram, records.Python, records.InputSpec, records.OutputSpec, records.ConstantSpec,
        records.Symbol, records.Program,
    )
}  # fmt: skip

Root = TypeVar("Root", bound=records.Contents)


def _fields(cls: type[Any]) -> tuple[str, tuple[str, ...]]:
    return cls.__name__, tuple(item.name for item in attrs.fields(cls))


_FIELDS = {cls: _fields(cls) for cls in _RECORDS.values()}

_TORCH_KINDS: dict[str, type] = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}


class _Writer:
    """Turns values into JSON, collecting bytes as blobs."""

    def __init__(self, root: type[Any]) -> None:
        self.blobs: dict[bytes, int] = {}
        self.programs: list[Any] = []
        self.fields = {**_FIELDS, root: _fields(root)}
        self._nested: dict[str, int] = {}
        self._seen: dict[int, int] = {}
        self._depth = 0

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) < _LONG_TEXT):
            return value
        record = self.fields.get(type(value))
        if isinstance(value, records.Program):
            return {"program": self._program(value)}
        if record is not None:
            return self._record(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, complex):
            return {"complex": [self.value(value.real), self.value(value.imag)]}
        if isinstance(value, (tuple, list)):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {"dict": [[self.value(key), self.value(item)] for key, item in value.items()]}
        if isinstance(value, (bytes, str)):
            kind, blob = (
                ("bytes", value) if isinstance(value, bytes) else ("text", value.encode(errors="surrogatepass"))
            )
            return {kind: self.blobs.setdefault(blob, len(self.blobs))}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        for kind, cls in _TORCH_KINDS.items():
            if isinstance(value, cls):
                return {kind: str(value).removeprefix("torch.")}
        raise ArtifactError(f"a value of type {type(value).__qualname__} cannot be part of an artifact")

    def _record(self, value: Any) -> dict[str, Any]:
        name, names = self.fields[type(value)]
        return {name: [self.value(getattr(value, item)) for item in names]}

    def _program(self, program: records.Program) -> int:
        """The program's place in the table."""
        if id(program) in self._seen:
            return self._seen[id(program)]
        self._depth += 1
        tree = self._record(program)
        self._depth -= 1
        # The outermost program is equal to none of those inside it.
        text = json.dumps(tree) if self._depth else ""
        place = self._nested.setdefault(text, len(self.programs))
        if place == len(self.programs):
            self.programs.append(tree)
        self._seen[id(program)] = place
        return place


class _Reader:
    """The inverse of ``_Writer``; JSON lists become tuples."""

    def __init__(self, root: type[Any], blobs: list[bytes]) -> None:
        self.blobs = blobs
        self.programs: list[Any] = []
        self.records = {**_RECORDS, root.__name__: root}

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self.value(item) for item in value)
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind in self.records:
            return self.records[kind](*(self.value(item) for item in content))
        if kind == "program":
            return self.programs[content]
        if kind == "bytes":
            return self.blobs[content]
        if kind == "text":
            return self.blobs[content].decode(errors="surrogatepass")
        if kind == "dict":
            return {self.value(key): self.value(item) for key, item in content}
        if kind == "float":
            return float(content)
        if kind == "complex":
            return complex(self.value(content[0]), self.value(content[1]))
        if kind == "device":
            return torch.device(content)
        result = getattr(torch, content)
        if not isinstance(result, _TORCH_KINDS[kind]):
            raise ValueError(f"{content!r} is no {kind}")
        return result


def encode(artifact: records.Contents) -> bytes:
    """Serialise ``artifact``. Raises ``ArtifactError`` if it holds a value that has no encoding."""
    writer = _Writer(type(artifact))
    tree = writer.value(artifact)
    parts = {"tree": tree, "programs": writer.programs, "blobs": [len(blob) for blob in writer.blobs]}
    header = json.dumps(parts, separators=(",", ":")).encode()
    body = b"".join((_PREFIX.pack(MAGIC, records.FORMAT_VERSION, len(header)), header, *writer.blobs))
    return body + hashlib.sha256(body).digest()


def decode(data: bytes, root: type[Root]) -> Root:
    """Read what ``encode`` wrote of a ``root`` (an ``Artifact``). Raises ``ArtifactError`` on anything else."""
    if len(data) < _PREFIX.size + _CHECKSUM_BYTES:
        raise ArtifactError("the artifact is truncated")
    magic, version, header_size = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ArtifactError("this is not an artifact")
    if version != records.FORMAT_VERSION:
        raise ArtifactError(f"the artifact has format {version}, this runtime reads {records.FORMAT_VERSION}")
    body, checksum = memoryview(data)[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise ArtifactError("the artifact is truncated or corrupt: its checksum does not match")
    try:
        header = json.loads(bytes(body[_PREFIX.size : _PREFIX.size + header_size]))
        blobs, position = [], _PREFIX.size + header_size
        for size in header["blobs"]:
            blobs.append(bytes(body[position : position + size]))
            position += size
        reader = _Reader(root, blobs)
        for tree in header["programs"]:
            reader.programs.append(reader.value(tree))
        result = reader.value(header["tree"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ArtifactError(f"the artifact cannot be read: {error}") from error
    if not isinstance(result, root):
        raise ArtifactError(f"expected an {root.__name__}, found {type(result).__name__}")
    return result
