"""Every function and method that tracing knows by itself, replaced after the first compile: what the program put there is what runs.

The names are those of the modules and classes themselves. One is called with the first arguments that it takes; where it takes none of them it
is not drawn.
"""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import operator
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from both_ways import assert_equal, eager, outcome
from torch import nn
from torch.utils import _pytree as pytree

from flambeau_capture import make_region

OWNERS = {
    "math": math, "operator": operator, "functools": functools, "itertools": itertools, "copy": copy, "collections": collections,
    "types": types, "torch": torch, "nn.functional": F, "Tensor": torch.Tensor, "nn.Module": nn.Module, "nn.init": nn.init,
    "torch.linalg": torch.linalg, "torch.special": torch.special, "torch.fft": torch.fft,
}  # fmt: skip
ARGUMENTS = (
    (), (2,), (2.0,), (0.5,), (2, 3), (2.0, 3.0), ([1, 2],), ([1, 2], 1), (max, [1, 2]), (min, 1, 2), ([3, 1], 0, 5), ((1, 2), (3, 4)),
)  # fmt: skip
TENSOR_ARGUMENTS = ((), (0,), (1, 0), ((2, 2),), (2.0,))
_OURS = frozenset((
    # What the comparison, capture or torch itself calls meanwhile.
    "is_tensor", "equal", "allclose", "isclose", "as_tensor", "tensor", "get_default_dtype", "stride",
    # What they give is no value.
    "empty_like", "data_ptr", "const_data_ptr", "to_mkldnn", "fbgemm_pack_gemm_matrix_fp16",
))  # fmt: skip


_OPERATORS = {getattr(found, "__name__", "") for found in torch.overrides.get_overridable_functions()[torch]}


def _function_of(owner, name, given):
    if owner is torch.Tensor:
        return lambda x: (x + 1, getattr(x, name)(*given))
    if owner is nn.Module:
        return lambda x, m: (x + 1, getattr(m, name)(*given))
    if owner in (torch, F, nn.init, torch.linalg, torch.special, torch.fft):
        return lambda x: (x + 1, getattr(owner, name)(x, *given))
    return lambda x: (x + 1, getattr(owner, name)(*given))


def _drawn():
    for title, owner in OWNERS.items():
        for name in sorted(dir(owner)):
            found = getattr(owner, name, None)
            if (
                name.startswith(("_", "init_", "autocast_", "set_autocast", "clear_autocast"))
                or name in _OURS
                or not callable(found)
                or name.endswith("_")
            ):
                continue
            if owner is torch and name not in _OPERATORS:
                continue
            yield f"{title}.{name}", owner, name


DRAWN = {title: (owner, name) for title, owner, name in _drawn()}
QUICK = frozenset(list(DRAWN)[::30])


_COMPARED = torch.Tensor | int | float | bool | str | type(None) | torch.dtype | torch.device


class _Other(nn.Module):
    def forward(self, x):
        return x


def _comparable(leaf):
    """A number or tensor with something in the place of what equals nothing."""
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and torch.ops.aten.isnan(leaf).any():
        return torch.ops.aten.nan_to_num(leaf, 7.0)
    return "nan" if isinstance(leaf, float) and math.isnan(leaf) else leaf


def _replacement(*args, **kwargs):
    return 7


def _inputs(owner):
    x = torch.tensor([[0.5, 0.25], [0.125, 0.75]])
    return (x, _Other()) if owner is nn.Module else (x,)


@pytest.mark.parametrize(
    "title", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DRAWN]
)
def test_what_is_replaced_later_is_what_runs(title):
    owner, name = DRAWN[title]
    pool = (
        TENSOR_ARGUMENTS
        if owner in (torch, torch.Tensor, F, nn.Module, nn.init, torch.linalg, torch.special, torch.fft)
        else ARGUMENTS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in pool:
            torch.manual_seed(0)
            function = _function_of(owner, name, given)
            try:
                expected = function(*_inputs(owner))[1]
            except Exception:
                continue
            if all(isinstance(leaf, _COMPARED) for leaf in pytree.tree_leaves(expected)):
                break
        else:
            pytest.skip("takes other arguments, or gives another object each time")
        there = name in vars(owner)
        original = vars(owner)[name] if there else getattr(owner, name)
        records = []
        region = make_region(function, eager, observer=records.append, suppress_errors=False)
        try:
            for patched in (False, True, True, False):
                if patched:
                    setattr(owner, name, _replacement)
                elif there:
                    setattr(owner, name, original)
                elif name in vars(owner):
                    delattr(owner, name)
                torch.manual_seed(0)
                found = outcome(region, *_inputs(owner))
                torch.manual_seed(0)
                plain = outcome(function, *_inputs(owner))
                assert_equal(*pytree.tree_map(_comparable, (found, plain)))
            assert records, "nothing was looked at"
        finally:
            setattr(owner, name, original) if there else name in vars(owner) and delattr(owner, name)
