"""Functions with views, writes, aliases and odd outputs: compiled equals eager in values, gradients and identities."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lifting import check_function, clones, compile_function

from flambeau_autograd import UnsupportedGraph


def R(*shape, grad=True, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).requires_grad_(grad)


CASES = {
    "pointwise": (lambda x, y: (x * y).sin() + y.exp(), [R(3, 4), R(3, 4)]),
    "broadcast": (lambda x, y: x * y + 1, [R(3, 4), R(4)]),
    "no_grad_input": (lambda x, y: x @ y, [R(3, 4), R(4, 2, grad=False)]),
    "unused_input": (lambda x, y: x.sin(), [R(3), R(3)]),
    "inference": (lambda x: x.sin().cos(), [R(3, grad=False)]),
    "loss_of_two_dtypes": (
        lambda x, y: F.huber_loss(x, y, reduction="none") + F.huber_loss(x, y),
        [R(3, grad=False), R(3, grad=False).double()],
    ),
    "norm_of_one_element": (lambda x: torch.linalg.vector_norm(x, 3, -1), [R(4, 1)]),
    "several_outputs": (lambda x: (x.sin(), (x > 0), x.detach() * 2, x.sum()), [R(3, 4)]),
    "max_indices": (lambda x: x.max(dim=1), [R(3, 4)]),
    "topk": (lambda x: torch.topk(x, 2), [R(3, 4)]),
    "inplace_chain": (lambda x: x.clone().mul_(2).add_(1).sigmoid_(), [R(3, 4)]),
    "write_through_view": (lambda x: _write_view(x), [R(3, 4)]),
    "write_through_slices": (lambda x: _write_slices(x), [R(4, 6)]),
    "setitem": (lambda x, y: _setitem(x, y), [R(4, 6), R(6)]),
    "setitem_mask": (lambda x: _mask(x), [R(4, 6)]),
    "index_put": (
        lambda x, y: x.clone().index_put_((torch.tensor([0, 2, 0]),), y, accumulate=True),
        [R(4, 3), R(3, 3)],
    ),
    "copy_cast": (lambda x: torch.zeros(3, 4, dtype=torch.float64).copy_(x) * 2, [R(3, 4)]),
    "zero_fill": (lambda x: x * torch.empty_like(x).fill_(2.0) + torch.empty_like(x).zero_(), [R(3)]),
    "out_argument": (lambda x: _out(x), [R(3, grad=False)]),
    "mutate_input": (lambda x, y: (y.add_(x.detach()), x * 2)[1], [R(3), R(3, grad=False)]),
    "mutate_and_return": (lambda x: x.mul_(2), [R(3, grad=False)]),
    "mutate_view_of_input": (lambda x: _rows(x), [R(3, 4, grad=False)]),
    "mutated_then_used": (lambda x, y: y.mul_(2) * x, [R(3), R(3, grad=False)]),
    "used_then_mutated": (lambda x, y: _used(x, y), [R(3), R(3, grad=False)]),
    "return_input": (lambda x, y: (x, x + y, y), [R(3), R(3)]),
    "view_of_input": (lambda x: (x.view(-1), x.t()[1:], x.detach()), [R(3, 4)]),
    "views_of_intermediate": (lambda x: _views(x), [R(3, 4)]),
    "same_twice": (lambda x: (lambda y: (y, y))(x.sin()), [R(3)]),
    "equal_expressions": (lambda x: (x + 1, x + 1, x.clone(), x.clone()), [R(3)]),
    "none_and_numbers": (lambda x: (None, x.sin(), 3, True), [R(3)]),
    "split_cat": (lambda x: torch.cat([p * i for i, p in enumerate(x.split(2, 1))], 0), [R(3, 6)]),
    "unbind_stack": (lambda x: torch.stack([p.exp() for p in x.unbind(0)], 1), [R(3, 6)]),
    "split_write": (lambda x: _split_write(x), [R(3, 6)]),
    "transpose_write": (lambda x, y: _transpose_write(x, y), [R(3, 4), R(4, 3)]),
    "inplace_view_op": (lambda x: x.sin().t_().mul_(2).unsqueeze_(0), [R(3, 4)]),
    "diagonal_write": (lambda x: _diagonal(x), [R(4, 4)]),
    "as_strided": (lambda x: x.sin().as_strided((2, 2), (1, 2)) * 2, [R(6)]),
    "as_strided_write": (lambda x: _strided_write(x), [R(12)]),
    "as_strided_scatter_offset": (lambda x, y: torch.as_strided_scatter(x * 2, y, (2, 3), (4, 1), 5), [R(12), R(2, 3)]),
    "diagonal_copy": (lambda x: torch.diagonal_copy(x * 2, offset=1) ** 2, [R(4, 5)]),
    "diagonal_scatter": (
        lambda x, y: torch.diagonal_scatter(x.sin(), y.cos(), -1, 2, 0),
        [R(4, 3, 5), R(3, 4)],
    ),
    "shape_changed_in_place": (lambda x: x.sin().transpose_(0, 1).squeeze_(0) * 2, [R(3, 1)]),
    "lists": (lambda x, y: _lists(x, y), [R(3), R(2, 4)]),
    "fused_adamw": (lambda *t: _fused(*t, 0.0), [R(3, 4, grad=False, seed=i) for i in range(4)]),
    "fused_adamw_overflow": (lambda *t: _fused(*t, 1.0), [R(3, 4, grad=False, seed=i) for i in range(4)]),
    "fused_sgd": (lambda *t: _fused_sgd(*t), [R(3, 4, grad=False, seed=i) for i in range(3)]),
    "expand_sum": (lambda x: x.expand(5, 3).sum(0) * x, [R(3)]),
    "embedding": (lambda w: F.embedding(torch.tensor([[1, 2], [0, 2]]), w, padding_idx=0), [R(4, 3)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 0, -100]), label_smoothing=0.1), [R(3, 5)]),
    "softmax_log": (lambda x: F.log_softmax(x, -1) + F.softmax(x, 0), [R(3, 5)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [R(1, 2, 5, 4)] * 1 + [R(1, 2, 5, 4, seed=1), R(1, 2, 5, 4, seed=2)],
    ),
    "conv": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [R(2, 3, 6, 6), R(4, 3, 3, 3), R(4)]),
    "max_pool": (lambda x: F.max_pool2d(x, 2), [R(1, 2, 6, 6)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [R(3, 4), R(4), R(4, seed=1)]),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), [R(2, 4, 3), R(4)]),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh") + F.silu(x) + F.mish(x), [R(3, 4)]),
    "dropout": (lambda x: F.dropout(x, 0.5) * F.dropout(x, 0.2), [R(50)]),
    "random_factories": (lambda x: x * torch.rand(3) + torch.randn_like(x), [R(3)]),
    "inplace_random": (lambda x: x * torch.empty(3).uniform_() + torch.empty(3).normal_(), [R(3)]),
    "cumsum_flip": (lambda x: x.cumsum(0).flip(1), [R(3, 4)]),
    "index_select": (lambda x: x[:, torch.tensor([2, 0])] + x[..., None][:, 1], [R(3, 3)]),
    "gather_scatter": (
        lambda x: (
            x.gather(1, torch.tensor([[0], [1], [2]])) + x.scatter_add(1, torch.zeros(3, 1, dtype=torch.long), x[:, :1])
        ),
        [R(3, 3)],
    ),
    "where_scalar": (lambda x: torch.where(x > 0, x, 0.0), [R(3, 3)]),
    "constants": (lambda x: x * torch.tensor([1.0, 2.0, 3.0]), [R(3)]),
    "norm_std": (lambda x: x.norm() + x.std(0) + x.var(1)[:3] + x.logsumexp(0), [R(3, 3)]),
    "complex": (lambda x: torch.view_as_real(torch.fft.fft(x)), [R(8)]),
    "prod_amax": (lambda x: x.prod(0) + x.amax(1), [R(3, 3)]),
    "contiguous": (lambda x: x.t().contiguous().view(-1) * 2, [R(3, 4)]),
    "permuted_result": (lambda x: x.permute(1, 0, 2).sin(), [R(2, 3, 4)]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), [R(2, 3, 4), R(2, 4, 5)]),
    "linalg": (lambda x: torch.linalg.inv(x @ x.mT + torch.eye(3)), [R(3, 3)]),
    "foreach": (lambda x, y: torch._foreach_add([x, y], 1.0), [R(3), R(4)]),
}


def _write_view(x):
    y = x * 2
    view = y.view(-1)
    view[3:7].add_(1)
    return y, y[0].sum()


def _write_slices(x):
    y = x.sin()
    y[1:3, ::2] = 0
    y[0] *= 3
    y[:, -1] += y[:, 0]
    return y


def _setitem(x, y):
    z = x.clone()
    z[1] = y
    z[torch.tensor([0, 3])] = y * 2
    return z


def _mask(x):
    z = x.clone()
    z[x > 0] = 0
    return z.masked_fill_(x < -1, 5.0)


def _out(x):
    out = torch.empty_like(x)
    torch.sin(x, out=out)
    return out


def _rows(x):
    x[0].fill_(1.0)
    x[:, 1:].mul_(2)
    return x.sum()


def _used(x, y):
    z = x * y
    y.add_(1)
    return z.detach() + x


def _views(x):
    y = x.sin()
    return y, y.view(-1), y[0], y.detach()


def _split_write(x):
    y = x * 2
    b = y.narrow(1, 3, 3)
    b.mul_(2)
    return y, b


def _transpose_write(x, y):
    z = x.clone()
    z.t().add_(y)
    z.permute(1, 0)[0] = 1
    return z


def _strided_write(x):
    y = x * 3
    y[2:].as_strided((2, 3), (4, 1), 3).mul_(2.0)
    return y


def _lists(x, y):
    a = torch._foreach_add([x, y], [x * 2, y * 3], alpha=0.5)
    torch._foreach_mul_(a, [2.0, 3.0])
    b = torch._foreach_addcdiv(a, [x, y], torch._foreach_exp([x, y]), [0.1, 0.2])
    c = torch._foreach_lerp(b, a, 0.3) + torch._foreach_clamp_min(a, 0.1) + torch._foreach_maximum(a, 0.2)
    return (*torch._foreach_norm(c), *torch._foreach_sub(b, 1.0), *torch._foreach_pow(2.0, a))


def _fused(param, grad, average, square, overflow):
    square.abs_()
    torch._fused_adamw_(
        [param], [grad], [average], [square], [], [torch.tensor(3.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=False, maximize=True, grad_scale=torch.tensor(4.0), found_inf=torch.tensor(overflow),
    )  # fmt: skip
    return param * 1


def _fused_sgd(param, grad, buffer):
    torch._fused_sgd_(
        [param], [grad], [buffer], lr=0.1, momentum=0.9, weight_decay=0.1, dampening=0.1, nesterov=True, maximize=False,
        is_first_step=False,
    )  # fmt: skip
    return param * 1


def _diagonal(x):
    y = x.clone()
    y.diagonal().zero_()
    torch.diagonal(y, 1).add_(1)
    return y


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name):
    """Values, strides, requires_grad, writes and gradients are eager's."""
    function, inputs = CASES[name]
    check_function(function, inputs)


