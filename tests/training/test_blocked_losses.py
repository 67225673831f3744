"""Losses over many classes: values and gradients as in eager, without the gradient of all scores in memory, or all scores where no gradient is asked for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from flambeau_inductor.lowering import accumulate, joins, small_products
from flambeau_inductor.rewrite import batch_products, row_blocks
from flambeau_inductor.schedule import fuse
from flambeau_runtime.artifact import Alloc, Call, Free, Program

ROWS, WIDTH, CLASSES = 24, 16, 4096
#: Who computes a product: the library, of operands as they lie or of packed ones.
PRODUCTS = ("aten::mm", "aten::addmm", "mkldnn::_linear_pointwise", "mkl::_mkl_linear")
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small scores count as large, and so do small products, which are counted here."""
    monkeypatch.setenv("FLAMBEAU_INDUCTOR_BLOCKED_LOSSES", "1")
    monkeypatch.setattr(small_products, "is_faster", lambda left, right: False)


def values(dtype: torch.dtype, classes: int = CLASSES) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weight and bias of the head, targets of which two do not count."""
    x = torch.randn(ROWS, WIDTH).to(dtype).requires_grad_()
    weight, bias = (nn.Parameter(torch.randn(*size).to(dtype)) for size in ((classes, WIDTH), (classes,)))
    target = torch.randint(0, classes, (ROWS,))
    target[3], target[ROWS - 1] = -100, classes - 1
    target[7] = -100
    return x, weight, bias, target


def shifted(x: Tensor, w: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """As language models have it: each position's scores belong to the next one's target."""
    scores = F.linear(x.view(2, ROWS // 2, WIDTH), w).float()[:, :-1].reshape(-1, CLASSES)
    return F.cross_entropy(scores, t.view(2, -1)[:, 1:].reshape(-1))


def capped(x: Tensor, w: Tensor, b: Tensor, t: Tensor) -> Tensor:
    """A soft cap, and a penalty on the sum of exponentials."""
    scores = 30 * torch.tanh(F.linear(x, w, b) / 30)
    return F.cross_entropy(scores, t) + 1e-2 * scores.logsumexp(-1).square().mean()


def weighted(x: Tensor, w: Tensor, b: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w, b), t, weight=b.detach().float().abs().to(b.dtype), label_smoothing=0.1)


def in_rows(x: Tensor, w: Tensor, b: Tensor, t: Tensor) -> Tensor:
    return (F.cross_entropy(F.linear(x, w, b), t, reduction="none") * torch.arange(ROWS)).sum()


def under_autocast(x: Tensor, w: Tensor, b: Tensor, t: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.cross_entropy(F.linear(x, w, b), t)


LOSSES: dict[str, Loss] = {
    "mean": lambda x, w, b, t: F.cross_entropy(F.linear(x, w), t),
    "sum with bias": lambda x, w, b, t: F.cross_entropy(F.linear(x, w, b), t, reduction="sum"),
    "another class ignored": lambda x, w, b, t: F.cross_entropy(F.linear(x, w), t.clamp(min=0), ignore_index=0),
    "class weights": lambda x, w, b, t: F.cross_entropy(F.linear(x, w, b), t, weight=w.detach()[:, 0].abs()),
    "smooth": lambda x, w, b, t: F.cross_entropy(F.linear(x, w, b), t, label_smoothing=0.1),
    "smooth with class weights": weighted,
    "rows": in_rows,
    "shifted": shifted,
    "capped": capped,
    "autocast": under_autocast,
}


#: Gradients of these are multiples of one number, and rows are known one by one. None is a loss of above: the store has its program.
BY_ROWS: dict[str, Loss] = {
    "sum with bias": lambda x, w, b, t: F.cross_entropy(F.linear(x, w, b), t, reduction="sum") / 2,
    "smooth with class weights": lambda x, w, b, t: weighted(x, w, b, t) / 2,
    "rows": lambda x, w, b, t: in_rows(x, w, b, t) / 2,
    "capped": lambda x, w, b, t: F.cross_entropy(30 * torch.tanh(F.linear(x, w, b) / 30), t) / 4,
    "mean of some": lambda x, w, b, t: (
        (F.cross_entropy(F.linear(x.view(2, -1, WIDTH), w).view(-1, CLASSES), t, reduction="none") * (t > 50)).sum()
        / (t > 50).sum()
    ),
    "head that is turned": lambda x, w, b, t: F.cross_entropy(x @ w.view(WIDTH, CLASSES), t) * 3 + x.square().mean(),
    "head without a gradient": lambda x, w, b, t: F.cross_entropy(F.linear(x, w.detach()), t),
}


def distance(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30))


def programs(function: Any, *arguments: Any) -> tuple[Tensor, dict[str, Program]]:
    """What a compiled call gives, and its programs by kind."""
    recorder = Recorder()
    result = compile_recorded(function, recorder)(*arguments)
    if result.requires_grad:
        result.backward()
    return result, {p.kind: p.artifact.program for p in recorder.programs}


def peak(program: Program) -> int:
    """The most elements that a program holds at a time, of what it allocates and of what products give."""
    alive: dict[int, Any] = {}
    most = 0
    holds = {i.reg: i.sizes for i in program.instructions if type(i).__name__ == "Hold"}
    for instruction in program.instructions:
        if isinstance(instruction, Alloc):
            alive[instruction.out] = prod(instruction.sizes)
        elif isinstance(instruction, Call):
            results = (out.index for out in instruction.outs if out is not None)
            alive |= {result: prod(holds.get(result, (0,))) for result in results}
        elif isinstance(instruction, Free):
            for reg in instruction.regs:
                alive.pop(reg, None)
        most = max(most, sum(alive.values()))
    return most


#: Under autocast operands are float32.
CASES = [
    pytest.param(name, dtype, marks=pytest.mark.slow if dtype is torch.float16 else ())
    for name in LOSSES
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
    if name != "autocast" or dtype is torch.float32
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_losses_and_gradients(name: str, dtype: torch.dtype) -> None:
    """No further from float64 than eager, or hardly."""
    function = LOSSES[name]
    given = values(dtype)

    def outcome(function: Loss, given: tuple[Tensor, ...]) -> list[Tensor]:
        loss = function(*given)
        found = torch.autograd.grad(loss, given[:3], allow_unused=True)
        return [loss.detach(), *(grad for grad in found if grad is not None)]

    doubles = tuple(v.detach().double().requires_grad_(v.requires_grad) if v.is_floating_point() else v for v in given)
    exact = outcome(function, doubles) if name != "autocast" else None
    eager = outcome(function, given)
    ours = outcome(flambeau.compile(function, fullgraph=True), given)
    room = 1e-5 if dtype is torch.float32 and exact else 1e-2
    for got, known, right in zip(ours, eager, exact or eager, strict=True):
        assert got.dtype is known.dtype and got.stride() == known.stride()
        assert distance(got, right) <= 1.5 * distance(known, right) + room
    _, found = programs(function, *given)
    products = [i for i in found["forward"].instructions if isinstance(i, Call) and i.op in PRODUCTS]
    assert len(products) == 8, "the scores are not computed in blocks"


@pytest.mark.parametrize("classes", [4096, 4099, 5000])
def test_any_number_of_classes(classes: int) -> None:
    """The last block may be smaller."""
    x, w, b, t = values(torch.float32, classes)
    function = LOSSES["sum with bias"]
    wanted = torch.autograd.grad(function(x, w, b, t), (x, w, b))
    got = torch.autograd.grad(flambeau.compile(function)(x, w, b, t), (x, w, b))
    for ours, eager in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients a block of scores at a time; the backward holds one block's gradient and results; a budget of 0 keeps no scores."""
    # Kernels of small blocks are one.
    monkeypatch.setattr(fuse, "LARGE", 1 << 18)
    x, w, b, t = values(torch.float32)
    x = torch.randn(512, WIDTH, requires_grad=True)
    t = torch.randint(0, CLASSES, (512,))
    scores, block, head = 512 * CLASSES, 512 * CLASSES // 8, CLASSES * WIDTH
    function = LOSSES["mean"]
    _, found = programs(function, x, w, b, t)
    assert scores <= peak(found["forward"]) < scores * 1.1
    assert block + head <= peak(found["backward"]) < block + head + scores // 20
    with torch.no_grad():
        _, found = programs(function, x, w, b, t)
    assert block <= peak(found["forward"]) < block * 1.5
    lean = flambeau.compile(function, options={"activation_memory_budget": 0.0})
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved) or saved, lambda saved: saved):
        loss = lean(x, w, b, t)
    assert not any(saved.numel() >= block for saved in kept if saved.shape[-1] != WIDTH)
    for got, wanted in zip(
        torch.autograd.grad(loss, (x, w)), torch.autograd.grad(function(x, w, b, t), (x, w)), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows count as many."""
    monkeypatch.setattr(row_blocks, "ROWS", (10,))
    monkeypatch.setattr(row_blocks, "PART", 1)
    monkeypatch.setattr(accumulate, "LEAST", 1)
    monkeypatch.setattr(joins, "_LEAST_IN_PLACE", 1)
    # Small products are joined.
    monkeypatch.setattr(batch_products, "FEWEST", 100)


def gradients(function: Loss, given: tuple[Tensor, ...], factor: float) -> list[Tensor]:
    loss = function(*given)
    found = torch.autograd.grad(loss * factor, given[:3], allow_unused=True)
    return [loss.detach(), *(grad for grad in found if grad is not None)]


@pytest.mark.parametrize("name", BY_ROWS)
@pytest.mark.usefixtures("by_rows")
def test_blocks_of_rows(name: str) -> None:
    """The forward has the gradients but for a factor, in products of each of three blocks."""
    function, given = BY_ROWS[name], values(torch.float32)
    wanted = gradients(function, given, 2.5)
    got = gradients(flambeau.compile(function, fullgraph=True), given, 2.5)
    for ours, eager in zip(got, wanted, strict=True):
        assert ours.dtype is eager.dtype and ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-6)
    _, found = programs(function, *given)
    products = {
        kind: sum(isinstance(i, Call) and i.op in PRODUCTS for i in p.instructions) for kind, p in found.items()
    }
    assert products == {"forward": 6 if name == "head without a gradient" else 9, "backward": 0}


@pytest.mark.usefixtures("by_rows")
def test_memory_of_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of scores, over which its gradient is written, and one sum that later blocks add to where it lies."""
    monkeypatch.setattr(row_blocks, "ROWS", (128,))
    monkeypatch.setattr(row_blocks, "PART", 4)
    w = nn.Parameter(torch.randn(CLASSES, WIDTH))
    x, t = torch.randn(512, WIDTH, requires_grad=True), torch.randint(0, CLASSES, (512,))
    _, found = programs(lambda *given: LOSSES["mean"](*given) / 2, x, w, w, t)
    block, sums = 128 * CLASSES, CLASSES * WIDTH + 512 * WIDTH
    assert block + sums <= peak(found["forward"]) < block + sums + block // 20
    assert peak(found["backward"]) <= sums


#: Gradients of these are no multiples, or too small without what they are multiplied by.
BY_CLASSES: dict[str, tuple[torch.dtype, Loss]] = {
    "float16": (torch.float16, lambda x, w, b, t: F.cross_entropy(F.linear(x, w), t) / 3),
    "a loss that is squared": (torch.float32, lambda x, w, b, t: F.cross_entropy(F.linear(x, w), t).square() / 3),
}


@pytest.mark.parametrize("name", BY_CLASSES)
@pytest.mark.usefixtures("by_rows")
def test_blocks_of_classes_in_place_of_rows(name: str) -> None:
    dtype, function = BY_CLASSES[name]
    _, found = programs(function, *values(dtype))
    assert sum(isinstance(i, Call) and i.op in PRODUCTS for i in found["forward"].instructions) == 8


def test_infinite_scores_and_rows_without_targets() -> None:
    """Blocks of nothing but -inf count for nothing; a row of such, and a mean over no rows, are NaN as in eager."""
    x, w, b, t = values(torch.float32)
    function = LOSSES["sum with bias"]
    masked = b.detach().clone()
    masked[:1000] = -torch.inf
    target = t.clamp(min=1000)
    compiled = flambeau.compile(function)
    for bias, classes in ((masked, target), (torch.full_like(masked, -torch.inf), target), (masked, t * 0)):
        wanted, got = (torch.autograd.grad(f(x, w, bias, classes), x)[0] for f in (function, compiled))
        torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(compiled(x, w, bias, classes), function(x, w, bias, classes), equal_nan=True)
    none = torch.full_like(t, -100)
    assert flambeau.compile(LOSSES["mean"])(x, w, b, none).isnan()


def test_a_class_that_does_not_exist_is_an_error() -> None:
    """As in eager."""
    x, w, b, t = values(torch.float32)
    t[0] = CLASSES
    for call in (LOSSES["mean"], flambeau.compile(LOSSES["mean"])):
        with pytest.raises(IndexError):
            call(x, w, b, t)


def test_second_derivatives() -> None:
    """Through the saved numbers."""
    x, w, b, t = values(torch.float64)
    found = []
    for call in (LOSSES["capped"], flambeau.compile(LOSSES["capped"])):
        (grad,) = torch.autograd.grad(call(x, w, b, t), x, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), (x, w)))
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted)


