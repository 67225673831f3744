"""Tensor programs that a sweep found: each was wrong once.

Every one goes through the whole stack and, where that is not the default, the backend that was wrong.
"""

from __future__ import annotations

import pytest

from .examine import check

BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "inductor"])


@BACKENDS
def test_a_write_through_strides_of_an_input_behind_an_offset(backend: str) -> None:
    """A copy that an op told in strides reads may not be replaced by the input, which starts elsewhere in its memory."""
    check(
        """
        def f(a):
            a.unfold(0, 1, 1).add_(1)
            b = a[1]
            b.unfold(0, 1, 1).mul_(2)
            return a, b

        def drive(compile, call, show, backward):
            call(compile(f), whole((9,), torch.float32, 61, 'late'))
        """,
        backend,
    )


@BACKENDS
@pytest.mark.parametrize("make", ["torch.empty_like(w).copy_(a)", "torch.rot90(w.outer(a))"])
def test_results_in_one_memory_have_their_history(backend: str, make: str) -> None:
    """What an op makes inside, or what was there before a write, has no history; the results that share its memory have one."""
    check(
        f"""
        def f(w, a):
            v = {make}
            return v, v[0], v.detach(), v[1:]

        def drive(compile, call, show, backward):
            w, a = whole((8,)).requires_grad_(), whole((1,), seed=2).requires_grad_()
            r = call(compile(f), w, a)
            backward(r)
            show(w, a)
        """,
        backend,
    )


TENSORS = {
    "views taken under no_grad": """
        def f(a):
            with torch.no_grad():
                v, w = a.view(-1), a[0]
            b = a * 2
            with torch.no_grad():
                u, e = b.t(), (a * 3).t()
                s, o = a[...], a.view(-1)[...]
            return v, w, w[1:], u, b, e, a[1:].unsqueeze(0), u[0], v * 2, s, o
        """,
    "a formula that hands requires_grad on": """
        def f(a):
            with torch.no_grad():
                v = F.pad(a, (1, a.shape[1] // 2))
            return v, v * a.sum()
        """,
    "a history without gradients": """
        def f(a):
            return torch._foreach_add([torch.ones(3), a], 1)[0], torch.norm(a, 0)
        """,
    "views that an operator took inside": """
        def f(a):
            every = (a > 0).all()
            every.detach_()
            return every, torch.diag(a).mul_(2), torch.diag(a).detach_()
        """,
    "a formula that refuses complex numbers": """
        def f(a):
            return [torch.nan_to_num(torch.complex(a.detach(), a.detach())), a * 2]
        """,
    "a shape changed in place": """
        def f(a):
            v = a[:, None].abs() * 1
            v.squeeze_()
            v.t_()
            return v, v.mT, v[0]
        """,
    "an alias of a view that was taken without gradients": """
        def f(a):
            with torch.no_grad():
                v = a.view_as(a)
            return v[...], (v[...] * 2)
        """,
    "two copies of one transposed tensor": """
        def f(a):
            v = torch.rot90(a * 2)
            return v.reshape(-1), v.contiguous()
        """,
    "a dropout of nothing": """
        def f(a):
            with torch.inference_mode():
                v = a.detach()
                return v[0], F.dropout(v, 0.5, False)[0], F.dropout(v, 0.0)[0]
        """,
}


@BACKENDS
@pytest.mark.parametrize("name", TENSORS)
def test_views_and_their_history(backend: str, name: str) -> None:
    """Of a leaf and of what was computed: the same requires_grad, memory and gradients."""
    driver = """
        def drive(compile, call, show, backward):
            g = compile(f)
            for inner in (0, 1, 2):
                a = whole((4, 3 + inner // 2)).requires_grad_()
                r = call(g, a * 1 if inner else a)
                backward(r)
                show(a, *r)
        """
    # Views that inference mode gives of a tensor from outside of it are eager's own, for each of the two kinds of input.
    check(TENSORS[name] + driver, backend, refused=2 if "inference_mode" in TENSORS[name] else 0)


def test_a_list_op_writes_what_another_argument_shows() -> None:
    """The second argument is a window on the first."""
    check(
        """
        def f(a, b):
            torch._foreach_sub_([a], 1)
            return b * 2

        def drive(compile, call, show, backward):
            g = compile(f)
            a = whole((7,))
            call(g, a, a[1])
            call(g, a, whole((7,)))
        """,
        "aot_eager",
    )


