"""Architectures of `transformers`: every kind of configuration, made small, with the fullest model that there is for it.

In: nothing. Out: an `Architecture` for each. A small configuration is the default one with its sizes replaced by name (`_SIZES`), in the configurations
inside of it too. Inputs are made by the names of the arguments of `forward`. Which kinds that is enough for is found by making and calling them: the
others raise `NotTiny`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .architecture import Architecture, NotTiny, Ready

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

_VOCABULARY = 128
_BATCH, _LENGTH, _SIDE, _FRAMES = 2, 12, 64, 64
#: What an attribute of a configuration is set to, by its name; sizes of one kind agree with each other.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim", "embedding_size", "encoder_hidden_size",
                     "decoder_hidden_size", "projection_dim", "out_hidden_size", "projector_hidden_size", "text_hidden_size", "emb_dim",
                     "encoder_hidden_dim", "output_hidden_size", "fusion_hidden_size", "embedding_dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
                     "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "kv_channels"), 8),
    "qk_head_dim": 16, "kv_lora_rank": 16, "q_lora_rank": 16,
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "ffn_dim", "d_ff", "mlp_dim", "moe_intermediate_size",
                     "shared_expert_intermediate_size", "ffn_hidden_size", "d_inner", "decoder_intermediate_size",
                     "moe_shared_expert_intermediate_size", "intermediate_size_mlp", "dense_intermediate_size", "shared_intermediate_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
                     "num_encoder_layers", "depth", "encoder_num_hidden_layers", "decoder_num_hidden_layers"), 2),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_top_k", "top_k_experts"), 2),
    "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "num_shared_experts": 1, "first_k_dense_replace": 1,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_2d_position_embeddings", "max_source_positions", "max_target_positions"), _FRAMES),
    "image_size": _SIDE, "num_mel_bins": 16,
    "sliding_window": 8, "attention_window": 4, "num_queries": 8,
    "mamba_d_state": 8, "state_size": 8, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_num_heads": 8, "mamba_head_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "index_head_dim": 8, "index_n_heads": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "codebook_size": 32, "xvector_output_dim": 16,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": _VOCABULARY, "lru_width": 32,
    "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 2, "attn_layer_offset": 1, "chunk_size": 8,
}  # fmt: skip
#: The tables of `transformers` that say which model there is for a configuration, the fullest first.
_TABLES = (
    "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "CTC", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "VIDEO_CLASSIFICATION", "TIME_SERIES_PREDICTION", "OBJECT_DETECTION", "KEYPOINT_DETECTION", "PRETRAINING",
)  # fmt: skip
#: Kinds whose model needs more than sizes, by its configuration's name: further arguments of the configuration.
_FURTHER: dict[str, dict[str, Any]] = {
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_embds": False,
        "is_decoder": True,
        "feed_forward_size": 64,
    },
    "longformer": {"attention_window": 4},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "big_bird": {"attention_type": "original_full"},
}


def architectures() -> Iterator[Architecture]:
    """One for each kind of configuration that has a model."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    for kind in sorted(CONFIG_MAPPING_NAMES):
        yield Architecture(f"transformers/{kind}", "transformers", partial(_make, kind))


def _make(kind: str) -> Ready:
    """The first of the models of a kind that can be called in eager."""
    from transformers import CONFIG_MAPPING

    reasons = []
    classes = _classes(kind)
    if not classes:
        raise NotTiny("no model is registered for the configuration")
    state = torch.get_rng_state()
    for cls in classes:
        torch.set_rng_state(state)
        try:
            ready = _ready(cls, _small(CONFIG_MAPPING[kind], _FURTHER.get(kind, {})))
            with torch.no_grad():
                ready.model(**ready.inputs)
        except Exception as error:
            reasons.append(f"{cls.__name__}: {type(error).__name__}: {str(error).strip().splitlines()[:1]}")
            continue
        torch.set_rng_state(state)
        return _ready(cls, _small(CONFIG_MAPPING[kind], _FURTHER.get(kind, {})))
    raise NotTiny("; ".join(reasons)[:400])


def _classes(kind: str) -> list[type[nn.Module]]:
    import transformers
    from transformers.models.auto import modeling_auto

    names: list[str] = []
    for table in (*(f"MODEL_FOR_{task}_MAPPING_NAMES" for task in _TABLES), "MODEL_MAPPING_NAMES"):
        found = getattr(modeling_auto, table, {}).get(kind, ())
        names += [found] if isinstance(found, str) else list(found)
    return [getattr(transformers, name) for name in dict.fromkeys(names) if hasattr(transformers, name)]


