"""Models whose weights are sharded over the ranks: `fully_shard`, and FullyShardedDataParallel, which came before it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

from . import Here, compile_in_place, plain, program, told_of_torch, trained, values

HOOKS = ("FSDPState._pre_forward",)
"""The hooks of a sharded module run in Python; its forward is compiled."""
WRITTEN = ("a wrapper tensor that requires grad is written",)
"""Optimizers write to distributed tensors."""


class Block(nn.Module):
    """One layer: a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 33), nn.Linear(33, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    """Layers, of which `again` says how they are called."""

    def __init__(self, again: Callable[[nn.Module], Callable[..., Any]] = lambda layer: layer) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(Block() for _ in range(2)), nn.Linear(16, 4)
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.again(layer)(x)
        y: Tensor = self.last(x)
        return y


def sharded(here: Here, model: nn.Module, **options: Any) -> nn.Module:
    """The layers, and what is left, each for itself."""
    options = {"mesh": init_device_mesh(here.device.type, (2,))} | options
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def layers_compiled(here: Here, model: nn.Module) -> nn.Module:
    """The model, each layer of which is compiled."""
    for number, layer in enumerate(model.layers):
        model.layers[number] = here.compile(layer)
    return model


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
WAYS: dict[str, tuple[dict[str, Any], float]] = {
    "sharded again": ({"reshard_after_forward": True}, 1e-4),
    "kept whole": ({"reshard_after_forward": False}, 1e-4),
    "mixed": ({"mp_policy": MIXED}, 3e-2),
}


def _register(way: str, options: dict[str, Any], rtol: float) -> None:
    @program(name=f"around {way}", rtol=rtol, falls_back=HOOKS, graphs=2, slow=way == "kept whole")
    def around(here: Here) -> Any:
        """The sharded model is compiled."""
        model = sharded(here, here.made(Net), **options)
        return trained(here, model, here.compile(model))

    @program(name=f"layers before {way}", rtol=rtol, falls_back=HOOKS, graphs=1, slow=way != "kept whole")
    def before(here: Here) -> Any:
        """Compiled layers are sharded."""
        model = sharded(here, layers_compiled(here, here.made(Net)), **options)
        return trained(here, model, model)

    @program(name=f"layers after {way}", rtol=rtol, falls_back=HOOKS, graphs=1, slow=way != "sharded again")
    def after(here: Here) -> Any:
        """Sharded layers are compiled."""
        model = layers_compiled(here, sharded(here, here.made(Net), **options))
        return trained(here, model, model)

    @program(name=f"forwards {way}", rtol=rtol, graphs=1, slow=True)
    def forwards(here: Here) -> Any:
        """The methods of the layers are compiled."""
        model = here.made(Net)
        for layer in model.layers:
            layer.forward = here.compile(layer.forward)
        model = sharded(here, model, **options)
        return trained(here, model, model)


for _way, (_options, _rtol) in WAYS.items():
    _register(_way, _options, _rtol)


@program(falls_back=HOOKS, graphs=2)
def states_and_clipped_gradients(here: Here) -> Any:
    """Whole and sharded state dicts, read and written between the steps; gradients clipped by their norm over all ranks; Adam."""
    model = sharded(here, here.made(Net))
    run, optimizer = here.compile(model), torch.optim.AdamW(model.parameters(), lr=0.01)
    whole = StateDictOptions(full_state_dict=True)
    kept: list[Any] = []
    for step in range(3):
        optimizer.zero_grad()
        run(here.data(step, 6, 16)).exp().mean().backward()
        kept.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        optimizer.step()
        state = get_model_state_dict(run, options=whole)
        kept += [state, model.state_dict(), get_optimizer_state_dict(run, optimizer, options=whole)]
        if step == 1:
            halved = {name: value / 2 for name, value in state.items()}
            set_model_state_dict(run, halved, options=whole)
    return kept + values(model)


@program(falls_back=HOOKS + WRITTEN, graphs=2)
def compiled_optimizer(here: Here) -> Any:
    """The step of the optimizer is compiled, over distributed tensors."""
    model = sharded(here, here.made(Net))
    run, optimizer = here.compile(model), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = here.compile(optimizer.step)
    for number in range(3):
        optimizer.zero_grad()
        run(here.data(number, 6, 16)).exp().mean().backward()
        step()
    return values(model)


@program(falls_back=HOOKS, graphs=1)
def computed_again(here: Here) -> Any:
    """Checkpoints of sharded layers, around the compiled forward and in it."""
    kept: list[Any] = []
    for is_within in (False, True):
        model = here.made(functools.partial(Net, _again))
        if is_within:
            model = sharded(here, model)
            run = here.compile(model)
        else:
            run = model = sharded(here, layers_compiled(here, model))
        kept += trained(here, model, run, steps=2)
    return kept


def _again(layer: nn.Module) -> Callable[..., Any]:
    return functools.partial(checkpoint, layer, use_reentrant=False)


@program(falls_back=HOOKS, graphs=1, slow=True)
def wrapped_checkpoints(here: Here) -> Any:
    """The same by torch's wrapper of modules."""
    model = here.made(Net)
    for number, layer in enumerate(model.layers):
        model.layers[number] = checkpoint_wrapper(layer)
    model = sharded(here, model)
    return trained(here, model, here.compile(model))


@program(falls_back=HOOKS, graphs=1, slow=True)
def accumulated(here: Here) -> Any:
    """Gradients of some parts of a step are reduced with those of the last."""
    model = sharded(here, here.made(Net))
    run, optimizer = here.compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        for part in range(3):
            model.set_requires_gradient_sync(part == 2)
            run(here.data(3 * step + part, 4, 16)).exp().mean().backward()
        optimizer.step()
    return values(model)


@program(falls_back=HOOKS, graphs=1)
def uneven_sizes(here: Here) -> Any:
    """One rank compiles anew where the other does not; evaluation in between."""
    model = sharded(here, here.made(Net))
    run = here.compile(model)
    kept: list[Any] = []
    for step in range(3):
        model.zero_grad()
        run(here.data(step, 6 + (step // 2 + step) * here.rank, 16)).exp().mean().backward()
        kept += values(model)
        with torch.no_grad():
            kept.append(plain(run(here.data(step, 3, 16))))
    return kept


@program(falls_back=HOOKS + WRITTEN, graphs=1, slow=True)
def whole_steps(here: Here) -> Any:
    """Forward, backward and the optimizer in one compiled function."""
    model = sharded(here, here.made(Net))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).exp().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = here.compile(step)
    return [run(here.data(number, 6, 16)) for number in range(3)] + values(model)


@program(graphs=0, slow=True)
def compiled_by_torch(here: Here) -> Any:
    """`Module.compile` of each layer."""
    model = here.made(Net)
    compile_in_place(here, *model.layers)
    model = sharded(here, model)
    with told_of_torch(here):
        return trained(here, model, model)


@program(falls_back=HOOKS, graphs=1, slow=True)
def sharded_and_copied(here: Here) -> Any:
    """A mesh of two dimensions: weights are sharded over one of them and copied over the other."""
    kept: list[Any] = []
    for sizes in ((1, 2), (2, 1)):
        mesh = init_device_mesh(here.device.type, sizes, mesh_dim_names=("copied", "sharded"))
        model = sharded(here, here.made(Net), mesh=mesh)
        kept += trained(here, model, here.compile(model), steps=2)
    return kept


@program(falls_back=HOOKS, graphs=1, devices=("cuda",), slow=True)
def weights_on_the_host(here: Here) -> Any:
    """Weights are on the GPU while a layer runs."""
    model = sharded(here, here.made(Net), offload_policy=CPUOffloadPolicy())
    return trained(here, model, here.compile(model))


FLAT_FORWARD = ("FullyShardedDataParallel.forward",)
"""The wrapper's own forward, and a loop that calls it, run in Python."""
FLAT: dict[str, dict[str, Any]] = {
    "full": {"use_orig_params": True},
    "flat": {"use_orig_params": False},
    "gradients": {"use_orig_params": True, "sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
    "copied": {"use_orig_params": True, "sharding_strategy": ShardingStrategy.NO_SHARD},
    "mixed": {
        "use_orig_params": True,
        "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    },
}


def flat(here: Here, model: nn.Module, options: dict[str, Any]) -> FullyShardedDataParallel:
    """The model with its layers under the older wrapper."""
    options = {"auto_wrap_policy": ModuleWrapPolicy({Block}), "device_id": here.device} | options
    return FullyShardedDataParallel(model, **options)


def flat_trained(here: Here, model: FullyShardedDataParallel, run: Callable[..., Any]) -> list[Any]:
    """Steps with clipped gradients, some of them accumulated; then the state."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept: list[Any] = []
    for step in range(3):
        optimizer.zero_grad()
        if step == 1:
            with model.no_sync():
                run(here.data(9, 6, 16)).exp().mean().backward()
        loss = run(here.data(step, 6, 16)).exp().mean()
        loss.backward()
        kept += [plain(loss), model.clip_grad_norm_(0.5)]
        optimizer.step()
    return [*kept, values(model), model.state_dict()]


def _register_flat(way: str, options: dict[str, Any]) -> None:
    rtol = 3e-2 if way == "mixed" else 1e-4

    @program(name=f"older around {way}", rtol=rtol, falls_back=FLAT_FORWARD, slow=way != "full")
    def around(here: Here) -> Any:
        """The wrapper is compiled."""
        model = flat(here, here.made(Net), options)
        return flat_trained(here, model, here.compile(model))

    falls_back = () if options["use_orig_params"] else FLAT_FORWARD

    @program(name=f"older within {way}", rtol=rtol, falls_back=falls_back, slow=way != "full")
    def within(here: Here) -> Any:
        """The layers in it are compiled."""
        model = here.made(Net)
        if options["use_orig_params"]:
            for layer in model.layers:
                layer.forward = here.compile(layer.forward)
        run = flat(here, model, options)
        return flat_trained(here, run, run if options["use_orig_params"] else here.compile(run))


for _way, _options in FLAT.items():
    _register_flat(_way, _options)
