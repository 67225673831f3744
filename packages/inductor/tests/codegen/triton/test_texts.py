"""Bodies that are alike are written once, and keep their names and where they come from."""

from __future__ import annotations

import pytest
import torch
from attrs import evolve

pytest.importorskip("triton")

import harness

from flambeau_inductor import expr as ex
from flambeau_inductor.codegen.triton import generate, kernel
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import KernelBody, Store
from flambeau_inductor.ir.loops import make_axes

F32 = torch.float32


def layer(number: int, op: str = "exp") -> KernelBody:
    """One op on a buffer of the layer's own."""
    axes = make_axes((ex.Int(64),))
    names = (f"x{number}", f"y{number}")
    store = Store(names[1], axes[0].symbol, sc.op(op, sc.load(names[0], axes[0].symbol, F32)))
    body = harness.make_body(dict.fromkeys(names, torch.empty(64)), axes, (), [store])
    return evolve(body, name=f"layer_{number}", origins=(f"exp_{number}",), stacks=(f"line {number}",))


def test_layers_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three are: each has its buffers and its origin, and the one function its first user's name."""
    written = []
    build = kernel.Generator.kernel

    def counted(generator: kernel.Generator) -> object:
        written.append(generator.body.name)
        return build(generator)

    monkeypatch.setattr(kernel.Generator, "kernel", counted)
    found = generate([layer(0), layer(1), layer(2, "sin")])
    assert written == ["layer_0", "layer_2"]
    assert [one.buffers for one in found] == [("x0", "y0"), ("x1", "y1"), ("x2", "y2")]
    assert [one.meta["origins"] for one in found] == [["exp_0"], ["exp_1"], ["exp_2"]]
    assert [one.name for one in found] == ["triton_poi_layer_0", "triton_poi_layer_0", "triton_poi_layer_2"]
    assert "# line 0" in found[1].source and "# line 2" in found[2].source


def test_the_text_of_another_body_has_its_name() -> None:
    """And its position, where it is asked for by itself."""
    first, second = kernel.kernel_text(layer(0)), kernel.kernel_text(evolve(layer(0), name="other", stacks=("there",)))
    assert first.of(evolve(layer(0), name="other", stacks=("there",))) == second
    assert first.entry != second.entry
