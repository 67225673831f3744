"""peft: LoRA training of a transformers model; the frozen weights get no gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step is one of training; it returns the loss and the adapters."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    adapted = get_peft_model(
        LlamaForCausalLM(config), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    )
    run = compile(adapted)
    trained = [value for value in adapted.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    tokens = torch.randint(0, 64, (2, 12))

    def step() -> list[torch.Tensor]:
        loss = run(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss.detach(), *(value.detach().clone() for value in trained)]

    return step
