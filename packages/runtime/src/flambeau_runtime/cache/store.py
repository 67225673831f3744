"""A content-addressed store in one folder, safe between threads, processes and crashes.

In: ``CacheKey`` and bytes. Out: the same bytes later, or None. An entry appears whole or not at all (temporary file,
fsync, rename); a damaged one is a miss and is removed; a folder that cannot be written, or that others may change
(``trust.py``), makes the store keep its entries in memory. Nothing here raises because of the state of the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import tarfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .. import log
from ..config import Config
from ..profile import count
from .entry import pack, unpack
from .key import CacheKey, where_different
from .trust import belongs_to_us, examine

_LAYOUT = "v1"
_TEMPORARY = "tmp"
_LOCKS = "locks"


class Store:
    """Entries below ``folder`` (None: memory only), at most ``limit_bytes`` of them, least recently used evicted.

    ``shared``: other users may write to the folder, and what they put there is loaded; else only what nobody but us could have put there is.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, *, limit_bytes: int = 4 << 30, shared: bool = False
    ) -> None:
        self.limit_bytes = limit_bytes
        self._shared = shared
        self._place = None if folder is None else Path(os.path.abspath(folder), _LAYOUT)
        self._is_settled = folder is None or shared
        self._memory: dict[str, tuple[CacheKey, bytes]] = {}
        self._used: dict[str, CacheKey] = {}
        self._guard = threading.Lock()
        self._warned: set[str] = set()
        self._unswept_bytes: int | None = None

    @property
    def folder(self) -> Path | None:
        """Where entries lie; None while the store is in memory."""
        return self._root

    @property
    def _root(self) -> Path | None:
        """The folder, once every part of its path was looked at; what is not there yet is looked at again."""
        place = self._place
        if place is None or self._is_settled:
            return place
        verdict = examine(place)
        if verdict.folder is None or verdict.exists:
            self._place, self._is_settled = verdict.folder, True
        if verdict.folder is None:
            self._warn_once("untrusted", log.CACHE_UNTRUSTED.format(folder=place.parent, reason=verdict.reason))
        return verdict.folder

    # reading and writing

    def get(self, key: CacheKey) -> bytes | None:
        """The payload stored under ``key``, or None."""
        with self._guard:
            held = self._memory.get(key.digest)
        if held is not None:
            self._used[key.digest] = key
            return held[1]
        path = self._path(key)
        found = None if path is None else self._read(path, key)
        event = log.CACHE_MISS if found is None else log.CACHE_HIT
        count(f"{event}: {key.kind}")
        log.logger.debug(event, artifact="caching", kind=key.kind, key=key.digest[:16])
        if found is None:
            return None
        self._used[key.digest] = key
        return found[0]

    def path(self, key: CacheKey) -> Path | None:
        """The verified file whose leading bytes are the payload (a shared object can be loaded from it), or None."""
        path = self._path(key)
        if path is None or self._read(path, key) is None:
            return None
        self._used[key.digest] = key
        return path

    def used(self) -> tuple[CacheKey, ...]:
        """The keys of the entries that this process has written or read."""
        return tuple(self._used.values())

    def holds(self, kind: str) -> bool:
        """Whether there is any entry of a kind."""
        with self._guard:
            if any(key.kind == kind for key, _ in self._memory.values()):
                return True
        root = self._root
        return root is not None and any(True for _ in (root / kind).glob("??/*"))

    def put(self, key: CacheKey, payload: bytes) -> None:
        """Store ``payload``; the last of several writers of one key wins, and all are whole."""
        self._used[key.digest] = key
        path = self._path(key)
        if path is None or not self._write(path, pack(key, payload)):
            with self._guard:
                self._memory[key.digest] = (key, bytes(payload))

    def get_json(self, key: CacheKey) -> Any:
        """The value stored by ``put_json``, or None."""
        payload = self.get(key)
        return None if payload is None else json.loads(payload)

    def put_json(self, key: CacheKey, value: Any) -> None:
        """Store a JSON-able value."""
        self.put(key, json.dumps(value, sort_keys=True).encode())

    def remove(self, key: CacheKey) -> None:
        """Forget an entry, if there is one."""
        with self._guard:
            self._memory.pop(key.digest, None)
        path = self._path(key)
        if path is not None:
            _unlink(path)

    def clear(self) -> None:
        """Forget every entry."""
        with self._guard:
            self._memory.clear()
        for path in self._entries():
            _unlink(path)

    # working together

    @contextlib.contextmanager
    def lock(self, key: CacheKey, *, patience_seconds: float = 300.0) -> Iterator[bool]:
        """Hold the lock of ``key`` (shared with other keys of its kind: do not nest locks of one kind).

        The kernel frees a lock whose owner died. A live owner that holds it longer than ``patience_seconds`` is
        overtaken, since entries are content-addressed and writing one twice is harmless. Yields whether it is held.
        """
        handle = self._open_lock(key)
        if handle is None:
            yield False
            return
        try:
            yield _acquire(handle, patience_seconds)
        finally:
            os.close(handle)

    def _open_lock(self, key: CacheKey) -> int | None:
        root = self._root
        if root is None:
            return None
        path = root / _LOCKS / f"{key.kind}-{key.digest[:2]}"
        try:
            self._make_folder(path.parent)
            return os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666 if self._shared else 0o600
            )
        except OSError:
            return None

    # explaining

    def why(self, key: CacheKey) -> str:
        """Why ``get(key)`` misses: which parts differ from the nearest entry of the same kind."""
        if self.get(key) is not None:
            return f"{key.kind} {key.digest[:16]}: present"
        candidates = [unpacked[1] for path in self._entries(key.kind) if (unpacked := self._read(path)) is not None]
        with self._guard:
            candidates += [dict(held.parts) for held, _ in self._memory.values() if held.kind == key.kind]
        if not candidates:
            return f"{key.kind} {key.digest[:16]}: no entry of this kind is stored"
        nearest = min(candidates, key=lambda parts: len(key.difference(parts)))
        mine = dict(key.parts)
        lines = [
            f"  {name}{where_different(nearest.get(name, '(absent)'), mine.get(name, '(absent)'))}"
            for name in key.difference(nearest)
        ]
        return "\n".join([f"{key.kind} {key.digest[:16]}: nearest of {len(candidates)} entries differs in", *lines])

    # bundles

    def export_bundle(self, keys: Iterable[CacheKey] | None = None) -> bytes:
        """The named entries (default: all) as one uncompressed tar archive for ``import_bundle``."""
        wanted = None if keys is None else {key.digest: key for key in keys}
        if wanted is None:
            chosen = self._entries()
        else:
            chosen = [path for key in wanted.values() if (path := self._path(key)) is not None]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            contents = [(f"{path.parent.parent.name}/{path.name}", path) for path in chosen]
            for name, path in sorted(contents):
                with contextlib.suppress(OSError):
                    _add_member(archive, name, path.read_bytes())
            for key, payload in list(self._memory.values()):
                if wanted is None or key.digest in wanted:
                    _add_member(archive, f"{key.kind}/{key.digest}", pack(key, payload))
        return buffer.getvalue()

    def import_bundle(self, bundle: bytes) -> tuple[CacheKey, ...]:
        """Add the entries of a bundle; damaged or misnamed ones are left out. Returns the keys of those that were added."""
        added: list[CacheKey] = []
        try:
            with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:") as archive:
                for member in archive:
                    content = archive.extractfile(member)
                    unpacked = None if content is None else unpack(content.read())
                    kind = member.name.partition("/")[0]
                    if unpacked is None:
                        continue
                    key = CacheKey(kind, tuple(unpacked[1].items()))
                    if member.name == f"{kind}/{key.digest}":
                        self.put(key, unpacked[0])
                        added.append(key)
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise ValueError(f"this is not a cache bundle: {error}") from None
        return tuple(added)

    # the disk

    def _path(self, key: CacheKey) -> Path | None:
        root = self._root
        return None if root is None else root / key.kind / key.digest[:2] / key.digest

    def _entries(self, kind: str | None = None) -> list[Path]:
        root = self._root
        if root is None or not root.is_dir():
            return []
        if kind is not None:
            return list((root / kind).glob("??/*"))
        return [path for path in root.glob("*/??/*") if path.parts[-3] not in (_TEMPORARY, _LOCKS)]

    def _read(self, path: Path, key: CacheKey | None = None) -> tuple[bytes, dict[str, str]] | None:
        """An entry's payload and key parts; with ``key``, only of an entry that is that key's."""
        try:
            # `open` may be the program's own.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
                # The folder may have been open to others when the entry was put there.
                if not self._shared and not belongs_to_us(os.fstat(file.fileno())):
                    self._warn_once("foreign", f"{log.CACHE_FOREIGN}: {path}")
                    return None
                data = file.read()
        except OSError:
            return None
        unpacked = unpack(data)
        if unpacked is None or (key is not None and unpacked[1] != dict(key.parts)):
            _unlink(path)
            self._warn_once("corrupt", f"{log.CACHE_CORRUPT}: {path}")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return unpacked

    def _write(self, path: Path, content: bytes) -> bool:
        root = self._root
        if root is None:
            return False
        temporary = root / _TEMPORARY / f"{os.getpid()}-{threading.get_ident()}-{os.urandom(6).hex()}"
        try:
            self._make_folder(temporary.parent)
            self._make_folder(path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o666 if self._shared else 0o600), "wb") as file:
                # The lock tells a live writer's file from one left by a writer that was killed.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
        except OSError as error:
            _unlink(temporary)
            self._warn_once("unwritable", f"{log.CACHE_UNWRITABLE}: {error}")
            return False
        self._account(len(content))
        return True

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and those above it that are missing, for us alone unless the store is shared."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for name in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process was quicker
                name.mkdir(mode=0o777 if self._shared else 0o700)

    def _account(self, written: int) -> None:
        """Sweep at the first write and then whenever a sixteenth of the limit was written."""
        with self._guard:
            due = self._unswept_bytes is None or self._unswept_bytes + written > self.limit_bytes // 16
            self._unswept_bytes = 0 if due else (self._unswept_bytes or 0) + written
        if due:
            self.sweep()

    def sweep(self) -> int:
        """Remove what dead writers left, and the least recently used entries above the limit. Returns bytes freed."""
        root = self._root
        if root is None:
            return 0
        for path in (root / _TEMPORARY).glob("*"):
            _remove_if_abandoned(path)
        stats = []
        for path in self._entries():
            with contextlib.suppress(OSError):
                status = path.stat()
                stats.append((status.st_mtime_ns, status.st_size, path))
        total, freed = sum(size for _, size, _ in stats), 0
        for _, size, path in sorted(stats):
            if total - freed <= self.limit_bytes:
                break
            _unlink(path)
            freed += size
        if freed:
            log.logger.debug(log.CACHE_EVICTED, artifact="caching", bytes=freed)
        return freed

    def _warn_once(self, subject: str, message: str) -> None:
        with self._guard:
            if subject in self._warned:
                return
            self._warned.add(subject)
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _add_member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _acquire(handle: int, patience_seconds: float) -> bool:
    deadline, pause = time.monotonic() + patience_seconds, 0.001
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.05)


def _remove_if_abandoned(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A file that was just created may not be locked yet by its writer.
        if time.time() - os.fstat(handle).st_mtime > 5.0:
            _unlink(path)
    except OSError:
        return
    finally:
        os.close(handle)


_stores: dict[tuple[str, int, bool], Store] = {}
_stores_guard = threading.Lock()


def default_store(config: Config | None = None) -> Store:
    """The store that ``config`` (default: the environment) names; one object per folder and process."""
    config = Config.from_environment() if config is None else config
    folder = str(config.folder()) if config.cache_enabled else ""
    identity = (folder, config.cache_limit_bytes, config.cache_shared)
    with _stores_guard:
        if identity not in _stores:
            _stores[identity] = Store(folder or None, limit_bytes=config.cache_limit_bytes, shared=config.cache_shared)
        return _stores[identity]
