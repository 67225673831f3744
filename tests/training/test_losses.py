"""Losses over many classes: eager's numbers in every form of them, with a few numbers of a row saved and no second tensor of the logits' size."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau
from tests.training.test_saved_memory import kept_bytes

CLASSES = 37
ROWS = 6
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
#: Of half results eager itself is off by a few units in the last place, and so are we.
TOLERANCE = {F32: (1.3e-6, 1e-5), BF16: (3.2e-2, 1.6e-2), F16: (4e-3, 2e-3), torch.float64: (1e-7, 1e-7)}

Loss = Callable[..., Any]


def outcome(function: Loss, logits: Tensor, *others: Any) -> list[Tensor]:
    """Losses, and the gradient of the logits under uneven tangents."""
    leaf = logits.detach().clone().requires_grad_()
    found = function(leaf, *others)
    losses = found if isinstance(found, tuple) else (found,)
    tangents = [torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape).to(x.dtype) for x in losses]
    return [*losses, *torch.autograd.grad(losses, leaf, tangents)]


def check(function: Loss, logits: Tensor, *others: Any, **options: Any) -> None:
    """As in eager."""
    ours = outcome(flambeau.compile(function, fullgraph=True, **options), logits, *others)
    for got, wanted in zip(ours, outcome(function, logits, *others), strict=True):
        rtol, atol = TOLERANCE[got.dtype]
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)
        assert got.stride() == wanted.stride()


def targets(*ignored: int) -> Tensor:
    """Classes, of which those at some rows are not to count."""
    found = torch.randint(0, CLASSES, (ROWS,))
    found[list(ignored)] = -100
    return found


def logits(dtype: torch.dtype, *sizes: int) -> Tensor:
    return (torch.randn(*(sizes or (ROWS, CLASSES))) * 3).to(dtype)


def reductions(x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    return F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="sum"), F.cross_entropy(x, t, reduction="none")


def weighted(x: Tensor, t: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    each = F.cross_entropy(x, t, weight=w, reduction="none")
    return F.cross_entropy(x, t, weight=w), each, F.cross_entropy(x * 2, t, weight=w, label_smoothing=0.2)


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@pytest.mark.parametrize("ignored", [(), (1, 4), tuple(range(ROWS))], ids=["none ignored", "some", "all"])
def test_losses_of_classes(dtype: torch.dtype, ignored: tuple[int, ...]) -> None:
    """All reductions, class weights, label smoothing; of no row at all the mean is no number."""
    t, w = targets(*ignored), (torch.rand(CLASSES) + 0.5).to(dtype)
    check(reductions, logits(dtype), t)
    check(weighted, logits(dtype), t, w)
    check(lambda x, t: F.cross_entropy(x * 2, t, label_smoothing=0.1), logits(dtype), t)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("sizes", [(), (2,), (0,), (2, 3), (2, 3, 2)], ids=str)
def test_losses_of_any_dimensions(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    """One sample, a batch, an empty one, sequences and images."""
    x = logits(dtype, *sizes[:1], CLASSES, *sizes[1:])
    check(
        lambda x, t: (F.cross_entropy(x * 1.5, t), F.cross_entropy(x, t, reduction="none")),
        x,
        torch.randint(0, CLASSES, sizes),
    )


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_other_losses_and_what_is_read_of_logarithms_by_hand(dtype: torch.dtype) -> None:
    """Probabilities as targets, divergence, one logarithm a row, entropy, and probabilities of converted scores."""
    q = torch.softmax(torch.randn(ROWS, CLASSES), -1).to(dtype)
    check(
        lambda x, q: (F.cross_entropy(x * 1.5, q), F.cross_entropy(x, q, reduction="none", label_smoothing=0.2)),
        logits(dtype),
        q,
    )
    check(lambda x, q: F.kl_div(F.log_softmax(x * 2, -1), q, reduction="batchmean"), logits(dtype), q)
    check(lambda x, t: (x * 2).log_softmax(-1).gather(-1, t[:, None]).squeeze(-1), logits(dtype), targets())
    check(lambda x, t: F.nll_loss((x * 2).float().log_softmax(-1), t), logits(dtype), targets(2))

    def entropy(x: Tensor) -> Tensor:
        found = (x * 2).float().log_softmax(-1)
        return -(found.exp() * found).sum(-1)

    check(entropy, logits(dtype))
    check(lambda x: (x * 2).softmax(-1, dtype=F32).square(), logits(dtype))


@pytest.mark.parametrize("dtype", [F32, F16])
def test_logits_that_are_infinite_or_huge(dtype: torch.dtype) -> None:
    """Classes that cannot be, rows of them, and what is no number; the largest numbers do not overflow."""
    x, t = logits(dtype), targets()
    x[0, :5], x[2], x[3, 1], x[4, 7] = -torch.inf, -torch.inf, torch.inf, torch.nan

    def each(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return F.cross_entropy(x * 1, t, reduction="none"), F.cross_entropy(x.float(), t, reduction="none")

    check(each, x, t)
    check(each, logits(dtype) * 6000, t)


def test_sizes_that_change() -> None:
    """Rows and classes are symbolic from the second call on."""
    compiled = flambeau.compile(lambda x, t: F.cross_entropy((x * 2).float(), t), dynamic=True)
    for rows, classes in ((4, 9), (5, 17), (3, 40)):
        x, t = torch.randn(rows, classes).bfloat16(), torch.randint(0, classes, (rows,))
        for got, wanted in zip(
            outcome(compiled, x, t), outcome(lambda x, t: F.cross_entropy((x * 2).float(), t), x, t), strict=True
        ):
            torch.testing.assert_close(got, wanted)


def test_in_triton() -> None:
    """The same kernels for a GPU, under the interpreter: one walk over a row, and one loop in the backward."""
    pytest.importorskip("triton")
    check(reductions, logits(F32), targets(1), options={"cpu_backend": "triton"})
    check(lambda x, t: F.cross_entropy((x * 2).float(), t), logits(BF16), targets(1), options={"cpu_backend": "triton"})


class Head(torch.nn.Module):
    """The last layer of a language model and its loss."""

    def __init__(self, dtype: torch.dtype, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.last, self.loss = torch.nn.Linear(16, 2048, bias=False, dtype=dtype), loss

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.loss(self.last(x), t)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "converted": lambda x, t: F.cross_entropy(x.float(), t),
    "as it is": lambda x, t: F.cross_entropy(x, t),
    "each": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "smoothed": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    "gathered": lambda x, t: x.float().log_softmax(-1).gather(-1, t[:, None]).mean(),
    "entropy": lambda x, t: -(x.float().log_softmax(-1).exp() * x.float().log_softmax(-1)).sum(-1).mean(),
}


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_logits_are_saved_once(name: str, dtype: torch.dtype) -> None:
    """The product's own result, and at most a few numbers a row: a quarter of what eager keeps of logits that it converts."""
    rows, model = 8, Head(dtype, LOSSES[name])
    x, t = torch.randn(rows, 16).to(dtype), torch.randint(0, 2048, (rows,))
    compiled = flambeau.compile(model)
    compiled(x, t).sum().backward()
    held = [*model.parameters(), x, t]
    assert kept_bytes(lambda: compiled(x, t), held) <= rows * (2048 * dtype.itemsize + 3 * 4) + 32


