"""The logger of inductor and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: where `event_log.py` says.
"""

from __future__ import annotations

from typing import Final

from flambeau_runtime.event_log import STAGE_BEGUN as STAGE_BEGUN
from flambeau_runtime.event_log import EventLogger
from flambeau_runtime.event_log import Text as Text

logger = EventLogger("flambeau.inductor")

PASS_DONE: Final = "pass_done"
RULE_APPLIED: Final = "rule_applied"
LIBRARY_CALL: Final = "library_call"
LOWERED: Final = "lowered"
KERNEL_DECLINED: Final = "kernel_declined"
STAGE_DONE: Final = "stage_done"
STAGE_TEXT: Final = "stage_text"
LOOPS_ORDERED: Final = "loops_ordered"
FUSION: Final = "fusion"
SCHEDULE: Final = "schedule"
ORIGINS: Final = "origins"
POSITIONS: Final = "positions"
MEASURED: Final = "measured"
