"""The page that follows one kernel shows what the compiler says."""

from __future__ import annotations

import io
import linecache

from flambeau import log

from .pages import pages

ARTIFACTS = "graph_code,guards,aot_graphs,ir_pre_fusion,ir_stages,kernel_code,output_code"


def _plain(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_every_line_is_said() -> None:
    """Each line of its blocks of text is the beginning of one that the logs show of its program, in the order of the blocks' lines."""
    (page,) = pages("docs/internals/one-kernel.md")
    (program,) = page.blocks("python")
    shown = io.StringIO()
    log.configure(log.parse(ARTIFACTS), shown)
    try:
        _run(program)
    finally:
        log.configure(log.parse(""))
    said = _plain(shown.getvalue())
    missing = [
        line for block in page.blocks("text") for line in _plain(block) if not any(s.startswith(line) for s in said)
    ]
    assert missing == []


def _run(program: str) -> None:
    file = "<one kernel>"
    linecache.cache[file] = (len(program), None, program.splitlines(keepends=True), file)
    exec(compile(program, file, "exec"), {"__name__": "__main__"})
