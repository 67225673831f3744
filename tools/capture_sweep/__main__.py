"""`python -m tools.capture_sweep run --compiler C --out FILE` and `python -m tools.capture_sweep table --flambeau F --torch T --out PAGE`.

In: the options. Out: a file of records (`run.py`), or the page that sets the two beside each other (`table.py`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from . import table
from .observe import MODES
from .registry import all_architectures
from .run import run


def main() -> None:
    """Do what the command line says."""
    options = _options()
    if options.command == "table":
        table.write(options.flambeau, options.torch, options.out)
        return
    run(options.compiler, options.backend, _chosen(options), options.out)


def _chosen(options: argparse.Namespace) -> list[str]:
    """Architectures and modes: all that the options leave, those that took several graphs in another run first of all."""
    named = [f"{name} {mode}" for name in all_architectures() for mode in options.modes]
    if options.several is not None:
        records = json.loads(options.several.read_text())["architectures"]
        named = [name for name in named if table.is_broken(records.get(name, {}))]
    if options.names:
        named = [name for name in named if any(part in name for part in options.names)]
    shard, _, count = options.shard.partition("/")
    return named[int(shard) :: int(count)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.capture_sweep", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run architectures under one compiler")
    runs.add_argument("--compiler", choices=("torch.compile", "flambeau"), required=True)
    runs.add_argument("--backend", default="aot_eager", help="by its name; without kernels of its own unless asked")
    runs.add_argument("--out", type=Path, required=True, help="a file; records of what is not run now are kept")
    runs.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    runs.add_argument("--names", nargs="+", default=(), help="only those with one of these in their name")
    runs.add_argument(
        "--several", type=Path, help="only those that took more than one graph in this file of another run"
    )
    runs.add_argument("--shard", default="0/1", help="the first of every so many, as in 0/2")
    tables = commands.add_parser("table", help="write the page from a run of each compiler")
    for name in ("flambeau", "torch"):
        tables.add_argument(f"--{name}", type=Path, nargs="+", required=True)
    tables.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
