"""Shared objects into this process: from bytes to addresses of entry points."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import threading
from pathlib import Path

from ..artifact import Library
from ..cache.trust import scratch_folder
from ..errors import BuildError

_loaded: dict[str, ctypes.CDLL] = {}
_guard = threading.Lock()


def load_library(library: Library) -> ctypes.CDLL:
    """Load ``library.binary``, once per content and process. Raises ``BuildError`` when it cannot be loaded.

    The object stays loaded for the life of the process: compiled programs hold addresses into it.
    """
    if library.binary is None:
        raise BuildError(f"library {library.name} was not built")
    digest = hashlib.sha256(library.binary).hexdigest()
    with _guard:
        if digest not in _loaded:
            _loaded[digest] = _open(library.binary, digest, library.name)
        return _loaded[digest]


def _open(binary: bytes, digest: str, name: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="flambeau-", dir=scratch_folder()) as folder:
        # The loader recognises a library it has by its path: the name must be unique to the content.
        path = Path(folder, f"{digest[:32]}.so")
        path.write_bytes(binary)
        try:
            return ctypes.CDLL(os.fspath(path))
        except OSError as error:
            raise BuildError(f"library {name} cannot be loaded: {error}") from error


def entry_address(handle: ctypes.CDLL, entry: str) -> int:
    """The address of a function. Raises ``BuildError`` when the library has no such entry."""
    try:
        address = ctypes.cast(getattr(handle, entry), ctypes.c_void_p).value
    except AttributeError:
        address = None
    if not address:
        raise BuildError(f"the library has no entry {entry!r}")
    return address
