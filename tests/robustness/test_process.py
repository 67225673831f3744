"""`import flambeau` changes nothing in the process but adding modules; who may write the cache is looked at in whole programs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.robustness.test_bad_input import PROGRAM, run, warnings_of

SNAPSHOT = """
    import asyncio, atexit, builtins, copyreg, ctypes, faulthandler, gc, locale, logging, multiprocessing, os, random, resource, signal, sys, threading
    import tracemalloc, types, warnings
    import sympy, torch, structlog
    import torch.fx.experimental.symbolic_shapes
    import torch.utils._pytree as pytree

    KEYS = ("CPU", "CUDA", "Meta", "AutogradCPU", "AutogradCUDA", "Functionalize", "Python", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    frames = ctypes.pythonapi._PyInterpreterState_GetEvalFrameFunc
    frames.restype = ctypes.c_void_p
    interpreter = ctypes.pythonapi.PyInterpreterState_Get
    interpreter.restype = ctypes.c_void_p

    def state():
        loggers = {n: l for n, l in logging.root.manager.loggerDict.items() if isinstance(l, logging.Logger)}
        return {
            "structlog": repr(structlog.get_config()),
            "structlog is configured": structlog.is_configured(),
            "collector": (gc.get_threshold(), gc.isenabled(), len(gc.callbacks), gc.get_freeze_count()),
            "recursion limit": sys.getrecursionlimit(),
            "switch interval": sys.getswitchinterval(),
            "environment": dict(os.environ),
            "warnings": ([str(f) for f in warnings.filters], warnings.showwarning),
            "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, sys.gettrace(), sys.getprofile()),
            "import": ([repr(f) for f in sys.meta_path], len(sys.path_hooks), list(sys.path), builtins.__import__),
            "builtins": {name: id(value) for name, value in vars(builtins).items()},
            "threads": [t.name for t in threading.enumerate()],
            "at exit": atexit._ncallbacks(),
            "logging": {n: (l.level, list(l.handlers), list(l.filters), l.propagate) for n, l in loggers.items() if l.handlers or l.filters or l.level},
            "root logger": (logging.root.level, list(logging.root.handlers), list(logging.root.filters)),
            "signals": {s: signal.getsignal(s) for s in signal.valid_signals()},
            "timers": (signal.getitimer(signal.ITIMER_REAL), signal.pthread_sigmask(signal.SIG_BLOCK, ()), faulthandler.is_enabled()),
            "frames": frames(ctypes.c_void_p(interpreter())),
            "tools": [m.get_tool(i) for m in [getattr(sys, "monitoring", None)] if m for i in range(6)],
            "system threads and files": [sorted(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")],
            "folder, limits, language": (os.getcwd(), [resource.getrlimit(r) for r in range(8)], locale.setlocale(locale.LC_ALL)),
            "processes": (multiprocessing.get_start_method(allow_none=True), multiprocessing.active_children()),
            "coroutines": (sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth(), asyncio._get_running_loop()),
            "libraries": (sys.getdlopenflags(), tracemalloc.is_tracing()),
            "copies": {k: id(v) for k, v in copyreg.dispatch_table.items() if not k.__module__.startswith("flambeau")},
            "files": sorted(os.listdir(os.environ["FLAMBEAU_CACHE_DIR"])) if os.path.isdir(os.environ["FLAMBEAU_CACHE_DIR"]) else None,
            "random numbers": (random.getstate(), torch.get_rng_state().tolist()),
            "torch": (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads(),
                      torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu"), torch.is_anomaly_enabled(),
                      torch.get_num_interop_threads(), torch.get_float32_matmul_precision(), torch.is_inference_mode_enabled(),
                      torch.get_deterministic_debug_mode(),
                      torch.is_warn_always_enabled(), torch.backends.mkldnn.enabled, torch.backends.cuda.matmul.allow_tf32,
                      torch.cuda.is_initialized(), torch._C._get_tracing_state(), torch._C._is_torch_function_enabled()),
            "modes of torch": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), torch._C._autograd._saved_tensors_hooks_is_enabled()),
            "kernels of torch": {key: sorted(torch._C._dispatch_get_registrations_for_dispatch_key(key)) for key in KEYS},
            "operators of torch": sorted(torch._C._dispatch_get_all_op_names()),
            "trees of torch": (list(pytree.SUPPORTED_NODES), torch.serialization.get_safe_globals()),
            "stages": [n for n in sys.modules if n.startswith(("flambeau_autograd.functional", "flambeau_autograd.pipeline", "flambeau_inductor.lowering"))],
            "stand-ins": [n for n, m in sys.modules.items() if type(m).__name__ not in ("module", "NoneType") and n.startswith("torch._dynamo")],
        }

    def members():
        # Of every module, and of every class that one of them defines.
        modules = {n: m for n, m in list(sys.modules.items()) if type(m) is types.ModuleType and m is not sys.modules["__main__"]}
        found = {n: {k: id(v) for k, v in vars(m).items()} for n, m in modules.items()}
        for n, m in modules.items():
            for c in [v for v in list(vars(m).values()) if issubclass(type(v), type) and v.__module__ == n]:
                # attrs counts the fields of all classes.
                found[n, c.__qualname__] = {k: id(v) for k, v in vars(c).items() if k != "cls_counter"}
        return found
"""


def test_importing_changes_nothing_in_the_process(tmp_path: Path) -> None:
    """Interpreter, logging, torch's state and the members of torch's modules, before and after."""
    program = (
        SNAPSHOT
        + """
    before, objects = state(), members()
    import flambeau
    after, changed = state(), []
    for name, value in before.items():
        if after[name] != value:
            changed.append((name, value, after[name]))
    later = members()
    for module, known in objects.items():
        now = later[module]
        differing = [k for k in known if now.get(k) != known[k]]
        new = [k for k in now if k not in known and f"{module}.{k}" not in sys.modules]
        if differing or new:
            changed.append((module, differing, new))
    assert not changed, changed
    print("unchanged", len(before), len(objects))
    """
    )
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "none"), "FLAMBEAU_LOGS": "guards"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unchanged")


def test_importing_draws_no_numbers() -> None:
    """Not even where what it imports does, when it is the first to import it."""
    program = "import random, torch; before = random.getstate(); import flambeau; assert random.getstate() == before"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_structlog_of_the_application_works_as_before() -> None:
    """On structlog's defaults its own events are shown, all of them, in its own form, before and after a compile."""
    program = """
        import structlog, torch, flambeau
        flambeau.compile(lambda x: x.exp())(torch.ones(3))
        structlog.get_logger().info("theirs", value=3)
        assert not structlog.is_configured()
    """
    done = run(program)
    assert done.status == 0, done.stderr
    assert "theirs" in done.stdout and "flambeau" not in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("owner", [12345, 0])
def test_a_cache_of_another_user_is_not_read(owner: int, tmp_path: Path) -> None:
    """One warning, a right result, and nothing is written there; open to all it is refused whoever owns it."""
    cache = tmp_path / "cache"
    assert warnings_of(run(PROGRAM, FLAMBEAU_CACHE_DIR=str(cache))) == 0
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    os.chown(cache, owner, owner)
    cache.chmod(0o755 if owner else 0o777)
    done = run(PROGRAM, FLAMBEAU_CACHE_DIR=str(cache))
    assert warnings_of(done) == 1 and str(cache) in done.stdout
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
    assert warnings_of(run(PROGRAM, FLAMBEAU_CACHE_DIR=str(cache), FLAMBEAU_CACHE_SHARED="1")) == 0


def test_an_open_quote_names_the_variable() -> None:
    done = run(PROGRAM, CXX='g++ "-O2')
    assert done.status == 1
    assert "InvalidOption" in done.stderr and "CXX='g++ \"-O2'" in done.stderr