STAY: dict[str, Loss] = {
    "probabilities as targets": lambda x, w, b, t: F.cross_entropy(
        F.linear(x, w), F.one_hot(t.clamp(min=0), CLASSES).float()
    ),
    "scores that are returned": lambda x, w, b, t: F.linear(x, w).log_softmax(-1)[:, :5000].square().sum(),
    "scores that something else reads": lambda x, w, b, t: (lambda s: F.cross_entropy(s, t) + s.sort(-1)[0].mean())(
        F.linear(x, w)
    ),
    "a layer that is no loss": lambda x, w, b, t: F.linear(F.linear(x, w, b).relu(), w.t()).sum(),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_whole(name: str) -> None:
    """Where something needs all scores at once."""
    x, w, b, t = values(torch.float32)
    result, found = programs(STAY[name], x, w, b, t)
    torch.testing.assert_close(result, STAY[name](x, w, b, t))
    products = [i for i in found["forward"].instructions if isinstance(i, Call) and i.op in PRODUCTS]
    assert len(products) < 8


def test_small_scores_and_symbolic_rows_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the number of bytes in the option, and where nobody knows the number of rows."""
    for dynamic, least in ((False, "100000000"), (True, "1")):
        monkeypatch.setenv("FLAMBEAU_INDUCTOR_BLOCKED_LOSSES", least)
        x, w, b, t = values(torch.float32)
        recorder = Recorder()
        compiled = compile_recorded(LOSSES["mean"], recorder, dynamic=dynamic)
        torch.testing.assert_close(compiled(x, w, b, t), LOSSES["mean"](x, w, b, t))
        (program,) = (p.artifact.program for p in recorder.programs if p.kind == "forward")
        assert sum(isinstance(i, Call) and i.op == "aten::mm" for i in program.instructions) == 1
