"""When two captured graphs compile to the same thing: the cache key of a graph.

In: a `GraphModule` as capture makes it and its example inputs. Out: a dict of named parts (so that a miss can be explained by
the part that differs), or `Uncacheable` with the reason. Everything that a later stage reads must be in here: the nodes, the
inputs' properties and which of them share storage, symbolic shapes, constants' contents, global state, versions.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from attrs import Factory, frozen
from torch import Tensor, fx
from torch._ops import HigherOrderOperator

from flambeau_inductor.extensions.table import Entry, entries
from flambeau_runtime import accelerators, library_settings, processor

from .options import Options
from .stages import Stages

_PACKAGES = ("flambeau_autograd", "flambeau_inductor", "flambeau_runtime", "flambeau")
_MAX_CONSTANT_BYTES = 1 << 20
_CUDA_DEVICE = re.compile(r"cuda(:\d+)?")
_TORCH_PLAIN = (torch.dtype, torch.layout, torch.memory_format)


@frozen
class _Seen:
    """What the text of a graph has numbered so far, each by order of appearance."""

    nodes: dict[fx.Node, int] = Factory(dict)
    storages: dict[int, int] = Factory(dict)
    devices: dict[torch.device, int] = Factory(dict)

    def storage(self, tensor: Tensor) -> int:
        return self.storages.setdefault(tensor.untyped_storage()._cdata, len(self.storages))

    def input_device(self, device: torch.device) -> str:
        """An input's device by its number: the same program serves cuda:0 and cuda:1."""
        return f"{device.type}#{self.devices.setdefault(device, len(self.devices))}"

    def named_device(self, device: torch.device) -> str:
        """A device that the program names: the number of the inputs that are there, or that very device."""
        kind = accelerators.accelerator_of(device)
        if device.index is None and kind is not None and kind.is_available():
            device = torch.device(device.type, kind.current())
        return self.input_device(device) if device in self.devices else str(device)


class Uncacheable(Exception):
    """The graph has no stable key; the message says what part of it has none."""


def graph_key(gm: fx.GraphModule, options: Options, stages: Stages) -> dict[str, str]:
    """Name of a part -> its text.

    Raises:
        Uncacheable: for a target that cannot be named (a local function, a submodule that is called) or a large constant.
    """
    if gm.meta.get("wrappers"):
        raise Uncacheable("the graph has wrapper tensors, whose classes are the program's code")
    graph = _graph_text(gm, _Seen())
    return {
        "graph": graph,
        "gpu": " ".join(kind.identity() for kind in accelerators.known() if kind.type in graph),
        "options": options.cache_key(),
        "configuration": stages.key(),
        "extensions": " ".join(map(_extension, entries())),
        "passes": " ".join(f"{name}={_identity(run)}" for name, run in stages.inductor.custom_passes().items()),
        "state": _global_state(),
        "versions": versions(),
    }


def _extension(entry: Entry) -> str:
    """What a program registered with the compiler: it may take part in any graph."""
    if entry.uuid is None:
        raise Uncacheable(f"the {entry.kind} {entry.name} was registered without uuid=")
    return f"{entry.kind} {entry.name}={entry.uuid!r}"


def _identity(run: Any) -> str:
    """What a pass of the user says of itself by `uuid()`, as torch.compile's `CustomGraphPass` does."""
    uuid = run.uuid() if callable(getattr(run, "uuid", None)) else None
    if uuid is None:
        raise Uncacheable("a custom pass without uuid()")
    return f"{type(run).__module__}.{type(run).__qualname__} {uuid!r}"


def _graph_text(gm: fx.GraphModule, seen: _Seen) -> str:
    """A line for each node; that of a body has the lines of its graph."""
    lines = []
    for node in gm.graph.nodes:
        seen.nodes[node] = len(seen.nodes)
        parts = [node.op, _target(gm, node, seen), _argument(node.args, seen), _argument(node.kwargs, seen)]
        if node.op == "placeholder":
            parts.append(_value(node.meta.get("val"), seen))
            parts += [fact for fact in ("static", "stays", "inference") if node.meta.get(fact)]
        elif _counts_devices(node):
            parts.append(f"among {list(seen.devices)}, current {_current_device()}")
        if node.meta.get("checkpoint") is not None:
            parts.append(
                f"recomputed with region {node.meta['checkpoint']}, but for {_policy(node.meta.get('policy'))}"
            )
        lines.append(" ".join(parts))
    return "\n".join(lines)


def _policy(policy: Any) -> str:
    """What of a region may be saved: operators."""
    if policy is not None and not isinstance(policy, tuple):
        raise Uncacheable("a function that decides what a checkpoint saves")
    return " ".join(map(_function, policy or ()))


def _counts_devices(node: fx.Node) -> bool:
    """Whether the call may name a device by its bare ordinal, or as the current one."""
    if node.op == "call_method" and node.target == "cuda":
        return True
    named = [node.kwargs.get("device"), *(node.args[1:2] if node.op == "call_method" and node.target == "to" else ())]
    return any(isinstance(value, int) for value in named)


def _current_device() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_available() else None


