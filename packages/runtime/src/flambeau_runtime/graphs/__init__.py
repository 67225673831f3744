"""CUDA graphs: programs recorded once and replayed.

``load_graphed`` is ``load`` with recordings; ``reset`` drops them all; ``reserved_bytes`` says what they hold. ``host_waits`` says where a
program that is not recorded has the host wait.
"""

from __future__ import annotations

from .classify import host_waits
from .memory import reserved_bytes
from .program import load_graphed, reset
from .records import GraphDecision, GraphSettings

__all__ = ["GraphDecision", "GraphSettings", "host_waits", "load_graphed", "reserved_bytes", "reset"]
