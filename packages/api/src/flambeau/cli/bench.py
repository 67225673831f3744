"""`flambeau bench`: a model in eager, under flambeau's modes and under torch.compile, side by side.

In: `model.py:make`, where `make()` returns `(model, args)` or `(model, args, kwargs)`. Out: a table, on request a picture (SVG) and JSON. Each engine runs in a process of its
own with empty caches, one after the other (`contestant.py`); a first call that takes the caches of the user is `--warm`. Eager's results, beside which theirs are held, come from
one before them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..units import bytes_text, seconds_text
from .bench_picture import LOUD, is_loud, picture
from .failures import BadInput
from .processes import run_group

_NAMES = ("eager", "torch.compile", "flambeau")
_ON_CPU = "eager,torch.compile,flambeau,flambeau/max-autotune-no-cudagraphs"
_ON_GPU = "eager,torch.compile,torch.compile/reduce-overhead,flambeau,flambeau/reduce-overhead,flambeau/max-autotune"
#: Letters of an engine that stand in one line: the table fits a terminal of 80 columns.
_WIDEST = 24
_CACHES = {"FLAMBEAU_CACHE_DIR": "flambeau", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


@click.command()
@click.argument("target", metavar="MODEL.py:MAKE")
@click.option(
    "--engines",
    help="NAME or NAME/MODE with commas between: eager, torch.compile, flambeau, flambeau/reduce-overhead, …",
)
@click.option("--train", is_flag=True, help="With the backward of the sum of the results.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Of timing, each engine.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=900.0,
    show_default=True,
    help="Seconds for the process of one engine.",
)
@click.option("--warm", is_flag=True, help="Use the caches that are there, in the place of empty ones.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Also a picture, FILE.svg.")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output, in the place of the table.")
def bench(
    target: str,
    engines: str | None,
    train: bool,
    seconds: float,
    timeout: float,
    warm: bool,
    save: Path | None,
    as_json: bool,
) -> None:
    """Time what MAKE returns, (model, args) or (model, args, kwargs), under every engine.

    The spread is the distance of the quartiles: beyond some 10% the machine was not quiet. Memory is the peak of one call: on a GPU with parameters, on a
    CPU what the call allocates. What differs is the result from eager's, relative to its largest number: that of another process, which begins with the same random numbers. In each MAKE is called once.
    """
    chosen = _engines(engines)
    if save is not None and (save.suffix != ".svg" or not save.absolute().parent.is_dir()):
        raise BadInput(f"--save takes a name that ends with .svg in a folder that exists, not {str(save)!r}")
    console = Console(stderr=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        program = {"target": target, "train": train, "expected": str(Path(folder) / "expected.pt")}
        with console.status("results of eager") if console.is_terminal else ExitStack():
            _refuse(_answer(program, timeout, warm), f"{target} in eager: ")
        for number, engine in enumerate(chosen, 1):
            with console.status(f"{engine} ({number} of {len(chosen)})") if console.is_terminal else ExitStack():
                rows.append(
                    {"engine": engine, **_answer({**program, "engine": engine, "seconds": seconds}, timeout, warm)}
                )
            if "bad" in rows[-1]:
                raise BadInput(rows[-1]["bad"])
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        Console().print(table(rows))
        if any(map(is_loud, rows)):
            click.echo(f"a spread above {LOUD:.0%}: the machine was not quiet, and times say little", err=True)
        for row in rows:
            if "error" in row:
                click.echo(f"{row['engine']}: {row['error']}", err=True)
    if save is not None:
        save.write_text(picture(f"{target}{', training' if train else ''}", rows), encoding="utf-8")
        click.echo(str(save), err=True)
    if any("error" in row for row in rows):
        raise SystemExit(1)


def _refuse(answer: dict[str, Any], beginning: str) -> None:
    """Raise what is wrong with the program, or what became of its process."""
    if "bad" in answer:
        raise BadInput(answer["bad"])
    if "error" in answer:
        raise BadInput(beginning + answer["error"])


def _engines(given: str | None) -> list[str]:
    if given is None:
        import torch

        given = _ON_GPU if torch.cuda.is_available() else _ON_CPU
    chosen = [name.strip() for name in given.split(",") if name.strip()]
    if not chosen:
        raise BadInput("--engines names none")
    from ..options import list_mode_options

    for engine in chosen:
        name, _, mode = engine.partition("/")
        if name not in _NAMES:
            raise BadInput(f"unknown engine {name!r}; there are: {', '.join(_NAMES)}")
        if mode and (name == "eager" or mode not in list_mode_options()):
            raise BadInput(
                f"unknown mode {mode!r} of {name}; there are: {', '.join(list_mode_options())}, none for eager"
            )
    return chosen


def _answer(request: dict[str, Any], timeout: float, warm: bool) -> dict[str, Any]:
    """What a process of its own says."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {} if warm else {name: str(Path(folder) / part) for name, part in _CACHES.items()}
        command = [sys.executable, "-m", "flambeau.cli.contestant", json.dumps(request)]
        try:
            done = run_group(command, environment={**os.environ, **caches}, seconds=timeout)
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {timeout:.0f} seconds"}
    if done.stdout:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return {"error": f"the process ended with status {done.returncode}: {last}"}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """For a terminal. `spread` is the distance of the quartiles beside the median, `x eager` how many times as fast as eager it is."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, head in enumerate(("engine", "first\ncall", "median", "spread", "x eager", "memory", "differs")):
        made.add_column(head, justify="right" if place else "left", no_wrap=place > 0, overflow="fold")
    eager = next((row["median"] for row in rows if row["engine"] == "eager" and "median" in row), None)
    for row in rows:
        name = "\n ".join(textwrap.wrap(row["engine"], _WIDEST))  # at hyphens
        if "error" in row:
            made.add_row(name, "failed", style="red")
            continue
        made.add_row(
            name,
            seconds_text(row["first_seconds"]),
            seconds_text(row["median"]),
            Text(f"{(row['high'] - row['low']) / row['median']:.0%}", style="yellow" if is_loud(row) else ""),
            "" if eager is None else f"{eager / row['median']:.2f}",
            bytes_text(row["peak_bytes"]),
            _difference_text(row["difference"]),
        )
    return made


def _difference_text(difference: float | None) -> str:
    """That of a result whose shape is another, or which alone is no number, is infinite."""
    return "inf" if difference is None else f"{difference:.0e}" if difference else "0"
