"""`flambeau minify`: a small script that fails as a large program does."""

from __future__ import annotations

from pathlib import Path

import click

from .programs import arguments_of


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("--slow", is_flag=True, help="Look for a graph that is slower than eager, not for a failure.")
@click.option("--arguments", default="{}", help='Of flambeau.compile, as JSON: \'{"mode": "max-autotune"}\'.')
@click.option("--seconds", default=60.0, show_default=True, help="For one trial.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("minified.py"), show_default=True)
def minify(path: Path, words: tuple[str, ...], slow: bool, arguments: str, seconds: float, out: Path) -> None:
    """Shrink what fails in a script, or a graph kept under FLAMBEAU_REPRO_AFTER, to a standalone script."""
    from ..debugging.minify import minify as shrink
    from ..debugging.trial import Process

    given = arguments_of(arguments)
    with Process(forked=True) as process:
        what = "slow" if slow else "any"
        made = shrink(path, what=what, words=words, arguments=given, seconds=seconds, tell=_tell, process=process)
    out.write_text(made.script)
    click.echo(f"{made.before} operations became {made.operations} after {made.trials} trials: {made.verdict}")
    click.echo(f"written to {out}")


def _tell(words: str) -> None:
    click.echo(f"  {words}", err=True)
