"""Options of products and what is measured of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flambeau.errors import InvalidOption
from flambeau.options import resolve
from flambeau.stages import resolve_stages
from flambeau_inductor import pipeline
from flambeau_inductor.autotune import asked, choice, descent, kernels, questions, whole

from .compiled import entries, meta, on_cuda
from .rows import calls

EVEN = meta(4096, 768), meta(1024, 768)


def linear(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.t()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices may be measured, and the second way of each question is the fastest; the names of those that were asked."""
    found: list[str] = []

    def time_ways(given: Any, progress: Any) -> list[dict[Any, float]]:
        found.extend(question.name for question, _ in given)
        return [{way: 0.5 if place == 1 else 1.0 for place, way in enumerate(ways)} for _, ways in given]

    questions._unkept.cache_clear()
    for module in (choice, kernels, whole):
        monkeypatch.setattr(module, "may_measure", lambda device, wanted: wanted)
    monkeypatch.setattr(whole, "_can_be_timed", lambda artifact, device: True)
    monkeypatch.setattr(pipeline, "start_measuring", lambda inputs, config: None)
    monkeypatch.setattr(questions, "time_ways", time_ways)
    return found


def product_and_loops(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax((x @ w.t()).float(), -1)


@pytest.mark.parametrize(
    ("name", "products", "loops"),
    [
        ("max_autotune", True, True),
        ("max_autotune_gemm", True, False),
        ("max_autotune_pointwise", False, True),
        ("deterministic", False, False),
    ],
)
@calls("options", "max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
def test_what_is_measured_is_taken(timed: list[str], name: str, products: bool, loops: bool) -> None:
    """Products, the blocks of other kernels, or both; nothing is kept here. Untimed, the library computes this product."""
    given = meta(4096, 768), meta(1000, 768)
    before = on_cuda(product_and_loops, *given, autotune_local_cache=False)
    artifact = on_cuda(product_and_loops, *given, **{name: True, "autotune_local_cache": False})
    assert ["gemm" in timed, "measured" in timed] == [products, loops]
    made = [any("gemm" in entry for entry in entries(each)) for each in (before, artifact)]
    assert made == [False, products]
    assert (artifact.digest == before.digest) is not (products or loops)


@calls("options", "autotune_local_cache")
def test_what_was_measured_before_is_taken(timed: list[str]) -> None:
    """Also where nothing is measured now; not where the options forbid it."""
    given = meta(4096, 776), meta(1008, 776)

    def is_ours(**options: Any) -> bool:
        return any("gemm" in entry for entry in entries(on_cuda(product_and_loops, *given, **options)))

    assert [is_ours(autotune_local_cache=False), is_ours(max_autotune_gemm=True)] == [False, True]
    asked_so_far = len(timed)
    assert [is_ours(), is_ours(max_autotune_gemm=True)] == [True, True]
    for option in ("autotune_local_cache", "deterministic", "force_disable_caches"):
        assert not is_ours(**{option: option != "autotune_local_cache"})
    assert len(timed) == asked_so_far  # what is known is not measured again


@pytest.mark.parametrize(("backends", "kernels"), [("ATEN", 0), ("TRITON", 1)])
@calls("options", "max_autotune_gemm_backends")
def test_who_may_compute_products(backends: str, kernels: int) -> None:
    artifact = on_cuda(linear, *EVEN, max_autotune=True, max_autotune_gemm_backends=backends)
    assert sum("gemm" in entry for entry in entries(artifact)) == kernels


@pytest.mark.parametrize(("backends", "who"), [("ATEN", "library"), ("TRITON", "generated"), ("aten,triton", "auto")])
@calls("options", "max_autotune_conv_backends")
def test_who_may_compute_convolutions(backends: str, who: str) -> None:
    stages = resolve_stages(resolve(None, {"max_autotune": True, "max_autotune_conv_backends": backends}))
    assert asked.who_computes(stages.inductor, is_convolution=True) == who
    with pytest.raises(InvalidOption, match="ATEN, TRITON and CPP"):
        resolve(None, {"max_autotune_conv_backends": "CUTLASS"})


@calls("options", "max_autotune_gemm_search_space")
def test_how_many_tiles_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of: list[int] = []

    def answers(given: Any, config: Any, **how: Any) -> list[Any]:
        asked_of.extend(len(question.ways) for question in given)
        return [questions.UNKNOWN for _ in given]

    monkeypatch.setattr(choice, "may_measure", lambda device, wanted: wanted)
    monkeypatch.setattr(choice, "answers", answers)
    monkeypatch.setattr(pipeline, "start_measuring", lambda inputs, config: None)
    for space in ("DEFAULT", "EXHAUSTIVE"):
        on_cuda(linear, *EVEN, max_autotune_gemm=True, max_autotune_gemm_search_space=space)
    assert len(set(asked_of)) == 2 and asked_of[-1] > asked_of[0] == 8


@calls("options", "prologue_fusion")
def test_operands_are_computed_in_the_product() -> None:
    def converted(x: Tensor, w: Tensor) -> Tensor:
        return x @ w.to(torch.bfloat16).t()

    given = meta(1, 4096), meta(4096, 4096, dtype=torch.int8)
    assert [len(on_cuda(converted, *given, prologue_fusion=value).kernels) for value in (True, False)] == [1, 2]


@calls("options", "coordinate_descent_search_radius", "coordinate_descent_check_all_directions")
def test_how_far_the_descent_looks() -> None:
    from flambeau_inductor.ir.kernel import GemmTile

    start = GemmTile(64, 64, 64, 4, 3)

    def around(way: GemmTile) -> list[GemmTile]:
        return [
            GemmTile(way.rows * 2, way.columns, way.terms, 4, 3),
            GemmTile(way.rows, way.columns * 2, way.terms, 4, 3),
        ]

    def places(**how: Any) -> set[tuple[int, int]]:
        return {(way.rows, way.columns) for way in descent.around(around, start, how.pop("radius", 1), **how)}

    assert places() == {(128, 64), (64, 128)}
    assert places(radius=2) == {(128, 64), (64, 128), (256, 64), (64, 256)}
    assert (128, 128) in places(two_knobs=True)


@calls("options", "epilogue_fusion")
def test_the_library_does_what_follows() -> None:
    def activated(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.relu(F.linear(x, w, b))

    given = meta(512, 256), meta(128, 256), meta(128)
    on, off = (on_cuda(activated, *given, epilogue_fusion=value).text() for value in (True, False))
    assert "_addmm_activation" in on and "_addmm_activation" not in off


@calls("options", "coordinate_descent_tuning")
def test_the_best_is_looked_around(monkeypatch: pytest.MonkeyPatch) -> None:
    around: list[Any] = []
    monkeypatch.setattr(questions, "descend", lambda *given, **how: around.append(how))
    monkeypatch.setattr(questions, "time_ways", lambda given, progress: [{1: 1.0} for _ in given])
    question = questions.Question("q", "q", torch.device("cpu"), (1,), lambda way: None)
    for options in ({}, {"coordinate_descent_tuning": True, "coordinate_descent_search_radius": 3}):
        config = resolve_stages(resolve(None, options)).inductor
        with questions.Progress("kernels", 1) as progress:
            assert questions._measured([question], config, progress) == [1]
    assert around == [{"radius": 3, "all_directions": False}]
