"""Helpers of the autograd tests: lift a module or function into a graph with fake inputs, compare with eager."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
