"""Features of a table of measurements: statistics, ranks, running sums, outliers, whole-number codes."""

from __future__ import annotations

import torch
from torch import Tensor

import flambeau


def features(table: Tensor, counts: Tensor) -> dict[str, Tensor]:
    middle, spread = table.mean(0), table.std(0, correction=1)
    scaled = (table - middle) / (spread + 1e-6)
    clipped = scaled.clamp(-2.5, 2.5)
    outliers = (scaled.abs() > 1.5).sum(0)
    running = clipped.cumsum(0)
    drop = (running.cummax(0).values - running).amax(0)
    weights = torch.softmax(clipped * 0.7, dim=1)
    mixed = (weights * table).sum(1)
    soft = torch.logsumexp(table, dim=1) - table.amax(1)
    best, worst = (-table.abs()).argmax(1), table.argmin(0)
    bins = (scaled * 3).to(torch.int64).clamp(-4, 4)
    low = table.abs().amin(0)
    codes = torch.remainder(counts * 7 - 3, 5) + torch.div(counts, 3, rounding_mode="floor")
    near, far = torch.exp(scaled.abs() * -0.5), torch.exp(scaled.abs() * -2.0)
    parity = (codes & 1).to(torch.float32) * 2 - 1
    signed = torch.where(parity > 0, mixed, -mixed).round(decimals=2)
    return {
        "scaled": clipped, "outliers": outliers, "drop": drop, "soft": soft, "best": best, "worst": worst,
        "codes": codes, "signed": signed, "share": (1 + weights).prod(1), "kernels": near - far, "low": low, "bins": bins, "any": (table > 2).any(1),
    }  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(0)
    table, counts = torch.randn(13, 37), torch.arange(-6, 7)
    torch.testing.assert_close(flambeau.compile(features)(table, counts), features(table, counts), rtol=1e-4, atol=1e-5)
