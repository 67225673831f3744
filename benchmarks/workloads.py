"""What is measured: op-level workloads, attention with masks, the models of `tests.models.zoo`, networks over patches, layers of experts, and torchvision's convolutional networks.

In: a name, the device, the scale, the number format. Out: a callable and the arguments of one call, made from a fixed seed on
that device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import Factory, frozen
from tests.models import zoo
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import attention, experts, ops, patches, vision

#: The models of published architectures.
TRANSFORMERS = (
    "bert", "gpt2", "llama", "t5", "vit", "resnet50", "convnext", "swin", "mobilenet_v2", "whisper", "moe",
)  # fmt: skip
SMALL = ("mlp", "lstm_cell")
#: Of the op-level workloads, those that the steady-state table of a GPU shows.
GPU_OPS = (
    "gelu_chain", "silu_mul_bf16", "add_layer_norm", "rms_norm_bf16", "softmax_scaled", "log_softmax_nll",
    "batch_norm_relu", "group_norm_silu", "rotary", "masked_fill_softmax", "embedding_norm", "adamw_update",
    "linear_gelu", "small_pointwise",
)  # fmt: skip
SUITES: dict[str, tuple[str, ...]] = {
    "transformers": TRANSFORMERS + SMALL,
    "ops": GPU_OPS,
    "vision": tuple(vision.NETWORKS),
    "attention": tuple(attention.ATTENTION),
    "experts": tuple(experts.LAYERS),
}
#: The models under ``mode="max-autotune-no-cudagraphs"``: transformers in float32 with TF32 and in bfloat16, the others in the former.
TUNED = {
    "transformers": ("bert", "gpt2", "vit", "deit", "whisper"),
    "others": (
        "tv_resnet50",
        "tv_vgg16",
        "tv_squeezenet1_1",
        "tv_regnet_y_400mf",
        "tv_efficientnet_b0",
        "convmixer",
        "mixer",
    ),
}
TRAINABLE = (*TRANSFORMERS, *SMALL, "gan")
MODELS = tuple(zoo.ZOO)
OPS = tuple(ops.OPS)
#: The number format in which a model is served, where that is not float32.
NATURAL = dict.fromkeys(("llama", "moe", "whisper", *attention.ATTENTION, *experts.LAYERS), "bfloat16")
FORMATS = ("float32", "bfloat16", "float16", "autocast")
#: By how much the op-level workloads grow on a GPU: in the steady-state table, and where the caches must not help.
GPU_FACTOR, BANDWIDTH_FACTOR = 4, 16


@frozen
class Workload:
    """One call that can be repeated.

    Attributes:
        function: what is compiled.
        args, kwargs: of one call.
        train: whether a backward is part of one step.
        program: the op-level program it was made from, if it was.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Factory(dict)
    train: bool = False
    program: ops.Program | None = None


class TrainingLoss(nn.Module):
    """A model with its loss as output, so that one callable is a whole forward."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor], autocast: str = "") -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.autocast = autocast

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        if not self.autocast:
            return self.loss(self.model(*args, **kwargs))
        with torch.autocast(self.autocast, torch.bfloat16):
            return self.loss(self.model(*args, **kwargs))


class Autocast(nn.Module):
    """A model called under autocast."""

    def __init__(self, model: nn.Module, device: str) -> None:
        super().__init__()
        self.model = model
        self.device = device

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self.device, torch.bfloat16):
            return self.model(*args, **kwargs)


def scale_for(device: str) -> str:
    """The scale of models on a device, when none is asked for."""
    return "real" if device == "cuda" else "small"


def format_of(name: str, scale: str, dtype: str = "") -> str:
    """The number format of a model's workload: the one asked for, or its own."""
    if dtype or name in ops.OPS:
        return dtype or ("bfloat16" if name.endswith("bf16") or name == "dtype_mix" else "float32")
    return NATURAL.get(name, "float32") if scale == "real" else "float32"


def make(
    name: str, *, train: bool = False, scale: str = "small", device: str = "cpu", dtype: str = "", factor: int = 1
) -> Workload:
    """A workload by name.

    Args:
        name: one of `OPS`, `MODELS`, `attention.ATTENTION`, `experts.LAYERS`, `patches.NETWORKS` or `vision.NETWORKS`.
        train: for a model, forward and backward of its loss.
        scale: for a model, "tiny", "small" or "real".
        device: where its tensors live: "cpu" or "cuda".
        dtype: one of `FORMATS`; "" for the one the model is served in. Op-level workloads have their own.
        factor: by how much op-level workloads grow.
    """
    torch.manual_seed(0)
    with torch.device(device):
        if name in ops.OPS:
            program = ops.OPS[name](factor)
            return Workload(program.function, program.args, program=program)
        families = {vision: vision.NETWORKS, patches: patches.NETWORKS, experts: experts.LAYERS}
        family = next((family for family, names in families.items() if name in names), None)
        if family is not None:
            model, given = family.make(name, scale)
            case = zoo.Case(model, {"given": given}, lambda r: [r], lambda r: r.float().square().mean())
            positional = True
        elif name in attention.ATTENTION:
            model = attention.make(name, scale, train)
            case, positional = zoo.Case(model, {}, lambda r: [r], lambda r: r.float().square().mean()), False
        else:
            case, positional = zoo.make(name, scale), False
    return _workload(case, train, device, format_of(name, scale, dtype), positional)


def _workload(case: zoo.Case, train: bool, device: str, dtype: str, positional: bool) -> Workload:
    model, inputs = case.model, dict(case.inputs)
    if dtype in ("bfloat16", "float16"):
        wanted = getattr(torch, dtype)
        model = model.to(wanted)
        inputs = pytree.tree_map_only(Tensor, lambda t: t.to(wanted) if t.is_floating_point() else t, inputs)
    autocast = device if dtype == "autocast" else ""
    if not train and inputs.pop("labels", None) is not None:
        encoder_decoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        if encoder_decoder and "decoder_input_ids" not in inputs:
            inputs["decoder_input_ids"] = inputs["input_ids"]
    args = tuple(inputs.values()) if positional else ()
    kwargs = {} if positional else inputs
    if train:
        return Workload(TrainingLoss(model.train(), case.loss, autocast), args, kwargs, train=True)
    return Workload(Autocast(model, device) if autocast else model, args, kwargs)
