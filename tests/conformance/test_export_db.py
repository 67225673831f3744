"""torch's own database of hard programs (`torch._export.db`), captured with backend "eager": results equal to eager's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch._export.db.examples import all_examples

import flambeau
from tests.comparison import assert_same

EXAMPLES = all_examples()


def call(model: Any, case: Any) -> Any:
    """The result, or the type of the exception."""
    args, kwargs = copy.deepcopy((case.example_args, case.example_kwargs or {}))
    try:
        return model(*args, **kwargs)
    except Exception as error:
        return type(error).__name__


#: Examples without a tensor operation of their own, or with one in a higher-order operator only.
MARKS = {name: pytest.mark.compiles(graphs=0) for name in ("dynamic_shape_assert", "scalar_output")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in sorted(EXAMPLES)])
def test_result_equals_eager(name: str) -> None:
    """Two calls, so that the second one runs the cached entry."""
    case = EXAMPLES[name]
    torch.manual_seed(0)
    expected = call(copy.deepcopy(case.model), case)
    compiled = flambeau.compile(case.model, backend="eager")
    for _ in range(2):
        torch.manual_seed(0)
        assert_same(call(compiled, case), expected)
