"""The lean shape environment is torch's own in every attribute and answer, and gives way where torch needs more of it."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import weakref

import pytest
import torch
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from flambeau_capture.graph import shape_env
from flambeau_capture.graph.shapes import _CallableName, _SymbolSource

PROGRAM = """
import sys
import torch
import flambeau_capture
from flambeau_capture.config import Config

graphs = []
def backend(gm, inputs):
    graphs.append(gm)
    return gm.forward

def f(x):
    return torch.nn.functional.gelu(x.reshape(-1, 2) * x.shape[0]) if x.shape[0] > 3 else x - 1

region = flambeau_capture.make_region(f, backend, config=Config(dynamic=True))
for size in (4, 6, 2, 8):
    x = torch.randn(size, 2)
    assert torch.equal(region(x), f(x))
assert len(graphs) == 2, len(graphs)
assert "torch._dynamo" not in sys.modules and "torch._inductor" not in sys.modules
print("ok")
"""


def make(kind: type[ShapeEnv]) -> tuple[ShapeEnv, list[str]]:
    """An environment with two sizes and two questions asked of them, and what it noted."""
    env = kind(duck_shape=False)
    sizes = []
    for name, value in (("a", 6), ("b", 4)):
        source = _SymbolSource(_CallableName(name))
        symbol = env.create_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
        sizes.append(env.create_symintnode(symbol, hint=value, source=source))
    answers = [str(bool(sizes[0] > sizes[1])), str(bool(sizes[0] % 2 == 0)), str(sizes[0] * sizes[1])]
    return env, answers


def test_answers_and_guards_are_those_of_torch() -> None:
    """Same attributes, same answers, same guards, and notes that name this file."""
    (lean, answers), (full, expected) = make(shape_env.LeanShapeEnv), make(ShapeEnv)
    assert vars(lean).keys() == vars(full).keys()
    assert answers == expected
    assert [str(guard.expr) for guard in lean.guards] == [str(guard.expr) for guard in full.guards]
    assert os.path.basename(__file__) in str(lean.guards[0].sloc)
    assert shape_env.LeanShapeEnv.__init__.__code__ is ShapeEnv.__init__.__code__


def test_a_validator_means_the_ordinary_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks torch to validate its guards gets the class that does."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert type(shape_env.new_shape_env()) is shape_env.LeanShapeEnv
    with _config.patch(translation_validation=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShapeEnv, "__init__", lambda self, **arguments: None)
        assert type(shape_env.new_shape_env()) is ShapeEnv


def test_a_trace_with_a_folder_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a handler that has nowhere to write leaves."""

    class LazyTraceHandler(logging.Handler):
        def __init__(self, root_dir: str | None) -> None:
            super().__init__()
            self.root_dir = root_dir

    trace_log = logging.getLogger("torch.__trace")
    kept, idle, other = LazyTraceHandler("/somewhere"), LazyTraceHandler(None), logging.NullHandler()
    monkeypatch.setattr(trace_log, "handlers", [kept, idle, other])
    shape_env._drop_idle_trace()
    assert trace_log.handlers == ([kept, other] if hasattr(torch.version, "git_version") else [kept, idle, other])


def test_symbolic_sizes_do_not_load_the_compiler() -> None:
    """In a fresh process: a program with changing sizes is captured without torch's compiler."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "ok", done.stderr


def test_the_frames_that_were_looked_at_are_let_go():
    """Those of whoever calls the compiler among them, with all that they hold."""

    class Held:
        pass

    def calls():
        held = Held()
        assert shape_env.LeanShapeEnv()._get_user_frame() is not None
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert calls()() is None
    finally:
        gc.enable()
