"""What explanations say, against what is known of the program: lines, bytes, guards, notes. No times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import flambeau
from flambeau.insight.measure import measured
from flambeau.insight.parts import short_line
from flambeau.insight.watch import WatchedGraph
from flambeau.records import Recorder

X = torch.ones(8, 16)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.linear(x))
        return h.softmax(-1)


def line_of(function: Any, text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    return next(n for n, line in enumerate(lines[first - 1 :], first) if text in line)


def test_kernels_have_lines_modules_bytes_and_times() -> None:
    """Of the forward and the backward; a limit is a share of what the device can do."""
    found = flambeau.explain(Layer())(X.clone().requires_grad_())
    assert {step.direction for step in found.kernels} == {"forward", "backward"}
    softmax = next(s for s in found.kernels if "_softmax" in s.ops)
    line = line_of(Layer.forward, "softmax")
    assert f"{__file__}:{line} in Layer.forward" in softmax.user_lines
    product = next(s for s in found.kernels if s.ops[:1] == ("addmm",))
    # With the bias and the activation; it writes the product and its relu, which the backward reads.
    assert product.modules == ("linear",) and product.flops == 2 * 8 * 16 * 16 + 2 * 8 * 16
    assert product.bytes == (3 * 8 * 16 + 16 * 16 + 16) * 4
    for step in found.kernels:
        assert step.measured_seconds is not None and step.measured_seconds > 0
        assert step.calls == 1 and step.estimated_seconds > 0 and step.share_of_limit is not None
    assert [speed.what for speed in found.speeds] == ["whole call", "graph 0, forward and backward"]
    assert all(speed.factor > 0 for speed in found.speeds) and not found.notes


def test_measuring_changes_nothing() -> None:
    """Parameters, buffers, gradients and random numbers are as after one call; the graph that writes is measured on copies."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(16)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(1)
            return torch.dropout(self.norm(x), 0.5, True)

    def state(call: Any) -> Any:
        torch.manual_seed(3)
        model = Stateful()
        x = torch.randn(8, 16, requires_grad=True)
        result = call(model)(x)
        grads = [p.grad for p in (*model.parameters(), x)]
        return [*model.state_dict().values(), result, torch.rand(2)], grads

    plain, no_grads = state(lambda model: model)
    notes: list[tuple[str, ...]] = []

    def explained(model: nn.Module) -> Any:
        def run(x: Tensor) -> Tensor:
            found = flambeau.explain(model)(x)
            notes.append(found.notes)
            assert len(found.speeds) == 1 and found.kernels
            result: Tensor = found.result
            return result

        return run

    ours, grads = state(explained)
    assert grads == no_grads == [None, None, None]
    for mine, theirs in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert notes == [("the whole call was not measured: it writes to its inputs, or to parameters or buffers",)]


def test_memory_is_counted() -> None:
    """Five results of 4 MiB in eager, of which three live at a time; one in ours."""
    x = torch.ones(1024, 1024)
    with torch.no_grad():
        found = flambeau.explain(lambda x: ((x + 1).sin() * (x - 1).cos()).exp())(x)
    (memory,) = found.memory
    assert memory.planned_bytes == x.nbytes
    assert memory.eager_bytes == 3 * x.nbytes


def test_effects_are_not_repeated() -> None:
    """A call that appends runs once; the text says what was not measured, and why."""
    seen: list[int] = []

    def f(x: Tensor) -> Tensor:
        seen.append(1)
        return x * 2

    found = flambeau.explain(f)(X)
    assert seen == [1]
    assert "the whole call was not measured: it changes objects outside of itself" in str(found)
    assert [speed.what for speed in found.speeds] == ["graph 0"]


def test_nothing_is_measured_where_that_is_asked() -> None:
    found = flambeau.explain(lambda x: x.sin(), measure=False)(X)
    assert not found.speeds and not found.memory and found.kernels[0].measured_seconds is None
    assert found.notes == ("graph 0 was not measured: measure=False",)


def test_a_graph_that_raises_when_it_is_run_again_is_a_note() -> None:
    """The call was made and its result is there."""
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    for node in graph.graph.find_nodes(op="placeholder"):
        node.meta["val"] = X

    def fails(*inputs: Any) -> Any:
        raise ValueError("once only")

    watched = WatchedGraph(graph, fails, inputs=(X,))
    found = measured([watched])
    assert found.notes == ["graph 0 was not measured: running it again raised ValueError: once only"]
    assert watched.inputs is None, "inputs are let go"


