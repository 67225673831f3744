"""What each name of `FLAMBEAU_LOGS` shows, read off small programs; with no name on, nothing is shown and nothing is put into words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau import log
from flambeau.log import ARTIFACTS
from tests.texts import lines_with, shown

NEED_MORE = {
    "autotuning",
    "benchmarking",
    "graph_code_verbose",
    "caching",
    "cudagraphs",
    "ddp_graphs",
    "perf_hints",
    "fallbacks",
    "repeats",
}
"""Names that need more than a program: a cache, a device, an option, something that cannot be compiled, layers."""


class Counter:
    """An object that programs change."""

    def __init__(self) -> None:
        self.calls = 0
        self.last: Any = None


@pytest.fixture(autouse=True)
def own_configuration() -> Iterator[None]:
    """Leave logs as they were."""
    yield
    log.configure(log.LogSettings())


def weighted(x: Tensor, w: Tensor) -> Tensor:
    """A product with work before and after it."""
    return torch.relu(x.sin() @ w).sum()


ARGUMENTS = (torch.randn(4, 4), torch.randn(4, 4, requires_grad=True))
#: Whose product is a library's call.
LARGE = (torch.randn(64, 255), torch.randn(255, 65))


# ---- capture ----------------------------------------------------------------------------------------------------------------------


def test_recompiles_verbose_names_every_guard_of_every_entry() -> None:
    """`recompiles` tells the first guard of an entry that fails; this one all of them, of all entries."""

    def scaled(x: Tensor, items: list[int], name: str) -> Tensor:
        return x * len(items) if name == "twice" else x + len(items)

    calls = [(torch.ones(3), [1], "twice"), (torch.ones(3), [1, 2], "once"), (torch.ones(4).double(), [1, 2], "never")]
    text = shown("recompiles_verbose", scaled, *calls, dynamic=False)
    first, second = text.split("[flambeau recompiles_verbose]")[1:]
    told = [line.strip().split(":")[0] for line in first.splitlines()[2:]]
    assert told[0] == "entry 0" and sorted(told[1:]) == ["- L['name']", "- len(L['items'])"]
    assert "expected 1, actual 2" in first and "expected 'twice', actual 'once'" in first
    assert len(lines_with(second, "tensor L['x'] dtype: expected torch.float32, actual torch.float64")) == 2
    assert lines_with(second, "    entry ") == ["entry 0:", "entry 1:"]
    assert "L['name']: expected 'twice', actual 'never'" in second


def test_graph_is_a_table() -> None:
    """A header, then one row a node."""
    text = shown("graph", weighted, ARGUMENTS)
    rows = [line.split() for line in text.splitlines()[2:]]
    assert rows[0] == ["opcode", "name", "target", "args", "kwargs"]
    assert ["placeholder", "in_l_x"] in [row[:2] for row in rows]
    assert ["call_function", "matmul", "matmul", "(sin,", "in_l_w)", "{}"] in rows


def test_graph_sizes_lists_every_tensor() -> None:
    """Members of tuples too; symbols where sizes are dynamic."""

    def largest(x: Tensor) -> Tensor:
        return torch.max(x.view(-1, 2), 1)[0] + 1

    text = shown("graph_sizes", largest, (torch.randn(6, 2),), (torch.randn(8, 2),))
    static, dynamic = text.split("[flambeau graph_sizes]")[1:]
    rows = [line.split(maxsplit=2) for line in static.splitlines()[2:]]
    assert ["in_l_x", "float32", "(6, 2)"] in rows and ["max_1[1]", "int64", "(6,)"] in rows
    (row,) = lines_with(dynamic, "in_l_x")
    assert row.split()[2].startswith("(s")


def test_bytecode_shows_both_codes() -> None:
    """The program's instructions and those that call the graph, whose constants are named without their `repr`."""
    counter = Counter()

    def counted(x: Tensor) -> Tensor:
        counter.calls += 1
        return x + 1

    text = shown("bytecode", counted, (torch.ones(2),))
    before, after = text.split("rewritten:")
    assert (
        "runs=rewritten code" in before
        and lines_with(before, "STORE_ATTR", "calls")
        and not lines_with(before, "Disabled")
    )
    assert lines_with(after, "LOAD_CONST", "<Disabled 0x") and lines_with(after, "wrapper_descriptor")
    assert "runs=graph" in shown("bytecode", weighted, ARGUMENTS)


