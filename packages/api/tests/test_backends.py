"""The backend registry and the errors around user backends."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import flambeau
from flambeau import backends
from flambeau.errors import BackendLookupError, DuplicateBackend, UnknownName


def test_built_in_names() -> None:
    """Debug backends are hidden unless asked for."""
    assert "inductor" in backends.list_backends()
    assert "eager" not in backends.list_backends()
    assert {"eager", "aot_eager", "noop", "inductor"} <= set(backends.list_backends(exclude_tags=None))


def test_register_as_decorator_and_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered name resolves to the function; registering another under it is refused."""
    monkeypatch.setattr(backends, "_REGISTRY", dict(backends._REGISTRY))

    @backends.register_backend(name="mine", tags=("experimental",))
    def mine(gm: Any, inputs: Any) -> Any:
        return gm.forward

    assert backends.lookup_backend("mine") is mine
    assert "mine" not in backends.list_backends()
    with pytest.raises(DuplicateBackend):
        backends.register_backend(lambda gm, inputs: gm, name="mine")


def test_unknown_backend_lists_names() -> None:
    """The error says what exists and the nearest name."""
    with pytest.raises(UnknownName, match="(?s)aot_eager.*did you mean 'inductor'"):
        backends.lookup_backend("inductr")


def test_what_is_no_backend() -> None:
    """Neither a name nor a callable."""
    with pytest.raises(BackendLookupError, match="takes a name or a callable"):
        backends.lookup_backend(3)  # type: ignore[arg-type]


def test_the_code_of_a_graph_is_made_for_those_who_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default backend reads nodes; any other may run the graph, or look at the names that its code takes."""
    made: list[Any] = []
    signatures: list[list[str]] = []
    real = torch.fx.GraphModule.recompile
    monkeypatch.setattr(torch.fx.GraphModule, "recompile", lambda gm: made.append(gm) or real(gm))

    def backend(gm: Any, inputs: Any) -> Any:
        signatures.append(list(inspect.signature(gm.forward).parameters))
        return gm.forward

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.sin() * y).sum()

    x, y = torch.randn(4, requires_grad=True), torch.randn(4)
    compiled = flambeau.compile(program, fullgraph=True, options={"force_disable_caches": True})
    torch.testing.assert_close(compiled(x, y), program(x, y))
    assert not made
    torch.testing.assert_close(flambeau.compile(program, backend=backend)(x, y), program(x, y))
    assert len(made) == 1 and signatures == [["in_l_x", "in_l_y"]]
    # A second derivative replays the graph, whose code is made then.
    (first,) = torch.autograd.grad(compiled(x, y), x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], -x.detach().sin() * y)
    assert len(made) == 2


@pytest.mark.parametrize("backend", ["eager", "noop", lambda gm, inputs: gm.forward, lambda gm, inputs: gm])
@pytest.mark.parametrize("name", ["norm", "abs", "roll", "relu"])
def test_a_graph_in_eager_calls_what_was_captured(monkeypatch: pytest.MonkeyPatch, name: str, backend: Any) -> None:
    """Not what the program has put under the name of a function that its own replacement calls."""
    owner = {"roll": torch, "relu": torch.nn.functional}.get(name, torch.Tensor)
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: original(*args) * 2)
    arguments = (1,) if name == "roll" else ()
    x = torch.tensor([3.0, -4.0])
    assert torch.equal(
        flambeau.compile(lambda x: getattr(owner, name)(x, *arguments), backend=backend)(x), original(x, *arguments) * 2
    )
