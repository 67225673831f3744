"""Derivatives without `torch.func`: `torch.autograd.functional`, forward-mode duals, `torch.autograd.grad` in a program."""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor, nn
from torch.autograd import functional

from ..registry import Made, program

SECTION = "autograd API"


@program(SECTION)
def functional_jacobian() -> Made:
    return lambda x: functional.jacobian(lambda y: y.exp() * y.sum(), x), [(torch.randn(3),)]


@program(SECTION)
def functional_jacobian_vectorized() -> Made:
    return lambda x: functional.jacobian(lambda y: y.sin(), x, vectorize=True), [(torch.randn(3),)]


@program(SECTION)
def functional_hessian() -> Made:
    return lambda x: functional.hessian(lambda y: (y**3).sum(), x), [(torch.randn(3),)]


@program(SECTION)
def functional_vjp_and_jvp() -> Made:
    def f(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return functional.vjp(torch.sin, x, v)[1], functional.jvp(torch.sin, x, v)[1]

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def functional_vhp() -> Made:
    return lambda x, v: functional.vhp(lambda y: y.pow(3).sum(), x, v)[1], [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def dual_numbers() -> Made:
    def f(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        with fwad.dual_level():
            out = fwad.make_dual(x, t).sin() * 2
            primal, tangent = fwad.unpack_dual(out)
            return primal.clone(), tangent.clone()

    return f, [(torch.randn(3), torch.randn(3))]


@program(SECTION)
def dual_numbers_through_a_module() -> Made:
    layer = nn.Linear(3, 2).requires_grad_(False)

    def f(x: Tensor, t: Tensor) -> Tensor:
        with fwad.dual_level():
            return fwad.unpack_dual(torch.tanh(layer(fwad.make_dual(x, t)))).tangent.clone()

    return f, [(torch.randn(4, 3), torch.randn(4, 3))]


@program(SECTION)
def gradient_penalty() -> Made:
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def f(real: Tensor, fake: Tensor) -> Tensor:
        mix = (0.5 * real + 0.5 * fake).requires_grad_(True)
        (g,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
        return (g.norm(2, dim=1) - 1).pow(2).mean()

    return f, [(torch.randn(4, 3), torch.randn(4, 3))], critic


@program(SECTION)
def forces_from_an_energy() -> Made:
    def f(positions: Tensor) -> Tensor:
        positions = positions.detach().requires_grad_(True)
        energy = torch.cdist(positions, positions + 1).exp().neg().sum()
        return -torch.autograd.grad(energy, positions)[0]

    return f, [(torch.randn(4, 3),)]


@program(SECTION)
def adversarial_example() -> Made:
    model = nn.Linear(4, 3)

    def f(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone().requires_grad_(True)
        loss = nn.functional.cross_entropy(model(x), y)
        (g,) = torch.autograd.grad(loss, [x])
        return (x + 0.1 * g.sign()).detach()

    return f, [(torch.randn(2, 4), torch.tensor([0, 2]))]


@program(SECTION)
def second_derivatives_by_grad() -> Made:
    def f(x: Tensor) -> Tensor:
        y = x.sin() * x
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return second

    return f, [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def grad_with_allow_unused() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, bool]:
        gx, gy = torch.autograd.grad((x * 2).sum(), (x, y), allow_unused=True)
        return gx, gy is None

    return f, [(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))]


@program(SECTION)
def grad_with_grad_outputs() -> Made:
    def f(x: Tensor, v: Tensor) -> Tensor:
        return torch.autograd.grad(x.tanh(), x, grad_outputs=v)[0]

    return f, [(torch.randn(3, requires_grad=True), torch.randn(3))]


@program(SECTION)
def langevin_step() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            score = torch.autograd.grad(-(x**4).sum() / 4, x)[0]
        return x.detach() + 0.01 * score + 0.1 * torch.randn_like(x)

    return f, [(torch.randn(4),)]


@program(SECTION)
def double_backward_of_the_result() -> Made:
    def f(x: Tensor) -> Tensor:
        return (x**3).sum()

    def g(x: Tensor) -> Tensor:
        return torch.autograd.grad(f(x), x, create_graph=True)[0].pow(2)

    return g, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def backward_with_retained_graph() -> Made:
    w = nn.Parameter(torch.ones(3))

    def f(x: Tensor) -> Tensor:
        out = (x * w).sin()
        out.sum().backward(retain_graph=True)
        out.mean().backward()
        return w.grad.clone()

    return f, [(torch.randn(3),), (torch.randn(3),)], w
