"""The `flambeau` command: `doctor` looks at the surroundings, `cache` at the disk cache.

In: a command line. Out: text on standard output; exit status 1 when something is wrong.
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


@click.group()
def main() -> None:
    """Look at what flambeau sees and keeps on this machine."""


@main.command()
def doctor() -> None:
    """Versions, compiler, processor, threads, GPU, cache folder."""
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


@main.group()
def cache() -> None:
    """The disk cache."""


@cache.command("list")
def list_entries() -> None:
    """Kinds of entries with their number and size."""
    folder = default_store().folder
    sizes: dict[str, list[int]] = {}
    for path in folder.glob("*/??/*") if folder is not None and folder.is_dir() else []:
        sizes.setdefault(path.parts[-3], []).append(path.stat().st_size)
    for kind, found in sorted(sizes.items()):
        click.echo(f"{kind:16} {len(found):6} entries {sum(found) / 2**20:9.1f} MiB")


@cache.command()
def clear() -> None:
    """Remove every entry."""
    default_store().clear()


@cache.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def export(file: Path) -> None:
    """Write every entry into one bundle."""
    file.write_bytes(default_store().export_bundle())


@cache.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_(file: Path) -> None:
    """Add the entries of a bundle."""
    click.echo(f"{default_store().import_bundle(file.read_bytes())} entries added")
