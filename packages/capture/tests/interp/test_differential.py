"""Programs under capture do what they do in plain Python: results, prints, exceptions, mutations."""

from __future__ import annotations

import pytest
import torch
from attrs import evolve
from both_ways import assert_equal, eager, outcome

import flambeau_capture
from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.interp import frame

from . import programs

BREAKING = {
    "prints",
    "branches",
    "items",
    "break_in_with",
    "break_in_try",
    "break_in_callee",
    "dynamic_shape",
    "raises",
    "raises_from_operator",
}


@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_program_equals_plain_python(program, dynamic, capsys):
    """Each program gives the same results, output and exceptions, on fresh shapes and on shapes seen before."""
    region = flambeau_capture.make_region(program, eager, dynamic=dynamic)
    for size in (3, 3, 4, 5):
        x = torch.linspace(-2, 3, size * 4).reshape(size, 4)
        expected = outcome(program, x.clone())
        expected_text = capsys.readouterr().out
        found = outcome(region, x.clone())
        assert capsys.readouterr().out == expected_text
        assert_equal(found, expected)


@pytest.mark.parametrize(
    "program", [p for p in programs.PROGRAMS if p.__name__ not in BREAKING], ids=lambda p: p.__name__
)
def test_program_is_one_graph(program):
    """Programs without data-dependent Python are captured whole."""
    x = torch.linspace(-2, 3, 12).reshape(3, 4)
    flambeau_capture.make_region(program, eager, fullgraph=True)(x)


def test_mutations_of_arguments_are_replayed():
    """Lists, dicts, sets, attributes, globals and closures change as in plain Python."""

    class Holder:
        pass

    def change(x, numbers, table, members, holder):
        numbers.append(x + 1)
        numbers[0], numbers[1] = numbers[1], numbers[0]
        table["new"] = table.pop("old") * 2
        members.add(len(numbers))
        holder.count = holder.count + 1
        holder.last = x * 3
        del holder.gone
        x.mul_(2)
        return numbers

    def arguments():
        holder = Holder()
        holder.count, holder.gone = 1, 2
        return torch.ones(2), [1, 2], {"old": torch.full((2,), 3.0), "k": 1}, {5}, holder

    plain, captured = arguments(), arguments()
    region = flambeau_capture.make_region(change, eager)
    for _ in range(2):
        plain[2].setdefault("old", torch.ones(2))
        captured[2].setdefault("old", torch.ones(2))
        plain[4].gone = captured[4].gone = 0
        assert change(*plain) is plain[1]
        assert region(*captured) is captured[1]
        assert_equal(captured[:4], plain[:4])
        assert_equal(captured[4].__dict__, plain[4].__dict__)


def test_aliases_are_kept():
    """Two references to one new object stay one object."""

    def make(x):
        shared = [x + 1]
        return shared, {"again": shared}, x

    x = torch.ones(2)
    first, table, same = flambeau_capture.make_region(make, eager)(x)
    assert table["again"] is first
    assert same is x


def test_module_buffers_and_hooks():
    """Training-mode statistics, counters and forward hooks work; a hook added later is seen."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.norm(x) * self.calls

    plain, captured = Net(), Net()
    region = flambeau_capture.make_region(captured, eager)
    for step in range(4):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        if step == 2:
            for net in (plain, captured):
                net.norm.register_forward_hook(lambda module, args, output: output + 100)
        assert_equal(region(x), plain(x))
        assert_equal(dict(captured.named_buffers()), dict(plain.named_buffers()))
    assert captured.calls == 4


def test_fullgraph_error_shows_the_line():
    """`fullgraph=True` names the user's line, the reason and a hint."""

    def branch(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(flambeau_capture.GraphBreakError) as caught:
        flambeau_capture.make_region(branch, eager, fullgraph=True)(torch.ones(2))
    text = str(caught.value)
    assert "data-dependent-branch" in text and "if x.sum() > 0" in text and "hint" in text


def test_breaks_are_reported():
    """The observer gets every break with file, line, reason and hint."""
    records = []
    region = flambeau_capture.make_region(programs.prints, eager, observer=records.append)
    region(torch.ones(2, 2))
    (broken,) = [b for r in records for b in r.breaks]
    assert broken.code == "input-output" and broken.file == programs.__file__ and broken.line > 0 and broken.hint


def test_sizes_become_symbolic_after_a_change():
    """The second compile makes the changed dimension symbolic; a third size compiles nothing."""
    records = []

    def scale(x):
        return x.reshape(-1) * x.shape[0]

    region = flambeau_capture.make_region(scale, eager, observer=records.append)
    for size in (3, 4, 5, 6, 7):
        x = torch.ones(size, 4)
        assert_equal(region(x), scale(x))
    assert len(records) == 2


def test_integers_become_symbolic_after_a_change():
    """An int argument that changed is symbolic in the second compile."""
    records = []

    def add(x, n):
        return x * n + torch.zeros(n).sum()

    region = flambeau_capture.make_region(add, eager, observer=records.append)
    for n in (3, 4, 5, 6):
        assert_equal(region(torch.ones(2), n), add(torch.ones(2), n))
    assert len(records) == 2


def test_marked_dimension_is_symbolic_at_once():
    """`mark_dynamic` needs one compile."""
    records = []
    region = flambeau_capture.make_region(lambda x: x * 2, eager, observer=records.append)
    for size in (3, 4, 5):
        x = torch.ones(size, 4)
        flambeau_capture.mark_dynamic(x, 0)
        region(x)
    assert len(records) == 1


@pytest.mark.parametrize("value", [0, 2, [], [1], "", None])
def test_a_truth_that_no_jump_asks_for(value, monkeypatch):
    """`TO_BOOL` by itself: compilers emit it before jumps alone, where it is part of them; here it stands for another operator."""

    def with_truth(code):
        return tuple(evolve(i, name="TO_BOOL") if i.name == "UNARY_NEGATIVE" else i for i in decode_normalised(code))

    monkeypatch.setattr(frame, "decode_normalised", with_truth)
    records = []
    region = flambeau_capture.make_region(lambda x, n: (x * 2, -n), eager, observer=records.append)
    for _ in range(2):
        assert_equal(region(torch.ones(2), value), (torch.full((2,), 2.0), bool(value)))
    assert records
