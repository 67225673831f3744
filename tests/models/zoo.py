"""The models that the tests, the demo and the benchmarks share, with random weights and fixed seeds.

In: a name of `ZOO` and a scale: "tiny" for tests, "small" for the demo and the CPU benchmarks, "real" for GPUs (the published
base sizes at batches a server would use), "single" for one core (those sizes, the first input of the batch, of text its first
`SINGLE_LENGTH` tokens). Out: a `Case`: a module, the keyword arguments of one call, and how to make a scalar
loss of what it returns. Nothing is downloaded. Modules are made on torch's default device: inside `with torch.device("cuda")`
weights and inputs are made there at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Scale = str
#: Tokens of a text at the scale "single".
SINGLE_LENGTH = 128

#: Whether models are made with the rates of dropout that their configurations have by default, or with none: random numbers are not
#: those of eager in every engine that the benchmarks compare.
_OWN_DROPOUT: ContextVar[bool] = ContextVar("own_dropout", default=False)


@frozen
class Case:
    """One model ready to call.

    Attributes:
        model: in eval mode, float32, on the CPU.
        inputs: keyword arguments of one call.
        outputs: result of a call -> the tensors that are compared.
        loss: result of a call -> scalar to differentiate.
    """

    model: nn.Module
    inputs: dict[str, Any]
    outputs: Callable[[Any], list[Tensor]]
    loss: Callable[[Any], Tensor]


def _tensors(result: Any) -> list[Tensor]:
    """Every floating tensor in a result, in order."""
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [tensor for item in result for tensor in _tensors(item)]
    return []


def _loss(result: Any) -> Tensor:
    """The model's own loss when it returns one, else the mean square of its first output."""
    own = getattr(result, "loss", None)
    return own if own is not None else _tensors(result)[0].float().square().mean()


def _case(model: nn.Module, **inputs: Any) -> Case:
    return Case(model.eval(), inputs, _tensors, _loss)


def _tokens(vocabulary: int, batch: int, length: int) -> Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def _rates(*names: str) -> dict[str, float]:
    """Zero for each of a configuration's rates, or nothing where it keeps its own."""
    return {} if _OWN_DROPOUT.get() else dict.fromkeys(names, 0.0)


