"""Strides of elementwise results, predicted for random layouts of their operands, are those that the kernels choose."""

from __future__ import annotations

import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau_autograd.functional.layout import dense_order
from flambeau_autograd.functional.loops import of_a_likeness, of_a_view
from flambeau_autograd.functional.predictions import corrected

aten = torch.ops.aten
#: Op -> how many tensors it takes.
OPS = {
    aten.add.Tensor: 2, aten.atan2.default: 2, aten.eq.Tensor: 2, aten.maximum.default: 2, aten.relu.default: 1, aten.gelu.default: 1,
    aten.heaviside.default: 2, aten.xlogy.Tensor: 2, aten.special_xlog1py.default: 2, aten.logaddexp.default: 2,
    aten.where.self: 3, aten.lerp.Tensor: 3, aten.addcmul.default: 3,
}  # fmt: skip


def laid_out(choose: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor of this shape: row-major, permuted, with gaps, with odd strides where they do not matter, or repeated."""
    kind = choose.randrange(5)
    if kind == 0:
        order = choose.sample(range(len(shape)), len(shape))
        return torch.rand([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    if kind == 1:
        return torch.rand([2 * size for size in shape])[tuple(slice(None, None, 2) for _ in shape)]
    made = torch.rand(shape)
    if kind == 2:
        strides = [choose.choice((1, 3, 6, 24)) if n == 1 else s for n, s in zip(shape, made.stride())]
        return made.as_strided(shape, strides)
    if kind == 3:
        return torch.rand([1 if choose.random() < 0.3 else size for size in shape]).expand(shape)
    return made


def differs(seed: int) -> str:
    """How the prediction for one call differs; "" where it does not."""
    choose = random.Random(seed)
    rank = choose.choice((1, 2, 3, 4))
    shape = [choose.choice((0, 1, 1, 2, 3, 4)) for _ in range(rank)]
    op = choose.choice(list(OPS))
    args = []
    for _ in range(OPS[op]):
        part = [1 if choose.random() < 0.4 else n for n in shape][choose.randrange(rank) :]
        args.append(laid_out(choose, shape if choose.random() < 0.5 else part))
    if op is aten.where.self:
        args[0] = args[0] > 0.5
    real = op(*args)
    with FakeTensorMode() as mode:
        fakes = tuple(map(mode.from_tensor, args))
        found = corrected(op, fakes, {}, op(*fakes)).stride()
    if found == real.stride():
        return ""
    return f"{op} of {[(tuple(t.shape), t.stride()) for t in args]}: {tuple(found)} instead of {real.stride()}"


def differs_alone(seed: int) -> str:
    """The same for what is made like one tensor, and for a view of it."""
    choose = random.Random(seed)
    x = laid_out(choose, [choose.choice((0, 1, 1, 2, 3)) for _ in range(choose.choice((1, 2, 3, 4)))])
    laid = (tuple(x.shape), x.stride())
    if of_a_likeness(laid) != torch.empty_like(x).stride():
        return f"empty_like of {laid}"
    for shape in ([1, *x.shape], [x.numel()], [*x.shape[:-2], x.shape[-2:].numel()], [n for n in x.shape if n != 1]):
        try:
            real = x.view(shape).stride()
        except RuntimeError:
            real = None
        if of_a_view(laid, tuple(shape)) != real:
            return f"a view of {laid} in {shape}: {of_a_view(laid, tuple(shape))} instead of {real}"
    return ""


def test_random_layouts() -> None:
    """One, two and three operands, some broadcast; formulas in Python stand for several of these ops."""
    assert [fault for fault in map(differs, range(120)) if fault] == []
    assert [fault for fault in map(differs_alone, range(300)) if fault] == []


@pytest.mark.slow
def test_more_random_layouts() -> None:
    """The same for many more."""
    assert [fault for fault in map(differs, range(1000, 9000)) if fault] == []
    assert [fault for fault in map(differs_alone, range(1000, 9000)) if fault] == []


@pytest.mark.parametrize(
    ("shape", "strides", "order"),
    [
        ((2, 3), (3, 1), (0, 1)),
        ((2, 3), (1, 2), (1, 0)),
        ((2, 3, 4), (4, 8, 1), (1, 0, 2)),
        ((1, 2, 3), (1, 3, 1), (0, 1, 2)),  # contiguous, whatever the stride along one element
        ((2, 1, 3), (1, 7, 2), (1, 2, 0)),
        ((2, 3), (6, 2), (0, 1)),  # not dense
        ((2, 3), (0, 1), (0, 1)),
    ],
)
def test_order_of_dimensions_of_a_dense_tensor(shape: tuple, strides: tuple, order: tuple) -> None:
    """From the largest stride to the smallest; the natural one where the tensor is contiguous or not dense."""
    assert dense_order(torch.empty(100).as_strided(shape, strides)) == order


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_unpooled_images_lie_as_the_pooled_ones(layout):
    pooled, places = torch.rand(1, 2, 3, 2), torch.arange(6).view(3, 2).expand(1, 2, 3, 2)
    op, args = aten.max_unpool2d.default, [part.contiguous(memory_format=layout) for part in (pooled, places)]
    with FakeTensorMode() as mode:
        fakes = (*map(mode.from_tensor, args), [6, 4])
        found = corrected(op, fakes, {}, op(*fakes))
    assert found.stride() == op(*args, [6, 4]).stride()
