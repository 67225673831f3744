"""A copy of one package that has a fault, for processes that import it in place of the right one.

In: an edit (file, text before, text after) and a folder. Out: environment variables. The copy is links to the sources but for the file that is edited, so
it takes no time to make, and files that are no Python (headers of kernels) can be wrong as well.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def edited(path: str, before: str, after: str) -> str:
    """The text of a file of the tree with the edit; `LookupError` where it has no such place, or several."""
    source = (ROOT / path).read_text()
    if source.count(before) != 1 or before == after:
        raise LookupError(
            f"{path} has {source.count(before)} of {before!r}, not one: the table has to follow the sources"
        )
    return source.replace(before, after)


def overlay(path: str, before: str, after: str, folder: Path) -> Mapping[str, str]:
    """Make the copy in `folder`; the environment in which a process imports it."""
    text = edited(path, before, after)
    package, _, inside = path.removeprefix("packages/").partition("/src/")
    module = inside.partition("/")[0]
    source = ROOT / "packages" / package / "src"
    shutil.copytree(source / module, folder / module, copy_function=os.symlink)
    wrong = folder / inside
    wrong.unlink()
    wrong.write_text(text)
    # Compiled sources are found by time and size, which an edit need not change.
    for compiled in (wrong.parent / "__pycache__").glob(f"{wrong.stem}.*"):
        compiled.unlink()
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), others)))}
