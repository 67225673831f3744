"""The shared models as parameters of tests, with what is known of how they are compiled.

In: names of the zoo. Out: parameters for `pytest.mark.parametrize`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

#: What runs in eager in some models -> part of its reason. The mixture gathers as many tokens as its router chose: what lies around
#: the choice is compiled, the layers' frame is not.
FALLS_BACK = {"moe": "the result shape of where depends on data"}


def marked(names: Iterable[str]) -> list[Any]:
    """A parameter for each model, marked with what falls back in it."""
    return [
        pytest.param(name, marks=pytest.mark.falls_back(FALLS_BACK[name]) if name in FALLS_BACK else ())
        for name in names
    ]
