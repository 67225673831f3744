"""Ops whose kernels answer otherwise than torch's fake tensors say.

In: an op, its (fake) arguments and the predicted result. Out: what the library returns. Each entry was found by running
the op; `test_predictions.py` compares every op that has samples.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

#: They lay their result out row-major, whatever the argument's layout is.
_ROW_MAJOR = frozenset(
    {aten.poisson.default, aten.normal.Tensor_Tensor, aten.normal.float_Tensor, aten._standard_gamma.default}
)


def corrected(op: Any, out: Any) -> Any:
    """`out`, or the fake that shows what the op's kernel really returns."""
    if op in _ROW_MAJOR and not out.is_contiguous():
        return torch.empty(out.shape, dtype=out.dtype, device=out.device)
    return out
