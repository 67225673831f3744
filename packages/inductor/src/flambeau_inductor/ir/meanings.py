"""What templates compute, by plain torch ops on whole tensors: the oracle of the kernels that are written for them.

In: a template's operands by name, its facts, and a function that evaluates a body at all points, given the values that the body reads. Out: the results by
name. See ``templates.py`` for what the names stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import templates

Operands = Mapping[str, Tensor]
Body = Callable[[str, Mapping[str, Tensor]], Tensor]
_LN2 = math.log(2)


def _attention(operands: Operands, facts: Mapping[str, Any], body: Body) -> dict[str, Tensor]:
    _, scores, _ = _scores(operands, facts, body, "kv")
    values = _spread(operands["v"], operands["q"])
    parts = facts.get("parts", 1)
    if parts > 1:
        # Whichever keys a part has: here every so many.
        turns = torch.arange(scores.shape[-1]) % parts
        each = [_results(torch.where(turns == part, scores, -math.inf), values, "parts") for part in range(parts)]
        return {name: torch.stack([result[name] for result in each]) for name in each[0]}
    kind = "written" if "window" in facts and not facts.get("empty_is_zero") else "table"
    found = _results(scores, values, kind)
    if facts.get("far"):
        found["peak"] = scores.amax(-1)
    return found


def _results(scores: Tensor, values: Tensor, kind: str) -> dict[str, Tensor]:
    lse, peak = scores.logsumexp(-1), scores.amax(-1)
    shares = scores.softmax(-1) if kind == "written" else _shares(scores, lse)
    total = (scores - peak.masked_fill(peak == -math.inf, 0.0).unsqueeze(-1)).exp().sum(-1).log2()
    return {"out": shares @ values, "lse": lse / _LN2, "total": total, "peak": peak / _LN2}


def _query_gradient(operands: Operands, facts: Mapping[str, Any], body: Body) -> dict[str, Tensor]:
    slope, _ = _slope(operands, facts, body, "kv")
    return {"dq": slope @ _spread(operands["k"], operands["q"])}


def _key_gradients(operands: Operands, facts: Mapping[str, Any], body: Body) -> dict[str, Tensor]:
    slope, shares = _slope(operands, facts, body, "q")
    dk, dv = slope.mT @ operands["q"].double(), shares.mT @ operands["grad"].double()
    if facts.get("apart"):
        return {"dk": dk, "dv": dv}
    return {"dk": _joined(dk, operands["k"]), "dv": _joined(dv, operands["v"])}


#: By kind.
MEANINGS = {
    templates.ATTENTION: _attention,
    templates.ATTENTION_QUERY_GRADIENT: _query_gradient,
    templates.ATTENTION_KEY_GRADIENTS: _key_gradients,
}


def _scores(operands: Operands, facts: Mapping[str, Any], body: Body, side: str) -> tuple[Tensor, Tensor, Tensor]:
    """The scaled products, the scores of pairs that take part (minus infinity elsewhere), and which do."""
    q = operands["q"].double()
    plain = q @ _spread(operands["k"], q).mT * facts["scale"]
    keep = body("mask", {})
    if "window" in facts:
        low, high = facts["window"]
        distances = torch.arange(plain.shape[3]) - torch.arange(plain.shape[2]).unsqueeze(-1)
        within = (distances >= (-math.inf if low is None else low)) & (
            distances <= (math.inf if high is None else high)
        )
        keep = keep & within
        score = torch.where(within, body("inner", {"score": plain.float()}), body("score", {"score": plain.float()}))
    else:
        blocks = (facts["query_block"], facts["key_block"])
        keep = keep & _named(operands, side, plain.shape, blocks)
        if f"full_{side}_num" in operands:
            keep = keep | _named(operands, f"full_{side}", plain.shape, blocks)
        score = body("score", {"score": plain.float()})
    scores = score.double()
    return plain, torch.where(keep, scores, -math.inf), keep


def _slope(operands: Operands, facts: Mapping[str, Any], body: Body, side: str) -> tuple[Tensor, Tensor]:
    """The gradient of the products, and each pair's share of its row."""
    plain, scores, keep = _scores(operands, facts, body, side)
    if "peak" in operands:
        peak, total = operands["peak"].double() * (1 if facts.get("far") else _LN2), operands["total"].double() * _LN2
        empty = (peak == -math.inf) & bool(facts.get("empty_is_zero"))
        shares = (
            scores - peak.masked_fill(empty, math.inf).unsqueeze(-1) - total.masked_fill(empty, 0).unsqueeze(-1)
        ).exp()
    else:
        shares = _shares(scores, operands["lse"].double() * _LN2)
    given = operands["grad"].double() @ _spread(operands["v"], operands["q"]).mT + operands["less"].double().unsqueeze(
        -1
    )
    slope = body("slope", {"score": plain.float(), "slope": (shares * given).float()}).double()
    return torch.where(keep, slope * facts["scale"], 0.0), shares


def _shares(scores: Tensor, lse: Tensor) -> Tensor:
    lse = lse.unsqueeze(-1)
    return torch.where(lse == -math.inf, 0.0, (scores - lse).exp())


def _named(operands: Operands, prefix: str, shape: torch.Size, blocks: tuple[int, int]) -> Tensor:
    """The pairs whose block the table ``prefix`` names."""
    number, at = operands[f"{prefix}_num"], operands[f"{prefix}_at"]
    by_keys = prefix.endswith("q")
    (row, column), (rows, columns) = (pair[::-1] if by_keys else pair for pair in (blocks, tuple(shape[2:])))
    used = torch.arange(at.shape[-1]) < number.unsqueeze(-1)
    numbers = torch.arange(-(-columns // column))
    blocks_named = ((at.unsqueeze(-1) == numbers) & used.unsqueeze(-1)).any(-2)
    pairs = blocks_named.repeat_interleave(min(row, rows), 2)[:, :, :rows]
    pairs = pairs.repeat_interleave(min(column, columns), 3)[..., :columns]
    return pairs.mT if by_keys else pairs


def _spread(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values for every head of the queries."""
    return x.double().expand(q.shape[0], -1, -1, -1).repeat_interleave(q.shape[1] // x.shape[1], 1)


def _joined(x: Tensor, like: Tensor) -> Tensor:
    """The inverse of ``_spread`` of gradients."""
    heads = x.unflatten(1, (like.shape[1], -1)).sum(2)
    return heads if like.shape[0] == heads.shape[0] else heads.sum(0, keepdim=True)