def test_side_effects_are_listed_in_order() -> None:
    """What is changed and what it becomes: constants, results of the graph, things that are there already."""
    counter = Counter()

    def recorded(x: Tensor, items: list[Any], table: dict[str, Any]) -> Tensor:
        y = x + 1
        items.append(y)
        table["size"] = 3
        counter.calls += 1
        counter.last = x
        return y * 2

    text = shown("side_effects", recorded, (torch.ones(3), [1], {"other": None}))
    assert lines_with(text, "L['items'] gets the items list(", "of the graph>")
    assert lines_with(text, "L['table'] gets the items {", "'size': 3")
    assert [line.split(".")[-1] for line in lines_with(text, ".calls = ") + lines_with(text, ".last = ")] == [
        "calls = 1",
        "last = L['x']",
    ]
    assert shown("side_effects", weighted, ARGUMENTS) == ""


def test_dynamic_shows_symbols_ranges_and_specialisations() -> None:
    """Where each symbol comes from, why it is one, what is assumed about it and on which line."""

    def branching(x: Tensor, y: Tensor) -> Tensor:
        if x.shape[0] > 4:
            x = x + 1
        return x * 2 if y.shape[0] == 7 else x + y.sum()

    text = shown("dynamic", branching, (torch.ones(5), torch.ones(6)), (torch.ones(6), torch.ones(7)))
    assert lines_with(text, "= L['x'].size()[0], 6 in this call, range [5, inf]")
    assert lines_with(text, "guard", "> 4", "L['x'].size()[0]", "test_logs.py", "branching")
    assert lines_with(text, "is specialised to 7")
    assert "dimension 0 of L['x'] changed between compiles" in text
    assert shown("dynamic", branching, (torch.ones(5), torch.ones(6))) == ""


@pytest.mark.filterwarnings("error")
def test_dynamic_shows_sizes_without_a_value() -> None:
    """An unbacked size has a source and a range, and no value that the program could have looked at."""
    x = torch.ones(5)
    flambeau.compiler.mark_unbacked(x, 0)
    text = shown("dynamic", lambda x: x * 2, (x,))
    assert lines_with(text, "u0 = L['x'].size()[0], range [0, inf]")


# ---- autograd and inductor --------------------------------------------------------------------------------------------------------


def test_aot_joint_graph_holds_forward_and_backward() -> None:
    """The graph before it is cut in two; a program without gradients has none."""
    text = shown("aot_joint_graph", weighted, ARGUMENTS)
    assert lines_with(text, "aten.mm") and lines_with(text, "tangent_0") and lines_with(text, "aten.cos") == []
    assert len(lines_with(text, "results: ")) == 1 and len(lines_with(text, "gradients: ")) == 1
    assert shown("aot_joint_graph", weighted, tuple(t.detach() for t in ARGUMENTS)) == ""


def test_post_grad_graphs_are_those_after_the_passes() -> None:
    """Products that share a weight are several before inductor's passes and one after them."""

    def steps(x: Tensor, w: Tensor) -> Tensor:
        return torch.stack([(step @ w).sin() for step in x.unbind(0)])

    arguments = (torch.ones(3, 2, 4), torch.ones(4, 5))
    before, after = shown("aot_graphs", steps, arguments), shown("post_grad_graphs", steps, arguments)
    assert (before.count("aten.mm.default("), after.count("aten.mm.default(")) == (3, 1)


