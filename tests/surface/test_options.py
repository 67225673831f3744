"""Options of fusion, kernels and numbers as torch.compile's documentation has them, each seen in what is compiled."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau.errors import NotFinite
from flambeau.options import resolve
from flambeau_runtime.artifact import Alloc, Launch
from tests.comparison import assert_same

from .compiled import count, entries, meta, on_cuda, program
from .rows import calls


@calls("options", "max_fusion_size")
def test_loops_of_a_kernel() -> None:
    def six(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.sin(x + k) for k in range(6))

    assert [program(six, torch.randn(8, 9), max_fusion_size=size).kernels for size in (64, 3)] == [1, 2]


@calls("options", "allow_buffer_reuse", "inplace_buffers")
def test_memory() -> None:
    def chain(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.relu(x @ w) * 2 + 1
        return x

    def allocations(reuse: bool, in_place: bool) -> int:
        given = torch.randn(100, 100), torch.randn(100, 100) / 10
        return count(program(chain, *given, allow_buffer_reuse=reuse, inplace_buffers=in_place), Alloc)

    assert allocations(False, False) > max(allocations(True, False), allocations(False, True))


@calls("options", "realize_opcount_threshold")
def test_costly_values_are_stored() -> None:
    def shared(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2 + torch.cos(x) * 3
        return y.sum(0) + y.sum(1)

    x = torch.randn(64, 64)
    assert program(shared, x, realize_opcount_threshold=1).artifact.text() != program(shared, x).artifact.text()


@calls("options", "realize_reads_threshold")
def test_values_of_many_operands_are_stored() -> None:
    def spread(*xs: Tensor) -> Tensor:
        return torch.var(sum(xs[1:], xs[0]), -1)

    xs = [torch.randn(64, 64) for _ in range(6)]
    stored, again = (program(spread, *xs, realize_reads_threshold=value).artifact.program for value in (1, 99))
    assert stored != again


@calls("options", "split_reductions")
def test_reductions_are_split() -> None:
    def total(x: Tensor) -> Tensor:
        return x.sum()

    x = meta(1 << 22, dtype=torch.float32)
    assert [len(on_cuda(total, x, split_reductions=split).kernels) for split in (True, False)] == [2, 1]


@calls("options", "combo_kernels")
def test_small_kernels_are_launched_as_one() -> None:
    def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(x), torch.cos(y)

    given = meta(64, dtype=torch.float32), meta(33, dtype=torch.float32)

    def launches(combined: bool) -> int:
        instructions = on_cuda(two, *given, combo_kernels=combined).program.instructions
        return sum(isinstance(instruction, Launch) for instruction in instructions)

    assert [launches(True), launches(False)] == [1, 2]


@calls("options", "loop_ordering_after_fusion")
def test_loops_are_ordered_by_memory() -> None:
    def turned(x: Tensor) -> Tensor:
        return torch.sin(x.t()) + 1

    x = torch.randn(37, 53)
    ordered, plain = (program(turned, x, loop_ordering_after_fusion=value).artifact.text() for value in (True, False))
    assert ordered != plain


@calls("options", "pattern_matcher")
def test_calls_are_traded_for_others() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v

    given = [torch.randn(2, 4, 64, 64) for _ in range(3)]
    traded, plain = (program(attention, *given, pattern_matcher=value) for value in (True, False))
    assert sum(plain.library_calls.values()) > sum(traded.library_calls.values())


@calls("options", "batch_fusion")
def test_products_with_one_operand_are_joined() -> None:
    def several(w: Tensor, *xs: Tensor) -> Tensor:
        return sum((x @ w).relu() for x in xs)

    given = torch.randn(32, 16), *(torch.randn(8, 32) for _ in range(4))

    def products(joined: bool) -> int:
        calls = program(several, *given, batch_fusion=joined, fallback_by_default=True).library_calls
        return sum(count for name, count in calls.items() if "mm" in name)

    assert [products(True), products(False)] == [1, 4]


@calls("options", "conv_1x1_as_mm")
def test_convolutions_of_points_are_products() -> None:
    model = nn.Conv2d(8, 16, 1).to(memory_format=torch.channels_last).eval()
    x = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
    with torch.no_grad():
        found = program(model, x, conv_1x1_as_mm=True).library_calls
    assert not any("conv" in name for name in found), found


@calls("options", "layout_optimization", "force_layout_optimization")
def test_convolutions_are_channels_last() -> None:
    def convolved(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(F.conv2d(x, w))

    given = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3)
    forced = program(convolved, *given, force_layout_optimization=True).artifact.text()
    off = program(convolved, *given, force_layout_optimization=True, layout_optimization=False).artifact.text()
    assert forced != off


@calls("options", "joint_graph_constant_folding")
def test_ops_that_change_nothing_are_dropped() -> None:
    def copied(x: Tensor) -> Tensor:
        return torch.sin(x.clone())

    x = torch.randn(5)
    dropped, kept = (program(copied, x, joint_graph_constant_folding=value) for value in (True, False))
    assert [record.artifact.kernels[0].meta["origins"] for record in (dropped, kept)] == [
        ["sin_default"],
        ["clone_default", "sin_default"],
    ]


@calls("options", "triton.persistent_reductions")
def test_rows_are_kept_or_not() -> None:
    def softmax(x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    x = meta(4096, 512, dtype=torch.float32)
    kept, looped = (entries(on_cuda(softmax, x, **{"triton.persistent_reductions": on})) for on in (True, False))
    assert "_per_" in kept[0] and "_red_" in looped[0]


@calls("options", "triton.descriptive_names")
def test_names_of_kernels() -> None:
    x = meta(512, dtype=torch.float32)
    told, mute = (entries(on_cuda(torch.sin, x, **{"triton.descriptive_names": on})) for on in ("original_aten", False))
    assert "fused_sin" in told[0] and "sin" not in mute[0].replace("poi", "")


@calls("options", "cpp.min_chunk_size")
def test_rounds_of_a_thread() -> None:
    x = torch.randn(1000, 100)
    assert "grain 77" in program(torch.sin, x, **{"cpp.min_chunk_size": 77}).artifact.text()


@calls("options", "cpu_backend")
def test_language_of_cpu_kernels() -> None:
    found = flambeau.explain(torch.sin, options={"cpu_backend": "cpp"})(torch.randn(3)).programs[0].artifact
    assert [library.language for library in found.libraries] == ["cpp"]
    with pytest.raises(flambeau.errors.UnknownName, match="cpp, triton"):
        resolve(None, {"cpu_backend": "halide"})


@calls("options", "emulate_precision_casts")
def test_rounding_as_eager() -> None:
    def several(x: Tensor) -> Tensor:
        return ((x * 1.1) * 1.3) * 1.7

    x = torch.randn(1000, dtype=torch.bfloat16)
    true, fast = (flambeau.compile(several, options={"emulate_precision_casts": on})(x) for on in (True, False))
    assert torch.equal(true, several(x)) and not torch.equal(fast, several(x))


@calls("options", "fallback_random")
def test_random_numbers() -> None:
    torch.manual_seed(3)
    ours = flambeau.compile(torch.rand_like, options={"fallback_random": True})(torch.ones(100))
    torch.manual_seed(3)
    assert torch.equal(ours, torch.rand_like(torch.ones(100)))


@torch.library.custom_op("surface_options::columns", mutates_args=())
def columns(x: Tensor) -> Tensor:
    """Lies by columns, which its fake does not say."""
    return (x * 2).t().contiguous().t()


@columns.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@calls("options", "size_asserts")
def test_results_of_calls_are_held_to_what_was_predicted() -> None:
    """A kernel behind a call whose result lies otherwise reads the right elements; nothing looks without the option."""

    def function(x: Tensor) -> Tensor:
        return (columns(x) + x).sum(0)

    x = torch.randn(3, 5)
    assert (
        "hold t1 float32 [3, 5] strides [5, 1] on cpu from surface_options::columns"
        in program(function, x).artifact.text()
    )
    explanation = flambeau.explain(function, measure=False, options={"size_asserts": False})(x)
    assert "hold" not in explanation.programs[0].artifact.text()
    assert not torch.allclose(explanation.result, function(x))


@calls("options", "nan_asserts")
def test_results_that_are_no_numbers() -> None:
    """Also of the backward; numbers go through."""
    compiled = flambeau.compile(torch.log, options={"nan_asserts": True})
    assert_same(compiled(torch.ones(3)), torch.zeros(3))
    with pytest.raises(NotFinite, match="forward"):
        compiled(torch.zeros(3))
    root = flambeau.compile(lambda x: torch.sqrt(x).sum(), options={"nan_asserts": True})
    with pytest.raises(NotFinite, match="backward"):
        root(torch.zeros(3, requires_grad=True)).backward()
