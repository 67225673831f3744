"""Names of torch.compile that have no meaning here, each with the reason.

In: nothing. Out: name -> the one value that is accepted, which says what is the case here, and a line that says why there is no other. A
name leaves its table when it gets a meaning; tests hold the tables to the surface in `tools/surface`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

OPTIONS: Mapping[str, tuple[Any, str]] = MappingProxyType({})
"""Of `options={...}` and `flambeau.inductor.config`."""

SETTINGS: Mapping[str, tuple[Any, str]] = MappingProxyType({})
"""Of `flambeau.compiler.config`."""
