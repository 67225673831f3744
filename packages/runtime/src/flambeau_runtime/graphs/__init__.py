"""CUDA graphs: programs recorded once and replayed.

``load_graphed`` is ``load`` with recordings; ``reset`` drops them all; ``reserved_bytes`` says what they hold.
"""

from __future__ import annotations

from .memory import reserved_bytes
from .program import load_graphed, reset
from .records import GraphDecision, GraphSettings

__all__ = ["GraphDecision", "GraphSettings", "load_graphed", "reserved_bytes", "reset"]