@pytest.mark.parametrize(
    "name", ["pointwise", "several_outputs", "views_of_intermediate", "dropout", "mutate_input", "setitem"]
)
def test_python_twin_equals_eager(name):
    """The Python joint function gives the same as the native one."""
    from flambeau_autograd import Config

    function, inputs = CASES[name]
    check_function(function, inputs, options={"config": Config(native=False)})


@pytest.mark.parametrize(
    "name", ["pointwise", "layer_norm", "attention", "dropout", "cross_entropy", "write_through_view"]
)
def test_default_partitioner(name):
    """The reference partitioner gives the same gradients."""
    from flambeau_autograd import default_partition

    function, inputs = CASES[name]
    check_function(function, inputs, options={"partition_fn": default_partition})


@pytest.mark.parametrize("name", ["pointwise", "layer_norm", "attention", "dropout", "conv", "softmax_log"])
@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_memory_budget(name, budget):
    """Recomputing to fit a budget does not change results."""
    from flambeau_autograd import Config

    function, inputs = CASES[name]
    check_function(function, inputs, options={"config": Config(activation_memory_budget=budget)})


def test_returned_input_is_the_callers_object():
    """An output that is an input is that very tensor."""
    x = R(3)
    out = compile_function(lambda x: (x, x.sin()), [x])(x)
    assert out[0] is x


