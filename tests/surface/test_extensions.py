"""What a program adds to the compiler: lowerings, decompositions, patterns. Each is seen in what is compiled, and gone when it is taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau import inductor
from flambeau.errors import InvalidOption
from flambeau.records import ProgramRecord
from tests.comparison import assert_same

from .rows import calls

aten = torch.ops.aten


@torch.library.custom_op("surface_extensions::swapped", mutates_args=())
def swapped(x: Tensor, scale: float) -> Tensor:
    """Its columns the other way round, scaled."""
    return x.flip(-1) * scale


@swapped.register_fake
def _(x: Tensor, scale: float) -> Tensor:
    return torch.empty_like(x)


def _keep_scale(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.scale = inputs[1]


swapped.register_autograd(lambda ctx, gradient: (swapped(gradient, ctx.scale), None), setup_context=_keep_scale)


def around(x: Tensor) -> Tensor:
    return torch.sin(swapped(x + 1, 2.0)) * 3


def reversed_loops(loops: Any, x: Any, scale: float) -> Any:
    """Reads its operand from the end of each row."""
    factor = loops.constant(scale, x.dtype)

    def element(index: Any) -> Any:
        return loops.op("mul", x.at((*index[:-1], x.sizes[-1] - 1 - index[-1])), factor)

    return loops.tensor(x.sizes, element, dtype=x.dtype, device=x.device)


LIBRARY = {"fallback_by_default": True}
"""No kernels of our own: quick, and every call shows."""


def program(
    function: Callable[..., Any], *inputs: Any, like: Callable[..., Any] | None = None, **options: Any
) -> ProgramRecord:
    """The forward that is compiled, after its result was compared with eager's, or with those of the function that it is to be like."""
    explanation = flambeau.explain(function, measure=False, options=options)(*inputs)
    assert_same(explanation.result, (like or function)(*inputs), rtol=1e-5, atol=1e-6)
    return explanation.programs[0]


CALLED = {"surface_extensions::swapped": 1}


@calls("backends", "register_lowering")
def test_an_operator_becomes_loops() -> None:
    """In one kernel with what surrounds it, forward and backward; for sizes that change too."""
    x = torch.randn(6, 5)
    assert program(around, x).library_calls == CALLED
    with inductor.register_lowering(swapped, reversed_loops):
        found = program(around, x)
        assert (found.kernels, found.library_calls) == (1, {})
        x.requires_grad_()
        compiled = flambeau.compile(around, dynamic=True)
        (ours,) = torch.autograd.grad(compiled(x).sum(), x)
        (eagers,) = torch.autograd.grad(around(x).sum(), x)
        assert_same(ours, eagers, rtol=1e-5, atol=1e-6)
        assert_same(compiled(torch.ones(3, 4)), around(torch.ones(3, 4)), rtol=1e-5, atol=1e-6)
    assert program(around, x.detach()).library_calls == CALLED