def test_a_call_that_raises_the_second_time_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise ValueError("twice")

    monkeypatch.setattr("flambeau.insight.measure.whole_call", fails)
    found = flambeau.explain(lambda x: x.sin())(X)
    assert "the whole call was not measured: a second one raised ValueError: twice" in found.notes


def test_what_runs_without_our_programs() -> None:
    """Another backend, a generator, a frame that only Python can run."""
    found = flambeau.explain(lambda x: x.sin(), backend="eager")(X)
    assert [speed.what for speed in found.speeds] == ["graph 0"] and not found.kernels

    def generator(x: Tensor) -> Any:
        yield x + 1

    found = flambeau.explain(generator)(X)
    assert "not captured" in str(found) and next(found.result).sum() == 2 * X.sum()


def test_errors_of_the_program_pass_through() -> None:
    def f(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        flambeau.explain(f)(X)


def test_breaks_show_the_expression() -> None:
    def f(x: Tensor) -> Tensor:
        y = x + 1
        z = y if input_of(x) else x
        return z * 2

    found = flambeau.explain(f)(X)
    text = str(found)
    assert "z = y if input_of(x) else x" in text
    caret = next(line for line in text.splitlines() if set(line.strip()) == {"^"})
    source = text.splitlines()[text.splitlines().index(caret) - 1]
    assert source[caret.index("^") : caret.rindex("^") + 1] == "input_of(x)"


@flambeau.compiler.disable
def input_of(x: Tensor) -> bool:
    return bool(x.sum() > 0)


def test_recompiles_tell_why() -> None:
    """A function that is called with two sizes in one call."""

    def inner(x: Tensor) -> Tensor:
        print(end="")
        return x + 1

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return inner(x), inner(x[:4])

    found = flambeau.explain(f)(X)
    again = [why for frame in found.frames for why in frame.recompiled]
    assert any("size 0: expected 8, actual 4" in why for why in again)
    assert "compiled again: tensor" in str(found)


def test_guards_are_sentences() -> None:
    """Beside the expression, with names as in the program."""
    found = flambeau.explain(Layer())(X)
    by_words = {guard.words: guard for guard in found.guards}
    weight = by_words["self.linear.weight is a Parameter of float32 of sizes 16 x 16 on cpu, requires grad."]
    assert weight.kind == "TensorMatch" and "['_parameters']['weight']" in weight.expression
    assert "x is a tensor of float32 of sizes 8 x 16 on cpu." in by_words
    assert all(guard.words.endswith(".") and guard.words[:1].strip() for guard in found.guards)


def test_texts_fit_and_round_trip(tmp_path: Path) -> None:
    """80 columns but for names that are longer, JSON, a terminal, and a page without anything from outside."""
    found = flambeau.explain(Layer())(X)
    assert all(len(line) <= 80 or " " not in line.strip() for line in str(found).splitlines())
    assert len(found.text(verbose=True)) > len(str(found))
    data = json.loads(found.to_json())
    assert data["schema"] == 1 and data["op_count"] == found.op_count and data["name"] == "Layer"
    assert [kernel["name"] for kernel in data["kernels"]] == [step.name for step in found.kernels]
    assert data["guards"][0]["words"] == found.guards[0].words
    console = Console(width=100, file=(tmp_path / "out").open("w"))
    console.print(found)
    console.file.close()
    assert "Speed beside eager" in (tmp_path / "out").read_text()
    page = tmp_path / "page.html"
    found.save_html(page)
    html = page.read_text()
    assert "<h2" in html and "addmm" in html and "http" not in html.replace("http://www.w3.org", "")


def test_short_lines() -> None:
    assert short_line("/a/b/c/d.py:12 in f.resume_at_9") == "c/d.py:12 in f after line 9"
    assert short_line("something else") == "something else"


def test_a_recorder_of_a_plain_compile_keeps_nothing() -> None:
    """What watches graphs is there for explain and profile alone."""
    recorder = Recorder()
    assert not recorder.watched and not recorder.plans
