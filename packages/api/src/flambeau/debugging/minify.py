"""A small script that fails as a large program does.

In: a script, or a folder that `repro.py` kept. Out: a standalone script in which nothing that was tried can be left out. The script runs once in a process of its
own, which keeps the graph that fails; then smaller graphs are tried, each in a process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ..errors import UserError
from .graphs import operations, pack, script, unpack
from .reduce import Candidate, reduced
from .repro import GRAPH
from .trial import Trials


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
        trials: graphs that were tried.
    """

    script: str
    operations: int
    before: int
    verdict: str
    trials: int


def failing_graphs(
    path: Path,
    words: Sequence[str],
    folder: Path,
    *,
    seconds: float = 600.0,
    environment: Mapping[str, str] | None = None,
) -> list[Path]:
    """Run a script with graphs kept in `folder`; those that failed, the last first."""
    kept = {"FLAMBEAU_REPRO_AFTER": "dynamo", "FLAMBEAU_REPRO_LEVEL": "4", "FLAMBEAU_REPRO_DIR": str(folder)}
    with Trials(seconds=seconds) as process:
        # However it ends: graphs that crashed or hung are kept as well.
        process.script(str(path), words, {**kept, **(environment or {})})
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
) -> Minified:
    """Shrink what fails.

    Args:
        path: a script, or a folder that was kept.
        what: "any" failure, or "slow": a graph that is slower than eager.
        words: arguments of the script.
        arguments: of `flambeau.compile`.
        seconds: for one trial.

    Raises:
        NothingToMinify: nothing fails, or the graph alone does not.
    """
    if path.is_dir():
        graphs = [path] if (path / GRAPH).exists() else [found.parent for found in sorted(path.glob(f"*/{GRAPH}"))]
        return _first(path, graphs, what, arguments or {}, seconds, tell)
    with tempfile.TemporaryDirectory(prefix="flambeau-minify-") as made:
        level = {"FLAMBEAU_REPRO_LEVEL": "3"} if what == "slow" else {}
        graphs = failing_graphs(path, words, Path(made), environment=level)
        return _first(path, graphs, what, arguments or {}, seconds, tell)


def _first(
    path: Path,
    graphs: Sequence[Path],
    what: str,
    arguments: Mapping[str, Any],
    seconds: float,
    tell: Callable[[str], None],
) -> Minified:
    """The first of the graphs that fails by itself, shrunk."""
    if not graphs:
        raise NothingToMinify(f"{path}: no graph failed")
    for graph in graphs:
        gm, inputs = unpack((graph / GRAPH).read_bytes())
        with Trials(what, arguments, seconds=seconds) as trials:
            verdict = trials.verdict(pack(gm, inputs))
            tell(f"{operations(gm)} operations: {verdict}")
            if not verdict.startswith("ok"):
                return _shrunk(Candidate(gm, tuple(inputs)), verdict, trials, what, arguments, tell)
    raise NothingToMinify(f"{path}: {len(graphs)} graphs were kept, and none fails by itself")


def _shrunk(
    start: Candidate, verdict: str, trials: Trials, what: str, arguments: Mapping[str, Any], tell: Callable[[str], None]
) -> Minified:
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
    check = "slow" if what == "slow" else "wrong" if kind == "wrong" else "crash"
    note = f"Shrunk from {start.size} operations to {best.size} by `flambeau minify`.\n\n{last[0]}\n"
    text = script(best.graph, best.inputs, check, note=note, **arguments)
    return Minified(text, best.size, start.size, last[0], trials.count)


def _kind(verdict: str) -> str:
    """What two failures must have in common to be the same: "wrong", or the class of the error."""
    return verdict if verdict.startswith(("crash", "signal")) else verdict.partition(":")[0]
