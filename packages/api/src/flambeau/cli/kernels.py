"""`flambeau kernels`: the kernels of one program again, with their bandwidth.

In: a file that `options={"benchmark_kernel": True}` wrote. Out: a line for each kernel and library call, or JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from attrs import asdict

from ..config import is_pattern
from ..errors import InvalidOption, UnknownName
from ..insight import kernel_benchmark


@click.command()
@click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", default="", help="A regular expression: only those whose names it is found in.")
@click.option(
    "--rounds",
    default=kernel_benchmark.ROUNDS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Calls of each, of which the median counts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def kernels(program: Path, kernel: str, rounds: int, as_json: bool) -> None:
    """Run the kernels of PROGRAM again, each by itself on operands that are made up."""
    if not is_pattern(kernel):
        raise InvalidOption(f"{kernel!r} is no regular expression")
    artifact = kernel_benchmark.read(program)
    times = kernel_benchmark.benchmark(artifact, kernel, rounds=rounds)
    if not times:
        raise UnknownName("kernel", kernel, kernel_benchmark.names(artifact))
    if as_json:
        rows = [{**asdict(time), "bytes_per_second": time.bytes_per_second} for time in times]
        click.echo(json.dumps(rows, indent=1))
    else:
        click.echo(kernel_benchmark.table(times))
