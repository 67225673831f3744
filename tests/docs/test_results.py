"""The page of figures is what the kept runs say, and a run that says too little or was disturbed is not kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import report, results, runner, surroundings

RUN = {
    "experiment": "steady_state",
    "command": "python -m benchmarks models",
    "commit": "abc",
    "date": "2026-01-01",
    "machine": "2 cores",
    "versions": {"Python": "3.11", "torch": "2.13"},
    "others": 0.1,
    "drift": 1.02,
}


def row(workload: str, engine: str, milliseconds: float, **more: Any) -> dict[str, Any]:
    """A record as a measuring process makes it."""
    figures = {"median": milliseconds / 1e3, "low": milliseconds / 1.02e3, "high": milliseconds / 0.98e3}
    return {**RUN, "workload": workload, "engine": engine, "cache": "cold", **figures, **more}


def quiet() -> list[dict[str, Any]]:
    """Two workloads, of which one is slower than eager and takes more memory."""
    return [
        row("gpt2", "eager", 3.0, peak_bytes=2**20), row("gpt2", "torch.compile", 2.0), row("gpt2", "flambeau", 1.5, peak_bytes=2**20),
        row("bert", "eager", 3.0, peak_bytes=2**20), row("bert", "flambeau", 4.0, peak_bytes=2**21, first=1.25, first_others=0.3),
    ]  # fmt: skip


def test_the_page_is_what_the_kept_runs_say() -> None:
    """`python -m benchmarks.report` writes it anew."""
    page = report.PAGE.read_text()
    assert report.written(page, results.FOLDER) == page


def test_a_grid_is_held_against_the_library() -> None:
    """Device times have no load to note; the library's own ratio to others is nobody's bar."""
    base = {
        "experiment": "attention",
        "commit": "abc",
        "date": "2026-01-01",
        "command": "grid",
        "machine": "M",
        "versions": {"torch": "2"},
    }
    times = {"library": 1e-6, "torch.compile": 2e-6, "flambeau": 1.25e-6}
    records = [
        {**base, "workload": "causal", "engine": engine, "device_seconds": time} for engine, time in times.items()
    ]
    records += [{**base, "workload": "sliding", "engine": engine, "device_seconds": 1e-6} for engine in list(times)[1:]]
    shown = report.section(results.condensed(records))
    assert (
        "| causal | 1.000 | 2.000 | 1.250 | 1.60 | 0.80 **missed** |" in shown
        and "| sliding | - | 1.000 | 1.000 | 1.00 | - |" in shown
    )
    assert "while timed" not in shown and "µs of the device alone." in shown


def test_disturbed_workloads_are_left_out_and_named() -> None:
    """All engines of them, where they are few; else there is no table."""
    rows = [{**record, "workload": f"w{number}"} for number in range(4) for record in quiet()[:3]]
    rows[1]["drift"] = 1.3
    kept = results.condensed(rows)
    assert {row["workload"] for row in kept.rows} == {"w1", "w2", "w3"}
    assert "left out, for they were disturbed: w0, torch.compile: the clock changed by 1.30x." in report.section(kept)
    rows[4]["drift"] = 1.3
    with pytest.raises(results.Refused, match="the clock changed"):
        results.condensed(rows)


def test_commands_leave_out_where_records_went() -> None:
    assert surroundings.command_of("m", ["models", "--json", "/tmp/a", "--train"]) == "python -m m models --train"


def test_a_run_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command: from records to a table with spread, misses, commit and day; then the page is current until the run changes."""
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    report.PAGE.write_text("By hand.\n<!-- results/mine.json -->\nold\n<!-- end -->\nBy hand too.\n")
    records = tmp_path / "run.jsonl"
    records.write_text("\n".join(json.dumps({**record, "top": "dropped"}) for record in quiet()))
    assert report.main(["--keep", "mine", str(records)]) == 0
    page = report.PAGE.read_text()
    assert page.startswith("By hand.\n") and page.endswith("By hand too.\n") and "old" not in page
    for words in (
        "commit abc, 2026-01-01", "Python 3.11, torch 2.13", "at most 0.10 cores", "| gpt2 | 3.000 ±2 % | 2.000 ±2 % | 1.500 ±2 % | 1.50 | 2.00 |",
        "0.75 **missed**", "no row slower than eager: **missed** by `bert` (0.75)", "no row slower than torch.compile: held",
        "more memory than eager: **missed** by `bert` (2.0 MiB, eager 1.0)", "other processes took up to 0.3 cores",
    ):  # fmt: skip
        assert words in page, words
    assert report.main(["--check"]) == 0
    kept = results.read(tmp_path / "results" / "mine.json")
    assert [r["engine"] for r in kept.rows] == [
        "eager",
        "torch.compile",
        "flambeau",
        "eager",
        "flambeau",
    ] and "top" not in kept.rows[0]
    results.save(kept, tmp_path / "results" / "other.json")
    with pytest.raises(ValueError, match="one place for each"):
        report.main(["--check"])
    (tmp_path / "results" / "other.json").unlink()
    report.PAGE.write_text(page.replace("2.000 ±2 %", "1.000 ±2 %"))
    assert report.main(["--check"]) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"others": 0.9}, "used 0.90 cores"),
        ({"commit": "later"}, "several runs"),
        ({"experiment": "overhead"}, "overhead, steady_state: one experiment"),
        ({"versions": None}, ""),
    ],
    ids=["load", "commit", "experiment", "unnamed"],
)
def test_what_is_not_kept(
    change: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run under load, rows of several runs or experiments, records that do not say where they come from: nothing is written."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    first, *rest = quiet()
    first |= change
    if change == {"versions": None}:
        del first["versions"]
        words = "no run is named"
    records = tmp_path / "run.jsonl"
    records.write_text("\n".join(map(json.dumps, [first, *rest])))
    assert report.main(["--keep", "mine", str(records)]) == 1
    assert words in capsys.readouterr().out and not results.FOLDER.exists()


def test_what_a_machine_pays_once_is_told_apart() -> None:
    """First calls with new, cold and warm caches; only where both were measured is there a difference to tell."""

    def first(engine: str, cache: str, seconds: float) -> dict[str, Any]:
        return {
            **RUN,
            "experiment": "compile_time",
            "workload": "small_graph",
            "engine": engine,
            "cache": cache,
            "first": seconds,
        }

    records = [
        first("torch.compile", "new", 12.7), first("flambeau", "new", 0.9), first("torch.compile", "cold", 6.0), first("flambeau", "cold", 0.8),
        first("torch.compile", "warm", 2.0), first("flambeau", "warm", 0.7),
    ]  # fmt: skip
    shown = report.section(results.condensed(records))
    assert "(new less cold): torch.compile 6.70 s, flambeau 0.10 s." in shown
    assert "| small_graph | 12.70 | 0.90 | 14.11 | 6.00 | 0.80 | 7.50 | 2.00 | 0.70 | 2.86 **missed** |" in shown
    assert "flambeau, cold, bar: each row at least 5 times as fast as torch.compile: held" in shown
    assert "were not measured apart" in report.section(results.condensed(records[2:]))


def test_what_fills_the_caches_before_a_first_call() -> None:
    """Nothing, another graph or the same; an engine that compiles nothing needs none."""
    request = {"experiment": "compile_time", "workload": "gpt2", "engine": "torch.compile", "train": True}
    assert runner.before({**request, "cache": "new"}) == []
    (earlier,) = runner.before({**request, "cache": "cold"})
    assert (earlier["workload"], earlier["engine"]) == ("another_graph", "torch.compile")
    assert runner.before({**request, "cache": "warm"}) == [{**request, "cache": "warm"}]
    assert runner.before({**request, "cache": "cold", "engine": "eager"}) == []
    assert runner.before({**request, "cache": "cold", "experiment": "overhead"}) == []
