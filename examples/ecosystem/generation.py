"""transformers: greedy `generate()` with a static cache, the forward compiled for decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 12


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """Two prompts of five tokens, continued by `TOKENS`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.generation_config.cache_implementation = "static"
    # generate() compiles the forward by itself where it can, with torch.compile; here the program says what compiles.
    model.generation_config.disable_compile = True
    model.forward = compile(model.forward, mode="reduce-overhead")
    prompts = torch.randint(1, 128, (2, 5))

    def step() -> list[torch.Tensor]:
        with torch.no_grad():
            return [model.generate(prompts, max_new_tokens=TOKENS, do_sample=False)]

    return step
