"""Families of `timm`: the smallest model of each of its modules, on pictures of 64 pixels where the model takes that size.

In: nothing. Out: an `Architecture` for each family.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from .architecture import Architecture, NotTiny, Ready

#: Parts of names that say that a model is a small one of its family, the smallest first.
_SMALL = (
    "test_", "atto", "femto", "pico", "zepto", "nano", "_n0", "xxt", "xxs", "_xt", "micro", "mini", "tiny", "_xs", "_t0", "_m0", "_s0", "_b0", "_050", "_s1",
    "_s12", "small", "_t", "_s", "b0", "18", "26", "32", "46", "50", "base", "_b",
)  # fmt: skip
_SIDE, _CLASSES, _BATCH = 64, 10, 2


def architectures() -> Iterator[Architecture]:
    """One for each module of `timm.models` that has a model."""
    import timm

    for family in timm.list_modules():
        names = timm.list_models(module=family)
        if names:
            yield Architecture(f"timm/{family}", "timm", partial(_make, min(names, key=_size)))


def _size(name: str) -> tuple[int, int, str]:
    found = [place for place, part in enumerate(_SMALL) if part in name]
    return (min(found, default=len(_SMALL)), len(name), name)


def _make(name: str) -> Ready:
    state = torch.get_rng_state()
    reasons = []
    for further in ({"img_size": _SIDE}, {}):
        torch.set_rng_state(state)
        try:
            return _called(name, further)
        except Exception as error:
            reasons.append(f"{name}: {type(error).__name__}: {error}")
    raise NotTiny("; ".join(reasons)[:400])


def _called(name: str, further: dict[str, int]) -> Ready:
    """A model that was called once, on small pictures or else on those that it is published for."""
    import timm

    model = timm.create_model(name, pretrained=False, num_classes=_CLASSES, **further)
    channels, side, _ = model.pretrained_cfg["input_size"]
    for size in dict.fromkeys((_SIDE, side)):
        pictures = torch.randn(_BATCH, channels, size, size)
        try:
            with torch.no_grad():
                model.eval()(pictures)
        except (RuntimeError, ValueError, AssertionError):
            continue
        return Ready(model.train(), {"x": pictures}, {})
    raise NotTiny("no size of picture fits")
