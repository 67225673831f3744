"""Tiny transformers with sequences of five lengths: two compilations, results equal to eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .counting import Counted

transformers = pytest.importorskip("transformers")


def gpt2() -> Any:
    """Two layers, no dropout, no cache."""
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=64, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def bert() -> Any:
    """Two layers."""
    config = transformers.BertConfig(
        num_hidden_layers=2, num_attention_heads=2, hidden_size=16, intermediate_size=32, vocab_size=50
    )
    return transformers.BertModel(config)


@pytest.mark.parametrize("build", [gpt2, bert])
def test_five_sequence_lengths(build: Any) -> None:
    """Static for the first length, symbolic for all others."""
    model = build().eval()
    counted = Counted(model)
    with torch.no_grad():
        for length in (5, 7, 9, 12, 16):
            ids = torch.randint(0, 50, (2, length))
            actual, expected = counted.compiled(input_ids=ids)[0], model(input_ids=ids)[0]
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert counted.graphs <= 2
