"""Pages of the documentation site that lie outside of `docs`, or are made of docstrings; run by mkdocs as it builds.

In: the repository. Out: virtual pages under `repository/` (architecture, contributing, READMEs, changelogs, figures, examples) and `reference/` (one page for each
public module). `links.py` turns links between files of the repository into links between pages of the site.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import mkdocs_gen_files

sys.path.insert(0, str(Path(__file__).resolve().parent))
from links import EXAMPLES, REPOSITORY_PAGES, ROOT, page_of

#: Module -> what its page is called. Their public names are those of `__all__`, or those without an underscore.
REFERENCE = {
    "flambeau": "flambeau",
    "flambeau.compiler": "flambeau.compiler",
    "flambeau.errors": "flambeau.errors",
    "flambeau_capture": "flambeau_capture",
    "flambeau_autograd": "flambeau_autograd",
    "flambeau_inductor": "flambeau_inductor",
    "flambeau_runtime": "flambeau_runtime",
}


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or path.stem).split("\n")[0]


def _write() -> None:
    for path in REPOSITORY_PAGES:
        with mkdocs_gen_files.open(page_of(path), "w") as page:
            page.write((ROOT / path).read_text())
    lines = ["# Examples\n"]
    for path in sorted(EXAMPLES):
        with mkdocs_gen_files.open(page_of(path), "w") as page:
            page.write(f"# {Path(path).name}\n\n```python\n{(ROOT / path).read_text()}```\n")
        lines.append(f"- [{Path(path).name}]({Path(path).stem}.md): {_first_line(ROOT / path)}")
    with mkdocs_gen_files.open("repository/examples/index.md", "w") as page:
        page.write("\n".join(lines) + "\n")
    decisions = [
        f"- [{path.read_text().splitlines()[0].lstrip('# ')}]({path.name})"
        for path in sorted((ROOT / "docs/decisions").glob("0*.md"))
    ]
    with mkdocs_gen_files.open("decisions/index.md", "w") as page:
        page.write("# Why it is so\n\n" + "\n".join(decisions) + "\n")
    for module, title in REFERENCE.items():
        with mkdocs_gen_files.open(f"reference/{module}.md", "w") as page:
            page.write(f"# {title}\n\n::: {module}\n")


_write()
