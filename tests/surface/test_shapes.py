"""What is learnt about sizes from process to process and from rank to rank, as torch's documentation of `job_id` has it."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau.compiler import config
from flambeau.shape_profiles import KIND
from flambeau.testing import CompileCounter
from flambeau_runtime.cache import default_store
from tests import scripts
from tests.groups import run_ranks

from .rows import calls


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store without records."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    yield


def double(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def compiles(*sizes: int) -> int:
    """How often that many sizes, and numbers, have something compiled by a compile call that has learnt nothing itself: as in a new process."""
    counter = CompileCounter()
    compiled = flambeau.compile(double, backend=counter)
    for size in sizes:
        assert torch.equal(compiled(torch.ones(size), size), torch.full((size,), float(size)))
    return counter.frame_count


def entries() -> list[Path]:
    folder = default_store().folder
    assert folder is not None
    return [path for path in (folder / KIND).glob("??/*") if path.is_file()]


@calls("settings", "job_id")
def test_runs_of_one_job() -> None:
    """Sizes that changed in one run are symbolic from the first compile on in the next; without a word, or with another, nothing is known."""
    assert compiles(3, 4, 5) == 2 and not entries()
    with config.patch(job_id="one"):
        assert [compiles(3, 4, 5), compiles(6, 7, 8)] == [2, 1]
        with config.patch(cache_key_tag="other"):
            assert compiles(6, 7) == 2
    with config.patch(job_id="two"):
        assert compiles(6) == 1
        assert compiles(7, 8) == 1, "a size that is another than the last run's has changed"
    assert compiles(6, 7) == 2
    with config.patch(job_id="three", force_disable_caches=True):
        assert [compiles(3, 4), compiles(5, 6)] == [2, 2]
    bundle = flambeau.compiler.save_cache_artifacts()
    assert bundle is not None and bundle[1].pgo_artifacts


@calls("settings", "pgo_extra_read_key", "pgo_extra_write_key")
def test_further_words() -> None:
    """What is written under one is read under it, beside the job's own."""
    with config.patch(job_id="one", pgo_extra_write_key="shared"):
        compiles(3, 4)
    with config.patch(job_id="two"):
        assert compiles(5, 6) == 2
    with config.patch(job_id="three", pgo_extra_read_key="shared"):
        assert compiles(5, 6) == 1
    with config.patch(job_id="three"):
        assert compiles(5, 6) == 1, "what was read is kept with the rest"


@pytest.mark.filterwarnings("ignore:cache entry is corrupt")
def test_what_is_damaged_counts_for_nothing() -> None:
    """A file that is cut off or holds something else, or JSON of another form."""
    with config.patch(job_id="one"):
        compiles(3, 4)
        (path,) = entries()
        path.write_bytes(path.read_bytes()[:-9])
        assert compiles(5, 6) == 2
        assert compiles(7, 8) == 1, "and it is written anew"
        key = next(key for key in default_store().used() if key.kind == KIND)
        default_store().put(key, b"no json")
        assert compiles(5, 6) == 2
        default_store().put_json(key, ["another", "form"])
        assert compiles(5, 6) == 2


PROGRAM = """
import sys, torch, flambeau
from flambeau.testing import CompileCounter

def double(x):
    return x * 2

def compiles(*sizes):
    counter = CompileCounter()
    compiled = flambeau.compile(double, backend=counter)
    for size in sizes:
        compiled(torch.ones(size))
    return counter.frame_count

if __name__ == "__main__":
    print(compiles(5, 6))
"""


@calls("environment", "JOB_ID", "STICKY_PGO_READ", "STICKY_PGO_WRITE")
def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process reads what this one wrote."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with monkeypatch.context() as patched:
        patched.setenv("FLAMBEAU_JOB_ID", "a")
        patched.setenv("FLAMBEAU_STICKY_PGO_WRITE", "b")
        here: Any = runpy.run_path(str(program), run_name="program")
        assert here["compiles"](3, 4) == 2
        assert here["compiles"](7, 8) == 1
    with monkeypatch.context() as patched:
        patched.setenv("FLAMBEAU_STICKY_PGO_READ", "b")
        assert here["compiles"](9, 10) == 1
    assert here["compiles"](9, 10) == 2
    done = scripts.run_file(program, FLAMBEAU_JOB_ID="a")
    assert done.status == 0, done.stderr
    assert int(done.stdout) == 1


_RANK = """
import torch, flambeau
from flambeau.testing import CompileCounter
counter, later = CompileCounter(), CompileCounter()
double = flambeau.compile(lambda x: x * 2, backend=counter)
for step in range(3):
    assert double(torch.ones(4 + rank + step, 3)).shape == (4 + rank + step, 3)
assert counter.frame_count == 1, "sizes differ between the ranks: symbolic at the first compile"
with flambeau.compiler.config.patch(enable_compiler_collectives=False):
    alone = flambeau.compile(lambda x: x * 2, backend=later)
for step in range(3):
    alone(torch.ones(4 + rank + step, 3))
assert later.frame_count == 2, "each for itself"
"""


@calls("settings", "enable_compiler_collectives")
@calls("environment", "COMPILER_COLLECTIVES")
def test_ranks_tell_each_other_their_sizes(tmp_path: Path) -> None:
    """Where ranks have different sizes, all of them compile for any."""
    run_ranks(_RANK, tmp_path, FLAMBEAU_COMPILER_COLLECTIVES="1")
