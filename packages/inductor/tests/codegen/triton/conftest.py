"""Kernels of this folder run under Triton's interpreter: it is chosen before Triton is imported."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flambeau_runtime.workers import triton_task

if triton_task.interpreter_loaded() is None:
    try:
        triton_task.import_interpreter()
    except ImportError:
        pass
