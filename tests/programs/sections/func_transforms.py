"""`torch.func`: vmap, gradients, Jacobians, and modules as functions."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from ..registry import Made, program

SECTION = "torch.func"


@program(SECTION)
def vmap_of_a_dot_product() -> Made:
    return lambda x, y: vmap(torch.dot)(x, y), [(torch.randn(5, 3), torch.randn(5, 3))]


@program(SECTION)
def vmap_with_in_dims_and_out_dims() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return vmap(lambda a, b: a * b.sum(), in_dims=(1, None), out_dims=1)(x, y)

    return f, [(torch.randn(3, 5), torch.randn(4))]


@program(SECTION)
def vmap_nested_over_pairs() -> Made:
    def distance(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).pow(2).sum().sqrt()

    def f(x: Tensor, y: Tensor) -> Tensor:
        return vmap(vmap(distance, in_dims=(None, 0)), in_dims=(0, None))(x, y)

    return f, [(torch.randn(4, 3), torch.randn(5, 3)), (torch.randn(2, 3), torch.randn(6, 3))]


@program(SECTION)
def vmap_in_chunks() -> Made:
    return lambda x: vmap(lambda r: r.softmax(0).cumsum(0), chunk_size=2)(x), [(torch.randn(5, 4),)]


@program(SECTION)
def vmap_with_different_randomness() -> Made:
    def f(x: Tensor) -> Tensor:
        return vmap(lambda r: r + torch.randn_like(r), randomness="different")(x)

    return f, [(torch.zeros(4, 3),)]


@program(SECTION)
def vmap_with_the_same_randomness() -> Made:
    def f(x: Tensor) -> Tensor:
        return vmap(lambda r: nn.functional.dropout(r, 0.5), randomness="same")(x)

    return f, [(torch.ones(4, 6),)]


@program(SECTION)
def vmap_over_a_dict() -> Made:
    def f(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return vmap(lambda b: {"norm": b["x"].norm(), "scaled": b["x"] * b["w"]}, in_dims=({"x": 0, "w": 0},))(batch)

    return f, [({"x": torch.randn(4, 3), "w": torch.rand(4)},)]


@program(SECTION)
def vmap_made_outside() -> Made:
    batched = vmap(lambda x, w: torch.relu(w @ x), in_dims=(0, None))
    return lambda x, w: batched(x, w).sum(), [
        (torch.randn(4, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True))
    ]


@program(SECTION)
def grad_of_a_scalar_function() -> Made:
    return lambda x: grad(lambda y: (y.sin() * y).sum())(x), [(torch.randn(4),)]


@program(SECTION)
def grad_with_argnums_and_aux() -> Made:
    def loss(w: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        out = x @ w + b
        return out.pow(2).mean(), out

    def f(w: Tensor, b: Tensor, x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        return grad(loss, argnums=(0, 1), has_aux=True)(w, b, x)

    return f, [(torch.randn(3, 2), torch.randn(2), torch.randn(4, 3))]


@program(SECTION)
def grad_and_value_of_a_module() -> Made:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def f(x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        params = {k: v.detach() for k, v in model.named_parameters()}

        def loss(p: dict[str, Tensor]) -> Tensor:
            return nn.functional.mse_loss(functional_call(model, p, (x,)), y)

        return grad_and_value(loss)(params)

    return f, [(torch.randn(5, 3), torch.randn(5, 1))]


@program(SECTION)
def gradients_per_sample() -> Made:
    model = nn.Linear(3, 2)

    def f(xs: Tensor, ys: Tensor) -> dict[str, Tensor]:
        params = {k: v.detach() for k, v in model.named_parameters()}

        def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            out = functional_call(model, p, (x.unsqueeze(0),))
            return nn.functional.cross_entropy(out, y.unsqueeze(0))

        return vmap(grad(loss), in_dims=(None, 0, 0))(params, xs, ys)

    return f, [(torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))]


@program(SECTION)
def ensemble_of_models() -> Made:
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def f(x: Tensor) -> Tensor:
        def one(p: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
            return functional_call(base, (p, b), (x,))

        return vmap(one)(params, buffers).mean(0)

    return f, [(torch.randn(5, 3),)]


@program(SECTION)
def maml_inner_step() -> Made:
    def net(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.tanh(x @ p["w1"]) @ p["w2"]

    def f(p: dict[str, Tensor], sx: Tensor, sy: Tensor, qx: Tensor, qy: Tensor) -> dict[str, Tensor]:
        def outer(q: dict[str, Tensor]) -> Tensor:
            steps = grad(lambda r: (net(r, sx) - sy).pow(2).mean())(q)
            fast = {k: v - 0.1 * steps[k] for k, v in q.items()}
            return (net(fast, qx) - qy).pow(2).mean()

        return grad(outer)(p)

    return f, [({"w1": torch.randn(1, 4), "w2": torch.randn(4, 1)}, *(torch.randn(6, 1) for _ in range(4)))]


@program(SECTION)
def pinn_residual() -> Made:
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def f(x: Tensor) -> Tensor:
        def u(t: Tensor) -> Tensor:
            return net(t.reshape(1, 1)).squeeze()

        second = vmap(grad(grad(u)))(x)
        return (second + vmap(u)(x)).pow(2).mean()

    return f, [(torch.linspace(0, 1, 5),)], net


@program(SECTION)
def vjp_with_a_cotangent() -> Made:
    def f(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, pull = vjp(lambda y: y.sin().outer(y), x)
        return out, pull(v)[0]

    return f, [(torch.randn(3), torch.randn(3, 3))]


@program(SECTION)
def vjp_of_two_arguments_with_aux() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        out, pull, aux = vjp(lambda a, b: (a * b, a + b), x, y, has_aux=True)
        gx, gy = pull(torch.ones_like(out))
        return gx, gy, aux

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def jvp_of_a_matrix_function() -> Made:
    def f(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return jvp(lambda m: torch.tanh(m @ m), (x,), (t,))

    return f, [(torch.randn(3, 3), torch.randn(3, 3))]


@program(SECTION)
def jacrev_of_a_vector_function() -> Made:
    return lambda x: jacrev(lambda y: (y**2).cumsum(0))(x), [(torch.randn(4),)]


@program(SECTION)
def jacfwd_with_argnums() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return jacfwd(lambda a, b: a * b.exp(), argnums=1)(x, y)

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def jacobian_of_a_batch() -> Made:
    w = torch.randn(2, 3)
    return lambda xs: vmap(jacrev(lambda x: torch.sigmoid(w @ x)))(xs), [(torch.randn(4, 3),)]


@program(SECTION)
def hessian_of_a_quartic() -> Made:
    return lambda x: hessian(lambda y: (y**4).sum() + y.prod())(x), [(torch.randn(3),)]


@program(SECTION)
def hessian_vector_product() -> Made:
    def f(x: Tensor, v: Tensor) -> Tensor:
        return jvp(grad(lambda y: (y.sin() * y.cos()).sum()), (x,), (v,))[1]

    return f, [(torch.randn(4), torch.randn(4))]


@program(SECTION)
def jacfwd_of_jacrev() -> Made:
    return lambda x: jacfwd(jacrev(lambda y: y.pow(3).sum()))(x), [(torch.randn(3),)]


@program(SECTION)
def linearized_function() -> Made:
    def f(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        out, push = linearize(lambda y: y.sin() * 2, x)
        return out, push(t) + push(t * 2)

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def functional_call_with_replaced_weights() -> Made:
    model = nn.Linear(3, 2)

    def f(x: Tensor, w: Tensor) -> Tensor:
        return functional_call(model, {"weight": w}, (x,))

    return f, [(torch.randn(4, 3), torch.randn(2, 3, requires_grad=True))], model


@program(SECTION)
def functional_call_of_batch_norm() -> Made:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        state = {k: v.clone() for k, v in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items()}
        return functional_call(model, state, x), state["1.running_mean"]

    return f, [(torch.randn(5, 3),)], model


@program(SECTION)
def functionalized_writes() -> Made:
    def write(x: Tensor) -> Tensor:
        y = x.clone()
        y[0].add_(1)
        return y

    return lambda x: functionalize(write)(x) * 2, [(torch.randn(3, 2),)]


@program(SECTION)
def grad_inside_no_grad() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            return grad(lambda y: y.pow(2).sum())(x) + x

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def gradient_descent_loop() -> Made:
    def f(x: Tensor) -> Tensor:
        slope = grad(lambda y: (y - 3).pow(2).sum())
        for _ in range(4):
            x = x - 0.1 * slope(x)
        return x

    return f, [(torch.zeros(3),)]


@program(SECTION)
def energy_and_forces() -> Made:
    def energy(positions: Tensor) -> Tensor:
        delta = positions[:, None] - positions[None]
        distance = delta.pow(2).sum(-1) + torch.eye(len(positions))
        return (1 / distance).triu(1).sum()

    def f(positions: Tensor) -> tuple[Tensor, Tensor]:
        forces, value = grad_and_value(energy)(positions)
        return -forces, value

    return f, [(torch.randn(4, 3),), (torch.randn(5, 3),)]


@program(SECTION)
def vmap_of_a_module_with_closed_over_weights() -> Made:
    layer = nn.Linear(3, 2)
    return lambda x: vmap(layer)(x).sum(-1), [(torch.randn(4, 5, 3, requires_grad=True),)], layer


@program(SECTION)
def vmap_of_indexing() -> Made:
    def f(table: Tensor, ids: Tensor) -> Tensor:
        return vmap(lambda row, i: row[i], in_dims=(0, 0))(table, ids)

    return f, [(torch.randn(4, 5), torch.tensor([0, 2, 4, 1]))]


@program(SECTION)
def vmap_of_where_and_masks() -> Made:
    def f(x: Tensor) -> Tensor:
        return vmap(lambda r: torch.where(r > r.mean(), r, torch.zeros_like(r)).norm())(x)

    return f, [(torch.randn(4, 6),)]


@program(SECTION)
def grad_through_an_argument_that_requires_grad() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return grad(lambda y: (y * w).sin().sum())(x)

    return f, [(torch.randn(3), torch.randn(3, requires_grad=True))]