@pytest.mark.parametrize(
    ("step", "refused"),
    [("torch._foreach_add_([b, a], [a, b])", 1), ("c.data[0] = 7", 0)],
)
def test_writes_in_the_order_of_eagers_loops(step: str, refused: int) -> None:
    """What a call reads after it has written it; a write once for several elements is not captured at all."""
    check(
        f"""
        def f(a, b, c):
            {step}
            return a * b

        def drive(compile, call, show, backward):
            call(compile(f), whole((3, 4), torch.float32, 6, 't'), whole((3, 4)), whole((5,), torch.int32, 7, 'expand'))
        """,
        "aot_eager",
        refused=refused,
    )


@BACKENDS
@pytest.mark.parametrize(
    ("step", "refused"),
    [
        ("a.masked_scatter_(a > 0, a)", 1),
        ("a.index_copy_(0, torch.tensor([0, 1, 2]), a)", 0),
        ("a[1:].put_(torch.tensor([0]), a[1:2])", 0),
    ],
)
def test_a_write_that_moves_elements_of_its_own_memory(backend: str, step: str, refused: int) -> None:
    """Eager takes what it has overwritten: it is left to eager. Or it raises: the graph ends before it."""
    text = f"""
        def f(a):
            {step}
            return a

        def drive(compile, call, show, backward):
            call(compile(f), whole((3,)))
        """
    check(text, backend, refused=refused)


@BACKENDS
def test_a_result_of_several_is_transposed_in_place(backend: str) -> None:
    """The call that returned it still returns it as it was."""
    check(
        """
        def f(a):
            v, i = a.max(0)
            v.transpose_(0, 1)
            i.unsqueeze_(0)
            return v * 2, v, i

        def drive(compile, call, show, backward):
            call(compile(f), whole((3, 4, 5)))
        """,
        backend,
    )


@BACKENDS
def test_a_complex_input_is_written(backend: str) -> None:
    """There are no kernels for complex numbers: what is written back is written by the library."""
    check(
        """
        def f(a, b):
            a[0] = 2
            torch.where(b > 0, b, a[1:], out=a[1:])

        def drive(compile, call, show, backward):
            call(compile(f), whole((4,), torch.complex64), whole((3,), torch.float32))
        """,
        backend,
    )


def test_keywords_with_the_names_of_our_own_arguments() -> None:
    """`dict(t=...)` and `update(self=...)` are keys like others."""
    check(
        """
        def f(t):
            made = dict(t=t + 1, other=2)
            made.update(t=t * 2, others=3)
            return made

        def drive(compile, call, show, backward):
            call(compile(f), whole((3,)))
        """,
        "eager",
    )


def test_a_write_through_data_reaches_other_inputs() -> None:
    """It counts writes for itself: the inputs' own counts do not tell."""
    check(
        """
        def f(a, b):
            a.data.mul_(b.float())
            return F.hardshrink(b)

        def drive(compile, call, show, backward):
            g = compile(f)
            call(g, whole((5,)), whole((5,), seed=1))
            a = whole((5,))
            call(g, a, a.view(a.shape))
        """,
        "inductor",
    )


@BACKENDS
def test_what_was_computed_before_a_write_has_the_history_of_before(backend: str) -> None:
    """The write gives its target a history in the trace: the graph's input has none."""
    check(
        """
        def f(a, b, c):
            v = 1 - b, c.clone()
            b.unsqueeze(0).add_(a)
            torch._foreach_lerp_([c], [a], 0.5)
            return v, b * 1

        def drive(compile, call, show, backward):
            call(compile(f), whole((3,)).requires_grad_(), whole((3,), seed=1), whole((3,), seed=2))
        """,
        backend,
    )


def test_a_view_whose_history_is_lost_is_left_to_eager() -> None:
    """One of several that an op gave, whose memory was written: eager raises where its history is asked for."""
    check(
        """
        def f(a):
            v = a.split(2)[1]
            torch._foreach_add_([a], 1)
            v.eq_(v)

        def drive(compile, call, show, backward):
            call(compile(f), whole((7,)).requires_grad_() * 1)
        """,
        "aot_eager",
    )


@BACKENDS
def test_one_hot_lies_in_new_memory(backend: str) -> None:
    """Whatever its argument's layout is."""
    check(
        """
        def f(a):
            v = F.one_hot(a.to(torch.int64).abs(), 5)
            return v, torch.kron(v, v[1])

        def drive(compile, call, show, backward):
            call(compile(f), whole((5, 5), torch.float32, 47, 't'))
        """,
        backend,
    )


