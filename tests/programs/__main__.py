"""`python -m tests.programs run --compiler C --out FILE` and `python -m tests.programs table --eager A --torch B --flambeau C --out PAGE`.

In: the options. Out: a file of records (`run.py`); the page that sets three of them side by side, or with `--expected` the file that
`test_programs.py` holds flambeau to (`table.py`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from . import table
from .engines import COMPILERS
from .observe import VARIANTS
from .registry import chosen
from .run import run


def main() -> None:
    """Do what the command line says."""
    options = _options()
    if options.command == "run":
        run(options.compiler, chosen(options.section, options.names), options.out, options.variant)
    else:
        table.write(options.eager, options.torch, options.flambeau, options.out, options.expected)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run programs under one compiler")
    runs.add_argument("--compiler", choices=COMPILERS, required=True)
    runs.add_argument(
        "--out", type=Path, required=True, help="a file; records of programs that are not run now are kept"
    )
    runs.add_argument(
        "--variant", choices=VARIANTS, default="plain", help="with dynamic=True, or gradients of every argument"
    )
    runs.add_argument("--section", nargs="+", default=(), help="only sections with this in their name")
    runs.add_argument("--names", nargs="+", default=(), help="only these programs")
    tables = commands.add_parser("table", help="write the page from three runs")
    for name in ("eager", "torch", "flambeau"):
        tables.add_argument(f"--{name}", type=Path, required=True)
    tables.add_argument("--out", type=Path, required=True)
    tables.add_argument("--expected", type=Path, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    main()