def _small(cls: Any, further: dict[str, Any]) -> Any:
    """A small configuration of a class."""
    default = cls()
    config = cls(**{**_sizes(default), **further})
    _shorten(config, default)
    return config


def _sizes(config: Any) -> dict[str, Any]:
    """The arguments of a small configuration like this one."""
    from transformers import PretrainedConfig

    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            found[name] = {**_sizes(value), "model_type": value.model_type}
        elif name in _SIZES and type(value) is int:
            found[name] = min(value, _SIZES[name]) if value > 0 else value
        elif name.endswith("vocab_size") and type(value) is int:
            found[name] = _VOCABULARY
        elif name.endswith(("_token_id", "_token_index")) and type(value) is int and value >= _VOCABULARY:
            found[name] = _VOCABULARY - 1 - sum(map(ord, name)) % 20
        elif name in ("depths", "num_blocks", "layer_depths") and isinstance(value, list | tuple) and value:
            found[name] = type(value)(min(each, 1) if type(each) is int else each for each in value)
    return found


def _shorten(config: Any, default: Any) -> None:
    """Lists with an entry for each layer get as many as there are layers now, of all kinds that there are."""
    from transformers import PretrainedConfig

    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            _shorten(value, getattr(default, name))
        elif name.endswith("layer_types") and isinstance(value, list):
            layers = config.num_hidden_layers
            if len(value) != layers:
                kinds = list(dict.fromkeys(value))
                setattr(config, name, (kinds * layers)[:layers])


def _ready(cls: type[nn.Module], config: Any) -> Ready:
    model = cls(config)
    model.train()
    arguments = inspect.signature(model.forward).parameters
    inputs = {name: made for name in arguments if (made := _input(name, config, model)) is not None}
    labels = (
        {"labels": inputs["input_ids"]}
        if "labels" in arguments and _is_a_language_model(cls) and "input_ids" in inputs
        else {}
    )
    if "decoder_input_ids" in inputs and labels:
        labels = {"labels": inputs["decoder_input_ids"]}
    return Ready(model, inputs, labels)


def _is_a_language_model(cls: type) -> bool:
    return cls.__name__.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration"))


def _tokens() -> Tensor:
    return torch.randint(10, 100, (_BATCH, _LENGTH))


def _input(name: str, config: Any, model: nn.Module) -> Any:
    """An argument of `forward`, or None for one that is left out."""
    main = getattr(model, "main_input_name", "input_ids")
    if name == "input_ids":
        return _tokens() if main == name or _has_text(config) else None
    if name == "attention_mask":
        return torch.ones(_BATCH, _LENGTH, dtype=torch.int64) if main == "input_ids" else None
    if name == "decoder_input_ids":
        return _tokens() if getattr(config, "is_encoder_decoder", False) else None
    if name == "bbox":
        return torch.randint(0, 10, (_BATCH, _LENGTH, 2)).repeat(1, 1, 2).cumsum(-1)
    if (
        name == "pixel_values"
        and (main == "pixel_values" or not hasattr(model, "lm_head"))
        and not hasattr(config, "image_token_id")
    ):
        return _pixels(config)
    if name == "input_values":
        return (
            torch.randn(_BATCH, 2000)
            if main == name and not hasattr(config, "num_mel_bins")
            else torch.randn(_BATCH, _FRAMES, config.num_mel_bins)
        )
    if name == "input_features":
        bins = getattr(config, "num_mel_bins", 16)
        return (
            torch.randn(_BATCH, bins, 2 * _FRAMES)
            if hasattr(config, "max_source_positions")
            else torch.randn(_BATCH, _FRAMES, bins)
        )
    return None


def _has_text(config: Any) -> bool:
    return hasattr(config, "text_config") or hasattr(config, "vocab_size")


def _pixels(config: Any) -> Tensor:
    """A batch of pictures, of clips where the model takes frames."""
    for place in (config, getattr(config, "vision_config", None), getattr(config, "backbone_config", None)):
        side, channels = getattr(place, "image_size", None), getattr(place, "num_channels", None)
        if side is not None or channels is not None:
            break
    height, width = (side, side) if type(side) is int else tuple(side or (_SIDE, _SIDE))[-2:]
    frames = (config.num_frames,) if hasattr(config, "num_frames") and hasattr(config, "tubelet_size") else ()
    return torch.randn(_BATCH, *frames, channels if type(channels) is int else 3, height, width)
