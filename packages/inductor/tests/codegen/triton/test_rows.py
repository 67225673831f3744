"""Reductions along rows of every length, by every shape of kernel, equal eager: interpreted on generated sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

import test_graphs

from flambeau_inductor.codegen.triton import Config, options
from flambeau_inductor.schedule import plan, rows
from flambeau_inductor.schedule.nest import Nest

#: Loops of one row a program (vectors inside, masks at the edges), of several rows, rows kept in pieces, and whole rows in a block.
SHAPES: dict[str, Callable[[int], Config]] = {
    "one row": lambda width: Config({"x": 1, "r": 16}, 1),
    "two rows": lambda width: Config({"x": 2, "r": 16}, 1),
    "four rows": lambda width: Config({"x": 4, "r": 16}, 1),
    "pieces": lambda width: Config({"x": 1, "r": 16}, 1, pieces=True),
    "pieces of two rows": lambda width: Config({"x": 2, "r": 16}, 1, pieces=True),
    "whole rows": lambda width: Config({"x": 2, "r": options.next_power_of_two(width)}, 1, persistent=True),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda a: a.softmax(-1),
    "log_softmax": lambda a: a.log_softmax(-1),
    "logsumexp": lambda a: a.logsumexp(-1),
    "layer_norm": lambda a: F.layer_norm(a, (a.shape[-1],)),
    "variance": lambda a: a.var(-1, correction=0),
    "sum": lambda a: (a * 2).sum(-1),
    "running": lambda a: a.cumsum(-1),
    "largest": lambda a: (a.amax(-1), a.argmax(-1)),
    "scaled": lambda a: a / (a.abs().amax(-1, keepdim=True) + 1),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 5),
    columns=st.one_of(st.integers(1, 20), st.integers(30, 70)),
    half=st.booleans(),
    offset=st.sampled_from([0, 0, 40.0]),
)
def test_row_reductions_equal_eager(name: str, shape: str, rows: int, columns: int, half: bool, offset: float) -> None:
    """Rows shorter and longer than a block, of odd lengths too, far from zero too."""
    a = (torch.randn(rows, columns) + offset).to(torch.bfloat16 if half else torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "choose", lambda space, traffic, device: SHAPES[shape](int(space.tiles[-1].numel)))
        test_graphs.check(FUNCTIONS[name], a, tolerance=1e-2 if half else 2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_extremes_of_softmax(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minus infinity everywhere but in one place, everywhere, infinity, NaN, and rows whose maximum grows block by block."""
    inf = float("inf")
    a = torch.full((5, 50), -inf)
    a[0, 33] = 2.0
    a[2] = torch.arange(50.0) * 40
    a[3] = torch.randn(50)
    a[3, 20] = float("nan")
    a[4] = torch.randn(50)
    a[4, 49] = inf
    monkeypatch.setattr(options, "choose", lambda space, traffic, device: SHAPES[shape](50))
    test_graphs.check(lambda a: a.softmax(-1), a)
    test_graphs.check(lambda a: a.log_softmax(-1), a)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inside", [32, 24])
def test_group_norm_reads_each_channels_weight(shape: str, inside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of two channels: a block lies within one channel, or across two."""
    a, w, b = torch.randn(2, 4, inside), torch.randn(4), torch.randn(4)
    monkeypatch.setattr(options, "choose", lambda space, traffic, device: SHAPES[shape](2 * inside))
    test_graphs.check(lambda a, w, b: F.group_norm(a, 2, w, b), a, w, b, tolerance=2e-5)


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("positions", [1, 5, 16])
def test_gathered_rows_beside_shared_ones_equal_eager(batch: int, positions: int) -> None:
    """Token and position embeddings: a program takes rows of one position, whatever divides what."""
    ids = torch.randint(0, 30, (batch, positions))
    table, position = torch.randn(30, 256), torch.randn(positions, 256)

    def function(ids: torch.Tensor, table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.embedding(ids, table) + position, (256,))

    artifact = test_graphs.check(function, ids, table, position, tolerance=2e-5)
    assert len(artifact.kernels) == 1


def test_rows_that_several_rows_need_are_read_once() -> None:
    """The position's row is one row of a block of several; the next program takes the next position."""
    ids = torch.randint(0, 30, (512, 64))
    table, position = torch.randn(30, 256), torch.randn(64, 256)
    _, artifact = test_graphs.compiled(
        lambda ids, table, position: F.layer_norm(F.embedding(ids, table) + position, (256,)), [ids, table, position]
    )
    (kernel,) = artifact.kernels
    assert kernel.meta["constexprs"]["XBLOCK"] == 4
    text = artifact.libraries[0].source
    assert "+ (256 * (xn % 64) + ri))" in text and "xn = pid * XBLOCK // 4" in text


def test_rows_read_in_order_stay_in_order() -> None:
    """A mask shared by a batch does not take the rows that it masks out of their order."""
    x, mask = torch.randn(64, 32, 256), torch.zeros(32, 256)
    _, artifact = test_graphs.compiled(lambda x, mask: torch.softmax(x + mask, -1), [x, mask])
    assert "+ (256 * xi + ri)" in artifact.libraries[0].source or "8192 * xn + 256 * xw" in artifact.libraries[0].source


def test_a_row_kept_in_pieces_loads_each_channels_weight_once() -> None:
    """Pieces that lie in one channel or across two share one value a channel."""
    a, w, b = torch.randn(300, 4, 4608), torch.randn(4), torch.randn(4)
    _, artifact = test_graphs.compiled(lambda a, w, b: F.group_norm(a, 2, w, b), [a, w, b])
    text = artifact.libraries[0].source
    assert text.count("tl.load") == 9 + 2 * 2 and text.count("tl.where(ri <") == 2
    test_graphs.check(lambda a, w, b: F.group_norm(a, 2, w, b), a, w, b, tolerance=2e-5)


def _as_on_a_gpu(nest: Nest) -> Nest:
    """What becomes of the nest there."""
    return evolve(rows.by_rows(evolve(nest, device=torch.device("cuda"))), device=nest.device)


@pytest.mark.parametrize("shape", ["one row", "two rows", "four rows", "whole rows"])
@pytest.mark.parametrize("columns", [16, 48, 37])
def test_rows_without_reductions(shape: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every element once, with the values of its own row, whatever the length of a block."""
    monkeypatch.setattr(rows, "_LONG", 1)
    monkeypatch.setattr(rows, "_ROWS", 0)
    monkeypatch.setattr(plan, "by_rows", _as_on_a_gpu)
    monkeypatch.setattr(options, "choose", lambda space, traffic, device: SHAPES[shape](columns))
    x, m, s, t = torch.randn(7, columns), torch.randn(7, 1), torch.rand(7, 1), torch.randint(0, columns, (7, 1))

    def gradient(x: torch.Tensor, m: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = torch.where(torch.arange(columns) == t, s, 0.0)
        return (x - m - s).exp() * s - chosen, (x * m).bfloat16()

    artifact = test_graphs.check(gradient, x, m, s, t)
    assert [kernel.name.split("_")[1] for kernel in artifact.kernels] == ["per" if shape == "whole rows" else "red"]
