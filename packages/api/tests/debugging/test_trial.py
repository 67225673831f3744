"""One graph tried: verdicts here, and in a process that survives what a child does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from flambeau.debugging import trial
from flambeau.debugging.bisect import bisect_here
from flambeau.debugging.graphs import pack
from flambeau.debugging.minify import operations_of_script
from flambeau.debugging.reduce import Candidate, reduced
from flambeau.debugging.trial import Process, Trials, check, judge, run_script, try_here


class _Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() * 2


def _raises(*inputs: Any) -> Any:
    raise ZeroDivisionError


def test_verdicts() -> None:
    model, x = _Model(), [torch.randn(4)]
    assert judge(model, model, x, "any") == "ok"
    assert judge(model, lambda x: x.sin() * 3, x, "any").startswith("wrong: result 0")
    assert judge(model, _raises, x, "any") == "crash: ZeroDivisionError"


def test_where_eager_raises_nothing_is_at_fault() -> None:
    model = _Model()
    assert judge(model, model, ["no tensor"], "any").startswith("ok: eager raises")


def test_a_model_without_a_twin_in_float64_has_eager_as_its_judge() -> None:
    class Single(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.dtype is not torch.float32:
                raise TypeError("of single precision")
            return x.sin()

    assert judge(Single(), lambda x: x.sin() + 1, [torch.randn(4)], "any").startswith("wrong")


def test_check_raises_for_the_script_that_calls_it() -> None:
    with pytest.raises(AssertionError, match="wrong"):
        check(_Model(), lambda x: x, [torch.randn(4)], "wrong")
    with pytest.raises(ZeroDivisionError):
        check(_Model(), _raises, [torch.randn(4)], "crash")


def test_compile_calls_that_raise_are_crashes() -> None:
    packed = pack(fx.symbolic_trace(_Model()), [torch.randn(4)])
    assert try_here(packed, "any", {"backend": "eager"}, {}) == "ok"
    assert try_here(packed, "any", {"backend": "no such"}, {}) == "crash: UnknownName"


def test_scripts_of_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, words in (("x = 1", "ok"), ("raise ValueError", "exit 1: ValueError"), ("raise SystemExit(3)", "exit 3")):
        file = tmp_path / "script.py"
        file.write_text(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["pytest"])
            patch.syspath_prepend(str(tmp_path))
            assert run_script(str(file), [], {}) == words


def test_a_process_survives_its_children(tmp_path: Path) -> None:
    """A crash, a hang and what cannot be tried are verdicts; the next trial goes on, also after a module that nobody can load."""
    scripts = {
        "good": "import sys; assert sys.argv[1:] == ['word']",
        "crash": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "hang": "import time; time.sleep(60)",
        "leave": "import os; os._exit(4)",
        "reads": "import sys; assert sys.stdin.read() == ''",
        "pretend": "import sys, types; sys.modules['torch.nowhere'] = types.ModuleType('torch.nowhere')",
    }
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
    with Trials(seconds=5) as process:
        found = {name: process.script(str(tmp_path / f"{name}.py"), ["word"], {}) for name in scripts}
        assert process.verdict(b"no graph").startswith("ok: cannot be tried")
        assert process.count == 7
    assert found.pop("hang") == "hung" and found.pop("leave") == "crash: exit" and found.pop("crash") == "signal 11"
    assert found == {"good": "ok", "reads": "ok", "pretend": "ok"}


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs the tests may have threads, of which the scripts here need none."""
    monkeypatch.setattr(trial, "_can_be_copied", lambda: True)


def test_a_process_with_threads_or_devices_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads, device, can in ((1, False, True), (2, False, False), (1, True, False)):
        monkeypatch.setattr(trial.threading, "active_count", lambda found=threads: found)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda found=device: found)
        assert trial._can_be_copied() is can


@pytest.mark.usefixtures("copied")
def test_a_trial_ends_with_the_process_that_tries(tmp_path: Path) -> None:
    """However that ends; who asks is told."""
    said, script = tmp_path / "said", tmp_path / "script.py"
    script.write_text(f"import os, time; open({str(said)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    process = Process(forked=True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Trials(process=process).script, str(script), [], {})
        assert _soon(lambda: said.exists() and said.read_text() != "")
        os.kill(process._child, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="has ended"):
            asked.result()
    assert _soon(lambda: not Path(f"/proc/{said.read_text()}").exists())
    with pytest.raises(RuntimeError, match="has ended"):
        Trials(process=process).script(str(script), [], {})
    process.close()


def _soon(holds: Callable[[], bool]) -> bool:
    for _ in range(200):
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_operations_of_a_script(tmp_path: Path) -> None:
    """Those of all of its graphs are counted, also of one that cannot be kept, and where the script fails in the end."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, flambeau\n"
        "local = flambeau.compiler.allow_in_graph(lambda x: x.sin())\n"
        "for function in (lambda x: local(x) + 1, lambda x: x * 2):\n"
        "    flambeau.compile(function, backend='eager')(torch.ones(2))\n"
        "raise SystemExit(1)\n"
    )
    assert operations_of_script(str(script), [], {}) == "3"


@pytest.mark.usefixtures("copied")
def test_a_copy_of_this_process_tries_too(tmp_path: Path) -> None:
    """Trials share it; each has its own environment, and folder to import from."""
    (tmp_path / "neighbour.py").write_text("import os; word = os.environ['WORD']")
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text("import neighbour; raise SystemExit(neighbour.word != 'one')")
    with Process(forked=True) as process:
        for word, said in (("one", "ok"), ("two", "exit True")):
            trials = Trials(seconds=60, process=process)
            with trials:
                assert trials.script(str(script), [], {"WORD": word}, str(tmp_path)) == said
                assert trials.count == 1


def test_slow_is_what_is_slow_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    for ratios, said in (((3.0, 2.0, 4.0), "slow: 2.00 times eager"), ((3.0, 1.1, 4.0), "ok")):
        looks = iter(ratios)
        monkeypatch.setattr(trial, "_ratio", lambda *given, looks=looks: next(looks))
        assert judge(_Model(), _Model(), [torch.randn(4)], "slow") == said


@pytest.mark.parametrize("requires_grad", [False, True])
def test_both_are_timed(requires_grad: bool) -> None:
    """With a backward where an input asks for one."""
    calls: list[bool] = []

    def counts(x: Tensor) -> Tensor:
        calls.append(torch.is_grad_enabled())
        return x.sin()

    assert trial._ratio(_Model(), counts, [torch.randn(4, requires_grad=requires_grad)]) > 0
    assert len(calls) >= 3 and calls[0] is requires_grad


def test_a_candidate_that_eager_refuses_is_none() -> None:
    """Sizes that do not fit are not tried; the graph stays as large as eager needs it."""
    gm = fx.symbolic_trace(lambda x: x.view(4, 2).sum(0).view(2))
    best = reduced(Candidate(gm, (torch.randn(8),)), lambda found: found.size >= 3)
    assert best.size == 3
    best.graph(*best.inputs)


def test_an_exception_is_a_failure_in_this_process() -> None:
    """Which is right without flambeau only where the function says so."""
    assert bisect_here(lambda: bool(_raises())).stage == "the program"
    assert bisect_here(lambda: True).stage == "nothing"
