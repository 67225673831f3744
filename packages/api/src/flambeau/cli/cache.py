"""`flambeau cache`: what is kept on disk.

In: the folder of the default store. Out: a table, an emptied folder, a bundle, or how many entries a bundle added.
"""

from __future__ import annotations

from pathlib import Path

import click

from flambeau_runtime.cache import default_store

from .failures import BadInput


@click.group()
def cache() -> None:
    """List, clear, export and import what is kept on disk."""


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
    try:
        added = len(default_store().import_bundle(file.read_bytes()))
    except ValueError as error:
        raise BadInput(f"{file}: {error}") from None
    click.echo(f"{added} entries added")