def test_a_lowering_of_torchs_own_operator() -> None:
    """It goes before ours, or leaves a call to the library; reductions and other operators' lowerings are parts of it."""

    @(registered := inductor.register_lowering([aten.logsumexp, aten.cosh]))
    def rule(loops: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        if dims is None:
            return loops.decline("of the test")
        total = loops.reduce(loops.call(aten.exp.default, x), dims, "sum", keepdim=keepdim)
        return loops.elementwise(lambda a: loops.op("add", loops.op("log", a), loops.constant(1.0, a.dtype)), total)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.logsumexp(x, 1), torch.cosh(x)

    x = torch.randn(3, 4)
    with registered:
        assert rule.__name__ == "rule"  # what was decorated stays what it is
        found = program(function, x, like=lambda x: (torch.logsumexp(x, 1) + 1, torch.cosh(x)))
        assert list(found.library_calls) == ["aten::cosh"]
    registered.remove()  # a second time does nothing
    assert not program(function, x).library_calls


@calls("backends", "register_decomposition")
def test_an_operator_is_taken_apart() -> None:
    """Below autograd: its gradient is the operator's own, whose call is taken apart as well."""

    @(taken := inductor.register_decomposition(swapped))
    def formula(x: Tensor, scale: float) -> Tensor:
        return torch.flip(x, [-1]) * scale

    with taken:
        x = torch.randn(6, 5, requires_grad=True)
        explanation = flambeau.explain(around, measure=False, options=LIBRARY)(x)
        explanation.result.sum().backward()
        called = [found.library_calls for found in explanation.programs]
        assert all("aten::flip" in calls and not CALLED.keys() & calls.keys() for calls in called)
        (eagers,) = torch.autograd.grad(around(x).sum(), x)
        assert_same(x.grad, eagers, rtol=1e-5, atol=1e-6)
    assert CALLED.keys() <= program(around, x.detach(), **LIBRARY).library_calls.keys()


def normalised(x: Tensor, rest: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + rest
    return total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-5) * weight, total


@torch.library.custom_op("surface_extensions::norm", mutates_args=())
def norm(x: Tensor, rest: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A kernel of the user's for both at once."""
    first, second = normalised(x, rest, weight)
    return first, second


@norm.register_fake
def _(x: Tensor, rest: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@calls("backends", "register_replacement")
def test_what_a_function_computes_is_called() -> None:
    """With two results, wherever it stands; not where a number differs, or where a value in its midst is needed."""

    def twice(x: Tensor, rest: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        first, rest = normalised(x * 2, rest, weight)
        second, rest = normalised(torch.relu(first), rest, weight)
        return second, rest

    def other_number(x: Tensor, rest: Tensor, weight: Tensor) -> Tensor:
        total = x + rest
        return total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-6) * weight

    def reads_the_midst(x: Tensor, rest: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + rest
        root = torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-5)
        return total * root * weight, root

    given = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8)
    example = torch.randn(2, 6), torch.randn(2, 6), torch.randn(6)
    with inductor.register_replacement(normalised, norm, example):
        assert program(twice, *given, **LIBRARY).library_calls["surface_extensions::norm"] == 2
        for other in (other_number, reads_the_midst):
            assert "surface_extensions::norm" not in program(other, *given, **LIBRARY).library_calls
        compiled = flambeau.compile(twice, dynamic=True, options=LIBRARY)
        for size in (4, 7):
            given = torch.randn(size, 8), torch.randn(size, 8), torch.randn(8)
            assert_same(compiled(*given), twice(*given), rtol=1e-5, atol=1e-6)
    assert "surface_extensions::norm" not in program(twice, *given, **LIBRARY).library_calls


def test_a_check_refuses_replacements() -> None:
    """It sees the operands by the names of the parameters."""

    def search(left: Tensor, right: Tensor) -> Tensor:
        return torch.cos(left) + torch.sin(right)

    def replacement(left: Tensor, right: Tensor) -> Tensor:
        return torch.tanh(left - right)

    example = [torch.randn(2, 2), torch.randn(2, 2)]
    with inductor.register_replacement(
        search, replacement, example, extra_check=lambda given: given["right"].shape[0] == 3
    ):
        program(search, torch.randn(3, 5), torch.randn(3, 5), like=replacement, **LIBRARY)
        program(search, torch.randn(5, 3), torch.randn(5, 3), **LIBRARY)
        program(search, torch.randn(5, 3), torch.randn(3), like=replacement, **LIBRARY)


@calls("backends", "register_graph_pattern")
def test_a_handler_replaces_calls() -> None:
    pattern = inductor.call(
        aten.mul.Tensor, inductor.call(aten.sin.default, inductor.Operand("x")), inductor.Constant("factor")
    )

    @(cosines := inductor.register_graph_pattern(pattern, extra_check=lambda match: match["factor"] < 4))
    def cosine(match: Any, edit: Any) -> Any:
        return edit.call(aten.cos.default, edit.call(aten.mul.Tensor, match["x"], match["factor"]))

    x = torch.randn(3, 4)
    with cosines:
        program(lambda x: torch.sin(x) * 3 + 1, x, like=lambda x: torch.cos(x * 3) + 1, **LIBRARY)
        program(lambda x: torch.sin(x) * 5 + 1, x, **LIBRARY)
    program(lambda x: torch.sin(x) * 3 + 1, x, **LIBRARY)


def test_what_is_registered_is_in_the_key() -> None:
    """By its uuid; without one a graph is not kept."""

    def function(x: Tensor) -> Tensor:
        return torch.sin(x) * 47

    def is_cached(register: Callable[..., Any], uuid: str | None) -> bool:
        with register(uuid):
            return bool(flambeau.explain(function, measure=False, options=LIBRARY)(torch.ones(3)).programs[0].cached)

    kinds: list[Callable[..., Any]] = [
        lambda uuid: inductor.register_lowering(swapped, reversed_loops, uuid=uuid),
        lambda uuid: inductor.register_decomposition(swapped, lambda x, scale: x, uuid=uuid),
        lambda uuid: inductor.register_replacement(
            torch.nn.functional.relu6, torch.nn.functional.silu, [torch.ones(3)], uuid=uuid
        ),
        lambda uuid: inductor.register_graph_pattern(
            inductor.call(aten.tan.default, inductor.Operand("x")), lambda match, edit: None, name="tan", uuid=uuid
        ),
    ]
    for register in kinds:
        assert [is_cached(register, uuid) for uuid in (None, None, "1", "1", "2")] == [False, False, False, True, False]


def test_what_is_registered_while_a_graph_is_compiled_is_not_in_its_key() -> None:
    """By another thread, say: the graph is not kept, as it may have seen either state."""
    made: list[Any] = []

    class Registers:
        def __call__(self, graph: Any) -> None:
            made.append(inductor.register_lowering(swapped, reversed_loops, uuid="meanwhile"))

        def uuid(self) -> str:
            return "registers"

    def is_cached() -> bool:
        options = {**LIBRARY, "post_grad_custom_pre_pass": Registers()}
        explanation = flambeau.explain(lambda x: torch.sin(x) * 48, measure=False, options=options)(torch.ones(3))
        for registration in made:
            registration.remove()
        return bool(explanation.programs[0].cached)

    assert not is_cached() and made
    assert not is_cached()


@pytest.mark.compiles(graphs=0)
@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda: inductor.register_lowering(torch.sin, max), "no operator"),
        (lambda: inductor.register_lowering(aten.add_.Tensor, max), "writes to its arguments"),
        (lambda: inductor.register_lowering(aten.view, max), "returns a view"),
        (lambda: inductor.register_lowering(aten.rand, max), "random"),
        (lambda: inductor.register_lowering([], max), "no operator is named"),
        (lambda: inductor.register_decomposition(swapped, 3), "a function is registered"),
        (lambda: inductor.register_decomposition(swapped, max, uuid=3), "uuid"),
        (lambda: inductor.register_replacement(torch.sin, torch.cos, torch.ones(3)), "a list of tensors"),
        (lambda: inductor.register_replacement(lambda x: x.sin(), lambda x, y: x, [torch.ones(3)]), "example_inputs"),
        (
            lambda: inductor.register_replacement(lambda x: x.sin(), lambda x: x.sum(), [torch.ones(3)]),
            "search_fn gives",
        ),
        (lambda: inductor.register_replacement(lambda x: x, lambda x: x.sin(), [torch.ones(3)]), "returns an operand"),
        (lambda: inductor.register_replacement(lambda x: x.add_(1), lambda x: x.sin(), [torch.ones(3)]), "writes"),
        (
            lambda: inductor.register_replacement(lambda x: x.nothing(), lambda x: x.sin(), [torch.ones(3)]),
            "cannot be traced",
        ),
        (lambda: inductor.register_graph_pattern(aten.sin, max), "a pattern is a call"),
    ],
)
def test_what_cannot_be_registered(register: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        register()


def test_two_of_a_name_are_refused() -> None:
    with inductor.register_lowering(swapped, reversed_loops):
        with pytest.raises(InvalidOption, match=r"there is a lowering surface_extensions\.swapped\.default already"):
            inductor.register_lowering(swapped, reversed_loops)
        with pytest.raises(InvalidOption, match="wants to meet it whole"):
            inductor.register_decomposition(swapped, lambda x, scale: x)
    assert program(around, torch.randn(2, 3)).library_calls == CALLED


@pytest.mark.compiles(graphs=0)
@pytest.mark.parametrize(
    ("register", "words"),
    [
        (lambda: inductor.register_lowering(aten.sin, lambda loops, x: 3), "gives int"),
        (lambda: inductor.register_lowering(aten.sin, lambda loops, x: 1 / 0), "failed: ZeroDivisionError"),
        (
            lambda: inductor.register_lowering(
                aten.sin,
                lambda loops, x: loops.tensor([x.sizes[0] + 1], x.at, dtype=x.dtype, device=x.device),
            ),
            r"gives sizes \[4\]; its fake has \[3\]",
        ),
        (lambda: inductor.register_lowering(aten.sin, lambda loops, x: loops.reduce(x, 0, "sum")), "of 0 dimensions"),
        (
            lambda: inductor.register_lowering(aten.sin, lambda loops, x: loops.reduce(x, 0, "none")),
            "no reduction is called",
        ),
        (lambda: inductor.register_decomposition(aten.sin, lambda x: 1 / 0), "failed: ZeroDivisionError"),
        (lambda: inductor.register_decomposition(aten.sin, lambda x: x.double()), "gives torch.float64"),
        (
            lambda: inductor.register_graph_pattern(
                inductor.call(aten.sin.default, inductor.Operand("x")), lambda match, edit: match["y"], name="own"
            ),
            "own failed: KeyError",
        ),
        (
            lambda: inductor.register_graph_pattern(
                inductor.call(aten.sin.default, inductor.Operand("x")),
                lambda match, edit: edit.call(aten.sum.default, match["x"]),
                name="own",
            ),
            r"own gives torch.float32 \[\]",
        ),
    ],
)
def test_what_fails_while_it_is_used_is_told(register: Callable[[], Any], words: str) -> None:
    with register(), pytest.raises(InvalidOption, match=words):
        flambeau.compile(lambda x: torch.sin(x) + 1)(torch.ones(3))


def test_a_lowering_of_other_sizes_is_told_where_sizes_are_open() -> None:
    def longer(loops: Any, x: Any) -> Any:
        return loops.tensor([x.sizes[0] + 1], x.at, dtype=x.dtype, device=x.device)

    with inductor.register_lowering(aten.sin, longer), pytest.raises(InvalidOption, match=r"gives sizes \[4\]"):
        flambeau.compile(lambda x: torch.sin(x) + 1, dynamic=True)(torch.ones(3))
