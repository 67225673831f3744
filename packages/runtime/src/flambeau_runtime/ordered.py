"""The operator of products that do not depend on how many rows there are, on a CPU.

In: nothing. Out: ``ordered_products()``: ``flambeau::ordered_products(x, y, bias, beta, alpha)`` of matrices, or of as many matrices each, gives ``beta * bias + alpha * (x @ y)``, row-major.
Each element is one sum in the order of its terms (``csrc/ordered.cpp``).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .extension import extension


@functools.cache
def ordered_products() -> Any:
    """The overload. Raises ``ExtensionError`` where the extension is missing."""
    extension()
    return torch.ops.flambeau.ordered_products.default