def test_view_of_input_shares_memory_and_history():
    """An output that views an input is a view of the caller's tensor."""
    x = R(3, 4, grad=False)
    (out,) = compile_function(lambda x: x.view(-1)[2:], [x])(x)
    assert out._base is x and out.data_ptr() == x[0, 2:].data_ptr()


def test_outputs_that_alias_each_other_still_do():
    """Writing to one output shows in the other, and gradients know."""
    x, y = clones([R(3, 4)]), clones([R(3, 4)])

    def function(x):
        z = x * 2
        return z, z.view(-1)

    a, b = compile_function(function, x)(*x)
    c, d = function(*y)
    a.mul_(3)
    c.mul_(3)
    torch.testing.assert_close(b, d)
    b.sum().backward()
    d.sum().backward()
    torch.testing.assert_close(x[0].grad, y[0].grad)


def test_equal_outputs_do_not_share_memory():
    """Two equal expressions are two tensors."""
    x = R(3, grad=False)
    a, b, c, d = compile_function(lambda x: (x + 1, x + 1, x.clone(), x.clone()), [x])(x)
    assert len({t.data_ptr() for t in (a, b, c, d, x)}) == 5


def test_write_to_input_with_history():
    """Writing an input that requires grad gives it a new history, as in eager."""

    def function(x, y):
        x.mul_(y)
        return x * 2

    def run(f):
        leaf, y = R(3).detach().requires_grad_(), R(3, seed=1).detach().requires_grad_()
        x = leaf * 1
        x.retain_grad()
        out = f(x, y)
        out = out[0] if isinstance(out, tuple) else out
        version = x._version
        (out.sum() + x.sum()).backward()
        return out, x, leaf.grad, y.grad, version

    leaf = R(3)
    mode_inputs = [leaf * 1, R(3, seed=1)]
    from lifting import compile_graph, lift_function

    gm = lift_function(lambda x, y: (x.mul_(y) * 2,), [R(3, grad=False), R(3, grad=False)])
    compiled = compile_graph(gm, mode_inputs)
    for a, b in zip(run(compiled), run(function)):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a > 0 and b > 0


