"""Control flow operators: `torch.cond`, `while_loop`, `map`, over closures, modules and pytrees, nested and with gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_over

from ..registry import Made, program

SECTION = "control flow operators"


@program(SECTION)
def cond_on_a_sum() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos() - 1, (x,))

    return f, [(torch.ones(4),), (-torch.ones(4),)]


@program(SECTION)
def cond_over_closed_over_tensors() -> Made:
    scale, shift = torch.randn(4), torch.randn(4)

    def f(x: Tensor) -> Tensor:
        def grow(y: Tensor) -> Tensor:
            return y * scale + shift

        def shrink(y: Tensor) -> Tensor:
            return y / (scale.abs() + 1)

        return torch.cond(x.mean() > 0, grow, shrink, (x,))

    return f, [(torch.rand(3, 4),), (-torch.rand(3, 4),)]


@program(SECTION)
def cond_over_modules() -> Made:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.norm() > 2, self.large, self.small, (x,))

    return Gate(), [(torch.randn(2, 4) * 10,), (torch.randn(2, 4) * 0.01,)]


@program(SECTION)
def cond_with_gradients_of_inputs() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a, b: (a * b).exp(), lambda a, b: (a - b) ** 2, (x, w))

    return f, [
        (torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)),
        (-torch.rand(4).requires_grad_(), torch.rand(4, requires_grad=True)),
    ]


@program(SECTION)
def cond_inside_cond() -> Made:
    def f(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return torch.cond(y.max() > 2, lambda z: z.clamp(max=2.0), lambda z: z + 0.5, (y,))

        return torch.cond(x.min() > 0, inner, lambda y: -y, (x,))

    return f, [(torch.tensor([1.0, 3.0]),), (torch.tensor([1.0, 1.5]),), (torch.tensor([-1.0, 3.0]),)]


@program(SECTION)
def cond_returning_a_dict() -> Made:
    def f(x: Tensor) -> Tensor:
        out = torch.cond(
            x.sum() > 0,
            lambda y: {"loss": y.sum(), "logits": y * 2},
            lambda y: {"loss": -y.sum(), "logits": y * 3},
            (x,),
        )
        return out["logits"] + out["loss"]

    return f, [(torch.ones(3),), (-torch.ones(3),)]


@program(SECTION)
def cond_with_pytree_operands() -> Made:
    def f(state: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.cond(
            x.any(),
            lambda s, y: s["a"] + s["b"] * y,
            lambda s, y: s["a"] - s["b"] + y,
            (state, x),
        )

    return f, [({"a": torch.ones(2), "b": torch.full((2,), 3.0)}, torch.tensor([0.0, 1.0]))]


@program(SECTION)
def cond_on_a_size() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.shape[0] > 4, lambda y: y.sum(0), lambda y: y.mean(0), (x,))

    return f, [(torch.randn(3, 2),), (torch.randn(5, 2),), (torch.randn(8, 2),)]


@program(SECTION)
def cond_without_operands() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda: x.sin(), lambda: x.cos())

    return f, [(torch.ones(3),), (-torch.ones(3),)]


@program(SECTION)
def cond_branches_with_python_numbers() -> Made:
    def f(x: Tensor, k: int) -> Tensor:
        return torch.cond(x.sum() > k, lambda y: y * k, lambda y: y + k, (x,))

    return f, [(torch.ones(4), 2), (torch.ones(4), 5)]


@program(SECTION)
def cond_choosing_a_dropout() -> Made:
    def f(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: nn.functional.dropout(y, 0.5), lambda y: y.clone(), (x,))

    return f, [(torch.ones(16),), (-torch.ones(16),)]


@program(SECTION)
def while_loop_counting() -> Made:
    def f(n: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return while_loop(lambda i, y: i > 0, lambda i, y: (i - 1, y * 1.5), (n, x))

    return f, [(torch.tensor(3), torch.ones(2)), (torch.tensor(0), torch.ones(2))]


@program(SECTION)
def while_loop_newton_root() -> Made:
    def f(a: Tensor) -> Tensor:
        def unfinished(x: Tensor, step: Tensor) -> Tensor:
            return ((x * x - a).abs().max() > 1e-4) & (step < 50)

        def improve(x: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
            return (x + a / x) / 2, step + 1

        x, _ = while_loop(unfinished, improve, (torch.ones_like(a), torch.zeros((), dtype=torch.int64)))
        return x

    return f, [(torch.tensor([2.0, 9.0]),), (torch.tensor([16.0, 100.0]),)]


@program(SECTION)
def while_loop_over_a_module() -> Made:
    class Refine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            def body(i: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
                return i + 1, torch.tanh(self.step(h))

            return while_loop(lambda i, h: i < 4, body, (torch.tensor(0), x))[1]

    return Refine().requires_grad_(False), [(torch.randn(2, 3),)]


@program(SECTION)
def while_loop_of_a_power_iteration() -> Made:
    def f(m: Tensor, v: Tensor) -> Tensor:
        def body(i: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
            w = m @ u
            return i + 1, w / w.norm()

        _, u = while_loop(lambda i, u: i < 10, body, (torch.tensor(0), v))
        return u @ m @ u

    return f, [(torch.eye(3) + 1, torch.rand(3)), (torch.eye(4) + 2, torch.rand(4))]


@program(SECTION)
def while_loop_with_a_nested_cond() -> Made:
    def f(x: Tensor) -> Tensor:
        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, torch.cond(i % 2 == 0, lambda z: z + 1, lambda z: z * 2, (y,))

        return while_loop(lambda i, y: i < 5, body, (torch.tensor(0), x))[1]

    return f, [(torch.ones(3),)]


@program(SECTION)
def while_loop_nested() -> Made:
    def f(x: Tensor) -> Tensor:
        def outer(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            inner = while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, z + i), (torch.tensor(0), y))
            return i + 1, inner[1]

        return while_loop(lambda i, y: i < 3, outer, (torch.tensor(0), x))[1]

    return f, [(torch.zeros(2, dtype=torch.int64),)]


@program(SECTION)
def while_loop_with_pytree_state() -> Made:
    def f(x: Tensor) -> Tensor:
        state = {"i": torch.tensor(0), "x": x}
        done = while_loop(lambda s: s["i"] < 3, lambda s: ({"i": s["i"] + 1, "x": s["x"] * 2},), (state,))
        return done[0]["x"]

    return f, [(torch.ones(2),)]


@program(SECTION)
def while_loop_writing_a_buffer() -> Made:
    def f(tokens: Tensor, n: Tensor) -> Tensor:
        def body(i: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, out.scatter(0, i.unsqueeze(0), (out.sum() + i).unsqueeze(0))

        return while_loop(lambda i, out: i < n, body, (torch.tensor(1), tokens))[1]

    return f, [(torch.tensor([1, 0, 0, 0]), torch.tensor(4)), (torch.tensor([2, 0, 0, 0]), torch.tensor(3))]


@program(SECTION)
def map_over_rows() -> Made:
    def f(xs: Tensor, y: Tensor) -> Tensor:
        return map_over(lambda x, w: (x * w).softmax(-1), xs, y)

    return f, [(torch.randn(4, 3), torch.randn(3)), (torch.randn(6, 3), torch.randn(3))]


@program(SECTION)
def map_with_gradients() -> Made:
    def f(xs: Tensor, w: Tensor) -> Tensor:
        return map_over(lambda x, m: torch.tanh(m @ x), xs, w)

    return f, [(torch.randn(4, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True))]


@program(SECTION)
def map_over_a_pytree() -> Made:
    def f(xs: dict[str, Tensor]) -> list[Tensor]:
        return map_over(lambda x: [x["a"] + x["b"], x["a"] * x["b"]], xs)

    return f, [({"a": torch.randn(3, 2), "b": torch.randn(3, 2)},)]


@program(SECTION)
def cond_in_a_training_loss() -> Made:
    model = nn.Linear(4, 2)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        error = model(x) - y
        return torch.cond(error.abs().max() > 1, lambda e: e.abs().sum(), lambda e: e.pow(2).sum(), (error,))

    return loss, [(torch.randn(3, 4), torch.randn(3, 2)), (torch.zeros(3, 4), torch.zeros(3, 2))], model


@program(SECTION)
def cond_under_vmap() -> Made:
    def f(xs: Tensor) -> Tensor:
        def one(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

        return torch.vmap(one)(xs)

    return f, [(torch.randn(4, 3),)]


@program(SECTION, raises=True)
def cond_behind_a_raise() -> Made:
    def f(x: Tensor) -> Tensor:
        torch._check(x.dim() == 1)
        if x.shape[0] < 2:
            raise ValueError("at least two")
        return torch.cond(x.sum() > 0, lambda y: y.flip(0), lambda y: y.roll(1), (x,))

    return f, [(torch.arange(3.0),), (torch.ones(1),)]