def test_loop_ir_before_and_after_fusion() -> None:
    """One line an operation before, one kernel after."""

    def pointwise(x: Tensor) -> Tensor:
        return (x.sin() + 1).sum(-1)

    before = shown("ir_pre_fusion", pointwise, (torch.ones(3, 4),))
    after = shown("ir_post_fusion", pointwise, (torch.ones(3, 4),))
    assert lines_with(before, "input", "f32[3, 4; 4, 1]") and lines_with(before, "sum", "sin(")
    assert len(lines_with(after, "kernel fused_", "outer(x0<3) inner(r0<4)")) == 1
    assert lines_with(after, "= sum") and lines_with(after, "buffer")
    assert lines_with(shown("ir_post_fusion", weighted, LARGE), "= call aten.mm.default(")


def test_fusion_says_what_joined_what_and_why_not() -> None:
    """A softmax is one group; a product stands alone; what needs all of a sum cannot join it."""

    def normalised(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(x, -1) @ w

    text = shown("fusion", normalised, LARGE)
    assert lines_with(text, "starts group 0") and lines_with(text, "joins group 0")
    assert lines_with(text, "mm", "is alone in group 1: not a loop")
    sums = shown("fusion", lambda x: x.cumsum(0).sum(1) + x, (torch.ones(4, 4),))
    assert lines_with(sums, "is refused by group 0: ")
    assert lines_with(
        shown("fusion", weighted, ARGUMENTS), "starts group", "reads nothing that a loop before it touches"
    )


# ---- all of them ------------------------------------------------------------------------------------------------------------------


def broken(x: Tensor, items: list[Any]) -> Tensor:
    """A program that every stage has something to say about."""
    items.append(x.sin())
    flambeau.compiler.graph_break()
    return (torch.softmax(x, -1) @ x.t()).sum()


CALLS = [(torch.randn(n, 4, requires_grad=True), []) for n in (3, 5)]


def test_library_calls_and_missed_kernels_are_told() -> None:
    """Each with its reason: what no kernel is there for, and what there is one for that does not fit."""

    def calls(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.linalg.inv(x), x.half().view(torch.int16) + 1

    text = shown("fallbacks", calls, (torch.eye(3),))
    assert lines_with(text, "[flambeau fallbacks]", "linalg_inv", "reason=")
    hints = shown("perf_hints", calls, (torch.eye(3),))
    assert lines_with(hints, "[flambeau perf_hints]", "view", "reason=the bits of a narrow type")
    assert not lines_with(hints, "linalg_inv")


def test_what_was_compiled_once_is_told() -> None:
    """A region that is called twice."""
    gate = torch.compiler.nested_compile_region(lambda x: x.sin().cos().tan() + 1)
    text = shown("repeats", lambda x: gate(gate(x)), (torch.ones(3),))
    assert lines_with(text, "[flambeau repeats] compiled_once", "calls=2", "operations=4")


def test_seconds_of_every_stage_are_told() -> None:
    """Capture's, of each stage behind it, and of the stages inside inductor."""
    text = shown("timings", weighted, ARGUMENTS)
    for stage in ("capture", "autograd", "passes", "lowering", "inductor", "build", "load"):
        assert lines_with(text, f"stage={stage}", "seconds="), stage


@pytest.mark.parametrize("name", sorted(ARTIFACTS.keys() - NEED_MORE))
def test_a_name_shows_its_own_events_alone(name: str) -> None:
    """Each prints something, and nothing that belongs to another name."""
    text = shown(name, broken, *CALLS)
    heads = [line for line in text.splitlines() if line.startswith("[flambeau")]
    assert heads and all(line.startswith(f"[flambeau {name}] ") for line in heads)


def test_nothing_is_shown_or_made_when_all_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of events are not even put together."""

    def refuse(self: object) -> str:
        raise AssertionError("a text was made that nobody reads")

    for package in ("capture", "autograd", "inductor"):
        monkeypatch.setattr(f"flambeau_{package}.log.Text.__repr__", refuse)
    monkeypatch.setattr("flambeau.log.Deferred.__str__", refuse)
    assert shown("", broken, *CALLS) == ""
    assert shown("perf_hints", broken, *CALLS) == ""
