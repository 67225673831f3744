"""The models that the tests, the demo and the benchmarks share, with random weights and fixed seeds.

In: a name of `ZOO` and a scale ("tiny" for tests, "small" for the demo and the CPU benchmarks). Out: a `Case`: a module, the
keyword arguments of one call, and how to make a scalar loss of what it returns. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor, nn

Scale = str


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


def _gpt2(scale: Scale) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    width, layers, length = (32, 2, 12) if scale == "tiny" else (256, 4, 128)
    config = GPT2Config(
        vocab_size=99 if scale == "tiny" else 2000, n_positions=length, n_embd=width, n_layer=layers, n_head=4,
        use_cache=False, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    ids = _tokens(config.vocab_size, 2 if scale == "tiny" else 4, length)
    return _case(GPT2LMHeadModel(config), input_ids=ids, labels=ids)


def _bert(scale: Scale) -> Case:
    from transformers import BertConfig, BertForMaskedLM

    width, layers, length = (32, 2, 12) if scale == "tiny" else (256, 4, 128)
    config = BertConfig(
        vocab_size=99 if scale == "tiny" else 2000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * width, max_position_embeddings=length, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    ids = _tokens(config.vocab_size, 2 if scale == "tiny" else 4, length)
    return _case(BertForMaskedLM(config), input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)


def _llama(scale: Scale) -> Case:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, length = (32, 2, 12) if scale == "tiny" else (256, 4, 128)
    config = LlamaConfig(
        vocab_size=99 if scale == "tiny" else 2000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=2 * width, max_position_embeddings=length, use_cache=False,
    )  # fmt: skip
    ids = _tokens(config.vocab_size, 2 if scale == "tiny" else 4, length)
    return _case(LlamaForCausalLM(config), input_ids=ids, labels=ids)


def _resnet50(scale: Scale) -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    if scale == "tiny":
        config = ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2], num_labels=10)
        image = torch.randn(2, 3, 32, 32)
    else:
        config = ResNetConfig(num_labels=100)
        image = torch.randn(2, 3, 96, 96)
    labels = torch.randint(0, config.num_labels, (2,))
    return _case(ResNetForImageClassification(config), pixel_values=image, labels=labels)


def _vit(scale: Scale) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    width, layers, side, patch = (32, 2, 32, 8) if scale == "tiny" else (256, 4, 96, 16)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=4 * width,
        image_size=side, patch_size=patch, num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    batch = 2 if scale == "tiny" else 8
    labels = torch.randint(0, 10, (batch,))
    return _case(ViTForImageClassification(config), pixel_values=torch.randn(batch, 3, side, side), labels=labels)


def _t5(scale: Scale) -> Case:
    from transformers import T5Config, T5ForConditionalGeneration

    width, layers, length = (32, 2, 12) if scale == "tiny" else (128, 3, 64)
    config = T5Config(
        vocab_size=99 if scale == "tiny" else 2000, d_model=width, d_kv=width // 4, d_ff=4 * width, num_layers=layers,
        num_decoder_layers=layers, num_heads=4, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    ids = _tokens(config.vocab_size, 2, length)
    return _case(T5ForConditionalGeneration(config), input_ids=ids, labels=ids)


def _convnext(scale: Scale) -> Case:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    sizes, depths, side = ([8, 16], [1, 1], 32) if scale == "tiny" else ([32, 64, 128, 256], [2, 2, 4, 2], 96)
    config = ConvNextConfig(hidden_sizes=sizes, depths=depths, num_stages=len(sizes), num_labels=10, drop_path_rate=0.0)
    image = torch.randn(2, 3, side, side)
    return _case(ConvNextForImageClassification(config), pixel_values=image, labels=torch.randint(0, 10, (2,)))


def _swin(scale: Scale) -> Case:
    from transformers import SwinConfig, SwinForImageClassification

    width, depths, heads, side = (8, [2, 2], [2, 2], 32) if scale == "tiny" else (48, [2, 2, 2], [3, 6, 12], 112)
    config = SwinConfig(
        image_size=side, patch_size=4, embed_dim=width, depths=depths, num_heads=heads, window_size=4, num_labels=10,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0,
    )  # fmt: skip
    image = torch.randn(2, 3, side, side)
    return _case(SwinForImageClassification(config), pixel_values=image, labels=torch.randint(0, 10, (2,)))


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
    width, experts, length = (16, 4, 6) if scale == "tiny" else (128, 8, 64)
    model = nn.Sequential(MixtureOfExperts(width, experts), MixtureOfExperts(width, experts), nn.Linear(width, 10))
    return _case(model, input=torch.randn(2, length, width))


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
    inputs, width, steps = (8, 16, 5) if scale == "tiny" else (64, 128, 32)
    return _case(CellLoop(inputs, width), x=torch.randn(4, steps, inputs))


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
    width, batch = (8, 2) if scale == "tiny" else (64, 16)
    model = GanStep(width)
    case = _case(model, noise=torch.randn(batch, 8, 1, 1), real=torch.randn(batch, 1, 8, 8))
    return Case(case.model, case.inputs, _tensors, lambda result: result[0] + result[1])


def _mlp(scale: Scale) -> Case:
    width = 16 if scale == "tiny" else 256
    model = nn.Sequential(
        nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 4),
    )  # fmt: skip
    return _case(model, input=torch.randn(8, width))


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
    "moe": _moe,
    "lstm_cell": _lstm_cell,
    "gan": _gan,
    "mlp": _mlp,
}

#: The models that must be one graph under `fullgraph=True`, and that the demo shows.
ONE_GRAPH = ("gpt2", "bert", "llama", "resnet50", "vit")


def make(name: str, scale: Scale = "tiny", seed: int = 0) -> Case:
    """A case by name; weights and inputs are those of `seed`."""
    torch.manual_seed(seed)
    return ZOO[name](scale)