def test_logits_of_the_callers_are_saved_as_a_copy_of_their_own_size() -> None:
    """Eager looks at no logits that it converted once the loss is there: they may be written."""
    x = torch.randn(4, 1024).bfloat16().requires_grad_()
    t = torch.randint(0, 1024, (4,))
    compiled = flambeau.compile(lambda x, t: F.cross_entropy(x.float(), t))
    assert kept_bytes(lambda: compiled(x, t), [x, t]) <= 4 * (1024 * 2 + 3 * 4) + 32
    (wanted,) = torch.autograd.grad(F.cross_entropy(x.float(), t), x)
    loss = compiled(x, t)
    with torch.no_grad():
        x.zero_()
    torch.testing.assert_close(torch.autograd.grad(loss, x)[0], wanted)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_second_derivative_when_the_logits_are_gone(dtype: torch.dtype) -> None:
    """What eager saved follows from what is saved in its place."""

    def second(function: Loss) -> Tensor:
        torch.manual_seed(0)
        source = torch.randn(3, 9, dtype=dtype).requires_grad_()
        target = torch.tensor([1, 8, 0])
        between = source * 2
        loss = function(between, target)
        del between
        gc.collect()
        (first,) = torch.autograd.grad(loss, source, create_graph=True)
        return torch.autograd.grad(first.float().square().sum(), source)[0]

    def loss(x: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(x, t) + x.float().softmax(-1)[:, 0].sum()

    rtol, atol = TOLERANCE[dtype]
    torch.testing.assert_close(second(flambeau.compile(loss)), second(loss), rtol=rtol, atol=atol)


def test_without_gradients() -> None:
    """The same loss."""
    x, t = logits(BF16), targets(1)
    with torch.no_grad():
        torch.testing.assert_close(flambeau.compile(reductions)(x, t), reductions(x, t))
