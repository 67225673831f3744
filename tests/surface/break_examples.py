"""A small program for each reason for which a graph ends, and where there is one, the same program in one graph.

In: nothing. Out: `EXAMPLES`, code -> `Example`. `tools/generate_docs.py` shows them on `docs/errors/graph-breaks.md`; `tests/surface/test_break_pages.py` runs them: a
program that no longer breaks for its reason, or gives something else than eager, fails there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import Factory, frozen

from flambeau import compiler


@frozen
class Example:
    """A program that breaks.

    Attributes:
        program: it.
        inputs: makes what it is called with.
        instead: a program that gives the same in one graph, where there is one.
        settings: of `flambeau.compiler.config`.
    """

    program: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    instead: Callable[..., Any] | None = None
    settings: Mapping[str, Any] = Factory(dict)


try:
    import triton
    from triton import language as tl
except ImportError:  # of which there is none for some machines
    doubled: Any = None
else:

    @triton.jit
    def doubled(x, out, n, block: tl.constexpr):
        where = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(out + where, tl.load(x + where, where < n) * 2, where < n)


EXAMPLES: dict[str, Example] = {}


def of(
    code: str,
    inputs: Callable[[], tuple[Any, ...]] = lambda: (torch.arange(4.0),),
    instead: Any = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The example of a code, which has one."""

    def register(program: Callable[..., Any]) -> Callable[..., Any]:
        if code in EXAMPLES:
            raise ValueError(f"two examples for {code}")
        EXAMPLES[code] = Example(program, inputs, instead, settings)
        return program

    return register


def choose(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)


@of("data-dependent-branch", instead=choose)
def branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def scale(x):
    return x * x.max()


@of("data-dependent-value", instead=scale, capture_scalar_outputs=False)
def read(x):
    return x * float(x.max())


def masked(x):
    return torch.where(x > 1, x, 0).sum()


@of("dynamic-output-shape", instead=masked, capture_dynamic_output_shape_ops=False)
def select(x):
    return x[x > 1].sum()


def _unbacked() -> tuple[torch.Tensor, ...]:
    x, y = torch.arange(4.0), torch.ones(1)
    compiler.mark_unbacked(x, 0)
    compiler.mark_unbacked(y, 0)
    return x, y


@of("open-size", _unbacked)
def added(x, y):
    return x + y


@of("operator-error")
def refused(x):
    return x @ torch.ones(3, 3)


@of("uncaught-exception")
def raises(x):
    if x.shape[0] == 4:
        raise ValueError("four")
    return x


@of("unsupported-call")
def measured(x):
    return x + sys.getsizeof(x.shape)


@of("unsupported-attribute", lambda: (torch.arange(4.0, requires_grad=True),))
def history(x):
    y = x * 2
    return y + 1 if y.grad_fn.next_functions else y


@of("unsupported-store", lambda: (torch.arange(4.0, requires_grad=True),))
def stores(x):
    y = x * 2
    y.grad = torch.ones(4)
    return y + 1


@of("unsupported-operation", lambda: (torch.arange(4.0), slice(1), memoryview(b"ab")))
def compared(x, a, b):
    return x + (b == b)


class Options:
    factor = 2


@compiler.allow_in_graph
def scaled(x, options):
    return x * options.factor


@of("unsupported-argument", lambda: (torch.arange(4.0), Options()))
def gives_object(x, options):
    return scaled(x, options) + 1


def prints_after(x):
    return x * 2 + 1


@of("input-output", instead=prints_after)
def prints(x):
    y = x * 2
    print("doubled")
    return y + 1


@of("unsupported-tensor", lambda: (torch.eye(3).to_sparse(),))
def sparse(x):
    return torch.sparse.mm(x, x.to_dense()) + 1


def _computed() -> tuple[torch.Tensor, ...]:
    x = torch.arange(4.0, requires_grad=True)
    return x, (x * 2).sum()


@of("autograd-call", _computed)
def gradient(x, y):
    return torch.autograd.grad(y, x)[0] + 1


SEEN: list[int] = []


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        SEEN.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@of("autograd-function", lambda: (torch.arange(4.0, requires_grad=True),))
def applies(x):
    return Counts.apply(x) + 1


@of("control-flow-operator")
def cond(x):
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,))


@of("tensor-hook", lambda: (torch.arange(4.0, requires_grad=True),))
def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: SEEN.append(1))
    return y + 1


@of("numpy")
def arrays(x):
    import numpy

    return x + torch.from_numpy(numpy.unwrap(x.numpy()))


@of("external-mutation", lambda: (torch.arange(4.0),))
def resized(x):
    x.resize_(2)
    return x + 1


@of("user-requested")
def asked(x):
    y = x * 2
    compiler.graph_break("here")
    return y + 1


@of("skipped-frame")
def skipped(x):
    compiler.skip_frame("not this")
    return x + 1


@of("step-unsupported")
def stopped(x):
    y = x * 2
    compiler.step_unsupported("no further")
    return y + 1


@compiler.disable
def alone(x):
    return x * 3


@of("disabled-function")
def calls_disabled(x):
    return alone(x + 1) + 1


def _disallowed() -> tuple[torch.Tensor]:
    compiler.disallow_in_graph(torch.hypot)
    return (torch.arange(4.0),)


@of("disallowed-function", _disallowed)
def calls_disallowed(x):
    return torch.hypot(x, x) + 1


def deep(x, n):
    return x if n == 0 else deep(x + 1, n - 1)


@of("too-deep", inline_depth=8)
def recursion(x):
    return deep(x, 20)


@of("too-long", unroll_limit=100)
def rounds(x):
    for _ in range(1000):
        x = x + 1
    return x


@of("generator-function")
def awaits(x):
    async def later():
        return x + 1

    try:
        later().send(None)
    except StopIteration as stop:
        return stop.value


@of("triton-kernel")
def launches(x):
    out = torch.empty_like(x)
    doubled[(1,)](x, out, len(x), 16)
    return out


@of("unsupported-instruction")
def defines(x):
    class Local:
        value = 2

    return x * Local.value


@of("cannot-rebuild")
def keeps(x):
    found = (n * x for n in range(3))
    next(found)
    compiler.graph_break("between")
    return next(found)
