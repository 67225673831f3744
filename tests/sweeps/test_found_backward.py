"""Programs that a sweep found whose backward raised where eager's does not, or did not where eager's does."""

from __future__ import annotations

import pytest

from .examine import check

_ONE_CALL = """
def drive(compile, call, show, backward):
    g = compile(f)
    a = whole((4, 3)).requires_grad_()
    r = call(g, a * 1, a)
    backward(r)
    show(a)
"""

_BUFFER = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.s = whole((7,))
        self.w = parameter((7,), torch.float64, 7)

    def forward(self, a):
{body}

def drive(compile, call, show, backward):
    m = M()
    g = compile(m)
    a = whole((7,)).requires_grad_()
    for _ in range(2):
        r = call(g, a * 2)
        backward(r)
    show(a, m.w)
"""

ONE_CALL = {
    "an input that is only computed from": "b = (a * 2).sin()\n    print(end='')\n    a.mul_(2)\n    return b",
    "an index that only a shape decides": "b = a.scatter_add(0, torch.zeros_like(a, dtype=torch.int64), c)\n    a[a < 0] *= 1\n    return b",
    "an operand that eager reshapes without a counter": "b = torch.kron(a, a)\n    print(end='')\n    a[a < 0] *= 1\n    return b",
    "a saved result that was written into an input": "F.relu(a, inplace=True)\n    print(end='')\n    a.mul_(2)\n    return a",
    "a saved result that is detached": "b = F.leaky_relu(a)\n    d = b ** 2\n    b.detach_()\n    return d",
    "an operand of a list op": "b = torch._foreach_mul([a, c], [c, a])[1]\n    print(end='')\n    a.unsqueeze_(0)\n    return b",
    "a target of another type": "return F.huber_loss(a, c.detach().float())",
    "an input without a derivative": "u = c.unique()\n    b = a.float()\n    u.squeeze().neg_()\n    return b",
}
BUFFER = {
    "nothing is saved behind a buffer": "        self.s -= self.w\n        return a.kthvalue(1)",
    "another result's operand is gone": "        self.s.copy_(self.w)\n        return F.threshold(a, 1, 0)",
}
TWICE = {
    "the buffer itself": "        self.s.copy_(self.w)\n        return self.s, self.w * a\n",
    "a write through a view": "        self.s[...] -= self.w\n        return self.s.to(), None\n",
}
WHOLE = {
    "read": "s[...]",
    "computed from": "return s * 2",
    "returned": "return s, a + 1",
}
REFUSED = {
    "behind a view without grad mode": "with torch.no_grad():\n        v = c.view(-1)\n    return torch.vander(v[:3])",
    "behind a view without grad mode, of what was written": "with torch.no_grad():\n        v = c[1:]\n    b = v.amax()\n    b.mul_(2)\n    return b",
    "pixel_shuffle": "return F.pixel_shuffle(a[:, :0].expand(4, 4, 0), 2)",
}


DETACHED = {
    "an input": ("v = a.detach()\n    v.mul_(c)\n    return v", 1),
    "an input and itself": ("v = a[0].detach()\n    v.copy_(c[0])\n    return v, a", 1),
    "a window on an input": ("v = a.detach()[0]\n    v.mul_(c[0])\n    return v", 1),
    "what was computed": ("d = c * 2\n    v = d.detach()\n    v.copy_(a)\n    return v, d[0]", 1),
    "a window on what was computed": (
        "d = c * 2\n    v = d[0].detach()\n    v.mul_(a[0])\n    return v, v[0], d[1]",
        1,
    ),
    "alone": ("d = c * 2\n    v = d.detach()\n    v.copy_(a)\n    return v", 0),
    "no view": ("v = c.detach()[0].data\n    print(end='')\n    v.detach_()\n    return v, a * c", 0),
}


@pytest.mark.parametrize("name", DETACHED)
def test_a_detached_alias_has_a_history_of_its_own(name: str) -> None:
    body, refused = DETACHED[name]
    check(f"def f(a, c):\n    {body}\n{_ONE_CALL}", "aot_eager", refused=refused)


STRIDED = {
    "beside a column": ("v = a.select(1, 0).as_strided((2,), (1,))\n    a.mul_(2)\n    return v", 1),
    "beside a part of what was computed": (
        "d = a * 2\n    v = d[:, :1].as_strided((2,), (1,))\n    d.mul_(c)\n    return v",
        1,
    ),
    "of all elements": ("v = a.view(-1).as_strided((2,), (1,))\n    a.mul_(2)\n    return v", 0),
    "without a write": ("return a.select(1, 0).as_strided((2,), (1,)) * 2", 0),
}


@pytest.mark.parametrize("name", STRIDED)
def test_a_view_in_strides_that_looks_beside_another(name: str) -> None:
    """After a write eager takes its gradient of the base, where it is more than that of the other view."""
    body, refused = STRIDED[name]
    check(f"def f(a, c):\n    {body}\n{_ONE_CALL}", "aot_eager", refused=refused)


#: What eager refuses of views that go over a break.
VIEWS = {
    "detached": "F.max_pool1d(a, 2).detach_()",
    "taken without gradients": "b = a.detach() * 2\n    with torch.no_grad():\n        d = b[1:]\n    print(end='')\n    d.copy_(a[1:])\n    return d",
    "taken without gradients and left": "b = a.detach() * 2\n    with torch.no_grad():\n        d = b[1:]\n    print(end='')\n    return d + a[1:]",
    "of elements that share memory": "v = (a * 2).flatten()[:, None].expand(12, 5)\n    v.zero_()\n    return v",
    "of what got a history": "v = (c.detach() * 2).flatten()\n    w = v.unsqueeze(1)\n    v.copy_(a.flatten())\n    w.add_(1)",
}
DATA = {
    "of an operand": "v = a * c\n    c.data = c.data * 2\n    return v",
    "of an operand that a view shows": "v = c.squeeze().abs().sqrt()\n    c.data = c.data * 2\n    return v",
    "of a mask's origin": "v = F.leaky_relu(c)\n    c.data = a.data\n    return v",
    "of an operand that a buffer was kept for": "v = F.logsigmoid(c)\n    c.data.mul_(v)\n    return v.clone()",
    "without gradients": "v = a * c\n    with torch.no_grad():\n        c.data = c * 2\n    return v",
    "in a loop": "for _ in range(2):\n        v = a * c\n        c.data = c * 2\n    return v",
    "after another break": "v = a * c\n    print(end='')\n    c.data = c.data * 2\n    return v",
    "of what was computed before a break": "v = a * c\n    print(end='')\n    w = v.sin()\n    v.data = v * 2\n    return w",
    "first": "c.data = c.data * 2\n    return a * c",
    "of a number that shares its gradient with none": "v = c.sum()\n    w = v.scatter_reduce(0, torch.zeros_like(v, dtype=torch.int64), v, 'amax')\n"
    "    v.data.add_(1)\n    return v, w",
}
#: What eager's formulas read without a check: a product divided by the elements that are there in the backward, an operand in another shape.
UNCHECKED = {
    "of what is reshaped": "v = c * 2\n    w = torch.kron(v, a)\n    v.data.add_(1)\n    return w",
    "of what is reshaped, counted": "v = c * 2\n    w = torch.kron(v, a)\n    v.add_(1)\n    return w",
    "of an operand": "v = c.prod()\n    c.data.add_(2)\n    return v * a",
    "of a view of an operand": "v = c.t().prod(0, keepdim=True)\n    c.detach().data.add_(2)\n    return v, a",
    "of a product": "v = c.prod(-1)\n    v.data.add_(2)\n    return v, a",
}


@pytest.mark.parametrize("name", DATA)
def test_other_data_for_a_tensor_that_eager_has_saved(name: str) -> None:
    check(f"def f(a, c):\n    {DATA[name]}\n{_ONE_CALL}", "aot_eager")


@pytest.mark.parametrize("name", UNCHECKED)
def test_other_data_for_what_a_formula_reads_unchecked(name: str) -> None:
    check(f"def f(a, c):\n    {UNCHECKED[name]}\n{_ONE_CALL}", "aot_eager", refused=1)


@pytest.mark.parametrize("computed", ["c.prod()", "torch.kron(c, c).sum()"])
def test_an_unchecked_formula_beside_a_write(computed: str) -> None:
    """A write in front of it, and one to something else, leave the graph to the compiler."""
    check(
        f"def f(a, c):\n    c.data.add_(2)\n    v = {computed}\n    d = c * 2\n    d.data.add_(1)\n    return v * a, d\n{_ONE_CALL}",
        "aot_eager",
    )


RESIZED = {
    "in the frame": ("c.squeeze_()", ""),
    "before": ("pass", "c.squeeze_()"),
}


@pytest.mark.parametrize("name", RESIZED)
def test_a_computed_tensor_that_gets_another_size(name: str) -> None:
    """What computed it wants a gradient of the former size; that of eager's formula may have it, summed to the new size it has not."""
    inside, before = RESIZED[name]
    check(
        f"""
def f(a, c):
    with torch.no_grad():
        {inside}
    return torch.lerp(c, a, 0.5)

def drive(compile, call, show, backward):
    g = compile(f)
    call(g, whole((1,)), whole((1,)) + 1)
    a, c = whole((1,)).requires_grad_(), whole((1,)).requires_grad_()
    computed = c * 1
    with torch.no_grad():
        {before.replace("c.", "computed.") or "pass"}
    r = call(g, a, computed)
    backward(r)
    show(a, c)
""",
        "aot_eager",
    )


