"""torch's databases as programs: ops, modules, optimizers, custom ops, higher-order ops, autograd functions.

In: the name of a database, how many samples. Out: `Case`s, each one entry in one dtype, that yield `Program`s: a function of copied
arguments, whether its values are determined, and the error that it must raise. `judge.py` runs them compiled beside eager.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from attrs import frozen
from torch import Tensor, nn
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from .database import UNDETERMINED, identifier, program_of

Make = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


@frozen
class Program:
    """One thing to run.

    Attributes:
        label: which sample of its case, and in which form.
        make: a fresh callable with the arguments of its call; called once for each side, under one seed.
        determined: False where the values are uninitialised memory: kinds alone are compared.
        raises: whether eager is expected to raise; what it raises then is what must be raised.
        steps: how often it is called; state is carried on.
        whole: whether it must be one graph where eager runs it: a break is an error then.
    """

    label: str
    make: Make
    determined: bool = True
    raises: bool = False
    steps: int = 1
    whole: bool = False


@frozen
class Case:
    """One entry of a database in one dtype."""

    database: str
    name: str
    dtype: str
    programs: Callable[[int], Iterator[Program]]

    @property
    def identity(self) -> str:
        """How tables and results name it."""
        return f"{self.database}:{self.name}:{self.dtype}"


def cases(database: str, device: str = "cpu") -> list[Case]:
    """Every case of a database, in its order."""
    return DATABASES[database](device)


# ops


def _of_ops(database: str, entries: list[OpInfo], device: str, whole: bool = False) -> list[Case]:
    found = []
    for op in entries:
        for dtype in sorted(op.supported_dtypes(device), key=str):
            found.append(Case(database, identifier(op), _short(dtype), partial(_samples, op, dtype, device, whole)))
    return found


def _errors(device: str) -> list[Case]:
    return [
        Case("error", identifier(op), "all", partial(_error_samples, op, device))
        for op in op_db
        if op.error_inputs_func is not None
    ]


def _samples(op: OpInfo, dtype: torch.dtype, device: str, whole: bool, count: int) -> Iterator[Program]:
    """The first samples, each as it is and with strides; entries that are drawn from are fixed by the seed."""
    torch.manual_seed(0)
    grads = op.supports_autograd and dtype in op.supported_backward_dtypes(torch.device(device).type)
    for number, sample in enumerate(islice(op.sample_inputs(device, dtype, requires_grad=grads), count)):
        forms = {"": sample}
        if _may_be_strided(sample) and sample.input.numel() > 1:
            forms[" strided"] = sample.noncontiguous()
        for form, chosen in forms.items():
            yield Program(
                f"{number}{form}",
                partial(_called, op, chosen.input, chosen.args, chosen.kwargs),
                op.name not in UNDETERMINED,
                # An operator that takes functions is one node: a program that is broken there has lost it.
                whole=whole,
            )


def _may_be_strided(sample: Any) -> bool:
    """Whether every tensor of a sample is an ordinary one, so that torch can make another with gaps of it."""
    tensors = [t for t in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, Tensor)]
    return isinstance(sample.input, Tensor) and all(t.layout is torch.strided for t in tensors)


def _error_samples(op: OpInfo, device: str, count: int) -> Iterator[Program]:
    torch.manual_seed(0)
    for number, wrong in enumerate(op.error_inputs(device)):
        sample = wrong.sample_input
        yield Program(f"{number}", partial(_called, op, sample.input, sample.args, sample.kwargs), raises=True)


def _called(
    op: OpInfo, value: Any, args: Any, kwargs: Any
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    value, args, kwargs = copied((value, args, kwargs))
    return program_of(op), (value, *args), kwargs


def copied(values: Any) -> Any:
    """The same structure with copies of its tensors, in their strides; a tensor that is there twice stays one."""
    copies: dict[int, Tensor] = {}

    def copy_of(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in copies:
            copies[id(value)] = _copy(value)
        return copies[id(value)]

    return pytree.tree_map(copy_of, values)


def _copy(tensor: Tensor) -> Tensor:
    # Not as they are: a sparse or quantised tensor has no strides, and memory may be shared between elements.
    if tensor.layout is not torch.strided or tensor.is_quantized or type(tensor) not in (Tensor, nn.Parameter):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    with torch.no_grad():
        room = (
            1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
        )
        made = torch.zeros(room, dtype=tensor.dtype, device=tensor.device).as_strided(tensor.shape, tensor.stride())
        made = made if 0 not in tensor.stride() else tensor.detach().clone()
        made.copy_(tensor)
    return made.detach().requires_grad_(tensor.requires_grad)


# modules and optimizers


def _modules(device: str) -> list[Case]:
    found = []
    for info in module_db:
        for dtype in info.dtypes:
            for training in (False, True):
                mode = "train" if training else "eval"
                make = partial(_module_samples, info, dtype, device, training)
                found.append(Case("module", f"{info.name}.{mode}", _short(dtype), make))
    return found


def _module_samples(info: Any, dtype: torch.dtype, device: str, training: bool, count: int) -> Iterator[Program]:
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, device=device, dtype=dtype, requires_grad=True, training=training)
    for number, sample in enumerate(islice(inputs, count)):
        yield Program(f"{number}", partial(_module_called, info, sample, dtype, device, training), steps=2)


def _module_called(
    info: Any, sample: Any, dtype: torch.dtype, device: str, training: bool
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(1)
    module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    module = module.to(device=device, dtype=dtype).train(training)
    args, kwargs = copied((tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)))
    return module, args, kwargs


def _optimizers(device: str) -> list[Case]:
    return [
        Case("optimizer", info.optim_cls.__name__, "f32", partial(_optimizer_samples, info, device))
        for info in optim_db
    ]


def _optimizer_samples(info: Any, device: str, count: int) -> Iterator[Program]:
    for number, setting in enumerate(islice(info.optim_inputs_func(device=device), count)):
        yield Program(f"{number} {setting.desc}", partial(_optimizer_called, info, setting, device), steps=3)


def _optimizer_called(
    info: Any, setting: Any, device: str
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    # Muon takes matrices alone.
    given = [p for p in model.parameters() if p.dim() == 2 or info.optim_cls.__name__ != "Muon"]
    optimizer = info.optim_cls(given, **copy.deepcopy(setting.kwargs))
    x = torch.randn(3, 5, device=device)

    def loss_of() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    def step() -> Any:
        optimizer.step(loss_of if info.step_requires_closure else None)
        return [p.detach() for p in model.parameters()]

    def in_double() -> Callable[[], Any]:
        """As a module's `double`: the step that judges roundings."""
        nonlocal x
        model.double()
        x = x.double()
        return step

    if not info.step_requires_closure:
        loss_of()
    step.double = in_double
    return step, (), {}


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.").replace("float", "f").replace("uint", "u").replace("int", "i")


DATABASES: dict[str, Callable[[str], list[Case]]] = {
    "op": partial(_of_ops, "op", list(op_db)),
    "error": _errors,
    "module": _modules,
    "optimizer": _optimizers,
    "custom": partial(_of_ops, "custom", list(custom_op_db)),
    "higher": partial(
        _of_ops, "higher", [op for op in hop_db if op.name not in ("flex_attention_backward",)], whole=True
    ),
    "function": partial(_of_ops, "function", list(autograd_function_db)),
}
