"""Activation checkpoints of both kinds, with policies and random numbers, and `nested_compile_region`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from ..registry import Made, program

SECTION = "checkpoint and regions"


def _block(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


@program(SECTION)
def checkpoint_of_a_module() -> Made:
    block = _block()

    def f(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=False).relu()

    return f, [(torch.randn(3, 4, requires_grad=True),)], block


@program(SECTION)
def checkpoint_of_a_lambda() -> Made:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return checkpoint(lambda a: (a @ w).sin().exp(), x, use_reentrant=False)

    return f, [(torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True))]


@program(SECTION)
def checkpoint_reentrant() -> Made:
    block = _block()

    def f(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=True)

    return f, [(torch.randn(3, 4, requires_grad=True),)], block


@program(SECTION)
def checkpoint_of_every_layer() -> Made:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(_block() for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + checkpoint(layer, x, use_reentrant=False)
            return x

    return Stack(), [(torch.randn(2, 4),), (torch.randn(5, 4),)]


@program(SECTION)
def checkpoint_with_dropout() -> Made:
    block = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))

    def f(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=False)

    return f, [(torch.randn(3, 4, requires_grad=True),)], block


@program(SECTION)
def checkpoint_that_keeps_no_rng_state() -> Made:
    def f(x: Tensor) -> Tensor:
        return checkpoint(lambda y: y.tanh() * y, x, use_reentrant=False, preserve_rng_state=False)

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def checkpoint_with_keyword_arguments() -> Made:
    def scaled(x: Tensor, *, scale: float, bias: Tensor | None = None) -> Tensor:
        return x * scale if bias is None else x.sin() * scale + bias

    def f(x: Tensor, b: Tensor) -> Tensor:
        return checkpoint(scaled, x, use_reentrant=False, scale=2.0, bias=b)

    return f, [(torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))]


@program(SECTION)
def checkpoint_returning_a_tuple() -> Made:
    def parts(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return x.sin(), {"cos": x.cos()}

    def f(x: Tensor) -> Tensor:
        s, rest = checkpoint(parts, x, use_reentrant=False)
        return s * rest["cos"]

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def checkpoint_sequential_of_segments() -> Made:
    model = nn.Sequential(*(_block() for _ in range(4)))

    def f(x: Tensor) -> Tensor:
        return checkpoint_sequential(model, 2, x, use_reentrant=False)

    return f, [(torch.randn(3, 4, requires_grad=True),)], model


@program(SECTION)
def checkpoint_that_saves_products() -> Made:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        saved = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    block = _block()

    def f(x: Tensor) -> Tensor:
        context = partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(block, x, use_reentrant=False, context_fn=context)

    return f, [(torch.randn(3, 4, requires_grad=True),)], block


@program(SECTION)
def checkpoint_with_a_list_of_operators() -> Made:
    saved = [torch.ops.aten.mm.default]

    def f(x: Tensor, w: Tensor) -> Tensor:
        context = partial(create_selective_checkpoint_contexts, saved)
        return checkpoint(lambda a, b: (a @ b).relu() @ b, x, w, use_reentrant=False, context_fn=context)

    return f, [(torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True))]


@program(SECTION)
def checkpoint_inside_checkpoint() -> Made:
    def inner(x: Tensor) -> Tensor:
        return x.sin().cos()

    def outer(x: Tensor) -> Tensor:
        return checkpoint(inner, x.exp(), use_reentrant=False) * x

    def f(x: Tensor) -> Tensor:
        return checkpoint(outer, x, use_reentrant=False)

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def checkpoint_only_while_training() -> Made:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = _block()

        def forward(self, x: Tensor) -> Tensor:
            if self.training and torch.is_grad_enabled():
                return checkpoint(self.block, x, use_reentrant=False)
            return self.block(x)

    return Layer(), [(torch.randn(2, 4),)]


@program(SECTION)
def checkpoint_under_autocast() -> Made:
    block = _block()

    def f(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return checkpoint(block, x, use_reentrant=False).float()

    return f, [(torch.randn(3, 4, requires_grad=True),)], block


@program(SECTION)
def nested_region_of_a_function() -> Made:
    @torch.compiler.nested_compile_region
    def gate(x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x) * y

    def f(x: Tensor) -> Tensor:
        return gate(x, x + 1) + gate(x * 2, x)

    return f, [(torch.randn(4),)]


@program(SECTION)
def nested_region_of_a_layer() -> Made:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        @torch.compiler.nested_compile_region
        def forward(self, x: Tensor) -> Tensor:
            return x + self.linear(x).relu()

    return nn.Sequential(*(Layer() for _ in range(3))), [(torch.randn(2, 4),)]


@program(SECTION)
def nested_region_with_gradients() -> Made:
    @torch.compiler.nested_compile_region
    def cube(x: Tensor) -> Tensor:
        return x.sin() ** 3

    def f(x: Tensor) -> Tensor:
        return cube(cube(x)).sum()

    return f, [(torch.rand(4, requires_grad=True),), (torch.rand(6, requires_grad=True),)]


@program(SECTION)
def nested_region_writing_its_argument() -> Made:
    @torch.compiler.nested_compile_region
    def bump(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    def f(x: Tensor) -> Tensor:
        return bump(x.clone())

    return f, [(torch.randn(4),)]