def test_a_member_of_a_list_without_a_gradient() -> None:
    """Eager's engine comes to what is behind it all the same, and finds what was written."""
    check(
        """
        def f(a, b):
            a.addcmul_(b, b)
            b.select(1, 0).copy_(1)
            a.unsqueeze_(0)
            return torch._foreach_norm([b, a], 1)[0]

        def drive(compile, call, show, backward):
            g = compile(f)
            a = whole((2, 1)).requires_grad_()
            b = whole((2, 1)).requires_grad_()
            r = call(g, a * 1, b * 1)
            backward(r)
        """,
        "aot_eager",
        refused=1,
    )


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_one_behind_a_break(name: str) -> None:
    check(f"def f(a, c):\n    {VIEWS[name]}\n{_ONE_CALL}", "aot_eager")


@pytest.mark.parametrize("name", ONE_CALL)
def test_what_is_written_or_detached_before_the_backward(name: str) -> None:
    check(f"def f(a, c):\n    {ONE_CALL[name]}\n{_ONE_CALL}", "aot_eager")


def test_an_index_among_no_elements() -> None:
    """It is the same for all of them, yet nothing may look at it."""
    body = "v = a[:0, 0] * c[0, 0]\n    return v.scatter_add(0, torch.zeros_like(v, dtype=torch.int64), v)"
    check(f"def f(a, c):\n    {body}\n{_ONE_CALL}", "inductor")


