"""Bad surroundings and bad input: each gives a clear error, or a correct result with at most one warning."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau import compat
from flambeau.errors import BackendError, InvalidOption, UnknownName, UnsupportedEnvironment
from tests import scripts

PROGRAM = """
import warnings, torch, flambeau
def f(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w) + 1, -1)
torch.manual_seed(0)
x, w = torch.randn(16, 32), torch.randn(32, 32)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    y = flambeau.compile(f)(x, w)
torch.testing.assert_close(y, f(x, w))
print("warnings:", len([w for w in caught if "flambeau" in str(w.message).lower() or "compiler" in str(w.message).lower() or "cache" in str(w.message).lower()]))
for w in caught: print("warning:", w.message)
print("correct")
"""


def run(program: str, **environment: object) -> scripts.Done:
    """A process with the given environment on top of this one's."""
    with tempfile.TemporaryDirectory() as folder:
        return scripts.run(textwrap.dedent(program), Path(folder), FLAMBEAU_SUPPRESS_ERRORS="0", **environment)


def warnings_of(done: scripts.Done) -> int:
    assert done.status == 0, done.stderr
    assert "correct" in done.stdout
    found = re.search(r"warnings: (\d+)", done.stdout)
    assert found
    return int(found.group(1))


def test_unsupported_python_and_torch() -> None:
    """The message names what runs and what is supported."""
    with pytest.raises(UnsupportedEnvironment, match=r"Python 3\.9 .*not supported"):
        compat.check_environment(python=(3, 9))
    with pytest.raises(UnsupportedEnvironment, match=r"torch 2\.3\.1"):
        compat.check_environment(torch_text="2.3.1")
    compat.check_environment()


@pytest.mark.parametrize("broken", [False, True], ids=["missing", "broken"])
def test_compiler_missing_or_broken(broken: bool, tmp_path: Path) -> None:
    """A correct program of library calls after one warning."""
    compiler = tmp_path / "bad-g++"
    if broken:
        compiler.write_text("#!/bin/sh\necho 'internal compiler error' >&2\nexit 1\n")
        compiler.chmod(0o755)
    done = run(PROGRAM, CXX=str(compiler), FLAMBEAU_CACHE_DIR=str(tmp_path / "cache"))
    assert warnings_of(done) == 1


def test_unwritable_cache_folder(tmp_path: Path) -> None:
    """A correct result after one warning; the folder's place is taken by a file, which root cannot write into either."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert warnings_of(run(PROGRAM, FLAMBEAU_CACHE_DIR=str(blocked / "cache"))) == 1


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_cache_files(damage: str, tmp_path: Path) -> None:
    """A damaged entry is a miss with at most one warning, is replaced, and is not read a third time."""
    cache = {"FLAMBEAU_CACHE_DIR": str(tmp_path)}
    assert warnings_of(run(PROGRAM, **cache)) == 0
    entries = [
        path for path in tmp_path.rglob("*") if path.is_file() and "locks" not in path.parts and path.stat().st_size
    ]
    assert entries
    for path in entries:
        data = path.read_bytes()
        if damage == "truncate":
            data = data[: len(data) // 2]
        elif damage == "flip":
            data = data[:10] + bytes([data[10] ^ 0xFF]) + data[11:-5] + bytes([data[-5] ^ 0xFF]) + data[-4:]
        else:
            data = b""
        path.write_bytes(data)
    assert warnings_of(run(PROGRAM, **cache)) <= 1
    assert warnings_of(run(PROGRAM, **cache)) == 0


def test_two_processes_compile_the_same_graph(tmp_path: Path) -> None:
    """Both are right, and the folder holds no temporary file afterwards."""
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path), "FLAMBEAU_SUPPRESS_ERRORS": "0"}
    command = [sys.executable, "-c", PROGRAM]
    pair = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in pair:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "correct" in output
    assert not [path for path in tmp_path.rglob("tmp/*") if path.is_file()]


def test_kill_while_an_entry_is_written(tmp_path: Path) -> None:
    """Killed at many moments, the cache never holds a partial entry: the next process is right without a warning."""
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path)}
    writer = textwrap.dedent(
        """
        import os
        from flambeau_runtime.cache import CacheKey, default_store
        store = default_store()
        print("ready", flush=True)
        number = 0
        while True:
            number += 1
            store.put(CacheKey("artifact", {"number": str(number % 7)}), os.urandom(1 << 20))
        """
    )
    for moment in (0.0, 0.003, 0.011, 0.017):
        process = subprocess.Popen([sys.executable, "-c", writer], env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
    reader = """
        from flambeau_runtime.cache import CacheKey, default_store
        store = default_store()
        sizes = {len(store.get(CacheKey("artifact", {"number": str(n)})) or b"") for n in range(7)}
        assert sizes <= {0, 1 << 20}, sizes
        print("whole")
    """
    done = run(
        "import warnings; warnings.simplefilter('error')\n" + textwrap.dedent(reader), FLAMBEAU_CACHE_DIR=str(tmp_path)
    )
    assert "whole" in done.stdout, done.stderr
    assert warnings_of(run(PROGRAM, FLAMBEAU_CACHE_DIR=str(tmp_path))) == 0


def test_another_dtype_than_before() -> None:
    """A changed dtype compiles again and is right."""
    compiled = flambeau.compile(lambda x: torch.relu(x * 2) + 1)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.float32):
        x = torch.arange(-4, 4).to(dtype)
        torch.testing.assert_close(compiled(x), torch.relu(x * 2) + 1)


@pytest.mark.falls_back("a tensor on meta has no data to compute with")
def test_another_device_than_before() -> None:
    """The meta device stands for any other; its result has the right device, dtype and shape."""
    compiled = flambeau.compile(lambda x: torch.relu(x * 2) + 1)
    assert compiled(torch.ones(3)).device.type == "cpu"
    assert compiled(torch.ones(3, device="meta")).device.type == "meta"
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))


def test_backend_that_raises() -> None:
    """The error names the backend and keeps the cause."""

    def broken(gm: Any, inputs: Any) -> Any:
        raise RuntimeError("no luck")

    with pytest.raises(BackendError, match="'broken' raised RuntimeError: no luck") as caught:
        flambeau.compile(lambda x: x + 1, backend=broken)(torch.ones(2))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_backend_that_returns_a_non_callable() -> None:
    """The error says what came back and what is wanted."""
    with pytest.raises(BackendError, match="returned int, which cannot be called"):
        flambeau.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(torch.ones(2))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"backend": "inducter"}, UnknownName, "did you mean 'inductor'"),
        ({"mode": "reduce-overhed"}, UnknownName, "did you mean 'reduce-overhead'"),
        ({"options": {"max_autotun": True}}, UnknownName, "did you mean 'max_autotune'"),
        ({"options": {"max_autotune": "yes"}}, InvalidOption, "takes on or off"),
        ({"mode": "default", "options": {}}, InvalidOption, "exclude each other"),
        ({"dynamic": "maybe"}, InvalidOption, "dynamic takes"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    """Each lists what exists and the nearest name, at the compile call."""
    with pytest.raises(error, match=text):
        flambeau.compile(lambda x: x, **arguments)


def test_ten_thousand_shapes() -> None:
    """Sizes become symbolic: ten thousand of them need a handful of compilations and no warning."""
    graphs = []

    def counting(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = flambeau.compile(lambda x: (x * 2).sum() + x.shape[0], backend=counting)
    data = torch.ones(10_002)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(2, 10_002):
            assert compiled(data[:size]).item() == 3.0 * size
    assert len(graphs) <= 3
