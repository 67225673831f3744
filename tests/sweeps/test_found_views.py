"""Views among results, from tables of short chains: whose views they are, who counts writes to them, what inference mode and lazy conjugation make of them."""

from __future__ import annotations

import pytest

from .examine import check

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "inductor"])


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "body",
    ["return x[0], x * 2", "v = x[0]; return v[1:], v, x.expand(2, 3, 3)", "return x.detach()[0], x.view(-1)[1:]"],
)
def test_a_view_taken_in_inference_mode(body: str, inside: bool) -> None:
    """Of a tensor that is not of that mode: it says that it requires grad, and may not be written outside."""
    within, called = ("    with torch.inference_mode():\n", "nullcontext") if inside else ("", "torch.inference_mode")
    lines = "\n".join(f"    {'    ' if inside else ''}{line}" for line in body.split("; "))
    check(
        f"""
from contextlib import nullcontext

def f(x):
{within}{lines}

def drive(compile, call, show, backward):
    g = compile(f)
    for x in (whole((3, 3)), whole((3, 3)).requires_grad_(), whole((3, 3)).requires_grad_() * 1):
        with {called}():
            r = call(g, x)
        if r is not None:
            call(lambda: r[0].mul_(2))
""",
        "aot_eager",
        refused=2 if inside else 1,
    )


