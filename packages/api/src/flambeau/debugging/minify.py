"""A small script that fails as a large program does.

In: a script, or a folder that `repro.py` kept. Out: a standalone script in which nothing that was tried can be left out. The script runs once in a process of its
own, which keeps the graph that fails; then smaller graphs are tried, each in a process. Where no graph fails by itself (a guard is wrong, an effect is lost), the text of
the script is made smaller instead, for as long as it is right without flambeau and fails in the same way with it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ..errors import UserError
from ..explain import explain_program
from .graphs import operations, pack, script, unpack
from .reduce import Candidate, reduced
from .repro import GRAPH
from .sources import reduced_source
from .trial import Process, Trials, run_script

#: For the whole script; trials have less to do.
_WHOLE_SECONDS = 600.0


class NothingToMinify(UserError):
    """The script does not fail, or what fails is no compiled graph."""

    code = "FB008"


@frozen
class Minified:
    """What is left.

    Attributes:
        script: the text of the standalone script.
        operations: calls in its graph, `before` of the whole one.
        verdict: how it fails.
        trials: graphs, or runs of a script, that were tried.
    """

    script: str
    operations: int
    before: int
    verdict: str
    trials: int


def _kept_graphs(path: Path, words: Sequence[str], folder: Path, trials: Trials) -> list[Path]:
    """Run a script with graphs kept in `folder`, those that fail, or all where the slow ones are wanted; the last first."""
    level = "3" if trials.what == "slow" else "4"
    kept = {"FLAMBEAU_REPRO_AFTER": "dynamo", "FLAMBEAU_REPRO_LEVEL": level, "FLAMBEAU_REPRO_DIR": str(folder)}
    # However it ends: graphs that crashed or hung are kept as well.
    trials.script(str(path), words, kept, seconds=max(trials.seconds, _WHOLE_SECONDS))
    found = [graph.parent for graph in folder.glob(f"*/{GRAPH}")]
    return sorted(found, key=lambda graph: graph.stat().st_mtime, reverse=True)


def minify(
    path: Path,
    *,
    what: str = "any",
    words: Sequence[str] = (),
    arguments: Mapping[str, Any] | None = None,
    seconds: float = 60.0,
    tell: Callable[[str], None] = lambda words: None,
    process: Process | None = None,
) -> Minified:
    """Shrink what fails.

    Args:
        path: a script, or a folder that was kept.
        what: "any" failure, or "slow": a graph that is slower than eager.
        words: arguments of the script.
        arguments: of `flambeau.compile`.
        seconds: for one trial.
        process: where trials are made; a new one without.

    Raises:
        NothingToMinify: nothing fails, or the graph alone does not.
    """
    with Trials(what, arguments, seconds=seconds, process=process) as trials:
        return _minified(path, words, trials, tell)


def _minified(path: Path, words: Sequence[str], trials: Trials, tell: Callable[[str], None]) -> Minified:
    if path.is_dir():
        graphs = [path] if (path / GRAPH).exists() else [found.parent for found in sorted(path.glob(f"*/{GRAPH}"))]
        return _first(path, graphs, trials, tell)
    with tempfile.TemporaryDirectory(prefix="flambeau-minify-") as made:
        graphs = _kept_graphs(path, words, Path(made), trials)
        try:
            return _first(path, graphs, trials, tell)
        except NothingToMinify as error:
            if trials.what == "slow":
                raise
            tell(f"{error}: the script itself is shrunk")
            return _shrunk_script(path, words, trials, tell)


def slow_graph(path: Path, words: Sequence[str], trials: Trials) -> bytes:
    """The first graph of a script that is slower than eager, packed, by trials for "slow". Raises NothingToMinify where there is none."""
    with tempfile.TemporaryDirectory(prefix="flambeau-slow-") as made:
        graphs = _kept_graphs(path, words, Path(made), trials)
        for graph in graphs:
            packed = (graph / GRAPH).read_bytes()
            if trials.verdict(packed).startswith("slow"):
                return packed
    raise NothingToMinify(f"{path}: none of {len(graphs)} graphs is slower than eager")


def _first(path: Path, graphs: Sequence[Path], trials: Trials, tell: Callable[[str], None]) -> Minified:
    """The first of the graphs that fails by itself, shrunk."""
    if not graphs:
        raise NothingToMinify(f"{path}: no graph failed")
    for graph in graphs:
        gm, inputs = unpack((graph / GRAPH).read_bytes())
        verdict = trials.verdict(pack(gm, inputs))
        tell(f"{operations(gm)} operations: {verdict}")
        if not verdict.startswith("ok"):
            return _shrunk(Candidate(gm, tuple(inputs)), verdict, trials, tell)
    raise NothingToMinify(f"{path}: {len(graphs)} graphs were kept, and none fails by itself")


def _shrunk(start: Candidate, verdict: str, trials: Trials, tell: Callable[[str], None]) -> Minified:
    last, tried = [verdict], dict[bytes, bool]()
    kind = _kind(verdict)

    def fails(candidate: Candidate) -> bool:
        packed = pack(candidate.graph, candidate.inputs)
        if packed not in tried:
            found = trials.verdict(packed)
            tried[packed] = _kind(found) == kind
            if tried[packed]:
                last[0] = found
        return tried[packed]

    best = reduced(start, fails, tell)
    check = "slow" if trials.what == "slow" else "wrong" if kind == "wrong" else "crash"
    note = f"Shrunk from {start.size} operations to {best.size} by `flambeau minify`.\n\n{last[0]}\n"
    text = script(best.graph, best.inputs, check, note=note, **trials.arguments)
    return Minified(text, best.size, start.size, last[0], trials.count)


def _shrunk_script(path: Path, words: Sequence[str], trials: Trials, tell: Callable[[str], None]) -> Minified:
    text, beside = path.read_text(), str(path.resolve().parent)
    with tempfile.TemporaryDirectory(prefix="flambeau-minify-") as made:
        file = Path(made) / path.name

        def verdict(source: str) -> str:
            """How it fails where it is right without flambeau, which is asked first: that takes less time."""
            file.write_text(source)
            plain = trials.script(str(file), words, {"FLAMBEAU_DISABLE": "1"}, beside)
            return trials.script(str(file), words, {}, beside) if plain == "ok" else "ok"

        def operations_of(source: str) -> int:
            """Calls in all of its graphs, also in those that cannot be kept."""
            file.write_text(source)
            said = trials.script(str(file), words, {}, beside, run=operations_of_script)
            return int(said) if said.isdecimal() else 0  # no number where it does not end in time

        failure = verdict(text)
        if failure == "ok":
            raise NothingToMinify(f"{path}: it is as right with flambeau as without")
        best = reduced_source(text, lambda source: verdict(source) == failure, tell)
        before, after = operations_of(text), operations_of(best)
        note = f'"""Shrunk from {before} operations to {after} by `flambeau minify`: {failure}."""\n\n'
        return Minified(note + best, after, before, failure, trials.count)


def operations_of_script(path: str, words: Sequence[str], environment: Mapping[str, str], beside: str = "") -> str:
    """Run a script as `run_script` does; how many operations the graphs have that were captured of it."""
    found = explain_program(lambda: run_script(path, words, environment, beside), measure=False)
    return str(sum(each.op_count for each in found))


def _kind(verdict: str) -> str:
    """What two failures must have in common to be the same: "wrong", or the class of the error."""
    return verdict if verdict.startswith(("crash", "signal")) else verdict.partition(":")[0]
