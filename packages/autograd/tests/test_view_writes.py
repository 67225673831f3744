"""A write through a view, and through a view of a view, reaches the tensor whose memory it is: every view that Python can take."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
from lifting import compile_function
from torch import Tensor

from flambeau_autograd import UnsupportedGraph

VIEWS = {
    "conj": lambda x: x.conj(),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "imag of conj": lambda x: x.conj().imag,
    "view_as_real": torch.view_as_real,
    "H": lambda x: x.H,
    "adjoint": lambda x: x.adjoint(),
    "t": lambda x: x.t(),
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "select": lambda x: x.select(1, -1),
    "slice": lambda x: x[1:, ::2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "squeeze": lambda x: x[:1].squeeze(),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:1].expand(1, 4),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "tensor_split": lambda x: x.tensor_split(3, 1)[0],
    "split": lambda x: x.split([1, 3], 1)[1],
    "hsplit": lambda x: x.hsplit(2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "detach": lambda x: x.detach(),
    "view": lambda x: x.view(4, 4),
}


def written(x: Tensor, outer: str, inner: str) -> tuple[Tensor, Tensor]:
    base = x.clone()
    view = VIEWS[inner](VIEWS[outer](base))
    view.mul_(2)
    view[..., 0] += 1
    return base, view.resolve_conj().resolve_neg() * 1


def _eager(x: Tensor, outer: str) -> dict[str, tuple[Tensor, Tensor]]:
    """What each inner view gives, where it may be taken and written."""
    results = {}
    for name in VIEWS:
        with contextlib.suppress(RuntimeError, ValueError, IndexError):
            results[name] = written(x, outer, name)
    return results


QUICK = ("as_strided", "conj", "detach", "select")


@pytest.mark.parametrize(
    "outer", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in VIEWS if name not in QUICK)]
)
def test_a_write_through_a_view_reaches_its_base(outer: str) -> None:
    x = torch.complex(torch.arange(16.0).reshape(4, 4), torch.arange(16.0, 0, -1).reshape(4, 4))
    expected, refused = _eager(x, outer), []
    for name in expected:
        try:
            compiled = compile_function(lambda x, name=name: written(x, outer, name), [x])
        except UnsupportedGraph:
            refused.append(name)
            continue
        for ours, theirs in zip(compiled(x), expected[name], strict=True):
            assert torch.equal(ours, theirs), name
    # Steps of `unfold` and strides of a tensor that has gaps, or that is shown as conjugate.
    assert set(refused) <= {"unfold", "as_strided"} and len(expected) > 9


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_new_parts_of_complex_numbers_may_lie_otherwise(dtype: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        base = x * 1
        parts = torch.view_as_real(base).mT
        parts.masked_fill_(parts > 1, 0)
        return base

    x = torch.complex(torch.arange(3.0), torch.arange(3.0, 0, -1)).to(dtype)
    (found,) = compile_function(function, [x])(x)
    assert torch.equal(found, function(x))


@pytest.mark.parametrize("shape", [(0, 0), (4, 4)])
def test_a_write_through_a_view_of_another_width(shape: tuple[int, ...]) -> None:
    """The new elements may lie in another order than the view's, or there are none."""

    def function(x: Tensor) -> Tensor:
        base = x * 1
        view = base.view(torch.int32)
        view.copy_(view.flip(0).t().contiguous().t())
        view.copy_(view.flip(0))
        view.bitwise_or_(view.t().contiguous().t())
        return base

    x = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    (found,) = compile_function(function, [x])(x)
    assert torch.equal(found, function(x))
