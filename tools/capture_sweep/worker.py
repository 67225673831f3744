"""A process that runs architectures under one compiler, one after the other.

In: a compiler, its backend, names with their modes (`transformers/gpt2 training`), and a file. Out: their records, as lines of that file
(`tests/processes.py`). `run.py` starts it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.processes import Record, write_records

from .observe import observe
from .registry import all_architectures

SECONDS = 300


def main(compiler: str, backend: str, names: list[str], out: Path) -> None:
    """Run them and write a record of each as soon as it is there."""
    architectures = all_architectures()

    def look(name: str) -> Record:
        architecture, _, mode = name.rpartition(" ")
        return observe(architectures[architecture], mode, compiler, backend)

    write_records(names, look, out, SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
