"""`flambeau bisect`: the stage at fault in a script that fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--seconds", default=600.0, show_default=True, help="For one run of the script; a longer one counts as wrong."
)
@click.option(
    "--verify",
    is_flag=True,
    help="Compare every call with eager, where the script itself does not look at its results.",
)
@click.option("--slow", is_flag=True, help="Take the first graph that is slower than eager: right is what is as fast.")
def bisect(path: Path, words: tuple[str, ...], seconds: float, verify: bool, slow: bool) -> None:
    """Name the stage without which a script succeeds: its exit status says whether it does."""
    from ..debugging.bisect import bisect as search
    from ..debugging.minify import slow_graph
    from ..debugging.trial import Process, Trials

    with Process(forked=True) as process:
        trials = Trials("slow" if slow else "any", seconds=seconds, process=process)
        packed = slow_graph(path, words, trials) if slow else b""

        def test(environment: Mapping[str, str]) -> bool:
            if slow:
                return trials.verdict(packed, environment).startswith("ok")
            more = {"FLAMBEAU_VERIFY": "1,error"} if verify else {}
            return trials.script(str(path), words, {**more, **environment}) == "ok"

        found = search(test, lambda line: click.echo(f"  {line}", err=True), slow=slow)
    click.echo(str(found))
    if found.stage in ("nothing", "the program"):
        raise SystemExit(1)
