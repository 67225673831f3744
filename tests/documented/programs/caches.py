"""What is kept from one process to the next."""

from __future__ import annotations

from pathlib import Path

from tests.documented.facts import documented
from tests.scripts import run

PROGRAM = """
import sys
import torch
from pathlib import Path
counters = torch._dynamo.utils.counters
bundle = Path("bundle")
if {loads} and bundle.exists():
    torch.compiler.load_cache_artifacts(bundle.read_bytes())
compiled = torch.compile(lambda x: torch.tanh(x) / 3)
x = torch.ones(5)
assert torch.allclose(compiled(x), torch.tanh(x) / 3)
if {loads} and not bundle.exists():
    data, info = torch.compiler.save_cache_artifacts()
    assert info is not None
    bundle.write_bytes(data)
print("hits", counters["inductor"]["fxgraph_cache_hit"], "misses", counters["inductor"]["fxgraph_cache_miss"])
"""


def last_line(done) -> str:
    assert done.status == 0, done.output
    return done.stdout.strip().splitlines()[-1]


@documented(
    "graphs are cached in `TORCHINDUCTOR_CACHE_DIR`: a second process hits, and `counters` say so; with `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1` nothing is hit",
    judges_itself="it is compiled in another process",
)
def a_warm_process(folder: Path) -> None:
    script, variables = PROGRAM.format(loads=False), {"TORCHINDUCTOR_CACHE_DIR": folder / "cache"}
    found = [last_line(run(script, folder, **variables)) for _ in range(2)]
    assert found == ["hits 0 misses 1", "hits 1 misses 0"]
    assert "hits 0" in last_line(run(script, folder, **variables, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1"))


@documented(
    "`save_cache_artifacts` gives bytes which `load_cache_artifacts` takes elsewhere: with an empty cache the first compile hits",
    judges_itself="it is compiled in another process",
)
def a_bundle(folder: Path) -> None:
    script = PROGRAM.format(loads=True)
    found = [last_line(run(script, folder, TORCHINDUCTOR_CACHE_DIR=folder / name)) for name in ("first", "second")]
    assert found == ["hits 0 misses 1", "hits 1 misses 0"]
