"""What compilations did, written down while they go on and read again afterwards: `read_trace`.

`schema.py` says what is in a trace, `session.py` when it is written, `hooks.py` where the stack calls it.
"""

from __future__ import annotations

from .reader import Process, Trace, read_trace
from .schema import KINDS, VERSION

__all__ = ["KINDS", "VERSION", "Process", "Trace", "read_trace"]