@BACKENDS
@pytest.mark.parametrize("step", ["v.amax()", "F.threshold(v, 1, 0)", "(v * v).sum(0)"])
def test_data_that_eager_saved_is_replaced(backend: str, step: str) -> None:
    """The gradient is computed with what the tensor holds by then, by eager."""
    check(
        f"""
        class M(nn.Module):
            def forward(self, a):
                v = a.clone()
                w = {step}
                v.data = v * 2
                return w

        def drive(compile, call, show, backward):
            for make in (lambda: M().forward, M):
                a = whole((4, 3), seed=7).requires_grad_()
                backward(call(compile(make()), a))
                show(a)
        """,
        backend,
    )


@BACKENDS
def test_norms_of_complex_numbers_add_as_the_kernel_does(backend: str) -> None:
    check(
        """
        def f(a, b):
            return torch._foreach_norm([a, b], 1)

        def drive(compile, call, show, backward):
            g = compile(f)
            for size in (4, 9, 33):
                a = whole((size,), torch.complex64, 37, 'expand')
                backward(call(g, a, whole((size, 3), torch.complex128).requires_grad_()))
        """,
        backend,
    )


def test_put_into_a_copy_of_one_element_keeps_its_stride() -> None:
    """Its fake was dense."""
    check(
        """
        def f(a, c):
            return c.put(torch.tensor(0), c.flatten()).conj()

        def drive(compile, call, show, backward):
            g = compile(f, dynamic=True)
            call(g, 85, whole((1,), torch.float64, 66, 'gaps'))
        """,
        "lowered",
    )


@BACKENDS
def test_an_alias_has_the_strides_of_its_argument(backend: str) -> None:
    """Those of one element too, which `view` computes anew."""
    check(
        """
        def f(a):
            return a[...], (a * 2)[...]

        def drive(compile, call, show, backward):
            g = compile(f)
            for history in (False, True):
                a = whole((5, 2), torch.float32, 52, 'expand').requires_grad_(history)
                r = call(g, a[:1])
                if history:
                    backward(r)
                    show(a)
        """,
        backend,
    )


def test_a_truth_value_of_numbers_that_change_is_a_number() -> None:
    """`operator.index` and `real` of a truth value are integers of their own type."""
    check(
        """
        def f(t, n):
            more = n > 2
            return t * n, operator.index(more), more.real, type(more.real) is int

        def drive(compile, call, show, backward):
            g = compile(f, dynamic=True)
            for n in (2, 3, 5):
                call(g, whole((3,)), n)
        """,
        "eager",
    )


@BACKENDS
def test_a_batch_norm_of_no_channels(backend: str) -> None:
    """Run on fakes, torch reads a size that is not there."""
    check(
        """
        def f(a):
            b = a * 2
            return b, F.batch_norm(b, None, None, training=True)

        def drive(compile, call, show, backward):
            g = compile(f, dynamic=True)
            for size in (0, 3, 5):
                call(g, whole((size,)))
        """,
        backend,
    )


@BACKENDS
def test_a_view_in_symbolic_strides(backend: str) -> None:
    """Of a diagonal the strides are sums: what is computed of a view of it lies as those say."""
    check(
        """
        def f(a):
            v = a.diagonal(0, 0, -1)
            w = v.view(v.shape[0], -1)
            return w < w.sum(), w + 1, v.view(-1, 1), w.t() * 2

        def drive(compile, call, show, backward):
            g = compile(f, dynamic=True)
            call(g, whole((2, 1, 2), torch.int64, 47))
            call(g, whole((5, 1, 3), torch.int64, 47))
        """,
        backend,
    )


@pytest.mark.parametrize("loss", ["F.smooth_l1_loss(a, b)", "F.mse_loss(b, b * 2)", "F.soft_margin_loss(b, b.sign())"])
def test_a_view_beyond_a_loss(loss: str) -> None:
    """Eager's kernel leaves a mean in memory for the elements that it is of, and a view may look there."""
    check(
        f"""
        def f(a, b):
            a.add_(1)
            v = {loss}
            return v.as_strided((2,), (1,))[0]

        def drive(compile, call, show, backward):
            call(compile(f), whole(()), whole((17,)))
        """,
        "aot_eager",
    )


@BACKENDS
@pytest.mark.parametrize("dims", ["0, 1, 2", "2, 0, 1", "1, 2, 0"])
def test_what_the_library_gives_for_a_written_tensor_with_gaps(backend: str, dims: str) -> None:
    """A kernel keeps its contents without gaps: the stride of a dimension of one element is not that of the gaps either."""
    check(
        f"""
        def f(a):
            a = a.permute({dims})
            a.index_add_(0, torch.tensor([0]), a[-1:].clone())
            return a.sort(1), a.sort(2)

        def drive(compile, call, show, backward):
            call(compile(f), whole((3, 3, 1), torch.bfloat16, 83, 'gaps'))
        """,
        backend,
    )
