"""diffusers: a step of a UNet, with a LoRA swapped for another without compiling again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from diffusers import UNet2DConditionModel
from peft import LoraConfig, get_peft_model_state_dict

RANK = 2


def _adapter(seed: int, make_unet: Callable[[], UNet2DConditionModel]) -> dict[str, torch.Tensor]:
    """Weights of a LoRA as a file would have them."""
    unet = make_unet()
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["to_q", "to_v"], init_lora_weights=False))
    generator = torch.Generator().manual_seed(seed)
    state = get_peft_model_state_dict(unet)
    return {name: torch.randn(value.shape, generator=generator) * 0.1 for name, value in state.items()}


def _unet() -> UNet2DConditionModel:
    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=4,
    ).eval()  # fmt: skip


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step denoises once with each of two LoRAs, the second put in place of the first."""
    adapters = [_adapter(seed, _unet) for seed in (1, 2)]
    unet = _unet()
    # Room for adapters to come, so that a swap changes numbers only.
    unet.enable_lora_hotswap(target_rank=RANK)
    unet.load_lora_adapter(adapters[0], prefix=None, adapter_name="style")
    denoise = compile(unet)
    sample, context = torch.randn(1, 4, 8, 8), torch.randn(1, 3, 16)

    def step() -> list[torch.Tensor]:
        results = []
        for adapter in adapters:
            unet.load_lora_adapter(adapter, prefix=None, adapter_name="style", hotswap=True)
            with torch.no_grad():
                results.append(denoise(sample, torch.tensor(10), encoder_hidden_states=context).sample)
        return results

    return step
