"""The logger of autograd and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: where `event_log.py` says.
"""

from __future__ import annotations

from typing import Final

from .event_log import EventLogger
from .event_log import Text as Text

logger = EventLogger("flambeau.autograd")

TRACED: Final = "autograd.traced"
PASS: Final = "autograd.pass"
NOT_RELAID: Final = "autograd.not_relaid"
NATIVE_MISSING: Final = "autograd.native_missing"
JOINT_GRAPH: Final = "joint_graph"
LIFETIMES: Final = "lifetimes"
