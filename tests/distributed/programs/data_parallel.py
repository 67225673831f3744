"""Models under DistributedDataParallel: what is compiled inside the wrapper, around it, and around a whole step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import flambeau

from . import Here, compile_in_place, plain, program, told_of_torch, trained, values

BUCKET = 0.001
"""Megabytes: less than a layer."""


def layers(*, norm: bool = True, count: int = 3) -> nn.Module:
    """Each fills a bucket."""
    each = [lambda: nn.Linear(16, 16), nn.Tanh, *([lambda: nn.BatchNorm1d(16)] if norm else [])]
    return nn.Sequential(*(make() for _ in range(count) for make in each))


class Branches(nn.Module):
    """Of two layers one has a part in the result: which one is said by who calls, or by the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor, left: bool | None = None) -> Tensor:
        y = torch.tanh(self.first(x))
        if left is None:
            left = bool(y.sum() > 0)
        return self.left(y) if left else self.right(y)


class Stack(nn.Module):
    """A model with a forward of the program's own, as torch.compile wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class Checkpointed(nn.Module):
    """Computes its layers again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers(norm=False, count=2), layers(norm=False, count=2)

    def forward(self, x: Tensor) -> Tensor:
        y = checkpoint(self.first, x, use_reentrant=False)
        return checkpoint(self.second, y, use_reentrant=False)


def wrapped(here: Here, model: nn.Module, **options: Any) -> DistributedDataParallel:
    places = {"device_ids": [here.rank]} if here.device.type == "cuda" else {}
    return DistributedDataParallel(model, **({"bucket_cap_mb": BUCKET} | places | options))


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "views of buckets": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "static views": {"static_graph": True, "gradient_as_bucket_view": True},
    "searched": {"find_unused_parameters": True},
    "own buffers": {"broadcast_buffers": False},
    "one bucket": {"bucket_cap_mb": 25},
}


def _register(way: str, options: dict[str, Any]) -> None:
    @program(name=f"around {way}", slow=way not in ("plain", "searched", "static views"))
    def around(here: Here) -> Any:
        """The wrapper is compiled."""
        model = wrapped(here, here.made(layers), **options)
        return trained(here, model, here.compile(model))

    @program(name=f"within {way}", slow=way not in ("plain", "views of buckets"))
    def within(here: Here) -> Any:
        """What it wraps is compiled."""
        model = wrapped(here, here.compile(here.made(layers)), **options)
        return trained(here, model, model)


for _way, _options in WAYS.items():
    _register(_way, _options)


def accumulate(here: Here, model: DistributedDataParallel, run: Callable[..., Any]) -> list[Any]:
    """Two steps of three parts each, of which the last has the gradients reduced."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for step in range(2):
        optimizer.zero_grad()
        for part in range(3):
            with model.no_sync() if part < 2 else contextlib.nullcontext():
                run(here.data(3 * step + part, 4, 16)).exp().mean().backward()
            kept += [plain(p.grad) for p in model.parameters()]
        optimizer.step()
    return kept + values(model)


@program()
def accumulated(here: Here) -> Any:
    """`no_sync()` holds for backwards of compiled graphs."""
    model = wrapped(here, here.made(layers))
    return accumulate(here, model, here.compile(model))


@program(slow=True)
def accumulated_within(here: Here) -> Any:
    """The same where the wrapper is outside."""
    model = wrapped(here, here.compile(here.made(layers)), gradient_as_bucket_view=True)
    return accumulate(here, model, model)


@program(graphs=2)
def other_branches(here: Here) -> Any:
    """Ranks take different branches, said by an argument that changes."""
    model = wrapped(here, here.made(Branches), find_unused_parameters=True)
    run = here.compile(model)
    kept = []
    for step in range(4):
        model.zero_grad()
        run(here.data(step, 6, 16), bool((step + here.rank) % 2) if step < 3 else True).exp().mean().backward()
        kept += values(model)
    return kept


@program(graphs=2)
def branches_of_numbers(here: Here) -> Any:
    """The same, decided by the data in the middle of the forward."""
    model = wrapped(here, here.made(Branches), find_unused_parameters=True)
    run = here.compile(model)
    kept = []
    for step in range(3):
        model.zero_grad()
        run(here.data(step, 6, 16) + (1 - 2 * here.rank)).exp().mean().backward()
        kept += values(model)
    return kept


@program(rtol=1e-2)
def hooks_of_buckets(here: Here) -> Any:
    """A hook gets all gradients once in every step; torch's hook that sends halves gets them too."""
    kept: list[Any] = []
    for hook in (fp16_compress_hook, None):
        model = wrapped(here, here.made(layers))
        sizes: list[int] = []
        if hook is not None:
            model.register_comm_hook(None, hook)
        else:
            model.register_comm_hook(sizes, _told)
        kept += [trained(here, model, here.compile(model)), sum(sizes)]
    return kept


