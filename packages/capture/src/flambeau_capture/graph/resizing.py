"""Functions that compute sizes with factors: `interpolate` and the operators behind it.

In: a call. Out: where its factors stand, and whether sizes are scaled by floats that round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXACT = 2**12
_RESIZING = (
    "upsample_linear1d", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest2d",
    "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "upsample_trilinear3d", "upsample_nearest3d",
    "_upsample_nearest_exact3d",
)  # fmt: skip
SCALES_SIZES: Final[dict[Any, tuple[int, str]]] = {
    **dict.fromkeys(
        (
            torch.nn.functional.interpolate, torch.nn.functional.upsample, torch.nn.functional.upsample_nearest,
            torch.nn.functional.upsample_bilinear,
        ),
        (2, "scale_factor"),
    ),
    **{op: (len(op._schema.arguments) - 1, "scale_factors") for op in (getattr(torch.ops.aten, name).vec for name in _RESIZING)},
}  # fmt: skip
"""Functions that compute sizes with factors, and where those stand among the arguments."""


def rounds_sizes(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether sizes are scaled by floats that round: the stages below hold integers in integer arithmetic only, so these become constants."""
    if target not in SCALES_SIZES:
        return False
    place, name = SCALES_SIZES[target]
    scale = kwargs.get(name, args[place] if len(args) > place else None)
    factors = scale if isinstance(scale, (list, tuple)) else (scale,)
    return any(
        isinstance(factor, torch.SymFloat)
        or (isinstance(factor, float) and max(map(abs, factor.as_integer_ratio())) > _EXACT)
        for factor in factors
    )
