"""Control flow, higher-order and custom operators inside compiled functions: one graph, and eager's results."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import flambeau
from flambeau import compiler

from .rows import calls

_NUMBERS = itertools.count()


def _same(function, *inputs: torch.Tensor) -> None:
    """One graph whose results and gradients are eager's."""
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    again = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    expected, found = function(*given), flambeau.compile(function, fullgraph=True)(*again)
    torch.testing.assert_close(found, expected)
    if expected.requires_grad:
        expected.sum().backward()
        found.sum().backward()
        torch.testing.assert_close([t.grad for t in again], [t.grad for t in given])


@calls("entry_points", "cond")
def test_cond() -> None:
    """A branch that data take, both ways."""

    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    _same(f, torch.ones(4))
    _same(f, -torch.ones(4))


@calls("entry_points", "while_loop")
def test_while_loop() -> None:
    """A loop whose rounds data decide."""
    from torch._higher_order_ops.while_loop import while_loop

    def f(n, x):
        return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2), (n, x))[1]

    n, x = torch.tensor(5), torch.ones(3)
    with torch.no_grad():
        assert torch.equal(flambeau.compile(f, fullgraph=True)(n, x), torch.full((3,), 32.0))


@calls("entry_points", "scan", "associative_scan", "map")
def test_scans_and_map() -> None:
    """Over the first axis: with a carried state, by an associative operation, and row by row."""
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.map import map as map_rows
    from torch._higher_order_ops.scan import scan

    x = torch.randn(6, 3)
    with torch.no_grad():
        carried = flambeau.compile(
            lambda x: scan(lambda c, row: (c + row, (c + row).clone()), x[0] * 0, x)[1], fullgraph=True
        )(x)
        torch.testing.assert_close(carried, x.cumsum(0))
        joined = flambeau.compile(
            lambda x: associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic"), fullgraph=True
        )(x)
        torch.testing.assert_close(joined, x.cumsum(0))
        rows = flambeau.compile(lambda x, y: map_rows(lambda row, y: row.sin() + y, x, y), fullgraph=True)(x, x[0])
        torch.testing.assert_close(rows, x.sin() + x[0])


@calls("entry_points", "flex_attention")
def test_flex_attention() -> None:
    """A causal mask as a function."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    with torch.no_grad():
        found = flambeau.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=mask), fullgraph=True)(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@calls("entry_points", "invoke_subgraph")
@calls("compiler", "nested_compile_region")
def test_regions_that_are_alike() -> None:
    """A marked body that is called several times is compiled once."""

    @compiler.nested_compile_region
    def block(x):
        return (torch.sigmoid(x) * x).sin() + 1

    def f(x):
        return block(block(block(x)))

    x = torch.randn(8)
    found = flambeau.explain(f)(x)
    torch.testing.assert_close(found.result, f(x))
    assert found.repeats, "compiled three times"


@calls("entry_points", "checkpoint")
def test_checkpoint() -> None:
    """What is checkpointed is computed again; gradients and random numbers are eager's."""
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.5))

    def f(x):
        return checkpoint(layer, x, use_reentrant=False)

    x = torch.randn(4, 8)
    torch.manual_seed(0)
    expected = f(x.requires_grad_())
    (want,) = torch.autograd.grad(expected.sum(), x)
    torch.manual_seed(0)
    found = flambeau.compile(f, fullgraph=True)(x)
    (got,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close((found, got), (expected, want))


@calls("entry_points", "custom_op", "register_fake", "register_autograd", "opcheck")
def test_custom_ops() -> None:
    """An operator of the user's with its shapes and gradients: one node, called with real tensors."""
    name = f"surface::scaled_{next(_NUMBERS)}"
    seen: list[type] = []

    @torch.library.custom_op(name, mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        seen.append(type(x))
        return x * by

    @scaled.register_fake
    def _(x, by):
        return torch.empty_like(x)

    scaled.register_autograd(
        lambda ctx, grad: (grad * ctx.by, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1])
    )
    torch.library.opcheck(scaled, (torch.randn(3, requires_grad=True), 2.0))
    seen.clear()
    _same(lambda x: scaled(x.sin(), 3.0) + 1, torch.randn(5))
    assert len(seen) == 2 and set(seen) == {torch.Tensor}


@calls("entry_points", "triton_op", "wrap_triton")
def test_triton_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator of Triton kernels: one node, whose fake comes to the launches, with its gradients and what it writes; a launch outside of one runs as it is."""
    triton = pytest.importorskip("triton")
    tl = triton.language
    number = next(_NUMBERS)

    def add_scaled(x, y, out, n, by, block: tl.constexpr):
        where = tl.program_id(0) * block + tl.arange(0, block)
        sums = tl.load(x + where, where < n) + by * tl.load(y + where, where < n)
        tl.store(out + where, sums, where < n)

    kernel = triton.jit(add_scaled)

    @torch.library.triton_op(f"surface::add_scaled_{number}", mutates_args=())
    def added(x: torch.Tensor, y: torch.Tensor, by: float) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[lambda meta: (triton.cdiv(out.numel(), meta["block"]),)](
            x, y, out, out.numel(), by, 16
        )
        return out

    @torch.library.triton_op(f"surface::add_into_{number}", mutates_args=("out",))
    def add_into(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
        torch.library.wrap_triton(kernel)[(1,)](x, y, out, out.numel(), 1.0, 16)

    seen: list[type] = []

    @added.register_kernel("cpu")  # no GPU here: what runs is not the kernel
    def _(x, y, by):
        seen.append(type(x))
        return x + y * by

    @add_into.register_kernel("cpu")
    def _(x, y, out):
        out.copy_(x + y)

    added.register_autograd(
        lambda ctx, grad: (grad, grad * ctx.by, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[2]),
    )

    def filled(x):
        out = torch.zeros_like(x)
        add_into(x, x, out)
        return out * 2

    _same(lambda x: added(x.sin(), x, 3.0) + 1, torch.randn(40))
    assert len(seen) == 2 and set(seen) == {torch.Tensor}
    with torch.no_grad():
        for n in (5, 6):
            assert torch.equal(
                flambeau.compile(filled, fullgraph=True, dynamic=n == 6)(torch.ones(n)), torch.full((n,), 4.0)
            )

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    interpreted = triton.jit(add_scaled)
    graphs: list[torch.fx.GraphModule] = []

    def launched(x):
        out = torch.empty_like(x)
        torch.library.wrap_triton(interpreted)[(3,)](x.sin(), x, out, 40, 2.0, 16)
        interpreted[(3,)](out, x, out, 40, 1.0, 16)
        return out * 2

    x = torch.randn(40)
    compiled = flambeau.compile(launched, backend=lambda graph, inputs: (graphs.append(graph), graph.forward)[1])
    torch.testing.assert_close(compiled(x), launched(x))
    assert len(graphs) == 2