def _target(gm: fx.GraphModule, node: fx.Node, seen: _Seen) -> str:
    if node.op in ("placeholder", "output"):
        return ""
    if node.op == "call_method":
        return str(node.target)
    if node.op == "get_attr":
        return _constant(functools.reduce(getattr, str(node.target).split("."), gm), seen)
    if node.op == "call_module":
        raise Uncacheable(f"submodule {node.target}")
    return _function(node.target)


def _constant(value: Any, seen: _Seen) -> str:
    if isinstance(value, fx.GraphModule):
        return f"{{\n{_graph_text(value, seen)}\n}}"
    if isinstance(value, torch.Tensor) and type(value) in (Tensor, torch.nn.Parameter):
        if value.numel() * value.element_size() > _MAX_CONSTANT_BYTES or value.layout is not torch.strided:
            raise Uncacheable("a large constant tensor")
        data = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
        facts = _value(value, _Seen(devices=seen.devices))
        return f"{facts} {hashlib.sha256(data).hexdigest()}"
    raise Uncacheable(f"a constant of type {type(value).__name__}")


def _function(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}::{target._schema}"
    if isinstance(target, HigherOrderOperator):
        return f"higher_order::{target.name()}"
    name, module = getattr(target, "__qualname__", None), getattr(target, "__module__", None)
    module = module or getattr(getattr(target, "__objclass__", None), "__module__", None)
    if target is functools.partial:
        return "functools.partial"
    if name is None:
        raise Uncacheable(f"the function {target!r}")
    if module is None and getattr(torch._C._VariableFunctions, name.rpartition(".")[2], None) is target:
        return f"torch.{name}"
    if "<locals>" in name:
        # Functions that torch.nn.functional makes at import (the pools) are known by the name that they are bound to.
        name = next((key for key, bound in vars(torch.nn.functional).items() if bound is target), name)
    root = (module or "").partition(".")[0]
    if root not in ("torch", "_operator", "operator", "math", "builtins") or "<" in name:
        raise Uncacheable(f"the function {module}.{name}, which is not torch's")
    return f"{module}.{name}"


def _argument(value: Any, seen: _Seen) -> str:
    if isinstance(value, fx.Node):
        return f"%{seen.nodes[value]}"
    if isinstance(value, str) and _CUDA_DEVICE.fullmatch(value):
        return seen.named_device(torch.device(value))
    if isinstance(value, bool | int | float | complex | str | bytes) or value is None or value is Ellipsis:
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, _TORCH_PLAIN):
        return str(value)
    if isinstance(value, torch.device):
        return seen.named_device(value)
    if isinstance(value, slice):
        return f"slice({_argument((value.start, value.stop, value.step), seen)})"
    if isinstance(value, dict):
        items = (f"{_argument(k, seen)}={_argument(v, seen)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, tuple | list):
        name = "" if type(value) in (tuple, list) else type(value).__qualname__
        return f"{name}{'(' if isinstance(value, tuple) else '['}{', '.join(_argument(v, seen) for v in value)})"
    if callable(value):
        return _function(value)
    raise Uncacheable(f"an argument of type {type(value).__name__}")


def _value(value: Any, seen: _Seen) -> str:
    """Everything about an example value that a stage may look at."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise Uncacheable(f"an input with layout {value.layout}")
        if type(value).__name__ not in ("FakeTensor", "Tensor", "Parameter"):
            raise Uncacheable(f"an input of type {type(value).__name__}")
        facts = (
            value.dtype, seen.input_device(value.device), [_size(s) for s in value.shape], [_size(s) for s in value.stride()],
            _size(value.storage_offset()), value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg(),
            value.is_inference(), isinstance(value, torch.nn.Parameter), seen.storage(value),
        )  # fmt: skip
        return repr(facts)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _size(value)
    if isinstance(value, int | float | bool) or value is None:
        return repr(value)
    if callable(value):
        return "a function"  # of the graph around a body, which tells what it is
    raise Uncacheable(f"an input of type {type(value).__name__}")


def _size(size: Any) -> str:
    node = getattr(size, "node", None)
    if node is None:
        return repr(size)
    ranges = node.shape_env.bound_sympy(node.expr) if node.shape_env is not None else ""
    told = getattr(node.shape_env, "var_to_hint_override", None)
    return f"{node.expr} hint={node.hint if node.has_hint() else None} in {ranges}" + (f" told {told}" if told else "")


def _global_state() -> str:
    autocast = [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")
    ]
    facts = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast,
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        library_settings.current(),
        # Whether products go to the kernel for one thread (`rewrite/own_products.py` of inductor).
        torch.get_num_threads() == 1,
    )
    return repr(facts)


@functools.cache
def versions() -> str:
    """torch, the processor's maker and instruction set, and the contents of our own sources."""
    digest = hashlib.sha256()
    for name in _PACKAGES:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        for path in sorted(Path(spec.origin).parent.rglob("*")):
            if path.suffix in (".py", ".hpp"):
                digest.update(path.read_bytes())
    return repr((torch.__version__, platform.machine(), processor.maker(), _cpu_capability(), digest.hexdigest()))


def _cpu_capability() -> str:
    probe: Callable[[], str] = torch.backends.cpu.get_cpu_capability
    return probe()
