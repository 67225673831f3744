"""Runs several commands of `flambeau` in one process, so that torch is loaded once: `python -m tools.faults.tools bisect a.py -- minify a.py`.

In: the words of each command, separated by `--`; `script a.py` runs a script, last. Out: a line of JSON for each: its status, its seconds, what it said.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time

from flambeau.cli import main as flambeau
from flambeau.debugging.trial import run_script


def run(words: list[str]) -> dict[str, object]:
    """One command."""
    said, start, status = io.StringIO(), time.monotonic(), 0
    with contextlib.redirect_stdout(said):
        try:
            if words[0] == "script":
                raise SystemExit(int(run_script(words[1], [], {}) != "ok"))
            flambeau(words, prog_name="flambeau")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return {"status": status, "seconds": round(time.monotonic() - start, 1), "said": said.getvalue()}


if __name__ == "__main__":
    pending: list[list[str]] = [[]]
    for word in sys.argv[1:]:
        if word == "--":
            pending.append([])
        else:
            pending[-1].append(word)
    for command in pending:
        print(json.dumps(run(command)), flush=True)
