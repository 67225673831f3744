"""Calls with arguments that torch's schemas refuse: the type of exception that eager raises, on every backend, whatever stood before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau

pytestmark = pytest.mark.judges_itself

WRONG: Any = "a word"
REFUSED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a number to write to": lambda x, y: torch.mul(x, y, out=0),  # type: ignore[call-overload]
    "a pair to write to": lambda x, y: torch.mul(x, y, out=(x, y)),  # type: ignore[call-overload]
    "one to write to, of two": lambda x, y: torch.topk(x, 2, out=(x,)),  # type: ignore[call-overload]
    "other types to write to": lambda x, y: torch.max(x, 0, out=(x, y)),
    "a type that numbers do not fit": lambda x, y: torch.mul(x, y, out=torch.empty(3, dtype=torch.int64)),
    "an unknown keyword": lambda x, y: torch.mul(x, y, foo=1),  # type: ignore[call-overload]
    "an argument too few": lambda x, y: torch.mul(x),  # type: ignore[call-overload]
    "an argument too many": lambda x, y: torch.mul(x, y, 2),  # type: ignore[call-overload]
    "a factor": lambda x, y: torch.add(x, y, alpha=WRONG),
    "an operand": lambda x, y: x + WRONG,
    "an operand of a product": lambda x, y: x @ 2,  # type: ignore[operator]
    "a dimension": lambda x, y: torch.softmax(x, WRONG),
    "a size": lambda x, y: x.view(1.5),  # type: ignore[arg-type]
    "a list with none": lambda x, y: torch.stack([x, None]),  # type: ignore[list-item]
    "no list": lambda x, y: torch._foreach_add(x, 1),  # type: ignore[call-overload]
    "a type": lambda x, y: torch.sum(x, dtype=WRONG),
    "an index": lambda x, y: x[WRONG],
    "indices": lambda x, y: x.gather(0, y),
    "a mask": lambda x, y: torch.where(x, x, y),
    "a stride": lambda x, y: F.conv1d(x, y, stride=WRONG),
    "a generator": lambda x, y: torch.rand(3, generator=1) + x,  # type: ignore[call-overload]
    "a wish for gradients": lambda x, y: (x * 1).requires_grad_(WRONG),
    "a wish for gradients by another name": lambda x, y: (x * 1).requires_grad_(wanted=True),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", REFUSED)
def test_the_exception_of_eager(name: str, backend: str) -> None:
    refused = REFUSED[name]

    def program(x: Tensor, y: Tensor) -> Any:
        return refused(x * 2, y)

    with pytest.raises(Exception) as expected:
        program(torch.ones(3), torch.ones(3))
    with pytest.raises(type(expected.value)) as found:
        flambeau.compile(program, backend=backend)(torch.ones(3), torch.ones(3))
    assert type(found.value) is type(expected.value)