def _told(sizes, bucket):  # torch reads annotations, which are text here
    sizes.append(bucket.buffer().numel())
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / 2)


@program()
def uneven_sizes(here: Here) -> Any:
    """One rank meets new sizes, and compiles, where the other does not."""
    model = wrapped(here, here.made(layers))
    run = here.compile(model)
    kept: list[Any] = []
    for step in range(4):
        model.zero_grad()
        run(here.data(step, 6 + (step // 2 + step) * here.rank, 16)).exp().mean().backward()
        kept += values(model)
    return kept


@program(graphs=2)
def uneven_sizes_agreed(here: Here) -> Any:
    """The same where ranks agree on what is compiled: both compile where one must."""
    before = flambeau.compiler.set_enable_guard_collectives(True)
    try:
        return uneven_sizes(here)
    finally:
        flambeau.compiler.set_enable_guard_collectives(before)


@program(slow=True)
def uneven_sizes_told(here: Here) -> Any:
    """The same where they tell each other their sizes too, before they compile."""
    with flambeau.compiler.config.patch(enable_compiler_collectives=True):
        return uneven_sizes_agreed(here)


@program()
def stances(here: Here) -> Any:
    """One rank runs in eager what the other has compiled."""
    model = wrapped(here, here.made(layers))
    run = here.compile(model)
    kept: list[Any] = []
    for step, stance in enumerate(("default", "eager_on_recompile", "force_eager", "default")):
        model.zero_grad()
        with flambeau.compiler.set_stance(stance if here.rank else "default"):
            run(here.data(step, 6 + step * here.rank, 16)).exp().mean().backward()
        kept += values(model)
    return kept


@program()
def frozen_and_evaluated(here: Here) -> Any:
    """Weights that are not trained; evaluation between the steps."""
    model = wrapped(here, _frozen(here.made(layers)))
    run = here.compile(model)
    kept: list[Any] = []
    for _ in range(2):
        kept += trained(here, model, run, steps=1)
        model.eval()
        with torch.no_grad():
            kept.append(run(here.data(7, 6, 16)))
        model.train()
    return kept


def _frozen(model: nn.Module) -> nn.Module:
    model[0].requires_grad_(False)
    return model


@program(slow=True)
def two_forwards(here: Here) -> Any:
    """One backward for two results."""
    model = wrapped(here, here.made(functools.partial(layers, norm=False)))
    run = here.compile(model)
    kept: list[Any] = []
    for step in range(2):
        model.zero_grad()
        (run(here.data(step, 6, 16)) * run(here.data(step + 5, 6, 16))).mean().backward()
        kept += values(model)
    return kept


@program()
def computed_again(here: Here) -> Any:
    """Checkpoints inside the wrapper."""
    model = wrapped(here, here.made(Checkpointed))
    return trained(here, model, here.compile(model))


@program(slow=True)
def computed_again_static(here: Here) -> Any:
    """Checkpoints inside a wrapper that takes the first step's order for all."""
    model = wrapped(here, here.made(Checkpointed), static_graph=True)
    return trained(here, model, here.compile(model))


@program(rtol=2e-2, slow=True)
def in_halves(here: Here) -> Any:
    """Under autocast."""
    model = wrapped(here, here.made(functools.partial(layers, norm=False)))
    compiled = here.compile(model)

    def run(x: Tensor) -> Tensor:
        with torch.autocast(here.device.type, dtype=torch.bfloat16):
            y: Tensor = compiled(x)
        return y.float()

    return trained(here, model, run)


@program()
def whole_steps(here: Here) -> Any:
    """Forward, backward and the optimizer in one compiled function: the gradients are reduced all the same."""
    model = wrapped(here, here.made(layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).exp().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = here.compile(step)
    return [run(here.data(number, 6, 16)) for number in range(3)] + values(model)


@program(falls_back=("a generator is left inside of a with",), slow=True)
def whole_steps_accumulated(here: Here) -> Any:
    """The same with parts that are not reduced."""
    model = wrapped(here, here.made(layers))

    def step(x: Tensor, y: Tensor) -> None:
        with model.no_sync():
            model(x).exp().mean().backward()
        model(y).exp().mean().backward()

    run = here.compile(step)
    for number in range(2):
        run(here.data(2 * number, 6, 16), here.data(2 * number + 1, 6, 16))
    return values(model)


@program(graphs=2, slow=True)
def compiled_optimizer(here: Here) -> Any:
    """The step of the optimizer is compiled, of gradients that are views of buckets."""
    model = wrapped(here, here.made(layers), gradient_as_bucket_view=True)
    run, optimizer = here.compile(model), torch.optim.AdamW(model.parameters(), lr=0.01)
    step = here.compile(optimizer.step)
    for number in range(3):
        optimizer.zero_grad()
        run(here.data(number, 6, 16)).exp().mean().backward()
        step()
    return values(model)


@program(slow=True)
def divided_optimizer(here: Here) -> Any:
    """Each rank keeps the state of half of the weights."""
    model = wrapped(here, here.made(layers))
    run = here.compile(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for number in range(3):
        optimizer.zero_grad()
        run(here.data(number, 6, 16)).exp().mean().backward()
        optimizer.step()
    return values(model)


@program(slow=True)
def uneven_inputs(here: Here) -> Any:
    """One rank has more batches than the other."""
    model = wrapped(here, here.made(functools.partial(layers, norm=False)))
    run = here.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for number in range(2 + 2 * here.rank):
            optimizer.zero_grad()
            run(here.data(number, 6, 16)).exp().mean().backward()
            optimizer.step()
    return values(model)


@program()
def hooks_of_weights(here: Here) -> Any:
    """Hooks see gradients before they are reduced, and after."""
    model = wrapped(here, here.made(functools.partial(layers, norm=False)))
    run = here.compile(model)
    seen: dict[str, list[Any]] = {name: [] for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda grad, name=name: seen[name].append(plain(grad)))
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen[name].append(plain(p.grad)))
    return [trained(here, model, run, steps=2), seen]


@program(devices=("cuda",), slow=True, falls_back=("Sequential.forward was left out",))
def statistics_of_all(here: Here) -> Any:
    """Batch norms over both ranks, whose collective breaks the loop over the layers: each is compiled by itself."""
    model = wrapped(here, nn.SyncBatchNorm.convert_sync_batchnorm(here.made(layers)))
    return trained(here, model, here.compile(model))


@program(graphs=0, slow=True)
def compiled_by_torch(here: Here) -> Any:
    """`Module.compile` of the wrapper, and of what it wraps. torch.compile takes no buckets that are smaller than the first may be."""
    around = wrapped(here, here.made(Stack), bucket_cap_mb=25)
    inner = here.made(Stack)
    within = wrapped(here, inner, static_graph=True, bucket_cap_mb=25)
    compile_in_place(here, around, inner)
    with told_of_torch(here):
        return [trained(here, model, model) for model in (around, within)]


@program(slow=True)
def reduce_overhead(here: Here) -> Any:
    """The mode that records graphs, where the device has them."""
    model = wrapped(here, here.made(layers))
    return trained(here, model, flambeau.compile(model, mode="reduce-overhead") if here.is_compiled else model, steps=5)
