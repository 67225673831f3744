"""A compiled program that raises: eager's error where eager raises too, eager's result after one warning where it does not."""

from __future__ import annotations

import contextlib
import gc
import warnings
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import flambeau
import flambeau_runtime
from flambeau import stack
from flambeau.rescue import as_if_not_called
from tests.comparison import assert_same

#: These tests are about what runs in eager, and say for each program what must.
pytestmark = pytest.mark.judges_itself

X = torch.linspace(-2, 2, 12).reshape(3, 4)
#: A graph that comes from the disk is not compiled; kernels may come from there.
FRESH = {"fx_graph_cache": False}


def written_then_indexed(x: Tensor, i: Tensor) -> Tensor:
    x.add_(1)
    return x[i] * 2


WRONG: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "index": (lambda x, i: x[i] * 2, lambda: (X.clone(), torch.tensor([1, 9]))),
    "index, with gradient": (lambda x, i: x[i] * 2, lambda: (X.clone().requires_grad_(), torch.tensor([1, 9]))),
    "index, after a write": (written_then_indexed, lambda: (X.clone(), torch.tensor([1, 9]))),
    "index, after a write with a history": (
        written_then_indexed,
        lambda: (X.clone().requires_grad_() * 1, torch.tensor([1, 9])),
    ),
    "gather": (lambda x, i: x.exp().gather(0, i), lambda: (X.clone(), torch.full((1, 4), 7))),
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x) + 1, lambda: (X.clone(), torch.tensor([-1, 9]))),
    "nll_loss": (lambda x, i: torch.nn.functional.nll_loss(x, i), lambda: (X.clone(), torch.tensor([0, 9, 1]))),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", WRONG)
def test_the_error_is_eagers_with_the_users_line(name: str, backend: str) -> None:
    """Type and words are eager's, and a note says where; every time."""
    function, make = WRONG[name]
    with pytest.raises(Exception) as expected:
        function(*make())
    compiled = flambeau.compile(function, backend=backend)
    for _ in range(2):
        with pytest.raises(type(expected.value)) as caught:
            compiled(*make())
        assert str(caught.value) == str(expected.value)
        assert any(__file__ in note for note in caught.value.__notes__)
    assert len(compiled.trees(function.__code__)) == 1


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_modes_are_left_as_eager_leaves_them(backend: str, is_written: bool) -> None:
    """Eager, which is asked for its error, is inside of `no_grad` and autocast when it raises."""

    def program(x: Tensor, i: Tensor) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            if is_written:
                x.mul_(2)
            return x.gather(0, i) @ x.t()

    compiled = flambeau.compile(program, backend=backend)
    for i in (torch.zeros(3, 4, dtype=torch.int64), torch.full((1, 4), 7), torch.full((1, 4), 7)):
        for function in (program, compiled):
            with contextlib.suppress(RuntimeError):
                function(X.clone(), i)
            assert torch.is_grad_enabled()
            assert not torch.is_autocast_enabled("cpu")
            assert torch.autocast_increment_nesting() == 1
            torch.autocast_decrement_nesting()