def test_version_of_a_written_buffer_is_bumped():
    """Autograd notices that a saved buffer was overwritten by a compiled graph."""
    x, y = R(3), R(3, grad=False)
    compiled = compile_function(lambda y: y.add_(1), [y])
    y = y.clone()
    z = (x * y).sum()
    before = y._version
    compiled(y)
    assert y._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@pytest.mark.parametrize(
    "function",
    [lambda x: x.resize_(2), lambda x: x.t_(), lambda x: x.detach().set_(torch.ones(3))],
    ids=["resize", "metadata", "set"],
)
def test_refused(function):
    """What cannot be made functional is refused, so that the caller runs it in eager."""
    from lifting import compile_graph
    from torch.fx import Graph, GraphModule

    graph = Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(function, (x,)),))
    with pytest.raises(UnsupportedGraph):
        compile_graph(GraphModule(torch.nn.Module(), graph), [R(2, 3, grad=False)])


def test_written_inputs_that_share_memory_are_refused():
    """Two inputs over one storage, one of them written: eager runs it."""
    from lifting import compile_graph, lift_function

    base = torch.randn(6)
    gm = lift_function(lambda x, y: (x.add_(1), y * 2)[1], [base[:3], base[3:]])
    with pytest.raises(UnsupportedGraph, match="shares memory"):
        compile_graph(gm, [base[:3], base[3:]])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.detach(), x.view_as(x)),
        lambda x: (x.detach().view(-1), x.t()),
        lambda x: (x.sin(), x.detach().t()),
        lambda x: (lambda y: (y, y.detach().view(-1), y[0]))(x.sin()),
        lambda x: (lambda y: (y, y[...], y.view_as(y), y.detach()))(x.sin()),
    ],
    ids=["input", "view of input", "beside another", "view of result", "all of a result"],
)
def test_views_and_what_is_detached_are_those_of_eager(function, grad):
    """Which results need gradients, which are views, of what and taken how, and whose memory they have."""

    def facts(results, x):
        shown = (x, *results)
        own = [t.untyped_storage().data_ptr() for t in shown]
        bases = [[number for number, base in enumerate(shown) if t._base is base] for t in results]
        taken = [str(torch._C._autograd._get_creation_meta(t)) if t._is_view() else None for t in results]
        flags = [(t.requires_grad, t.is_leaf, t._is_view(), own.index(t.untyped_storage().data_ptr())) for t in results]
        return flags, bases, taken

    x = R(2, 3, grad=grad)
    assert facts(compile_function(function, [x])(x), x) == facts(function(x), x)
