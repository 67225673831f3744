"""A process that runs programs under one compiler, one after the other.

In: a compiler, a variant, names, and a file. Out: the programs' records, as lines of that file (`tests/processes.py`). `run.py` starts it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.processes import write_records

from .observe import observe
from .registry import all_programs

SECONDS = 60


def main(compiler: str, variant: str, names: list[str], out: Path) -> None:
    """Run the programs and write a record of each as soon as it is there."""
    programs = all_programs()
    write_records(names, lambda name: observe(programs[name], compiler, variant=variant), out, SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
