"""`flambeau report`: a trace as one HTML page.

In: a folder that `FLAMBEAU_TRACE` named, or two to compare. Out: a page that needs no network, on request pictures and a file for Perfetto.
"""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import click

_EXISTING = click.Path(exists=True, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("trace", type=_EXISTING)
@click.argument("other", type=_EXISTING, required=False)
@click.option("-o", "--output", type=_FILE, help="The page; TRACE/report.html by default.")
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.option("--perfetto", type=_FILE, help="Also write the timeline for ui.perfetto.dev and chrome://tracing.")
@click.option(
    "--svg",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the fusion graphs as SVG files into this folder.",
)
def report(
    trace: Path, other: Path | None, output: Path | None, opens: bool, perfetto: Path | None, svg: Path | None
) -> None:
    """Show what was compiled: a page about the folder TRACE; with OTHER, the two side by side."""
    # Not at the top: `--help` needs no templates.
    from ..report import report as made
    from ..trace import read_trace

    found = read_trace(trace)
    page = output or (trace if trace.is_dir() else trace.parent) / "report.html"
    page.write_text(made.report_html(found, read_trace(other) if other is not None else None))
    click.echo(str(page))
    if perfetto is not None:
        perfetto.write_text(json.dumps(made.perfetto(found)))
        click.echo(str(perfetto))
    if svg is not None:
        svg.mkdir(parents=True, exist_ok=True)
        for path in made.write_pictures(found, svg):
            click.echo(str(path))
    if opens:
        webbrowser.open(page.absolute().as_uri())
