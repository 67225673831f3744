"""Values of changing sizes that are written at computed positions: where they do not fit, it is the error of eager, and no memory is read
beyond their end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau

pytestmark = pytest.mark.judges_itself

#: A write of the third argument, sizes of it that fit, and sizes that do not.
WRITES: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], tuple[int, ...], list[tuple[int, ...]]]] = {
    "rows": (lambda x, i, v: x.index_put((i,), v), (3, 8), [(3, 7), (2, 8), (2, 3, 8)]),
    "one row": (lambda x, i, v: x.index_put((i,), v), (1, 8), [(1, 7)]),
    "a row without its first size": (lambda x, i, v: x.index_put((i,), v), (8,), [(7,)]),
    "added rows": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (3, 8), [(3, 7), (2, 8)]),
    "a sum": (lambda x, i, v: x.index_add(0, i, v), (3, 8), [(3, 7), (2, 8)]),
    "a selected row": (lambda x, i, v: x.select_scatter(v, 0, 1), (8,), [(7,)]),
    "some rows": (lambda x, i, v: x.slice_scatter(v, 0, 1, 4), (3, 8), [(3, 7)]),
    "a diagonal": (lambda x, i, v: x.diagonal_scatter(v), (8,), [(7,), (1, 8)]),
    "a diagonal beside": (lambda x, i, v: x.diagonal_scatter(v, 1), (7,), [(6,), (8,)]),
    "a window in strides": (lambda x, i, v: x.as_strided_scatter(v, (3, 2), (8, 1)), (3, 2), [(2, 2), (4, 2)]),
    "a part of the rows": (lambda x, i, v: x.slice_scatter(v, 0, 1, 4), (3, 8), [(2, 8), (4, 8)]),
    "a copy": (lambda x, i, v: x.index_copy(0, i, v), (3, 8), [(3, 7), (2, 8)]),
}


@pytest.mark.parametrize("name", WRITES)
def test_values_that_do_not_fit(name: str) -> None:
    write, fitting, others = WRITES[name]
    x, i = torch.zeros(9, 8), torch.tensor([4, 0, 2])
    compiled = flambeau.compile(write, dynamic=True)
    values = torch.randn(fitting)
    assert torch.equal(compiled(x, i, values), write(x, i, values))
    for sizes in others:
        values = torch.randn(sizes)
        with pytest.raises(Exception) as expected:
            write(x, i, values)
        with pytest.raises(type(expected.value)) as found:
            compiled(x, i, values)
        assert str(found.value) == str(expected.value)
