"""What a body returns: memory of its own, laid out as the call expects it.

In: the values that leave. Out: windows on buffers that no input, no constant and no other result lies in, and the order of each one's dimensions.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ir.layout import Ref, strides_in_order
from .bodies import Form, Order, dense_order
from .builder import Builder
from .values import TensorValue


class Results:
    """Those of one body, in order."""

    def __init__(self, g: Builder, form: Form) -> None:
        self.g, self.form = g, form
        self.orders: list[Order] = []
        self._taken: set[str] = set()

    def number(self, value: Any) -> Any:
        """A result that is no tensor."""
        self.orders.append(None)
        return value

    def tensor(self, value: TensorValue, val: torch.Tensor) -> Ref:
        """``value``, whose fake is ``val``: copied where it lies otherwise, or in memory that is seen elsewhere."""
        g = self.g
        order = self.form.output(len(self.orders)) or dense_order(g, val)
        self.orders.append(order)
        strides = strides_in_order(value.sizes, order)
        ref = g.ref(value)
        # Everything but what operations fill comes from outside.
        if not ref.lies_as(strides) or not g.root(ref.buffer).startswith("buf") or g.root(ref.buffer) in self._taken:
            ref = g.copy(value, strides)
        self._taken.add(g.root(ref.buffer))
        return ref.seen_with(strides)
