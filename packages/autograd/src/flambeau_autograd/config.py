"""Options of ahead-of-time autograd: one frozen record, resolved once per compilation.

In: the environment (`FLAMBEAU_AUTOGRAD_<FIELD>`). Out: a `Config`. A field whose metadata says `key=True` changes the
graphs and so belongs to a cache key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from attrs import field, fields, frozen


def _flag(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def _option(default: Any, parse: Callable[[str], Any], *, key: bool = True) -> Any:
    return field(default=default, metadata={"parse": parse, "key": key})


@frozen
class Config:
    """`memory_budget` in [0, 1]: share of the activations that the default cut would save which may be saved.

    `recompute_fusible`: recompute chains of pointwise ops and views in the backward when that saves bytes.
    `max_recompute_chain`: how many fusible nodes in a row may be recomputed before one is saved.
    `native`: use the C++ node; off, the Python twin runs.
    """

    memory_budget: float = _option(1.0, float)
    recompute_fusible: bool = _option(True, _flag)
    max_recompute_chain: int = _option(16, int)
    native: bool = _option(True, _flag, key=False)
    log_passes: bool = _option(False, _flag, key=False)

    @classmethod
    def from_environment(cls) -> Config:
        """Read every field from `FLAMBEAU_AUTOGRAD_<FIELD>`; an absent variable keeps the default."""
        values: dict[str, Any] = {}
        for option in fields(cls):
            text = os.environ.get(f"FLAMBEAU_AUTOGRAD_{option.name.upper()}")
            if text is not None:
                values[option.name] = option.metadata["parse"](text)
        return cls(**values)

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The fields that change the produced graphs."""
        return tuple((o.name, getattr(self, o.name)) for o in fields(type(self)) if o.metadata["key"])
