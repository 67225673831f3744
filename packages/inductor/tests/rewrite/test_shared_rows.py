"""Products of the same rows by frozen weights become one: equal to eager, and only where nothing can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_frozen
from flambeau_inductor.context import CompileContext
from flambeau_inductor.rewrite.constants import freeze
from flambeau_inductor.rewrite.shared_rows import share_rows
from flambeau_runtime import linear, processor

aten = torch.ops.aten
ROWS, WIDTH = 32, 256
INPUTS = [
    torch.randn(ROWS, WIDTH),
    *(torch.randn(WIDTH, WIDTH) / 16 for _ in range(3)),
    *(torch.randn(WIDTH) for _ in range(3)),
]


@pytest.fixture(autouse=True)
def of_intel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where MKL computes products."""
    monkeypatch.setattr(linear, "has_kernel", lambda: False)
    monkeypatch.setattr(processor, "maker", lambda: "GenuineIntel")


def heads(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w.t()).view(1, ROWS, 4, WIDTH // 4).transpose(1, 2)


def attention(x: Tensor, q: Tensor, k: Tensor, v: Tensor, *biases: Tensor) -> Any:
    """With the residual, so that something else reads the rows."""
    made = [heads(x, w, b) for w, b in zip((q, k, v), biases, strict=True)]
    mixed = aten._scaled_dot_product_flash_attention_for_cpu(*made)[0]
    return mixed.transpose(1, 2).reshape(ROWS, WIDTH) + x


def count(function: Callable[..., Any], frozen: tuple[int, ...] = (1, 2, 3, 4, 5, 6), *inputs: Tensor) -> int:
    """How many products there are afterwards."""
    gm = traced(function, *(inputs or INPUTS))
    freeze(gm, frozen)
    changed = share_rows(gm, CompileContext())
    left = [n for n in gm.graph.nodes if n.target in (aten.mm.default, aten.addmm.default)]
    assert changed is (len(left) == 1)
    return len(left)


def test_queries_keys_and_values_are_one_product() -> None:
    """Computed by the compiled program, in the layout of eager."""
    assert count(attention) == 1
    assert count(lambda x, q, k, v, *b: (x @ q.t()).relu() + (x @ k.t()) * (x @ v.t())) == 1
    gm = traced(attention, *INPUTS)
    made = compile_frozen(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")], tuple(range(1, 7)))
    assert made.folding is not None and made.program.text().count("call mkl::_mkl_linear") == 1
    folding, program = (flambeau_runtime.load(part) for part in (made.folding, made.program))
    values = folding(*[INPUTS[place] for place in made.watched])
    (got,) = program(*[INPUTS[place] for place in made.kept], *values)
    want = attention(*INPUTS)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert got.stride() == want.stride()


APART = {
    "a weight that is not frozen": (attention, (1, 4, 5, 6)),
    "a bias that is not frozen": (attention, (1, 2, 3, 4)),
    "a result of the graph": (lambda x, q, k, v, *b: (x @ q.t(), (x @ k.t()).relu(), (x @ v.t()).relu()), (1, 2, 3)),
    "other rows": (lambda x, q, k, v, *b: (x @ q.t()).relu() + (x + 1) @ k.t() + (x - 1) @ v.t(), (1, 2, 3)),
    "random numbers": (lambda x, q, k, v, *b: aten.native_dropout(x @ q.t(), 0.5, True)[0] + x @ k.t() + x @ v.t(), (1, 2, 3)),
    "strides": (lambda x, q, k, v, *b: aten.as_strided(x @ q.t(), [4], [1]) + (x @ k.t() + x @ v.t())[0, :4], (1, 2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_stays_apart(name: str) -> None:
    assert count(*APART[name]) == 3


def test_where_another_library_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of many rows, which keep a core busy anyway."""
    assert count(attention, tuple(range(1, 7))) == 1
    many = torch.randn(1025, WIDTH)
    assert (
        count(lambda x, q, k, v, *b: (x @ q.t()).relu() + (x @ k.t()) * (x @ v.t()), (1, 2, 3), many, *INPUTS[1:]) == 3
    )
    monkeypatch.setattr(processor, "maker", lambda: "AuthenticAMD")
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx512f"}))
    assert count(attention) == 3
