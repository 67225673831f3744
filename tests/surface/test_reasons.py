"""What the reasons of options and settings without effect claim, measured."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import flambeau
from flambeau import without_effect
from flambeau.errors import InvalidOption
from flambeau.options import resolve

from .compiled import meta, on_cuda


def text_of(artifact: Any) -> str:
    return "".join(library.text for library in artifact.libraries)


def test_quotients_are_rounded_and_arithmetic_keeps_what_is_denormal() -> None:
    """`eager_numerics.division_rounding` and `.disable_ftz`, of which the second is refused for the functions."""
    bits = torch.randint(-(2**31), 2**31 - 1, (4096,), generator=torch.Generator().manual_seed(3)).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.tensor([1e-40, -3e-42, 1.4e-45, 1e-38])])
    y = x.flip(0)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x / y, x * 0.5, x + y, x / 3

    for ours, eagers in zip(flambeau.compile(function)(x, y), function(x, y), strict=True):
        assert torch.equal(ours.isnan(), eagers.isnan())
        assert torch.equal(ours[~ours.isnan()].view(torch.int32), eagers[~eagers.isnan()].view(torch.int32))
    assert flambeau.compile(lambda x: torch.sqrt(x) * 2)(torch.full((8,), 1e-40))[0] > 1e-20
    assert "tl.div_rn" in text_of(on_cuda(torch.div, *(meta(512, dtype=torch.float32) for _ in range(2))))
    small = torch.full((8,), -95.0)
    assert torch.exp(small)[0] > 0 and flambeau.compile(lambda x: torch.exp(x) * 2)(small)[0] == 0
    for name in ("disable_ftz", "use_pytorch_libdevice"):
        with pytest.raises(InvalidOption):
            resolve(None, {f"eager_numerics.{name}": True})


@pytest.mark.compiles(graphs=0)
def test_products_fetch_by_descriptors_where_memory_allows() -> None:
    """`triton.use_tensor_descriptor`."""

    def has_descriptors(width: int) -> bool:
        given = meta(4096, width), meta(1024, width)
        ours = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
        return "make_tensor_descriptor" in text_of(on_cuda(lambda x, w: x @ w.t(), *given, **ours))

    assert [has_descriptors(width) for width in (768, 771)] == [True, False]


def test_indices_out_of_range() -> None:
    """`assert_indirect_indexing`."""
    compiled = flambeau.compile(lambda x, i: torch.index_select(x, 0, i) + 1)
    assert compiled(torch.ones(5, 3), torch.tensor([0, 4])).shape == (2, 3)
    with pytest.raises(IndexError, match="out of"):
        compiled(torch.ones(5, 3), torch.tensor([0, 5]))
    given = meta(100, 50, dtype=torch.float32), meta(7, dtype=torch.int64)
    assert "tl.device_assert" in text_of(on_cuda(lambda x, i: torch.index_select(x, 0, i) + 1, *given))


def test_saved_tensors_are_let_go_of_as_the_backward_reads_them() -> None:
    """`donated_buffer`: gradients take the memory of what was saved, unless the graph is retained."""
    weights = [torch.randn(256, 256) / 16 for _ in range(6)]
    size = weights[0].nbytes

    def deep(x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.sin(x @ weight)
        return x.sum()

    def held(retain: bool) -> tuple[int, int, int]:
        x = torch.randn(256, 256, requires_grad=True)
        gc.collect()
        with warnings.catch_warnings(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            warnings.simplefilter("ignore")
            loss = compiled(x)
            with torch.profiler.record_function("backward begins"):
                pass
            loss.backward(retain_graph=retain)
        now = begin = top = 0
        events = [e for e in found.profiler.kineto_results.events() if e.name() in ("[memory]", "backward begins")]
        for event in sorted(events, key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                top = max(top, now)
            else:
                begin = top = now
        return round(begin / size), round(top / size), round(now / size)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, products are the library's, which takes memory of its own
    try:
        compiled = flambeau.compile(deep)
        compiled(torch.randn(256, 256, requires_grad=True)).backward()
        begin, top, end = held(retain=False)
        assert 6 <= begin <= top <= begin + 1 and end <= 1
        assert held(retain=True)[2] >= 6
    finally:
        torch.set_num_threads(threads)


def test_random_numbers_are_eagers_under_any_setting() -> None:
    """`functionalize_rng_ops`."""

    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    def drawn(run: Any) -> tuple[Tensor, Tensor]:
        torch.manual_seed(5)
        return run(torch.ones(100)), torch.get_rng_state()

    for value in without_effect.SETTINGS["functionalize_rng_ops"][0]:
        with flambeau.compiler.config.patch(functionalize_rng_ops=value):
            ours, eagers = drawn(flambeau.compile(function)), drawn(function)
        assert all(map(torch.equal, ours, eagers))
