"""Frames between this process and its worker processes.

In: a JSON-able header and a list of byte strings. Out: the same, on the other side of a pipe. One frame is
``<u32 header length><u64 blob count><u64 length>*<header JSON><blob>*``, so nothing is ever unpickled.

This module needs the standard library only: a worker imports it without importing torch.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

#: The method that ends a worker.
STOP = "stop"
#: What a nursery is told: a socket for a new worker comes along, or that no more will.
NEW, END = b"n", b"e"

_HEAD = struct.Struct("<IQ")
_LENGTH = struct.Struct("<Q")


def write_frame(stream: BinaryIO, header: dict[str, Any], blobs: list[bytes] | tuple[bytes, ...] = ()) -> None:
    """Write one frame and flush it."""
    text = json.dumps(header).encode()
    parts = [_HEAD.pack(len(text), len(blobs)), *(_LENGTH.pack(len(blob)) for blob in blobs), text, *blobs]
    stream.write(b"".join(parts))
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read one frame; ``None`` when the other side closed the pipe between frames.

    Raises ``EOFError`` when the pipe closes inside a frame.
    """
    head = stream.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise EOFError("the pipe closed inside a frame")
    header_length, count = _HEAD.unpack(head)
    lengths = [_LENGTH.unpack(_exactly(stream, _LENGTH.size))[0] for _ in range(count)]
    header = json.loads(_exactly(stream, header_length))
    return header, [_exactly(stream, length) for length in lengths]


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the pipe closed inside a frame")
    return data
