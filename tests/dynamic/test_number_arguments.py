"""Every operator with a lowering rule and numbers among its arguments, given numbers that change: eager's values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau
from flambeau.records import Recorder
from flambeau_inductor.lowering.registry import lowered_ops
from tests.sweeps.backends import backend_of

_NUMBERS = ("number", "float", "Optional[number]", "Optional[float]")
#: Kernels that trust what they are given, and draws.
_LEFT_OUT = (
    "norm",
    "attention",
    "exponential",
    "cauchy",
    "geometric",
    "uniform",
    "bernoulli",
    "dropout",
    "rand",
    "scatter",
)
#: Derivatives in which a negative number stands for none, or has no meaning.
_POSITIVE = ("logit_backward", "smooth_l1_loss_backward")
#: Those of the quick tests.
_QUICK = ("hardtanh", "leaky_relu", "softshrink", "threshold", "pow", "add", "clamp", "addcmul", "lerp", "full_like")
_DTYPES = (torch.float32, torch.float16, torch.int64)


def _is_asked(op: Any) -> bool:
    name = op._schema.name
    kinds = [str(argument.type) for argument in op._schema.arguments]
    return any(kind in _NUMBERS for kind in kinds) and not any(part in name for part in _LEFT_OUT)


_OPS = sorted(filter(_is_asked, lowered_ops()), key=str)


def _arguments(op: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Operands by name: tensors of one shape, and `...` for a number; what else has no default gets one."""
    given: dict[str, Any] = {}
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if kind in _NUMBERS:
            given[argument.name] = ...
        elif kind == "Tensor":
            made = (torch.arange(16).view(4, 4) % 5).to(dtype)
            given[argument.name] = {"index": torch.tensor([0, 2, 1, 3]), "condition": made > 2}.get(argument.name, made)
        elif not argument.has_default_value():
            given[argument.name] = {"int": 1, "bool": False, "List[int]": [4, 4]}.get(kind)
    return given


def _marks(op: Any) -> list[pytest.MarkDecorator]:
    name = str(op).split(".")[1]
    # What a fake refuses and eager takes, a float beside integers, is left to eager.
    return [*[pytest.mark.slow] * (name not in _QUICK), *[pytest.mark.judges_itself] * (name == "index_add")]


@pytest.mark.parametrize("op", [pytest.param(op, id=str(op), marks=_marks(op)) for op in _OPS])
def test_a_number_known_at_run_time_only(op: Any) -> None:
    """A rule that must know a number leaves the call to the library; a lazy one does not stumble over it later."""
    asked = 0
    for dtype in _DTYPES:
        given = _arguments(op, dtype)
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}

        def call(tensors: dict[str, torch.Tensor], number: Any, given: dict[str, Any] = given) -> Any:
            operands = {name: number if value is ... else value for name, value in given.items()}
            return op(**{**operands, **tensors})

        for number in (2.5, 2, *((-1.5,) if not any(part in str(op) for part in _POSITIVE) else ())):
            try:
                wanted = call(tensors, number)
            except (RuntimeError, TypeError):
                continue
            asked += 1
            recorder = Recorder()
            found = flambeau.compile(call, dynamic=True, backend=backend_of("lowered", recorder))(tensors, number)
            torch.testing.assert_close(found, wanted, equal_nan=True)
    assert asked
