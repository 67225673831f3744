"""The table of replacements, the marks users put on functions, and what is decided about torch's own functions."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from flambeau_capture import allow_in_graph, disable, graph_break, is_capturing, replacements
from flambeau_capture.replacements import Decision, torch_decision
from flambeau_capture.signatures import signature_of
from flambeau_capture.values.trust import is_pure_native


def test_a_target_has_one_replacement():
    """A second one is refused."""
    with pytest.raises(ValueError, match="two replacements"):
        replacements.replaces(len)(lambda t, args, kwargs: None)
    with pytest.raises(ValueError, match="two replacements"):
        replacements.replaces_wrapper(next(iter(replacements._WRAPPERS)))(lambda t, function, args, kwargs: None)


def test_every_replaced_function_tells_its_signature():
    """Or it is written down; torch checks calls of its own itself."""
    targets = [target for target in replacements.replaced() if not replacements.is_torchs(target)]
    assert len(targets) > 150
    assert not [target for target in targets if signature_of(target) is None]


def test_importing_reads_no_signature():
    """That would be a tenth of the import, for functions that most programs never call."""
    script = "import inspect\nimport torch\ninspect._signature_fromstr = None\nimport flambeau_capture.lookaside"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_native_class_methods_are_found_however_they_are_read():
    """They are a new object each time."""
    assert replacements.find(dict.fromkeys) is replacements.find(dict.fromkeys) is not None
    assert replacements.find(int.from_bytes) is None


def test_what_is_impure_is_called_by_the_program_alone(broken, monkeypatch):
    """And not once while it is traced, from our own code: the answer depends on who calls, or something is done."""
    done = []
    monkeypatch.setitem(sys.modules, "flambeau_tests_done", done)
    assert broken(lambda x: (x + 1, eval("__name__"))) == {"unsupported-call"}
    assert broken(lambda x: (x + 1, exec("import flambeau_tests_done as d; d.append(1)"))) == {"unsupported-call"}
    assert len(done) == 6  # three plain calls and three others


def test_a_row_of_what_is_impure_stands_for_something():
    """Native functions of other modules are left to the program anyway."""
    assert all(map(is_pure_native, replacements._IMPURE.values()))


@pytest.mark.parametrize(
    ("function", "decision"),
    [
        (torch.add, Decision.ALWAYS_RECORD),
        (torch.nn.functional.relu, Decision.RECORD),
        (torch.ops.aten.add.Tensor, Decision.ALWAYS_RECORD),
        (torch.device, Decision.FOLD),
        (torch.nn.init.ones_, Decision.INLINE),
        (torch.autograd.grad, Decision.BREAK),
        (torch.vmap, Decision.INLINE),
        (torch.set_autocast_enabled, Decision.BREAK),
        (torch.clear_autocast_cache, Decision.BREAK),
        (torch._C._set_cudnn_enabled, Decision.BREAK),
        (torch.ops.higher_order.cond, Decision.CONTROL_FLOW),
    ],
)
def test_decisions_about_torch(function, decision):
    """One of each kind; what changes torch's state is never run while tracing."""
    assert torch_decision(function) is decision


def test_marks(check, broken):
    """A disabled function breaks, an allowed one is one node, `graph_break` breaks, and `is_capturing` tells."""

    def plain(x):
        return x * 2

    disabled, allowed = disable(plain), allow_in_graph(lambda x: plain(x) + 1)
    assert broken(lambda x: disabled(x) + 1) == {"disabled-function"}
    (record,) = check(lambda x: allowed(x))
    assert record.operations == 1
    assert broken(lambda x: (graph_break(), x + 1)[1]) == {"user-requested"}
    assert is_capturing() is False


@pytest.mark.parametrize(
    "tracker",
    [
        "class GenerationTracker:\n    @staticmethod\n    def tag(module):\n        table[id(module)] = 1\n",
        "class Tracker:\n    def tag(self, module):\n        table[id(module)] = 1\nGenerationTracker = Tracker()\n",
    ],
    ids=["of a class", "of an object"],
)
def test_modules_made_after_another_compiler_was_used(check, tracker):
    """It tags every new module in a table of its own, by patching `Module.__init__`; the table is no part of the program."""
    namespace = {"__name__": "torch._dynamo.mutation_guard", "table": {}}
    exec(tracker, namespace)
    original = torch.nn.Module.__init__

    def patched(self, *args, **kwargs):
        original(self, *args, **kwargs)
        namespace["GenerationTracker"].tag(self)

    layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Sigmoid(), torch.nn.Tanh()])

    def first_two(x):
        for layer in layers[:2]:
            x = layer(x)
        return x

    torch.nn.Module.__init__ = patched
    try:
        check(first_two)
    finally:
        torch.nn.Module.__init__ = original
