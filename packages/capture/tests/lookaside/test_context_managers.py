"""What calls a module is traced for modules alone."""

from __future__ import annotations

import pytest
import torch


class Doubles(torch.nn.Module):
    def forward(self, x):
        return x * 2


@pytest.mark.parametrize("method", [torch.nn.Module.__call__, torch.nn.Module._call_impl])
def test_a_call_of_what_is_no_module(method, check, broken):
    """Fails as in Python, which misses the tables of hooks; a module is called."""

    def function(x, called):
        y = x + 1
        try:
            return method(called, y)
        except AttributeError as error:
            return y, str(error)

    check(function, torch.ones(2), Doubles())
    for other in (3, torch.zeros(2), len, Doubles):
        assert broken(function, torch.ones(2), other) == {"unsupported-call"}