WRITTEN: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "before": lambda x, y, i: x.add_(1)[i],
    "after": lambda x, y, i: x.add_(y[i].sum()),
    "between": lambda x, y, i: (x.mul_(2), y[i], y.zero_())[1],
    "through a view, drawn": lambda x, y, i: (x.t()[0].uniform_(), torch.rand(3)[i])[1],
    "a step of a loop": lambda x, y, i: [x.add_(1) for _ in range(3)][-1].index_select(0, i),
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_eager_wrote_before_its_error_is_written(name: str, gradient: bool) -> None:
    """Where the program writes last, as it does without kernels of its own."""
    found = []
    for function in (WRITTEN[name], flambeau.compile(WRITTEN[name], backend="aot_eager")):
        x, y = (X.clone().requires_grad_(gradient) * 1 for _ in range(2))
        torch.manual_seed(7)
        function(x, y, torch.tensor([1, 2]))
        with pytest.raises(IndexError):
            function(x, y, torch.tensor([1, 9]))
        found.append((x, y, torch.rand(2)))
    for expected, got in zip(*found, strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_repeated_call_draws_the_same_numbers(backend: str) -> None:
    """The generator is where eager leaves it: an error after a draw does not draw twice."""

    def drop_and_index(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.nn.functional.dropout(x, 0.5), torch.rand(3)[i]

    found = []
    for function in (drop_and_index, flambeau.compile(drop_and_index, backend=backend)):
        torch.manual_seed(7)
        kept = function(X.clone(), torch.tensor([1, 2]))
        with pytest.raises(IndexError):
            function(X.clone(), torch.tensor([1, 9]))
        found.append((*kept, torch.rand(2)))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("write", [lambda x: x.random_(3), lambda x: torch.nn.functional.dropout(x, 0.5, True, True)])
def test_a_write_that_autograd_refuses_draws_what_eager_draws(backend: str, write: Callable[[Tensor], Tensor]) -> None:
    """The operand is one of several views that one function gave, and such a view is not to be written: some calls draw before they find out."""
    found = []
    for function in (write, flambeau.compile(write, backend=backend)):
        torch.manual_seed(7)
        with pytest.raises(RuntimeError, match=r"Output 0 of Split.*returns multiple views") as caught:
            function((X.clone().requires_grad_() * 1).chunk(2)[0])
        assert "please report" not in "".join(getattr(caught.value, "__notes__", ()))
        found.append(torch.rand(2))
    assert torch.equal(*found)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_write_that_autograd_refuses_is_eagers_error(backend: str) -> None:
    """The view was taken without gradients: it has none itself, and may not get any."""

    def write(v: Tensor, w: Tensor) -> Tensor:
        return v.mul_(w)

    found = []
    for function in (write, flambeau.compile(write, backend=backend)):
        with torch.no_grad():
            view = X.clone()[1:]
        with pytest.raises(RuntimeError, match="no_grad mode") as caught:
            function(view, torch.ones(4, requires_grad=True))
        found.append((type(caught.value), str(caught.value)))
        assert "eager runs this graph" not in "".join(getattr(caught.value, "__notes__", ()))
        assert_same(view, X[1:])
    assert found[0] == found[1]


def _handled(x: Tensor, y: Tensor, i: Tensor, write: Callable[[Tensor], Any]) -> tuple[Tensor, Tensor]:
    write(x)
    drawn = torch.rand(3)
    try:
        v = y[i]
        y.add_(1)
    except IndexError:
        v = y * 3
    return v, (x.mul_(2) + y) * drawn[:, None]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("write", [lambda x: None, lambda x: x.add_(1), lambda x: x.t()[1:].uniform_()])
def test_a_handler_sees_what_a_graph_that_writes_raises(
    backend: str, history: bool, write: Callable[[Tensor], Any]
) -> None:
    """The frame starts anew in plain Python: what the graph had written and drawn is taken back. A graph that is refused is left to it at once."""
    found = []
    compiled = flambeau.compile(_handled, backend=backend)
    for function in (_handled, compiled):
        torch.manual_seed(7)
        for index in (2, 9):
            x, y = (X.clone().requires_grad_(history) for _ in range(2))
            results = function(x * 1, y * 1, torch.tensor([1, index]), write)
            if history:
                (results[0].sum() + (results[1] ** 2).sum()).backward()
            found.append((*results, x.grad, y.grad, torch.rand(2)))
    for expected, got in zip(found[0] + found[1], found[2] + found[3], strict=True):
        assert_same(got, expected)
    assert len(compiled.trees(_handled.__code__)) == 1


@pytest.mark.parametrize("kind", [IndexError, KeyboardInterrupt])
def test_what_was_written_before_an_error_is_taken_back(kind: type[BaseException]) -> None:
    """Of each input that the graph may write, whatever is raised; without an error the writes stay."""
    gm = fx.symbolic_trace(lambda x, y: x + y)
    for node in gm.graph.find_nodes(op="placeholder"):
        node.meta["val"] = X
    gm.meta["may_start_anew"] = True
    signature: Any = SimpleNamespace(draws=False, raises=True, mutations=[SimpleNamespace(index=0)])

    def compiled(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        if y.sum() > 0:
            raise kind
        return x

    call = as_if_not_called(gm, signature, compiled, in_order=False)
    wide = torch.zeros(*X.shape, 2)
    x = wide[..., 0]
    with pytest.raises(kind):
        call(x, torch.ones(2))
    assert torch.equal(wide, torch.zeros_like(wide))
    assert torch.equal(call(x, torch.zeros(2)), torch.ones_like(X))
    assert wide.sum() == X.numel()


def test_what_cannot_raise_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer's step has a handler of torch around it, and writes to all parameters."""
    monkeypatch.setattr("flambeau.rescue._memory", lambda tensor: pytest.fail("an input was copied"))
    found = []
    for compile_it in (lambda step: step, flambeau.compile):
        parameter = X.clone().requires_grad_()
        optimizer = torch.optim.SGD([parameter], lr=0.5, momentum=0.5)
        step = compile_it(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            (parameter**2).sum().backward()
            step()
        found.append(parameter.detach())
    assert_same(*found)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "eager"])
def test_a_frame_that_starts_anew_draws_once(backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        drawn = torch.rand(2)
        try:
            x[torch.tensor([9])]
        except IndexError:
            pass
        return drawn

    found = []
    for call in (function, flambeau.compile(function, backend=backend)):
        torch.manual_seed(7)
        found.append(torch.cat([call(X), torch.rand(1)]))
    assert torch.equal(*found)


def failing(monkeypatch: pytest.MonkeyPatch, error: type[BaseException] = ZeroDivisionError) -> list[int]:
    """Every program that is loaded raises; how often is counted."""
    calls: list[int] = []

    def load(*args: Any, **more: Any) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            calls.append(1)
            raise error("a prediction that failed")

        return run

    monkeypatch.setattr(flambeau_runtime, "load", load)
    return calls


@pytest.mark.parametrize("gradient", [False, True])
def test_the_call_is_repeated_where_eager_passes(gradient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With eager's result and gradient, after a warning that says what to send us."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "1")
    calls = failing(monkeypatch)
    x, same = (X.clone().requires_grad_(gradient) for _ in range(2))
    with pytest.warns(RuntimeWarning, match="repeated in eager: ZeroDivisionError(.|\n)*graph_code"):
        found = flambeau.compile(lambda x: x.exp() * 2, options=FRESH)(x)
    expected = same.exp() * 2
    assert_same(found, expected)
    assert calls == [1]
    if gradient:
        found.sum().backward()
        expected.sum().backward()
        assert_same(x.grad, same.grad)


@pytest.mark.parametrize("how", ["not suppressed", "fullgraph", "an input is written", "no memory"])
def test_it_is_not_repeated_where_that_may_not_be(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's own error then, or one of flambeau that it is the cause of, and nothing is computed twice."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0" if how == "not suppressed" else "1")
    error = MemoryError if how == "no memory" else ZeroDivisionError
    failing(monkeypatch, error)
    function = (lambda x: x.add_(1)) if how == "an input is written" else lambda x: x.exp() + 1
    compiled = flambeau.compile(function, options=FRESH, fullgraph=how == "fullgraph")
    x = X.clone()
    left = error if how == "no memory" else flambeau.FlambeauError
    with warnings.catch_warnings(), pytest.raises(left, match="a prediction that failed") as caught:
        warnings.simplefilter("error")
        compiled(x)
    assert isinstance(caught.value.__cause__ or caught.value, error)
    told = "".join(getattr(caught.value, "__notes__", ()))
    assert ("eager runs this graph without an error" in told) == (how != "no memory")
    assert_same(x, X)


def test_an_operator_whose_fake_lies_is_repeated_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure of ours: one warning, eager's results and gradients, and no graph with it is compiled from then on."""
    wrong = torch.library.custom_op("flambeau_tests::widened", mutates_args=())(_widened)
    wrong.register_fake(torch.empty_like)
    monkeypatch.setattr("flambeau.rescue._mispredicted", set())

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return wrong(x.detach()), x.exp() * 2

    compiled = flambeau.compile(function, options=FRESH)
    with pytest.warns(
        RuntimeWarning, match="flambeau_tests::widened returned float64.*correct the operator's fake"
    ) as told:
        for _ in range(3):
            x, same = (X.clone().requires_grad_() for _ in range(2))
            found, expected = compiled(x), function(same)
            assert_same(found, expected)
            found[1].sum().backward()
            expected[1].sum().backward()
            assert_same(x.grad, same.grad)
    assert len(told) == 1
    later = flambeau.explain(lambda x: wrong(x) + 1)(X)
    assert "flambeau_tests::widened returns something else than its fake says" in str(later)
    with pytest.raises(flambeau_runtime.PredictionError, match=r"FB408.*widened returned float64"):
        monkeypatch.setattr("flambeau.rescue._mispredicted", set())
        flambeau.compile(function, options=FRESH, fullgraph=True)(X)


def _widened(x: Tensor) -> Tensor:
    return x.double() * 2


def test_calls_that_succeed_never_come_near() -> None:
    """The rescue hangs on the graph's caller and is asked after an error only."""
    asked: list[Any] = []
    made = stack.rescue

    def counted(*args: Any, **more: Any) -> Any:
        answer = made(*args, **more)
        return lambda *given: asked.append(given) or answer(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack, "rescue", counted)
        compiled = flambeau.compile(lambda x, i: x[i] + 5)
        compiled(X, torch.tensor([0]))
    assert asked == []
    with pytest.raises(IndexError):
        compiled(X, torch.tensor([8]))
    assert len(asked) == 1


def test_an_error_keeps_no_frame() -> None:
    """What the program's frame held is freed with the error, as in eager, and not when the collector comes: a generator ends its `with`."""
    held: list[weakref.ref[Any]] = []

    def function(x: Tensor, i: Tensor) -> Tensor:
        kept = x * 2
        held.append(weakref.ref(kept))
        return kept[i] * x.sum()

    compiled = flambeau.compile(function)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            with pytest.raises(IndexError):
                compiled(X.clone(), torch.tensor([1, 9]))
            assert held.pop()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("native", ["1", "0"])
def test_an_error_of_a_backward_keeps_no_frame(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the gradients that came in."""
    made = stack.load_program

    def fail(*args: Any) -> Any:
        raise ArithmeticError("seeded")

    def load(artifact: Any, constants: Any, kind: str, *more: Any) -> Any:
        return fail if kind == "backward" else made(artifact, constants, kind, *more)

    monkeypatch.setattr(stack, "load_program", load)
    monkeypatch.setenv("FLAMBEAU_AUTOGRAD_NATIVE", native)
    compiled = flambeau.compile(lambda x: x.exp() * 2, options=FRESH)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            result, tangent = compiled(X.clone().requires_grad_()), torch.ones(X.shape)
            held = weakref.ref(tangent)
            with pytest.raises(flambeau.FlambeauError, match="ArithmeticError: seeded"):
                result.backward(tangent)
            del result, tangent
            assert held() is None
    finally:
        gc.enable()
