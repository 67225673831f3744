"""Signatures survive JSON, and assemble works from plain data alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from lifting import fakes, lift_function, lift_symbolically

from flambeau_autograd import Config, Signature, assemble, prepare


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.exp() * 2, x.view(-1)[1:], x, None, 3),
        lambda x: (lambda y: (y, y.t(), y.split(1)[1]))(x.sin()),
        lambda x: (x.detach().add_(1), x * 2),
        lambda x: (x.view(torch.int32), x * 2),
    ],
    ids=["kinds", "bases", "write", "types"],
)
def test_json_round_trip(function):
    """from_json(to_json(s)) == s, and the assembled callable behaves the same."""
    x = torch.randn(2, 3)
    prepared = prepare(lift_function(function, [x]), fakes([x]))
    signature = Signature.from_json(prepared.signature.to_json())
    assert signature == prepared.signature
    ours, theirs = x.clone(), x.clone()
    got = assemble(signature, prepared.forward.forward, None)(ours)
    for a, b in zip(got, function(theirs)):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b
    torch.testing.assert_close(ours, theirs)


def test_symbolic_views_survive_json():
    """The sizes of a view of an input are read off the forward's results."""
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    gm = lift_symbolically(lambda x, y: (y[: x.size(0)], y.view(y.size(0) * y.size(1))))
    prepared = prepare(gm, fakes([x, y], dynamic=True))
    signature = Signature.from_json(prepared.signature.to_json())
    assert signature == prepared.signature
    rows, flat = assemble(signature, prepared.forward.forward, None)(x, y)
    assert rows.shape == (3, 4) and flat.shape == (20,)
    assert rows.data_ptr() == y.data_ptr() and flat.data_ptr() == y.data_ptr()


def test_inference_without_wrappers_is_the_forward_itself():
    """Nothing to wrap: assemble hands the forward back."""
    x = torch.randn(3)
    prepared = prepare(lift_function(lambda x: x.sin(), [x]), fakes([x]))
    forward = prepared.forward.forward
    assert assemble(prepared.signature, forward, None) is forward


def test_graphs_are_functional_aten():
    """Only overloads, no writes but the epilogue, and a value on every node."""
    x = torch.randn(4, 4, requires_grad=True)

    def function(x, y):
        z = x * 2
        z[0].add_(1)
        y.mul_(2)
        return z

    prepared = prepare(lift_function(function, [x, x.detach()]), fakes([x, torch.randn(4, 4)]))
    for gm in (prepared.forward, prepared.backward):
        writes = 0
        for node in gm.graph.nodes:
            if node.op == "call_function":
                assert "val" in node.meta
                if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
                    assert node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"
                    writes += 1
        assert writes == (1 if gm is prepared.forward else 0)


def test_copies_that_nobody_can_tell_from_their_source_are_not_made():
    """A clone that is only computed with."""
    x = torch.randn(3)
    prepared = prepare(lift_function(lambda x: x.sin().clone() + x.clone(), [x]), fakes([x]))
    called = [node.target for node in prepared.forward.graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.sin.default in called and torch.ops.aten.clone.default not in called


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda y: y.view(3, 4), 0),
        (lambda y: y.expand(3, 4), 0),
        (lambda y: y[:], 0),
        (lambda y: y.detach(), 0),
        (lambda y: y.to(torch.float32), 0),
        (lambda y: y.t().t(), 0),
        (lambda y: y.transpose(0, 1).transpose(0, 1), 0),
        (lambda y: y[None].transpose(0, 1).transpose(0, 2), 3),
        (lambda y: y.view(4, 3), 1),
        (lambda y: y[1:], 1),
        (lambda y: torch.as_strided(y[1:].clone(), (2,), (1,), 0), 3),  # counts from the beginning of the copy
    ],
)
def test_calls_that_change_nothing_are_left_out(function, left):
    """And those that do stay."""
    x = torch.randn(3, 4)
    prepared = prepare(lift_function(lambda x: function(x.sin()).cos(), [x]), fakes([x]))
    called = [node.target for node in prepared.forward.graph.nodes if node.op == "call_function"]
    assert len(called) == 2 + left, called
    torch.testing.assert_close(prepared.forward(x)[0], function(x.sin()).cos())


def test_configuration_from_the_environment(monkeypatch):
    """Each field has its variable."""
    monkeypatch.setenv("FLAMBEAU_ACTIVATION_MEMORY_BUDGET", "0.5")
    monkeypatch.setenv("FLAMBEAU_AUTOGRAD_NATIVE", "0")
    config = Config.from_environment()
    assert config.activation_memory_budget == 0.5 and not config.native
    assert ("activation_memory_budget", 0.5) in config.key() and "native" not in dict(config.key())


def test_import_loads_no_sibling():
    """The package stands alone."""
    code = "import sys, flambeau_autograd; print([m for m in sys.modules if m.startswith('flambeau') and 'autograd' not in m])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
