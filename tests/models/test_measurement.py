"""What judges and times the others: error measures, the gate between compiling and timing, tables with holes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from unittest import mock

import pytest
import torch
from benchmarks import attention_grid, clock, ops, surroundings, tables, workloads
from benchmarks.gate import Gate
from benchmarks.runner import Runner, load
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask

from tests.comparison import NOISE_SHARE, assert_as_exact, gradient_errors, relative_error, rms_error
from tests.models import zoo


def test_noise_of_a_zero_gradient_is_no_error() -> None:
    """What is small beside the model's largest gradient is held against that one."""
    expected = {"weight": torch.tensor([1.0, -2.0]), "key_bias": torch.tensor([1e-9, -3e-9])}
    actual = {"weight": torch.tensor([1.0, -2.0]), "key_bias": torch.tensor([-2e-9, 4e-9])}
    errors = gradient_errors(actual, expected)
    assert errors["weight"] == 0.0
    assert errors["key_bias"] == pytest.approx(7e-9 / (NOISE_SHARE * 2.0))


def test_wrong_and_missing_gradients_are_errors() -> None:
    """A sign, a missing gradient, a nan."""
    expected = {"a": torch.tensor([1.0]), "b": torch.tensor([1.0]), "c": torch.tensor([1.0]), "d": None}
    actual = {"a": torch.tensor([-1.0]), "b": None, "c": torch.tensor([float("nan")]), "d": None}
    errors = gradient_errors(actual, expected)
    assert errors["a"] == 2.0
    assert errors["b"] == float("inf")
    assert errors["c"] > 1e30
    assert errors["d"] == 0.0


def test_relative_error_takes_equal_infinities_as_equal() -> None:
    """Masks are full of -inf."""
    x = torch.tensor([float("-inf"), 2.0, float("nan")])
    assert relative_error(x, x.clone()) == 0.0
    assert relative_error(torch.tensor([0.0, 2.0, 0.0]), x) > 1e30
    assert rms_error(torch.zeros(2), torch.zeros(3)) == float("inf")


def test_as_exact_allows_twice_eagers_error() -> None:
    """More than that is named."""
    exact = {"x": torch.ones(1000, dtype=torch.float64)}
    eager = {"x": torch.full((1000,), 1.01)}
    assert_as_exact({"x": torch.full((1000,), 0.985)}, eager, exact, tiny=1e-6)
    with pytest.raises(AssertionError, match="x: error"):
        assert_as_exact({"x": torch.full((1000,), 1.03)}, eager, exact, tiny=1e-6)


def test_gate_times_alone_and_after_compilation() -> None:
    """A timed process waits for those that compile; those that want to compile wait for it."""
    gate, timed, compiled = Gate(), Event(), Event()
    gate.enter("a", "compile")
    gate.enter("b", "compile")

    def time() -> None:
        gate.enter("a", "time")
        timed.set()

    def compile_later() -> None:
        gate.enter("c", "compile")
        compiled.set()

    first = Thread(target=time)
    first.start()
    assert not timed.wait(0.05)
    gate.leave("b")
    assert timed.wait(5)
    second = Thread(target=compile_later)
    second.start()
    assert not compiled.wait(0.05)
    gate.leave("a")
    assert compiled.wait(5)
    first.join()
    second.join()


def test_gate_lets_so_many_compile_at_once_and_times_by_rank() -> None:
    """Who waits to be timed compiles no longer; of those who wait the first of the table goes first."""
    gate, order = Gate(2), list[str]()
    gate.enter("a", "compile")
    gate.enter("b", "compile")
    third = Thread(target=gate.enter, args=("c", "compile"))
    third.start()
    third.join(0.05)
    assert third.is_alive()

    def time(owner: str, rank: int) -> None:
        gate.enter(owner, "time", None, rank)
        order.append(owner)
        gate.leave(owner)

    threads = [Thread(target=time, args=("b", 2))]
    threads[0].start()
    third.join(5)
    assert not third.is_alive()
    threads.append(Thread(target=time, args=("c", 1)))
    threads[1].start()
    while len(gate._waiting.get(None, ())) < 2:
        pass
    gate.leave("a")
    for thread in threads:
        thread.join(5)
    assert order == ["c", "b"]


