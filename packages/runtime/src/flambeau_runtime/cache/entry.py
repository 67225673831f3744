"""The form of one entry's file: payload first, then what describes it, then a checksum.

The payload comes first so that a shared object can be loaded straight from its entry: an ELF reader ignores what
follows. Layout: payload, key parts as JSON, payload size (u64), JSON size (u64), SHA-256 of all before, magic.
"""

from __future__ import annotations

import hashlib
import json
import struct

from .key import CacheKey

MAGIC = b"FLMBENT1"
_SIZES = struct.Struct("<QQ")
_TRAILER_BYTES = _SIZES.size + 32 + len(MAGIC)


def pack(key: CacheKey, payload: bytes) -> bytes:
    """The content of the entry's file."""
    description = json.dumps({"kind": key.kind, "parts": dict(key.parts)}).encode()
    body = payload + description + _SIZES.pack(len(payload), len(description))
    return body + hashlib.sha256(body).digest() + MAGIC


def unpack(data: bytes) -> tuple[bytes, dict[str, str]] | None:
    """``(payload, key parts)``, or None if ``data`` is not a whole, undamaged entry."""
    if len(data) < _TRAILER_BYTES or not data.endswith(MAGIC):
        return None
    checksum_at = len(data) - len(MAGIC) - 32
    body = memoryview(data)[:checksum_at]
    if hashlib.sha256(body).digest() != data[checksum_at : checksum_at + 32]:
        return None
    payload_size, description_size = _SIZES.unpack_from(body, len(body) - _SIZES.size)
    if payload_size + description_size + _SIZES.size != len(body):
        return None
    parts = json.loads(bytes(body[payload_size : payload_size + description_size]))["parts"]
    return bytes(body[:payload_size]), {str(name): str(value) for name, value in parts.items()}
