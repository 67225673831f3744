"""Calls that no step of a drawn program makes: factories with every keyword, operands that are no plain numbers, `out=`, methods by their special names."""

from __future__ import annotations

import pytest

from .examine import check

DTYPES = [
    "torch.zeros(3, dtype={})",
    "x.to({})",
    "x.sum(dtype={})",
    "torch.tensor([1], dtype={})",
    "x.new_full((2,), 1, dtype={})",
]


@pytest.mark.parametrize("cls", ["bool", "int", "float", "complex"])
def test_a_class_of_numbers_is_a_dtype(cls: str) -> None:
    """A graph's code has no literal for a class."""
    made = ", ".join(call.format(cls) for call in DTYPES)
    check(
        f"""
        def f(x):
            return {made}

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


def test_a_class_of_tensors_is_a_type() -> None:
    """So of `Tensor.type(torch.DoubleTensor)`."""
    check(
        """
        def f(x):
            return x.type(torch.DoubleTensor), x.type(torch.LongTensor)

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


@pytest.mark.parametrize("call", ["torch.arange(3, dtype=torch.bool)", "torch.hann_window(3, dtype=torch.int64)"])
def test_what_a_factory_refuses_for_its_dtype(call: str) -> None:
    """No fake does, and no decomposition."""
    check(
        f"""
        def f(x):
            return x + 1, {call}

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


@pytest.mark.parametrize("number", ["0, float('inf')", "1, float('nan')", "-0.0, -0.0"])
def test_a_complex_number_without_a_literal(number: str) -> None:
    """The text of a graph says `infj`, and loses the sign of a zero."""
    check(
        f"""
        def f(x):
            y = torch.full((2,), complex({number}))
            return torch.view_as_real(y).signbit(), y, x + complex({number})

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.complex64))
        """,
        "eager",
    )


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(3, requires_grad=True)",
        "torch.ones_like(x, requires_grad=True)",
        "torch.tensor([1.0, 2.0, 3.0], requires_grad=True)",
    ],
)
def test_a_factory_makes_a_leaf(made: str) -> None:
    """Under `no_grad` too; what is computed of it has a history."""
    check(
        f"""
        def f(x):
            a = {made}
            with torch.no_grad():
                b = {made}
            return a, a * x, b, b.sum() + x

        def drive(compile, call, show, backward):
            r = call(compile(f), whole((3,), torch.float32))
            backward(r)
            show(r)
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("call", ["__str__()", "__repr__()", "__format__('')", "__getstate__()", "__setitem__(0)"])
def test_a_special_method_by_its_name(call: str) -> None:
    """Of a fake they tell about the fake."""
    check(
        f"""
        def f(x):
            y = x + 1
            return y.{call}, y * 2

        def drive(compile, call, show, backward):
            call(compile(f), whole((3,), torch.float32))
        """,
        "aot_eager",
    )


NUMBERS = {
    "torch.int32": ["x == (2 + 0j)", "x.clone().copy_(2**31)", "x.clone().copy_(2.5)", "torch.view_copy(x.t(), (-1,))"],
    "torch.uint8": ["torch.addcmul(x, x, x, value=0.5)", "torch.scatter(x, 0, torch.zeros_like(x, dtype=torch.int64), 2 + 0j)"],
    "torch.float32": ["torch.lerp(x, x + 1, 2 + 0j)", "torch.addcdiv(x, x, x * x + 1, value=2 + 0j)", "torch.xlogy(x, 1e300)"],
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "call"), [(dtype, call) for dtype, calls in NUMBERS.items() for call in calls])
@pytest.mark.parametrize("backend", ["aot_eager", "lowered"])
def test_numbers_that_formulas_and_loops_refuse(backend: str, dtype: str, call: str) -> None:
    """Complex numbers that are real, numbers that do not fit the tensor's type: kernels have rules of their own."""
    check(
        f"""
        def f(x):
            return {call}

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), {dtype}))
        """,
        backend,
        exact=False,
    )


def test_numbers_that_kernels_take() -> None:
    """The calls that are left to the library, in the whole stack."""
    check(
        """
        def f(x):
            return x == (2 + 0j), x.clone().copy_(2**31), x.clone().copy_(2.5), x.clone().copy_(True)

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.int32))
        """
    )


@pytest.mark.parametrize("backend", ["lowered", "inductor"])
def test_an_integer_without_a_sign(backend: str) -> None:
    """No program holds one: eager runs the graph."""
    check(
        """
        def f(x):
            return x - 2**63, x | 2**63

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.int32))
        """,
        backend,
        refused=1,
    )


