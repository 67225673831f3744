"""Modules trained through compiled graphs: outputs, buffers and every gradient equal eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from lifting import check_module, compile_module
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, 2, 4).transpose(1, 2) for p in self.qkv(self.norm(x)).split(d, -1))
        weights = (q @ k.transpose(-1, -2) / 2).masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        y = nn.functional.relu(self.norm(self.conv(x)), inplace=True)
        return self.head(nn.functional.adaptive_avg_pool2d(nn.functional.max_pool2d(y, 2), 1).flatten(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.cell = nn.LSTMCell(6, 6)

    def forward(self, ids):
        h = c = torch.zeros(ids.shape[0], 6)
        for t in range(ids.shape[1]):
            h, c = self.cell(self.embedding(ids[:, t]), (h, c))
        return h @ self.embedding.weight.t(), c


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), lambda: [torch.randn(3, 4)]),
    "batch_norm": (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU()), lambda: [torch.randn(5, 4)]),
    "batch_norm_eval": (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).eval(), lambda: [torch.randn(5, 4)]),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 8), nn.Dropout(0.5)), lambda: [torch.randn(5, 4)]),
    "attention": (Attention, lambda: [torch.randn(2, 5, 8, requires_grad=True)]),
    "convolutional": (Convolutional, lambda: [torch.randn(2, 3, 8, 8, requires_grad=True)]),
    "tied_lstm": (Tied, lambda: [torch.randint(0, 10, (2, 3))]),
    "group_norm": (lambda: nn.Sequential(nn.Conv1d(4, 4, 3), nn.GroupNorm(2, 4), nn.SiLU()), lambda: [torch.randn(2, 4, 8)]),
    "transformer_layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), lambda: [torch.randn(2, 4, 8)]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_equals_eager(name):
    """One forward and backward."""
    torch.manual_seed(3)
    make, inputs = MODULES[name]
    check_module(make(), inputs(), rtol=1e-4, atol=1e-5)


def test_batch_norm_statistics_over_steps():
    """Running statistics and the batch counter follow eager over several calls."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    other = copy.deepcopy(module)
    compiled = compile_module(module, [torch.randn(6, 4)])
    for _ in range(3):
        x = torch.randn(6, 4)
        torch.testing.assert_close(compiled(x)[0], other(x))
    for a, b in zip(module.buffers(), other.buffers()):
        torch.testing.assert_close(a, b)
    assert module[1].num_batches_tracked == 3


def test_training_steps():
    """Twenty optimiser steps give the same loss."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 1))
    other = copy.deepcopy(module)
    compiled = compile_module(module, [torch.randn(8, 4)])
    losses = []
    for run, params in ((lambda x: compiled(x)[0], module.parameters()), (other, other.parameters())):
        torch.manual_seed(1)
        optimiser = torch.optim.AdamW(list(params), lr=1e-2)
        for _ in range(20):
            optimiser.zero_grad()
            loss = (run(torch.randn(8, 4)) - 1).pow(2).mean()
            loss.backward()
            optimiser.step()
        losses.append(loss.detach())
    torch.testing.assert_close(*losses)
