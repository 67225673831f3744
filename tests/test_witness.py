"""The witness notices a stage that does nothing: what every other test relies on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
import flambeau.stack
import flambeau_autograd.pipeline
from flambeau_capture.frame import Skip
from flambeau_capture.regions import _Callback

from .comparison import assert_same, assert_same_gradients
from .witness import Witness, verdict

ANY = SimpleNamespace(iter_markers=lambda name: [], get_closest_marker=lambda name: None)


def _marked(**marks: Any) -> Any:
    return SimpleNamespace(
        iter_markers=lambda name: [marks[name]] if name in marks else [], get_closest_marker=lambda name: None
    )


def _run(backend: str = "inductor", factor: float = 2.0) -> None:
    """Each factor is a graph of its own in the cache."""
    compiled = flambeau.compile(lambda x: torch.tanh(x) * factor, backend=backend)
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    assert_same(compiled(x), torch.tanh(x) * factor)


def test_a_compiled_graph_is_no_fault(witness: Witness) -> None:
    """One graph, nothing in eager."""
    _run()
    assert (witness.graphs, witness.in_eager, verdict(witness, ANY)) == (1, [], [])


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.falls_back("out of order")
def test_a_refusal_is_noticed(backend: str, witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd that refuses every graph."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise flambeau_autograd.UnsupportedGraph("out of order")

    monkeypatch.setattr(flambeau_autograd.pipeline, "build_joint", refuse)
    _run(backend, 2.5)
    assert verdict(witness, ANY) == [f"ran in eager: {witness.in_eager[0]}"]


@pytest.mark.falls_back("as it is")
def test_a_backend_that_hands_the_graph_back_is_noticed(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reason, and though nothing is logged."""
    monkeypatch.setattr(flambeau.stack, "_compile", lambda gm, *rest: gm.forward)
    _run()
    assert len(verdict(witness, ANY)) == 1


@pytest.mark.compiles(graphs=0)
def test_a_capture_that_skips_every_frame_is_noticed(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The region asked and got nothing."""
    monkeypatch.setattr(_Callback, "__call__", lambda self, info: Skip())
    _run()
    assert verdict(witness, ANY) == ["a region asked 1 times and got no graph"]


@pytest.mark.compiles(graphs=0)
def test_a_region_that_is_never_asked_is_noticed(witness: Witness) -> None:
    """As if the frame hook were dead."""
    flambeau.compile(lambda x: x + 1)
    assert len(verdict(witness, ANY)) == 1


def test_markers_are_held_both_ways(witness: Witness) -> None:
    """A fallback that a test declares must happen, and graphs are counted."""
    _run()
    falls = _marked(falls_back=SimpleNamespace(args=("a reason",)))
    assert verdict(witness, falls) == ["nothing ran in eager for: a reason"]
    wrong = _marked(compiles=SimpleNamespace(kwargs={"graphs": 2}))
    assert verdict(witness, wrong) == ["1 graphs were compiled, the test says 2"]


X = torch.arange(6.0).view(2, 3)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (X.t().contiguous().t(), X),
        (X.clone().requires_grad_(), X),
        (X.double(), X),
        ((X, X.clone()), (X, X)),
        ((X, X), (X, X.view(2, 3))),
        ((X, X.clone()), (X, X[0:2])),
        ([X], (X,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        (torch.nn.Parameter(X, requires_grad=False), X),
        (X + 1e-3, X),
    ],
)
def test_what_assert_same_tells_apart(ours: Any, theirs: Any) -> None:
    """Each pair differs in one thing, and each equals itself."""
    assert_same(theirs, theirs)
    with pytest.raises(AssertionError):
        assert_same(ours, theirs)


def test_results_that_are_inputs_or_share_their_memory() -> None:
    """Sharing is compared across results and inputs."""
    x, y = X.clone(), X.clone()
    assert_same(x, y, inputs=([x], [y]))
    for ours in (x.clone(), x.view(2, 3)):
        with pytest.raises(AssertionError):
            assert_same(ours, y, inputs=([x], [y]))


def test_a_small_gradient_is_not_noise() -> None:
    """A gradient a million times smaller than the others is compared as strictly; only float64 excuses a difference."""
    large, small = torch.ones(3), torch.full((3,), 1e-6)
    theirs: dict[str, Tensor | None] = {"large": large, "small": small}
    assert_same_gradients({"large": large, "small": small * (1 + 1e-6)}, theirs)
    with pytest.raises(AssertionError, match="small"):
        assert_same_gradients({"large": large, "small": small * 1.01}, theirs)
    with pytest.raises(AssertionError, match="small"):
        assert_same_gradients({"large": large, "small": small * 1.01}, theirs, lambda: theirs)
    noise = small * torch.tensor([1.0, -1.0, 1.0])
    exact: dict[str, Tensor | None] = {"large": large.double(), "small": torch.zeros(3).double()}
    assert_same_gradients({"large": large, "small": noise}, theirs, lambda: exact)
