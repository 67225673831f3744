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
def bisect(path: Path, words: tuple[str, ...], seconds: float, verify: bool) -> None:
    """Name the stage without which a script succeeds: its exit status says whether it does."""
    from ..debugging.bisect import bisect as search
    from ..debugging.trial import Trials

    with Trials(seconds=seconds) as process:

        def test(environment: Mapping[str, str]) -> bool:
            more = {"FLAMBEAU_VERIFY": "1,error"} if verify else {}
            return process.script(str(path), words, {**more, **environment}) == "ok"

        found = search(test, lambda line: click.echo(f"  {line}", err=True))
    click.echo(str(found))
    if found.stage in ("nothing", "the program"):
        raise SystemExit(1)
