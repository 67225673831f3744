"""Which products become kernels of their own, with what in them, and which stay calls."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from tracing import lowered, traced

from flambeau_inductor.errors import VerifyError
from flambeau_inductor.ir.kernel import Gemm, GemmTile, KernelBody
from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.ir.scalar import load, transform
from flambeau_inductor.ir.text import gemm_text
from flambeau_inductor.ir.verify_gemm import verify_gemm
from flambeau_inductor.schedule import Schedule, schedule
from flambeau_inductor.schedule.gemms import form_gemms, read_product
from flambeau_inductor.schedule.steps import check_order, step_reads, step_writes

TILE = GemmTile(64, 64, 32, 4, 3)


def r(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype)


class Choose:
    """Every product gets ``tile``, or is refused after a look at it (None), or before (``considered`` False)."""

    def __init__(self, tile=TILE, considered=True):
        self.chosen, self.considered, self.seen = tile, considered, []

    def considers(self, product):
        return self.considered

    def tile(self, candidate):
        self.seen.append(candidate)
        return self.chosen


def formed(function, *inputs, choose=None, mode="fake"):
    graph = lowered(traced(function, *inputs, mode=mode))
    names: set[str] = set()
    plan = schedule(graph, names=names)
    return form_gemms(plan, graph, choose or Choose(), names).steps


def kinds(steps):
    return [type(step) for step in steps]


def test_what_follows_is_done_where_the_sums_are():
    (gemm,) = formed(lambda x, w: (x @ w).relu() * 2, r(8, 16), r(16, 24))
    assert isinstance(gemm, Gemm)
    assert [int(axis.size) for axis in gemm.body.outer] == [8, 24]
    assert len(step_writes(gemm)) == 1 and "mm" in gemm.name and "relu" in gemm.name
    assert "%sum = gemm(" in gemm_text(gemm) and "64 x 64 x 32" in gemm_text(gemm)


def test_the_result_is_stored_where_something_else_reads_it():
    steps = formed(lambda x, w, v: (lambda y: (y.relu(), y @ v))(x @ w), r(8, 16), r(16, 24), r(24, 8))
    assert kinds(steps) == [Gemm, Gemm]
    assert step_writes(steps[0]) & step_reads(steps[1]) and len(step_writes(steps[0])) == 2


def test_a_result_that_leaves_is_stored():
    (gemm,) = formed(lambda x, w: (lambda y: (y, y.relu()))(x @ w), r(8, 16), r(16, 24))
    assert len(step_writes(gemm)) == 2


def test_what_is_not_chosen_stays_a_call():
    choose = Choose(None)
    steps = formed(lambda x, w: (x @ w).relu(), r(8, 16), r(16, 24), choose=choose)
    assert kinds(steps) == [Extern, KernelBody]
    assert choose.seen[0].epilogue is steps[1] and choose.seen[0].product.sizes == (1, 8, 24, 16)
    choose = Choose(considered=False)
    assert kinds(formed(lambda x, w: (x @ w).relu(), r(8, 16), r(16, 24), choose=choose)) == [Extern, KernelBody]
    assert choose.seen == []


def looks_elsewhere(x, w):
    y = x @ w
    return y + y.t()


def reduces(x, w):
    return (x @ w).softmax(-1)


@pytest.mark.parametrize("function", [looks_elsewhere, reduces])
def test_what_needs_other_points_comes_after_the_product(function):
    steps = formed(function, r(16, 16), r(16, 16))
    assert kinds(steps) == [Gemm, KernelBody] and len(step_writes(steps[0])) == 1


@pytest.mark.parametrize("reads_new", [False, True])
def test_a_product_is_not_computed_after_its_operand_is_overwritten(reads_new):
    graph = lowered(traced(lambda x, w: (x @ w).relu() + x, r(16, 16), r(16, 16)))
    names: set[str] = set()
    call, after = schedule(graph, names=names).steps
    buffers, x = schedule(graph).buffers, call.args[0].buffer
    new = evolve(buffers[x], name="new", storage=x)
    between = evolve(after, name="between", statements=(evolve(after.statements[0], buffer="new"),), buffers=(new,))
    if reads_new:
        value = transform(
            after.statements[0].value, lambda n: load("new", n.index, n.dtype) if n.args[0] == x else None
        )
        after = evolve(after, statements=(evolve(after.statements[0], value=value),), buffers=(*after.buffers, new))
    # What needs the new contents cannot come before they are there, and the product cannot come after.
    steps = (call, between, after) if reads_new else (call, after)
    plan = Schedule(steps, {**buffers, "new": new})
    found = form_gemms(plan, graph, Choose(), names).steps
    assert kinds(found) == ([Gemm, KernelBody, KernelBody] if reads_new else [Gemm])


def test_sizes_known_at_run_time_stay_with_the_library():
    steps = formed(lambda x, w: (x @ w).relu(), r(8, 16), r(16, 24), mode="symbolic")
    assert Gemm not in kinds(steps)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int64])
def test_types_without_float32_sums_stay_with_the_library(dtype):
    x = torch.ones(8, 8, dtype=dtype)
    assert Gemm not in kinds(formed(lambda x, w: x @ w, x, x))


def test_products_of_nothing_stay_with_the_library():
    assert Gemm not in kinds(formed(lambda x, w: x @ w, r(8, 0), r(0, 8)))


def test_scales_and_what_is_added():
    graph = lowered(traced(lambda x, w, b: torch.addmm(b, x, w, beta=2.0, alpha=0.5), r(8, 16), r(16, 24), r(24)))
    product = read_product(schedule(graph).steps[0])
    assert product is not None and (product.alpha, product.beta) == (0.5, 2.0) and product.bias is not None


def test_an_epilogue_that_reads_another_product_comes_after_it():
    """Both branches of a residual block: the sum of two products is the epilogue of one of them."""
    steps = formed(lambda x, w, v: ((x @ w) + (x @ v)).relu(), r(8, 16), r(16, 24), r(16, 24))
    assert kinds(steps) == [Gemm, Gemm]
    check_order(steps)


#: A seed that draws none.
NO_PRODUCT = 33


@pytest.mark.parametrize("seed", range(40))
def test_steps_come_after_what_they_read(seed):
    """Products of products, sums and activations in any order, some of them results."""
    draw = random.Random(seed)

    def function(*values):
        values = list(values)
        for _ in range(9):
            one, other = draw.choice(values), draw.choice(values)
            values.append(draw.choice((torch.mm, torch.mm, torch.add, torch.mul, lambda a, b: a.relu()))(one, other))
        return tuple(draw.sample(values[3:], 3)) + (values[-1],)

    steps = formed(function, *(r(8, 8) for _ in range(3)))
    assert seed == NO_PRODUCT or any(isinstance(step, Gemm) for step in steps)
    check_order(steps)


def test_an_order_that_is_broken_is_an_error_of_ours():
    steps = formed(lambda x, w, v: (x @ w).relu() @ v, r(8, 16), r(16, 24), r(24, 8))
    with pytest.raises(VerifyError, match="step 0 reads .*, which step 1 fills"):
        check_order(steps[::-1])


@pytest.mark.parametrize("overwritten", [False, True])
def test_an_operand_is_computed_only_from_what_is_still_there(overwritten):
    graph = lowered(traced(lambda x, w: x @ (w * 2), r(16, 16), r(16, 16)))
    names: set[str] = set()
    maker, call = schedule(graph, names=names).steps
    buffers, w = schedule(graph).buffers, next(iter(step_reads(maker)))
    new = evolve(buffers[w], name="new", storage=w)
    between = evolve(maker, name="between", statements=(evolve(maker.statements[0], buffer="new"),), buffers=(new,))
    steps = (maker, between, call) if overwritten else (maker, call)
    choose = Choose()
    found = form_gemms(Schedule(steps, {**buffers, "new": new}), graph, choose, names).steps
    assert kinds(found) == ([KernelBody, KernelBody, Gemm] if overwritten else [Gemm])
    assert choose.seen[0].makers == (() if overwritten else (maker,))
    assert w in step_reads(found[-1]) or overwritten


def grouped(after):
    """The steps of a grouped product of 5 groups, 70 rows and 72 columns with ``after`` it."""
    inputs = [r(70, 48, dtype=torch.bfloat16), r(5, 72, 48, dtype=torch.bfloat16), torch.ones(5, dtype=torch.int32)]
    return formed(lambda x, w, ends: after(torch._grouped_mm(x, w.transpose(1, 2), offs=ends)), *inputs)


GATED = {
    "gate and up": lambda y: F.silu(y[:, :36]) * y[:, 36:],
    "up and gate": lambda y: F.silu(y[:, 36:]) * y[:, :36],
    "heads": lambda y: (y.view(70, 2, 4, 9)[:, 0] * y.view(70, 2, 4, 9)[:, 1]).relu(),
}


@pytest.mark.parametrize("name", GATED)
def test_both_halves_of_the_columns_are_computed_side_by_side(name):
    (gemm,) = grouped(GATED[name])
    verify_gemm(gemm)
    assert gemm.second is not None and int(gemm.right.sizes[2]) == 36 and len(step_writes(gemm)) == 1
    assert "%sum, %second_sum = gemm(" in gemm_text(gemm) and "groups up to" in gemm_text(gemm)


UNGATED = {
    "pieces that are no halves": lambda y: y[:, :36] * y[:, 18:54],
    "halves of the rows": lambda y: y[:35] * y[35:],
    "one half": lambda y: y[:, :36].relu(),
    "interleaved": lambda y: F.silu(y[:, ::2]) * y[:, 1::2],
    "halves against each other": lambda y: y[:, :36] * y[:, 36:].flip(1),
    "the result leaves": lambda y: (y, y[:, :36] * y[:, 36:]),
    "rows of others": lambda y: y[:, :36] * y[:, 36:].flip(0),
}


@pytest.mark.parametrize("name", UNGATED)
def test_what_is_not_both_halves_comes_after_the_product(name):
    gemm, *after = grouped(UNGATED[name])
    assert isinstance(gemm, Gemm) and gemm.second is None and kinds(after) == [KernelBody]


def test_grouped_products_of_other_kinds_stay_with_the_library():
    x, ends = r(48, 64, dtype=torch.bfloat16), torch.ones(5, dtype=torch.int32)
    assert kinds(formed(lambda x, y, e: torch._grouped_mm(x, y, offs=e), x.t(), x, ends)) == [Extern]
    w = r(1, 64, 16, dtype=torch.bfloat16)
    assert kinds(formed(lambda x, y, e: torch._grouped_mm(x, y, offs=e), x, w, ends[:1])) == [Extern]
