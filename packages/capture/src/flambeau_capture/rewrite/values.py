"""Values that need more than their own `rebuild` at the end of a frame.

In: values. Out: what the rewriter has to know about them.
"""

from __future__ import annotations

from ..values.base import Value


def handled_exception(value: Value) -> Value | None:
    """The exception being handled, when `value` stands for the previous one that PUSH_EXC_INFO keeps on the stack; else None."""
    current: Value | None = getattr(value, "handled", None)
    return current
