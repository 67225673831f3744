"""The package as a whole: it loads alone, reads its environment, and says when its extension does not fit."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from flambeau_runtime import Config, native
from flambeau_runtime import artifact as a
from flambeau_runtime.errors import ExtensionError, OptionError


def test_importing_it_loads_no_sibling_and_no_compiler_of_torch() -> None:
    body = (
        "import sys, flambeau_runtime; names = set(sys.modules)\n"
        "bad = [n for n in names if n.startswith('flambeau') and not n.startswith('flambeau_runtime')]\n"
        "bad += [n for n in names if n in ('triton', 'torch._dynamo', 'torch._inductor')]\n"
        "assert not bad, bad"
    )
    assert subprocess.run([sys.executable, "-c", body], timeout=120).returncode == 0


def test_the_cache_is_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's cache folder, wherever that is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Config().folder() == tmp_path / "flambeau"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Config().folder() == tmp_path / ".cache" / "flambeau"


def test_config_reads_the_environment() -> None:
    config = Config.from_environment(
        {"FLAMBEAU_CACHE_DIR": "/x", "FLAMBEAU_CACHE": "0", "FLAMBEAU_COMPILE_THREADS": "3"}
    )
    assert str(config.folder()) == "/x" and config.cache_enabled is False and config.jobs() == 3
    wrong = {
        "FLAMBEAU_CACHE": "perhaps",
        "FLAMBEAU_CACHE_LIMIT_BYTES": "many",
        "FLAMBEAU_COMPILE_THREADS": "-1",
        "FLAMBEAU_EXECUTOR": "fast",
        "CXX": 'g++ "-O2',
        "FLAMBEAU_CXXFLAGS": "-D'x",
    }
    for variable, value in wrong.items():
        with pytest.raises(OptionError, match=variable):
            Config.from_environment({variable: value})


def test_what_is_kept_is_bounded_without_a_setting() -> None:
    """By 4 GiB on the disk and 256 MiB in memory: a larger bound would fill what a user did not give."""
    config = Config.from_environment({})
    assert (config.cache_limit_bytes, config.idle_memory_bytes) == (4 * 1024**3, 256 * 1024**2)


def test_an_extension_of_another_torch_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(torch, "__version__", "0.0.0")
    native.extension.cache_clear()
    with pytest.raises(ExtensionError, match="0.0.0") as caught:
        native.extension()
    assert "build_native.py" in str(caught.value)
    monkeypatch.undo()
    assert native.extension() is native.extension()


def test_an_operator_written_in_python_is_called_from_a_program(make, tensor_input, executor) -> None:
    """Library calls run without the GIL; one implemented in Python takes it back, also while another thread computes."""

    @torch.library.custom_op("flambeau_test::plus_one", mutates_args=())
    def plus_one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    code = [
        a.Call("aten::mm", "", (a.Reg(0), a.Reg(0)), {}, (1,)),
        a.Call("flambeau_test::plus_one", "", (a.Reg(1),), {}, (2,)),
    ]
    run = make(code, [tensor_input(0, (8, 8))], [a.OutputSpec("tensor", 2)], executor=executor)
    x = torch.eye(8)
    threads = [threading.Thread(target=lambda: [run(x) for _ in range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(run(x)[0], x + 1)


def test_one_call_runs_in_grad_mode(make, tensor_input, executor) -> None:
    modes = []

    @torch.library.custom_op("flambeau_test::mode", mutates_args=())
    def mode(x: torch.Tensor) -> torch.Tensor:
        modes.append(torch.is_grad_enabled())
        return x.clone()

    code = [a.Call("flambeau_test::mode", "", (a.Reg(0),), {}, (1,), grad_mode=on) for on in (False, True, False)]
    run = make(code, [tensor_input(0, (2,))], [a.OutputSpec("tensor", 1)], executor=executor)
    (result,) = run(torch.ones(2, requires_grad=True))
    assert modes == [False, True, False]
    assert not result.requires_grad


def test_an_exception_in_a_python_operator_keeps_its_class(make, tensor_input, executor) -> None:
    @torch.library.custom_op("flambeau_test::refuse", mutates_args=())
    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise LookupError("not today")

    run = make(
        [a.Call("flambeau_test::refuse", "", (a.Reg(0),), {}, (1,))], [tensor_input(0, (2,))], [], executor=executor
    )
    with pytest.raises(LookupError, match="not today") as caught:
        run(torch.zeros(2))
    assert "flambeau_test::refuse" in caught.value.__notes__[-1]


def test_backward_threads_may_run_programs(make, tensor_input) -> None:
    """A program inside of a custom gradient, on the engine's thread."""
    run = make(
        [a.Call("aten::mul", "Tensor", (a.Reg(0), 3), {}, (1,))], [tensor_input(0, (4,))], [a.OutputSpec("tensor", 1)]
    )

    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return run(x)[0]

        @staticmethod
        def backward(ctx, gradient):
            return run(gradient.contiguous())[0]

    x = torch.ones(4, requires_grad=True)
    Triple.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3, 3, 3]