@pytest.mark.parametrize("name", BUFFER)
def test_the_history_of_a_buffer(name: str) -> None:
    """From the second call on it has one, on which the result does not depend."""
    check(_BUFFER.format(body=BUFFER[name]), "aot_eager")


@pytest.mark.parametrize("name", TWICE)
def test_a_second_backward(name: str) -> None:
    program = _BUFFER.format(body=TWICE[name]).replace(
        "        backward(r)", "        backward(r[0])\n        backward(r[0])"
    )
    check(program, "aot_eager")


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_that_a_write_gave_a_history(name: str) -> None:
    check(
        f"""
        def f(s, a):
            s.eq_(a)
            {WHOLE[name]}

        def drive(compile, call, show, backward):
            s = whole((3,), torch.int64)
            call(compile(f), s, whole((3,)).requires_grad_())
            call(compile(f), s, whole((3,)))
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("name", REFUSED)
def test_a_gradient_that_eager_refuses(name: str) -> None:
    check(f"def f(a, c):\n    {REFUSED[name]}\n{_ONE_CALL}", "aot_eager", refused=1)


def test_a_gradient_that_eager_cannot_add_to() -> None:
    """Eager raises for what it has put into `.grad` itself: no fault, and the only error that compiled code need not raise."""
    check(
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = parameter((8,), torch.float64, 7)

            def forward(self):
                return self.w.norm().sgn()

        def drive(compile, call, show, backward):
            g = compile(M())
            for _ in range(2):
                backward(call(g))
        """,
        "aot_eager",
    )


def test_a_hook_of_a_leaf_that_a_result_does_not_lead_to() -> None:
    """A view taken without gradients, then something computed of it: there is a history, and it leads to no input."""
    check(
        """
def f(a):
    with torch.no_grad():
        v = a.squeeze()
    return v.to(torch.float64)

def drive(compile, call, show, backward):
    g = compile(f)
    a = whole((), torch.bfloat16).requires_grad_()
    a.register_hook(lambda g: g * 2)
    r = call(g, a)
    backward(r)
    show(a)
""",
        "aot_eager",
    )


@pytest.mark.parametrize(
    "write", ["self.w.squeeze_()", "torch.Tensor.squeeze_(self.w)", "self.w.as_strided_((3,), (1,))", "turned(self.w)"]
)
def test_a_parameter_that_gets_another_size_while_something_computed_of_it_is_held(write: str) -> None:
    """What takes its gradient is as old as what is held, also where that is not read any more, and refuses a gradient of the new size."""
    check(
        f"""
        def turned(w):
            w.t_()

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = parameter((1, 3), torch.float64, 7)

            def forward(self, a):
                held = torch.where(self.w > 0, self.w, 2)
                with torch.no_grad():
                    {write}
                return self.w * 3 + a.sum()

        def drive(compile, call, show, backward):
            m = M()
            backward(call(compile(m), whole((2,))))
            show(m)
        """,
        "aot_eager",
    )


