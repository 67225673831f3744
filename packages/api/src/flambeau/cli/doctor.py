"""`flambeau doctor`: what flambeau finds around itself.

In: this machine. Out: a line for each of Python, torch, processor, GPU, cache and compiler; exit status 1 where something is missing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import torch

from flambeau_runtime.build import find_toolchain
from flambeau_runtime.cache import default_store
from flambeau_runtime.errors import CompilerUnavailable


@click.command()
def doctor() -> None:
    """Look at the surroundings: versions, compiler, processor, threads, GPU, cache folder."""
    click.echo(f"python    {sys.version.split()[0]}")
    click.echo(f"torch     {torch.__version__}, {torch.get_num_threads()} threads")
    click.echo(f"processor {torch.backends.cpu.get_cpu_capability()}")
    click.echo(f"gpu       {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}")
    folder = default_store().folder
    writable = folder is not None and os.access(_existing(folder), os.W_OK)
    click.echo(f"cache     {folder} ({'writable' if writable else 'not writable: entries stay in memory'})")
    try:
        click.echo(f"compiler  {find_toolchain().version}")
    except CompilerUnavailable as error:
        click.echo(f"compiler  {error}")
        raise SystemExit(1) from None


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