@frozen
class _Text:
    """Sizes of a text model: `real` says whether they are a published model's."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    batch: int
    length: int


def _text(scale: Scale, real: _Text) -> _Text:
    """The sizes that the text models share at the small scales."""
    if scale == "real":
        return real
    return _Text(32, 2, 4, 99, 2, 12) if scale == "tiny" else _Text(256, 4, 4, 2000, 4, 128)


def _gpt2(scale: Scale) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = _text(scale, _Text(768, 12, 12, 50257, 4, 256))
    config = GPT2Config(
        vocab_size=size.vocabulary, n_positions=size.length, n_embd=size.width, n_layer=size.layers, n_head=size.heads,
        use_cache=False, bos_token_id=0, eos_token_id=0, **_rates("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    )  # fmt: skip
    ids = _tokens(size.vocabulary, size.batch, size.length)
    return _case(GPT2LMHeadModel(config), input_ids=ids, labels=ids)


def _bert(scale: Scale) -> Case:
    from transformers import BertConfig, BertForMaskedLM

    size = _text(scale, _Text(768, 12, 12, 30522, 8, 128))
    config = BertConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, intermediate_size=4 * size.width, max_position_embeddings=size.length,
        **_rates("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )  # fmt: skip
    ids = _tokens(size.vocabulary, size.batch, size.length)
    return _case(BertForMaskedLM(config), input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)


def _llama(scale: Scale) -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    size = _text(scale, _Text(2048, 8, 32, 32000, 2, 512))
    config = LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=size.layers,
        num_attention_heads=size.heads, num_key_value_heads=8 if scale == "real" else 2,
        intermediate_size=5632 if scale == "real" else 2 * size.width, max_position_embeddings=size.length,
        use_cache=False,
    )  # fmt: skip
    ids = _tokens(size.vocabulary, size.batch, size.length)
    return _case(LlamaForCausalLM(config), input_ids=ids, labels=ids)


def _t5(scale: Scale) -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    size = _text(scale, _Text(768, 12, 12, 32128, 4, 128))
    if scale == "small":
        size = _Text(128, 3, 4, 2000, 2, 64)
    config = T5Config(
        vocab_size=size.vocabulary, d_model=size.width, d_kv=size.width // size.heads, d_ff=4 * size.width,
        num_layers=size.layers, num_decoder_layers=size.layers, num_heads=size.heads, **_rates("dropout_rate"),
        use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    ids = _tokens(size.vocabulary, size.batch, size.length)
    if scale != "real":
        return _case(T5ForConditionalGeneration(config), input_ids=ids, labels=ids)
    answer = ids[:, : size.length // 2].contiguous()
    return _case(T5ForConditionalGeneration(config), input_ids=ids, decoder_input_ids=answer, labels=answer)


def _image_batch(batch: int, side: int, classes: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.randint(0, classes, (batch,))}


def _resnet50(scale: Scale) -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    if scale == "tiny":
        config = ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2], num_labels=10)
        return _case(ResNetForImageClassification(config), **_image_batch(2, 32, 10))
    config = ResNetConfig(num_labels=1000 if scale == "real" else 100)
    batch = _image_batch(16, 224, 1000) if scale == "real" else _image_batch(2, 96, 100)
    return _case(ResNetForImageClassification(config), **batch)


def _vit(scale: Scale) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    width, layers, heads, side, patch, batch = {
        "tiny": (32, 2, 4, 32, 8, 2), "small": (256, 4, 4, 96, 16, 8), "real": (768, 12, 12, 224, 16, 8)
    }[scale]  # fmt: skip
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=side, patch_size=patch, num_labels=10,
        **_rates("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )  # fmt: skip
    return _case(ViTForImageClassification(config), **_image_batch(batch, side, 10))


def _convnext(scale: Scale) -> Case:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    sizes, depths, side, batch = {
        "tiny": ([8, 16], [1, 1], 32, 2),
        "small": ([32, 64, 128, 256], [2, 2, 4, 2], 96, 2),
        "real": ([96, 192, 384, 768], [3, 3, 9, 3], 224, 16),
    }[scale]
    config = ConvNextConfig(
        hidden_sizes=sizes, depths=depths, num_stages=len(sizes), num_labels=10, **_rates("drop_path_rate")
    )
    return _case(ConvNextForImageClassification(config), **_image_batch(batch, side, 10))


def _swin(scale: Scale) -> Case:
    from transformers import SwinConfig, SwinForImageClassification

    width, depths, heads, side, window, batch = {
        "tiny": (8, [2, 2], [2, 2], 32, 4, 2),
        "small": (48, [2, 2, 2], [3, 6, 12], 112, 4, 2),
        "real": (96, [2, 2, 6, 2], [3, 6, 12, 24], 224, 7, 8),
    }[scale]
    config = SwinConfig(
        image_size=side, patch_size=4, embed_dim=width, depths=depths, num_heads=heads, window_size=window,
        num_labels=10, **_rates("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate"),
    )  # fmt: skip
    return _case(SwinForImageClassification(config), **_image_batch(batch, side, 10))


def _mobilenet_v2(scale: Scale) -> Case:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    multiplier, side, batch = {"tiny": (0.1, 32, 2), "small": (0.5, 96, 2), "real": (1.0, 224, 32)}[scale]
    config = MobileNetV2Config(
        depth_multiplier=multiplier, min_depth=4 if scale == "tiny" else 8, image_size=side,
        output_stride=8 if scale == "tiny" else 32,
        finegrained_output=scale != "tiny", num_labels=10, **_rates("classifier_dropout_prob"),
    )  # fmt: skip
    return _case(MobileNetV2ForImageClassification(config), **_image_batch(batch, side, 10))


def _whisper(scale: Scale) -> Case:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    width, layers, heads, frames, batch = {
        "tiny": (16, 2, 2, 12, 2), "small": (128, 3, 4, 100, 2), "real": (768, 12, 12, 1500, 2)
    }[scale]  # fmt: skip
    config = WhisperConfig(
        d_model=width, encoder_layers=layers, encoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        max_source_positions=frames, num_mel_bins=80, **_rates("dropout"),
    )  # fmt: skip
    return _case(WhisperEncoder(config), input_features=torch.randn(batch, 80, 2 * frames))


class MixtureOfExperts(nn.Module):
    """A Mixtral-like layer: top-2 of `experts` feed-forwards, chosen by a softmax router, tokens gathered by expert."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        tokens = self.norm(x).reshape(-1, width)
        weights, chosen = torch.topk(torch.softmax(self.router(tokens), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == number)
            result.index_add_(0, token, expert(tokens[token]) * weights[token, rank, None])
        return x + result.reshape(batch, length, width)


def _moe(scale: Scale) -> Case:
    width, experts, batch, length = {"tiny": (16, 4, 2, 6), "small": (128, 8, 2, 64), "real": (1024, 8, 4, 512)}[scale]
    model = nn.Sequential(MixtureOfExperts(width, experts), MixtureOfExperts(width, experts), nn.Linear(width, 10))
    return _case(model, input=torch.randn(batch, length, width))


class CellLoop(nn.Module):
    """An LSTM cell stepped over time in Python."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inputs, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.new_zeros(x.shape[0], self.cell.hidden_size)
        memory = torch.zeros_like(hidden)
        outputs = []
        for step in range(x.shape[1]):
            hidden, memory = self.cell(x[:, step], (hidden, memory))
            outputs.append(self.head(hidden))
        return torch.stack(outputs, dim=1)


def _lstm_cell(scale: Scale) -> Case:
    inputs, width, steps, batch = {"tiny": (8, 16, 5, 4), "small": (64, 128, 32, 4), "real": (256, 512, 64, 32)}[scale]
    return _case(CellLoop(inputs, width), x=torch.randn(batch, steps, inputs))


class GanStep(nn.Module):
    """Generator and discriminator losses of one step, with batch normalisation and a transposed convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(8, width, 4),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 1, 4), nn.Flatten()
        )

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        fake = self.generator(noise)
        judged_real, judged_fake = self.discriminator(real), self.discriminator(fake.detach())
        bce = nn.functional.binary_cross_entropy_with_logits
        loss_d = bce(judged_real, torch.ones_like(judged_real)) + bce(judged_fake, torch.zeros_like(judged_fake))
        judged = self.discriminator(fake)
        return bce(judged, torch.ones_like(judged)), loss_d