def test_gate_lets_processes_take_turns_at_a_place() -> None:
    """In the order in which they asked; another place is another matter, and nobody compiles in between."""
    gate, turns = Gate(), list[str]()
    for owner in ("a", "b"):
        gate.enter(owner, "compile")

    def time(owner: str) -> None:
        for _ in range(3):
            gate.enter(owner, "time", 1)
            turns.append(owner)
        gate.leave(owner)

    gate.leave("c")
    threads = [Thread(target=time, args=(owner,)) for owner in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert sorted(turns) == ["a", "a", "a", "b", "b", "b"]
    gate.enter("d", "time", 1)
    gate.enter("e", "time", 2)
    later = Thread(target=gate.enter, args=("f", "compile"))
    later.start()
    gate.leave("d")
    later.join(0.05)
    assert later.is_alive()
    gate.leave("e")
    later.join(5)
    assert not later.is_alive()


def test_one_input_of_the_published_sizes() -> None:
    """What a core is timed with: of text no more than its first tokens."""
    ids = torch.zeros(3, 2 * zoo.SINGLE_LENGTH, dtype=torch.int64)
    with mock.patch.dict(zoo.ZOO, some=lambda scale: zoo._case(nn.Identity(), ids=ids, image=torch.zeros(3, 5, 5))):
        case = zoo.make("some", "single")
    assert {name: tuple(value.shape) for name, value in case.inputs.items()} == {
        "ids": (1, zoo.SINGLE_LENGTH),
        "image": (1, 5, 5),
    }


def test_table_without_eager_and_with_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Ratios appear where both figures are there."""
    records = [
        {"workload": "a", "engine": "torch.compile", "first": 10.0},
        {"workload": "a", "engine": "flambeau", "first": 2.0},
        {"workload": "b", "engine": "torch.compile", "error": "raised"},
        {"workload": "b", "engine": "flambeau", "first": 3.0},
    ]
    tables.table(records, "first", title="first call")
    printed = capsys.readouterr().out
    assert "5.00x" in printed
    assert "5.000x of 1" in printed
    assert "error" in printed
    assert "nan" not in printed


def test_what_cold_caches_hold_is_made_once_for_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process gets a copy of its own."""
    ran = list[tuple[str, str]]()

    def measure(runner: Runner, request: dict[str, str], cache: str, rank: int) -> Iterator[dict[str, object]]:
        ran.append((request["workload"], request["engine"]))
        left = Path(cache, "left")
        if request["workload"] == "another_graph":
            left.write_text(request["engine"])
            return
        yield {**request, "found": left.read_text() if left.exists() else None}
        left.write_text("its own")

    monkeypatch.setattr(Runner, "_measure", measure)
    requests = [{"experiment": "steady_state", "workload": name, "device": "cpu"} for name in "ab"]
    records = Runner(jobs=2).run(requests, engines=("eager", "flambeau"))
    assert [record["found"] for record in records] == [None, "flambeau", None, "flambeau"]
    assert ran.count(("another_graph", "flambeau")) == 1


def test_a_file_keeps_the_last_good_record(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A run that was resumed after a failure."""
    path = tmp_path / "records.jsonl"
    head = '{"experiment": "steady_state", "workload": "a", "engine": "eager"'
    path.write_text(f'{head}, "error": "x"}}\n{head}, "median": 1.0}}\n{head}, "error": "y"}}\n')
    assert [record.get("median") for record in load(path)] == [1.0]


def test_bytes_moved_count_each_tensor_once() -> None:
    """Inputs once, outputs once; a gathered table as its rows, at most itself."""
    program = ops.OPS["silu_mul"](1)
    one = 1024 * 4096 * 4
    assert program.bytes_moved(program.function(*program.args)) == 3 * one
    gathered = ops.OPS["embedding_norm"](1)
    ids, table, position = gathered.args
    result = gathered.function(*gathered.args)
    rows = min(table.nbytes, result.nbytes)
    assert gathered.bytes_moved(result) == ids.nbytes + position.nbytes + rows + result.nbytes


@pytest.mark.parametrize("name", ["t5", "gpt2", "whisper", "moe"])
def test_inference_workloads_take_no_labels(name: str) -> None:
    """A served model computes no loss."""
    workload = workloads.make(name, scale="tiny")
    assert "labels" not in workload.kwargs
    with torch.no_grad():
        result = workload.function(*workload.args, **workload.kwargs)
    assert getattr(result, "loss", None) is None


QUIET = {
    "workload": "gpt2",
    "engine": "flambeau",
    "median": 2.0,
    "others": 0.0,
    "drift": 1.01,
    "commit": "a",
    "date": "2026-01-01",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"others": 0.9}, "used 0.90 cores"),
        ({"drift": 1.3}, "clock changed by 1.30x"),
        ({"commit": "b"}, "several runs"),
    ],
)
def test_no_table_of_a_run_under_load(
    change: dict[str, object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor of rows from several runs; the reason stands in its place. A quiet run says which commit it is of."""
    eager = {**QUIET, "engine": "eager", "median": 3.0}
    tables.table([eager, QUIET], "median", title="ms")
    shown = capsys.readouterr().out
    assert "1.50x" in shown and "commit a, 2026-01-01" in shown
    tables.table([eager, {**QUIET, **change}], "median", title="ms")
    tables.shortfalls([eager, {**QUIET, **change}])
    refused = capsys.readouterr().out
    assert "no table" in refused and words in refused and "1.50x" not in refused and "x eager" not in refused
    assert surroundings.objections([{"workload": "gpt2", "engine": "eager", "median": 3.0}]) == []


def test_tuned_modes_are_held_against_the_best_of_the_peers(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the modes that torch.compile was measured in, the faster one counts, row by row."""
    times = {"torch.compile": 3.0, "torch.compile/max-autotune-no-cudagraphs": 4.0, "flambeau": 1.5}
    tables.beside_best([{**QUIET, "engine": engine, "median": median} for engine, median in times.items()])
    assert "flambeau: 2.000x the best of" in capsys.readouterr().out


def test_a_measurement_notes_its_spread_and_surroundings() -> None:
    """Quartiles around the median, and what other processes took."""
    found = clock.seconds_per_call(lambda: sum(range(1000)), "cpu", 0.05)
    assert found["best"] <= found["low"] <= found["median"] <= found["high"]
    assert found["others"] >= 0 and found["drift"] >= 1
    with surroundings.watched() as watched:
        sum(range(10))
    assert set(watched) == {"others", "drift"}


def test_a_disturbed_measurement_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quietest counts; none is made after a quiet one."""
    loads = iter([3.0, 0.9, 0.1, 0.0])

    @contextmanager
    def watched() -> Iterator[dict[str, float]]:
        yield {"others": next(loads), "drift": 1.0}

    monkeypatch.setattr(clock, "watched", watched)
    assert clock.seconds_per_call(lambda: None, "cpu", 0.01)["others"] == 0.1
    loads = iter([3.0, 0.9, 2.0, 0.0])
    assert clock.seconds_per_call(lambda: None, "cpu", 0.01)["others"] == 0.9
    assert next(loads) == 0.0


def test_a_run_knows_its_commit(tmp_path: Path) -> None:
    """Outside of a checkout too."""
    assert surroundings.provenance(tmp_path)["commit"] == "unknown"
    assert len(surroundings.provenance(Path(__file__).parent)["date"]) == 10


@pytest.mark.parametrize("mask", [attention_grid.causal, attention_grid.sliding])
def test_block_masks_made_by_slices_of_queries_are_torchs(mask) -> None:
    """What they name, in whatever order the rest of a table has."""
    lengths = (1536, 1664)
    found = attention_grid.blocks_of(mask, *lengths, "cpu")
    wanted = create_block_mask(mask, None, None, *lengths, device="cpu")
    assert torch.equal(found.to_dense(), wanted.to_dense())
    for ours, theirs in (
        (found.kv_num_blocks, wanted.kv_num_blocks),
        (found.full_kv_num_blocks, wanted.full_kv_num_blocks),
    ):
        assert torch.equal(ours, theirs)


def test_the_grid_of_attention_is_measured_by_mask_and_width() -> None:
    """A request holds all lengths of a mask, and a line says how much faster ours is."""
    (request,) = attention_grid.requests(["causal/64"], {})
    assert len(request["workloads"]) == len(attention_grid.LENGTHS) * len(attention_grid.KINDS)
    name = request["workloads"][0]
    seconds = {"torch.compile": 2e-3, "flambeau": 1e-3, "library": 5e-4}
    records = [{"workload": name, "engine": engine, "device_seconds": s} for engine, s in seconds.items()]
    line = attention_grid.table([*records, {"workload": "window", "engine": "flambeau", "error": "not there"}])[1]
    assert line.startswith(name) and "2.00" in line and "0.50" in line
