"""What compiles have learnt about sizes that change, beyond one process and one rank.

In: the settings `job_id`, `pgo_extra_read_key`, `pgo_extra_write_key` and `enable_compiler_collectives`. Out: `profile_of`: where capture reads and keeps
what it learns of a code object. Kept in the store under the job's word and the code itself: another process of the same job makes sizes symbolic at
its first compile that changed in an earlier one, or that are others than those it saw. What cannot be read counts for nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any

import torch
from attrs import frozen

from flambeau_runtime.cache import CacheKey, Store, default_store

from .log import logger
from .stages import Stages
from .stance import ranks_group

KIND = "shapes"


@frozen
class ShapeProfile:
    """Where one region's compiles read and keep what they learn.

    Attributes:
        store: the store.
        reads: words under which records are looked for.
        writes: words under which they are kept.
        tag: the setting `cache_key_tag`.
        asks_ranks: whether the ranks of a job tell each other before each compile.
    """

    store: Store
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    tag: str
    asks_ranks: bool

    def read(self, code: CodeType) -> list[Any]:
        """The records of a code object."""
        found = [self._record(key) for key in self._keys(self.reads, code)]
        return [record for record in found if record is not None]

    def write(self, code: CodeType, record: Mapping[str, Any]) -> None:
        """Keep a record, which has all that was read of that code."""
        for key in self._keys(self.writes, code):
            if self._record(key) != record:
                self.store.put_json(key, record)

    def of_ranks(self, record: Mapping[str, Any]) -> list[Any]:
        """The records of all ranks, this one's among them: all ranks must compile the same code now."""
        distributed = torch.distributed
        if not (self.asks_ranks and distributed.is_available() and distributed.is_initialized()):
            return []
        found: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(found, dict(record), group=ranks_group())
        return found

    def _record(self, key: CacheKey) -> Any:
        try:
            return self.store.get_json(key)
        except ValueError as error:
            logger.warning("shape_profile_unreadable", artifact="caching", reason=str(error))
            self.store.remove(key)
            return None

    def _keys(self, words: Sequence[str], code: CodeType) -> list[CacheKey]:
        if not words:
            return []
        place = f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"
        parts = {"tag": self.tag, "function": code.co_qualname, "place": place, "code": _digest(code)}
        return [CacheKey(KIND, {"job": word, **parts}) for word in words]


def _digest(code: CodeType) -> str:
    """What a code object does, by its content: where the file lies on a machine does not count."""
    told = (code.co_code, code.co_names, code.co_varnames, _text(code.co_consts))
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _text(constant: Any) -> str:
    """A constant of a code object, the same in every process: the order of a frozenset follows the hashes of one."""
    if isinstance(constant, CodeType):
        return _digest(constant)
    if isinstance(constant, frozenset):
        return f"frozenset({sorted(map(_text, constant))})"
    if isinstance(constant, tuple):
        return f"({', '.join(map(_text, constant))})"
    return repr(constant)


def profile_of(stages: Stages) -> ShapeProfile | None:
    """Where a region's compiles read and keep what they learn; None where nothing asks for it."""
    api = stages.api
    job = () if api.job_id is None else (api.job_id,)
    reads = (*job, *(() if api.pgo_extra_read_key is None else (api.pgo_extra_read_key,)))
    writes = (*job, *(() if api.pgo_extra_write_key is None else (api.pgo_extra_write_key,)))
    if api.force_disable_caches:
        reads = writes = ()
    if not (reads or writes or api.enable_compiler_collectives):
        return None
    store = default_store(stages.runtime)
    return ShapeProfile(store, reads, writes, api.cache_key_tag, api.enable_compiler_collectives)