def _gan(scale: Scale) -> Case:
    width, batch = {"tiny": (8, 2), "small": (64, 16), "real": (256, 128)}[scale]
    model = GanStep(width)
    case = _case(model, noise=torch.randn(batch, 8, 1, 1), real=torch.randn(batch, 1, 8, 8))
    return Case(case.model, case.inputs, _tensors, lambda result: result[0] + result[1])


def _mlp(scale: Scale) -> Case:
    width, batch = {"tiny": (16, 8), "small": (256, 8), "real": (1024, 64)}[scale]
    model = nn.Sequential(
        nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 4),
    )  # fmt: skip
    return _case(model, input=torch.randn(batch, width))


#: Name -> maker of a case at a scale.
ZOO: dict[str, Callable[[Scale], Case]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "llama": _llama,
    "resnet50": _resnet50,
    "vit": _vit,
    "t5": _t5,
    "convnext": _convnext,
    "swin": _swin,
    "mobilenet_v2": _mobilenet_v2,
    "whisper": _whisper,
    "moe": _moe,
    "lstm_cell": _lstm_cell,
    "gan": _gan,
    "mlp": _mlp,
}

#: The models that must be one graph under `fullgraph=True`, and that the demo shows.
ONE_GRAPH = ("gpt2", "bert", "llama", "resnet50", "vit")


class Stacked(nn.Module):
    """torch's own recurrent layers, one on the other: LSTM in both directions with dropout between its layers, then a GRU."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        return self.head(self.gru(hidden)[0])


def lstm() -> Case:
    """A model for the tests alone: torch runs it through its library, whatever the engine."""
    torch.manual_seed(0)
    return _case(Stacked(6, 5), x=torch.randn(3, 7, 6))


def make(name: str, scale: Scale = "tiny", seed: int = 0, *, own_dropout: bool = False) -> Case:
    """A case by name; weights and inputs are those of `seed`; without dropout, or with the rates that its configuration has."""
    torch.manual_seed(seed)
    token = _OWN_DROPOUT.set(own_dropout)
    try:
        return _first(ZOO[name]("real")) if scale == "single" else ZOO[name](scale)
    finally:
        _OWN_DROPOUT.reset(token)


def _first(case: Case) -> Case:
    """With the first input of the batch alone, and of a text its first tokens."""

    def cut(value: Tensor) -> Tensor:
        is_text = value.dim() == 2 and not value.is_floating_point()
        return (value[:1, :SINGLE_LENGTH] if is_text else value[:1]).clone()

    return evolve(case, inputs=pytree.tree_map_only(Tensor, cut, case.inputs))


def varied(case: Case) -> dict[str, Any]:
    """The case's inputs with other values: normal floats, other tokens."""

    def other(value: Tensor) -> Tensor:
        return torch.randn_like(value) if value.is_floating_point() else value.roll(1, -1)

    result: dict[str, Any] = pytree.tree_map_only(Tensor, other, case.inputs)
    return result
