"""Options of the runtime: one frozen record, read from the environment once by whoever needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, fields, frozen


def _option(default: Any, variable: str, *, in_key: bool = False) -> Any:
    return field(default=default, metadata={"variable": variable, "in_key": in_key})


@frozen
class Config:
    """Runtime options. ``metadata["variable"]`` is the environment variable, ``in_key`` whether it decides binaries."""

    cache_dir: str = _option("", "FLAMBEAU_CACHE_DIR")
    cache_limit_bytes: int = _option(4 << 30, "FLAMBEAU_CACHE_LIMIT_BYTES")
    cache_enabled: bool = _option(True, "FLAMBEAU_CACHE")
    cxx: str = _option("", "CXX")
    cxx_flags: str = _option("", "FLAMBEAU_CXXFLAGS", in_key=True)
    compile_timeout_seconds: int = _option(600, "FLAMBEAU_COMPILE_TIMEOUT")
    compile_jobs: int = _option(0, "FLAMBEAU_COMPILE_JOBS")
    idle_memory_bytes: int = _option(256 << 20, "FLAMBEAU_IDLE_MEMORY_BYTES")
    executor: str = _option("native", "FLAMBEAU_EXECUTOR")
    cuda_driver: str = _option("libcuda.so.1", "FLAMBEAU_CUDA_DRIVER")

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Config:
        """Read every option's variable; ``ValueError`` names a variable that does not parse."""
        environment = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(Config):
            text = environment.get(option.metadata["variable"])
            if text is None:
                continue
            try:
                values[option.name] = _parse(type(option.default), text)
            except ValueError as error:
                raise ValueError(f"{option.metadata['variable']}={text!r}: {error}") from None
        return Config(**values)

    def folder(self) -> Path:
        """The cache folder: ``cache_dir``, or ``flambeau`` in the user's cache folder."""
        if self.cache_dir:
            return Path(self.cache_dir)
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        return Path(base) / "flambeau"

    def jobs(self) -> int:
        """How many compilers run at once."""
        return self.compile_jobs or min(8, len(os.sched_getaffinity(0)))


def _parse(kind: type, text: str) -> Any:
    if kind is bool:
        lowered = text.strip().lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off", ""):
            return False
        raise ValueError("expected a boolean")
    return kind(text)
