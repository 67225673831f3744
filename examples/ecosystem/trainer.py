"""transformers: `Trainer` on a compiled model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

#: `Trainer` collects garbage before it trains, which takes as long as many steps of a model of this size.
STEPS = 12


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Random tokens, each sentence its own label."""

    def __init__(self) -> None:
        self._tokens = torch.randint(0, 64, (8, 16), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._tokens[index]}


def make(compile: Callable[..., Any]) -> Callable[[], list[torch.Tensor]]:
    """A step is a whole training of `STEPS` optimizer steps, on the same weights each time; it returns them and the loss."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    model.forward = compile(model.forward)
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def step() -> list[torch.Tensor]:
        model.load_state_dict(start)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, max_steps=STEPS, per_device_train_batch_size=4, learning_rate=1e-2, report_to=[], use_cpu=True,
                save_strategy="no", disable_tqdm=True, logging_strategy="no", seed=0,
            )  # fmt: skip
            trained = Trainer(model=model, args=arguments, train_dataset=Sentences()).train()
        return [torch.tensor(trained.training_loss), *(value.detach().clone() for value in model.parameters())]

    return step