def test_a_detached_view_taken_in_inference_mode() -> None:
    """It has no history anyway."""
    check(
        """
        def f(x):
            return x[...].detach()[0], x[0].detach()[...], x.data[1:], x * 2

        def drive(compile, call, show, backward):
            g = compile(f)
            x = whole((3, 3)).requires_grad_() * 1
            with torch.inference_mode():
                r = call(g, x)
            show(x, r)
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_whether_a_view_taken_in_inference_mode_requires_grad(backend: str) -> None:
    check(
        """
        def f(x):
            with torch.inference_mode():
                v = x.flatten()[1:]
                return v.requires_grad, (x * 2).requires_grad, x.requires_grad

        def drive(compile, call, show, backward):
            g = compile(f)
            call(g, whole((3, 3)).requires_grad_() * 1)
            call(g, whole((3, 3)))
        """,
        backend,
    )


@BACKENDS
def test_views_of_a_detached_result_that_is_made_a_leaf(backend: str) -> None:
    """They get a history with it."""
    check(
        """
        def f(x, y):
            x = x.detach()
            v = x[0]
            u = (y * 2).detach()
            u.add_(1)
            return v[1:], v, x, x[...], u.t(), u, u[0].to(torch.int64)[1:]

        def drive(compile, call, show, backward):
            g = compile(f)
            for inner in (0, 1):
                a, b = whole((3, 3)), whole((3, 3)).requires_grad_()
                r = call(g, b * 1 if inner else a, b)
                r[2].requires_grad_()
                r[5].requires_grad_()
                show(r)
                backward(r)
                show(r)
        """,
        backend,
    )


def test_a_view_older_than_a_write_to_what_is_made_a_leaf() -> None:
    """Autograd takes it anew, which a view that is taken after the write is not."""
    check(
        """
        def f(x):
            x = x.detach()
            v = x[0]
            v -= 1
            x.requires_grad_()
            return v, x

        def drive(compile, call, show, backward):
            r = call(compile(f), whole((3, 3)))
            backward(r)
            show(r)
        """,
        "aot_eager",
        refused=1,
    )


@BACKENDS
@pytest.mark.parametrize("made", ["x.data", "x.data[1:]", "(x * 2).data", "x.detach()"])
def test_who_counts_writes_to_a_result(backend: str, made: str) -> None:
    """`data` counts alone; to what was saved of the other, and to its gradient, such a write is none."""
    check(
        f"""
        def f(x):
            y = x * 1
            return y, {made}, y.data, y.data[0]

        def drive(compile, call, show, backward):
            g = compile(f)
            x = whole((3, 3)).requires_grad_()
            z = x * x
            y, *r = call(g, x)
            w = y * y
            before = x._version, y._version
            with torch.no_grad():
                for t in r:
                    t.add_(1)
            show(x._version - before[0], y._version - before[1])
            backward(w)
            backward(z)
            show(x)
        """,
        backend,
    )


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "question", ["y._version", "z._base is y", "z._base is None", "x.detach().view(-1)._base is x"]
)
def test_what_the_frame_wrote_and_viewed_is_asked_for_it(backend: str, grad: bool, question: str) -> None:
    """How often it was written, and what it is a view of."""
    check(
        f"""
        def f(x):
            y = x * 2
            y.add_(1).mul_(3)
            z = y[0]
            return y, z, {question}

        def drive(compile, call, show, backward):
            show(call(compile(f), whole((3, 3)).requires_grad_({grad})))
        """,
        backend,
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("lazy", ["c.conj()", "c.conj().imag"])
def test_what_was_computed_and_is_lazily_conjugated_or_negated(backend: str, lazy: str) -> None:
    """A tensor with a history, as one without: it resolves to another one."""
    check(
        f"""
        def f(x):
            v = x.resolve_conj().resolve_neg()
            return v, x, x[0] * 2, x.is_conj(), x.is_neg()

        def drive(compile, call, show, backward):
            g = compile(f)
            a = whole((3, 3), torch.complex64).requires_grad_()
            c = a * 1
            r = call(g, {lazy})
            backward(r)
            show(a)
        """,
        backend,
    )


LAZY = {
    "torch.complex64": ["(x * 2).conj()", "(x @ x).H", "(x * 2).conj().imag[1:]", "torch.view_as_complex(torch.view_as_real(x.clone())).conj()", "x.clone().conj()"],
    "torch.float32": ["torch.fft.ifft(x)", "torch.view_as_complex(x.mT[..., :2].contiguous()).conj()"],
}  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "lowered"])
@pytest.mark.parametrize(("dtype", "made"), [(dtype, made) for dtype, all_made in LAZY.items() for made in all_made])
def test_a_result_that_is_lazily_conjugated_or_negated(backend: str, dtype: str, made: str) -> None:
    """It is so still, where the graph computes what it shows."""
    check(
        f"""
        def f(x):
            return {made}

        def drive(compile, call, show, backward):
            g = compile(f)
            for leaf in (0, 1):
                x = whole((3, 3), {dtype}).requires_grad_(bool(leaf))
                r = call(g, x)
                show(r.is_conj(), r.is_neg())
                backward(r)
                show(x)
        """,
        backend,
        exact=False,
    )


def test_a_lazily_conjugated_result_of_the_whole_stack() -> None:
    check(
        """
        def f(x):
            return torch.fft.ifft(x), (x * 1j).conj().imag

        def drive(compile, call, show, backward):
            r = call(compile(f), whole((3, 3), torch.float32))
            show([(t.is_conj(), t.is_neg()) for t in r])
        """,
        exact=False,
    )


def test_an_argument_that_is_a_view_taken_without_grad_is_made_a_leaf() -> None:
    """Also where the function was compiled for one that requires grad itself."""
    check(
        """
        def f(x):
            x.requires_grad_()
            return x.view(-1) * 2

        def drive(compile, call, show, backward):
            g = compile(f)
            for kind in range(3):
                x = whole((3, 3)).requires_grad_()
                if kind:
                    with torch.no_grad():
                        x = x.view(3, 3)
                backward(call(g, x))
                show(x)
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("kind", ["a", "a.mT", "a[1:]"])
@pytest.mark.parametrize(
    "write", ["x.mul_(y); return x * 2", "v = x[0]; v.mul_(2); return v, x", "x[0].zero_(); return x * x"]
)
@pytest.mark.parametrize("look", ["register_hook(lambda g: print(g.sum().item()))", "retain_grad()"])
def test_the_gradient_of_an_argument_that_is_written(kind: str, write: str, look: str) -> None:
    """Eager keeps that of what it becomes, and calls no hooks of a view any more, whose history comes from its base then."""
    body = "\n".join(f"    {line}" for line in write.split("; "))
    check(
        f"""
def f(x, y):
{body}

def drive(compile, call, show, backward):
    g = compile(f)
    for looks in (0, 1, 0):
        a = whole((3, 3)).requires_grad_() * 1
        x = {kind}
        if looks:
            x.{look}
        backward(call(g, x, whole(x.shape, seed=1)))
        show(x.grad if looks else 0)
""",
        "aot_eager",
    )


def test_the_gradient_that_the_base_of_a_written_argument_retains() -> None:
    check(
        """
        def f(x):
            x.mul_(2)
            return x * x

        def drive(compile, call, show, backward):
            g = compile(f)
            for looks in (0, 1, 0):
                a = whole((3, 3)).requires_grad_() * 1
                if looks:
                    a.retain_grad()
                backward(call(g, a[0]))
                show(a.grad if looks else 0)
        """,
        "aot_eager",
    )


STRIDED = {
    "view": "b.index_put_((torch.tensor([0]),), (b * 1)[0])\n    return b.as_strided((2,), (1,)) + 1",
    "copy": "c = b.index_put((torch.tensor([0]),), (b * 1)[0])\n    return torch.as_strided_copy(c, (2, 2), (1, 3), 2)",
    "write": "c = b.index_put((torch.tensor([0]),), (b * 1)[0])\n    return torch.as_strided_scatter(c, b[0, :2], (2,), (1,))",
}


@pytest.mark.parametrize("dtype", ["int64", "complex64"])
@pytest.mark.parametrize("name", STRIDED)
def test_a_view_in_strides_of_what_loops_lay_otherwise(name: str, dtype: str) -> None:
    """The kernels of a scatter fill contiguous memory, whatever eager's result is like."""
    check(
        f"""
def f(b):
    {STRIDED[name]}

def drive(compile, call, show, backward):
    call(compile(f), whole((7, 3), torch.{dtype}, 68, "t"))
""",
        "lowered",
    )


FROM_THE_START = {
    "an argument": "b.as_strided((3,), (1,), 1) * 2",
    "a view": "b[1:].as_strided((3,), (1,), storage_offset=1) * 2",
    "a view in strides": "b.as_strided((2, 2), (1, 2)).as_strided((3,), (1,), 1) * 2",
    "copy": "torch.as_strided_copy(b, (3,), (1,), 1) * 2",
    "write": "torch.as_strided_scatter(b, b[:2] * 2, (2,), (1,), 1)",
}


@pytest.mark.parametrize("name", FROM_THE_START)
def test_an_offset_in_memory_within_which_an_argument_begins(name: str) -> None:
    """The offset counts from where the memory begins, and each call's argument begins elsewhere."""
    check(
        f"""
def f(b):
    return {FROM_THE_START[name]}

def drive(compile, call, show, backward):
    g = compile(f)
    for start in (0, 1, 3, 0):
        for with_gradient in (False, True):
            b = whole((9,), seed=5)[start : start + 4].detach().requires_grad_(with_gradient)
            r = call(g, b)
            if with_gradient:
                backward(r)
                show(b)
""",
        "inductor",
    )


RECOMPUTED = {
    "a product of sets": "c = torch.cartesian_prod(b[:3], b[:2])",
    "of what repeats": "c = b[:3].reshape(-1, 1).expand(3, 2).reshape(6)",
    "in strides": "c = b.as_strided((3,), (3,))",
    "in strides twice": "c = b.as_strided((2, 2), (1, 2)).as_strided((3,), (1,))",
    "strides that are asked for": "c = b.as_strided((2, 2), (1, 2)).view(2, 2)",
}


@pytest.mark.parametrize("layout", ["expand", "gaps"])
@pytest.mark.parametrize("name", RECOMPUTED)
def test_how_an_argument_lies_of_which_the_backward_has_a_copy(name: str, layout: str) -> None:
    """Of `c` the backward needs the sizes alone, and eager keeps nothing of it: what may be written before is copied."""
    check(
        f"""
def f(b):
    {RECOMPUTED[name]}
    return c.scatter_add(0, torch.zeros_like(c, dtype=torch.int64), c), b * 1

def drive(compile, call, show, backward):
    for dynamic in (False, True):
        b = whole((4,), seed=3, layout="{layout}").requires_grad_()
        backward(call(compile(f, dynamic=dynamic), b))
        show(b)
""",
        "aot_eager",
    )


@pytest.mark.parametrize("result", ["v", "v[1:]", "v.detach()"])
@pytest.mark.parametrize("made", ["torch.arange(4)", "torch.ones(4)", "x.data", "x.long().data", "x.data.detach()"])
def test_a_write_is_counted_for_all_views_of_what_is_no_view_to_autograd(made: str, result: str) -> None:
    """Torch's factories, as `tensor.data`, make another tensor of what their kernels give; a product outside keeps one result, the other is written."""
    check(
        f"""
def f(x):
    v = {made}
    return v[::2], {result}

def drive(compile, call, show, backward):
    x, p = whole((4,), seed=1), whole((4,), seed=2).requires_grad_()
    written, kept = call(compile(f), x)
    product = p[: len(kept)] * kept
    written.add_(1)
    show(kept, kept._version)
    backward(product)
""",
        "aot_eager",
        refused=int(made in ("x.data", "x.data.detach()") and result != "v"),
    )