@pytest.mark.parametrize(
    "made",
    [
        "a * 1j",
        "a.real * 1j",
        "a / (1 + 2j)",
        "torch.view_as_real(a.conj().resolve_conj())",
        "a.conj().imag.resolve_neg()",
    ],
)
def test_complex_numbers_and_what_is_lazily_conjugated(made: str) -> None:
    """A number of the program is conjugated in its gradient; a copy resolves what a view shows."""
    check(
        f"""
        def f(a):
            return {made}, a.mT.conj()

        def drive(compile, call, show, backward):
            g = compile(f)
            for part in (None, 0, 1):
                a = whole((2, 3), torch.complex64).requires_grad_()
                backward(call(g, a), part=part)
                show(a)
        """,
        "aot_eager",
    )


def test_a_gradient_of_one_result_that_eager_refuses() -> None:
    """Without elements it lies as no view of complex numbers may; the sum with another gradient is laid out anew."""
    check(
        """
        def f(a):
            v = torch.view_as_real(a)
            return v, v.to(torch.complex64)

        def drive(compile, call, show, backward):
            g = compile(f)
            for part in (None, 0, 1):
                a = whole((0, 3), torch.complex64).requires_grad_()
                backward(call(g, a), part=part)
                show(a)
        """,
        "aot_eager",
        refused=1,
    )


@pytest.mark.parametrize("given", ["x", "x.view_as(x)", "x.t()"])
@pytest.mark.parametrize(
    "call", ["R.apply(x)", "R.apply(x).t()[1:]", "x * 2, R.apply(x.view(3, 2))", "(lambda y: (y, R.apply(y)))(x * 2)"]
)
def test_a_view_that_a_function_of_the_program_gives(given: str, call: str) -> None:
    """Its gradient is the program's formula, not that of the view (a reversed gradient was not reversed)."""
    check(
        f"""
        class R(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return {given}
            @staticmethod
            def backward(ctx, g):
                return g.reshape(g.shape[::-1]) * -3 if {given!r} == "x.t()" else g * -3

        def f(x):
            return {call}

        def drive(compile, call, show, backward):
            g = compile(f)
            for grad in (True, False, True):
                x = whole((2, 3), torch.float32).requires_grad_(grad)
                backward(call(g, x))
                show(x)
        """,
        "aot_eager",
        refused=1,
    )


@pytest.mark.parametrize(
    "given",
    [
        "backward = staticmethod(torch.autograd.function.once_differentiable(formula))",
        "backward = staticmethod(formula)",
        "vjp = staticmethod(formula)",
    ],
)
def test_another_backward_of_a_function_of_the_program(given: str) -> None:
    """Also where the first was decorated, or goes by its other name."""
    check(
        f"""
        class R(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            def formula(ctx, g):
                return g * 3
            {given}

        def f(x):
            return R.apply(x)

        def drive(compile, call, show, backward):
            g = compile(f)
            for factor in (3, 7, 5):
                x = whole((2, 3), torch.float32).requires_grad_()
                backward(call(g, x))
                show(x)
                setattr(R, {given.split()[0]!r}, staticmethod(lambda ctx, g, factor=factor: g * factor))
        """,
        "aot_eager",
    )


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_argument_that_was_a_leaf_when_it_was_compiled_is_detached(backend: str) -> None:
    """Eager's node holds the tensor itself, and raises where that is detached in place meanwhile: a leaf stays one."""
    check(
        """
        def f(b):
            return torch.copysign(b, b + 0)

        def drive(compile, call, show, backward):
            g = compile(f)
            for compute in (lambda x: x, lambda x: x.view(-1), lambda x: x * 1):
                b = compute(whole((4,)).requires_grad_())
                r = call(g, b)
                if not b._is_view():
                    b.detach_()
                backward(r)
        """,
        backend,
    )


@pytest.mark.parametrize("guard", ["contextlib.nullcontext()", "torch.no_grad()"])
@pytest.mark.parametrize("given", ["x", "x.view(-1)", "x[1:]"])
def test_a_write_to_a_view_that_a_function_of_the_program_gave(given: str, guard: str) -> None:
    """Eager refuses it, as nobody would know the gradient."""
    check(
        f"""
        class Given(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return {given}

            @staticmethod
            def backward(ctx, grad):
                return grad.new_ones(4)

        def f(a):
            v = Given.apply(a * 2)
            return v, v * 3

        def drive(compile, call, show, backward):
            g = compile(f)
            a = whole((4,)).requires_grad_()
            r = call(g, a)
            backward(r)
            show(a)
            v, _ = call(g, a)
            try:
                with {guard}:
                    v.mul_(2)
            except RuntimeError as error:
                show("refused")
        """,
        "aot_eager",
        refused=1,
    )
