"""`python -m tests.documented [torch|flambeau] [words]`: run the programs under torch.compile itself, or under flambeau, and say what does not hold.

In: a compiler, parts of the programs' names. Out: a line for each, exit status 1 where one does not hold. What does not hold under torch.compile is no fact of it.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

from .facts import COMPILERS, facts


def main() -> int:
    """Run those that are asked for."""
    compiler, *words = sys.argv[1:] or ["torch"]
    if compiler not in COMPILERS:
        raise SystemExit(f"unknown compiler {compiler!r}; there are: {', '.join(COMPILERS)}")
    wrong = 0
    for fact in facts(compiler):
        if words and not any(word in fact.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                fact.run(Path(folder))
            except Exception:
                wrong += 1
                print(f"DOES NOT HOLD  {fact.name}: {fact.says}")
                traceback.print_exc()
            else:
                print(f"holds          {fact.name}: {fact.says}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