@pytest.mark.parametrize("made", ["np.float64(0.5)", "[np.float64(0.5), 1]"])
def test_a_number_of_numpy_made_inside(made: str) -> None:
    """It is a float of Python's too, and a tensor made of it is in float64."""
    check(
        f"""
        import numpy as np

        def f(x):
            return x + 1, torch.as_tensor({made}), x.masked_fill(x > 0, np.float64(0.5)), float(np.float64(2)) * x

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "aot_eager",
    )


@pytest.mark.parametrize(
    "call", ["torch.celu_(x * 1, -1)", "F.elu_(x * 1, -1)", "F.leaky_relu(x * 1, -0.5, inplace=True)"]
)
@pytest.mark.parametrize("backend", ["aot_eager", "lowered"])
def test_a_slope_that_the_backward_of_a_result_refuses(backend: str, call: str) -> None:
    """What is left of the argument is the result, whose sign says nothing then."""
    check(
        f"""
        def f(x):
            return {call}

        def drive(compile, call, show, backward):
            x = whole((2, 3), torch.float32).requires_grad_()
            backward(call(compile(f), x))
            show(x)
        """,
        backend,
        exact=False,
    )


@pytest.mark.parametrize(
    "index", ["torch.tensor([0.0]), slice(0, 2)", "torch.tensor([0], dtype=torch.int16), slice(None)"]
)
def test_a_store_at_an_index_of_another_type_beside_a_slice(index: str) -> None:
    """Eager refuses it, no fake does."""
    check(
        f"""
        def f(x):
            x[{index}] = 1
            return x

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "lowered",
    )


@pytest.mark.parametrize("backend", ["aot_eager", "lowered"])
def test_out_of_a_kernel_that_writes_through_what_is_said_to_be_new(backend: str) -> None:
    """`kron` does: the graph did not see the write."""
    check(
        """
        def f(a, out):
            made = torch.zeros(4, 9)
            return torch.kron(a, a, out=out), torch.kron(a, a, out=made), made + 1

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32), whole((4, 9), torch.float32, 1))
        """,
        backend,
        refused=1,
    )


@pytest.mark.parametrize(
    "parts", ["torch.unsafe_split(x, 1)", "torch.unsafe_chunk(x, 2)", "x.unsafe_split_with_sizes([1, 1])"]
)
def test_views_that_are_said_to_be_new(parts: str) -> None:
    """They share the memory of what they are of."""
    check(
        f"""
        def f(x):
            y = x * 2
            p = {parts}
            p[0].add_(1)
            x.mul_(3)
            return p, x, y

        def drive(compile, call, show, backward):
            call(compile(f), whole((2, 3), torch.float32))
        """,
        "aot_eager",
    )


@pytest.mark.parametrize(
    "asked",
    [
        "r = torch.autograd.grad(y.sum(), z)[0]",
        "z.retain_grad()\n            r = y",
        "z.register_hook(lambda g: g * 5)\n            r = y",
    ],
)
def test_the_gradient_of_what_the_frame_computed_with(asked: str) -> None:
    """The results of one graph lead to its inputs, none through another."""
    check(
        f"""
        def f(x):
            z = x * 2
            y = z * z
            {asked}
            return z, r

        def drive(compile, call, show, backward):
            x = whole((2, 3), torch.float32).requires_grad_()
            r = call(compile(f), x)
            if r[1].requires_grad:
                r[1].sum().backward()
            show(x, r[0].grad)
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("write", ["b.transpose(0, 1)[0] += 1", "b[...].random_(4)"])
def test_writes_without_grad_through_views_of_leaves(write: str) -> None:
    """Such a view may not even be asked whether it is a leaf."""
    check(
        f"""
        def f(b):
            with torch.no_grad():
                {write}
            return b.sum()

        def drive(compile, call, show, backward):
            b = whole((4, 4), torch.float32).requires_grad_()
            backward(call(compile(f), b))
            show(b)
        """,
        "aot_eager",
    )


def test_a_view_without_grad_is_made_a_leaf() -> None:
    """Before, it says that it requires grad, as its base does, and gathers none."""
    check(
        """
        def f(x):
            with torch.no_grad():
                p = x.view(-1)
                p.requires_grad_()
            return p, x.view(-1) * p.sum()

        def drive(compile, call, show, backward):
            r = call(compile(f), whole((3,), torch.float32).requires_grad_())
            backward(r)
            show(r)
        """,
        "aot_eager",
    )


def test_a_mask_of_other_sizes() -> None:
    """Of a later call, where the sizes of both are symbols."""
    check(
        """
        def f(x, mask):
            x[mask > 0] = 5
            return x

        def drive(compile, call, show, backward):
            g = compile(f, dynamic=True)
            for rows in (2, 3):
                call(g, whole((rows, 3), torch.float32), whole((2,), torch.float32))
        """,
        "lowered",
    )
