"""The grid of attention: masks and scores that people write, 64 and 128 wide, 1k to 32k tokens; forward, with backward, decoding.

In: names of cases, `MASK/WIDTH/LENGTH/KIND` ("causal/128/4k/forward"). Out: a record for each, with the device's seconds of one call and the errors beside
formulas in float64. Operands are bfloat16. Engines are `torch.compile` and `flambeau`, of `flex_attention`, and `library`: the best backend
of `scaled_dot_product_attention` that has the case without a mask in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from . import clock, engines

ENGINES = ("torch.compile", "flambeau", "library")
WIDTHS = (64, 128)
LENGTHS = {"1k": 1024, "4k": 4096, "16k": 16384, "32k": 32768}
KINDS = ("forward", "train", "decode")
#: Keys of a sliding window, the mean length of a document, and where scores are capped.
WINDOW, DOCUMENT, CAP = 1024, 1024, 20.0
#: Query heads times tokens of a call, at least eight heads; sequences, query heads and key heads of one that decodes.
_ROWS, _HEADS, _DECODE = 1 << 18, 16, (4, 32, 8)
_BLOCK = 128
#: How many queries the formulas are asked for.
_SAMPLED = 64
#: Seconds that a case is timed for.
_BUDGET = 0.05
Score = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The past."""
    return q >= k


def sliding(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The near past."""
    return (q >= k) & (q - k < WINDOW)


def document(of: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The past of the same document."""
    return (q >= k) & (of[q] == of[k])


def alibi(heads: int, score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """A penalty for distance, another for each head."""
    return score + torch.exp2(-((h + 1) * (8.0 / heads))) * (k - q)


def capped(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """No score beyond `CAP`."""
    return CAP * torch.tanh(score / CAP)


MASKS = ("causal", "sliding", "document", "alibi", "cap")
CASES = tuple(f"{m}/{w}/{n}/{kind}" for m in MASKS for w in WIDTHS for n in LENGTHS for kind in KINDS)


@frozen
class Case:
    """One attention: its operands, its functions of scores and positions, and the first query's position."""

    name: str
    operands: tuple[Tensor, Tensor, Tensor]
    grad: Tensor
    score: Score | None
    mask: Mask
    blocks: BlockMask
    first: int

    @property
    def train(self) -> bool:
        """Whether a call has its backward."""
        return self.name.endswith("train")

    def flex(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The program that compilers are given."""
        out: Tensor = flex_attention(q, k, v, self.score, self.blocks, enable_gqa=q.shape[1] != k.shape[1])
        return out

    def library(self, backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The library's: a query of the last position sees all keys."""
        with sdpa_kernel([backend]):
            out: Tensor = F.scaled_dot_product_attention(
                q, k, v, is_causal=q.shape[2] > 1, enable_gqa=q.shape[1] != k.shape[1]
            )
        return out


def case(name: str, device: str) -> Case:
    """The case of a name, or one of a length that is not in the grid, as "2k"."""
    mask, width, length, kind = name.split("/")
    tokens, wide = int(length.removesuffix("k")) * 1024, int(width)
    heads = _DECODE[1] if kind == "decode" else _HEADS if _HEADS * tokens <= _ROWS else 8
    batch = _DECODE[0] if kind == "decode" else max(1, _ROWS // (heads * tokens))
    few, queries = (_DECODE[2], 1) if kind == "decode" else (heads, tokens)
    first = tokens - queries
    made = partial(torch.randn, device=device, dtype=torch.bfloat16, generator=torch.Generator(device).manual_seed(0))
    q, grad = (made(batch, heads, queries, wide) for _ in range(2))
    k, v = (made(batch, few, tokens, wide) for _ in range(2))
    if kind == "train":
        q, k, v = (x.requires_grad_() for x in (q, k, v))
    masks: dict[str, Mask] = {"sliding": sliding, "document": partial(document, _documents(tokens, device))}
    scores: dict[str, Score] = {"alibi": partial(alibi, heads), "cap": capped}
    score, function = scores.get(mask), masks.get(mask, causal)
    score, function = score and _moved_score(score, first), _moved(function, first)
    return Case(name, (q, k, v), grad, score, function, blocks_of(function, queries, tokens, device), first)


def _moved(mask: Mask, first: int) -> Mask:
    def moved(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return mask(b, h, q + first if first else q, k)

    return moved


def _moved_score(score: Score, first: int) -> Score:
    def moved(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return score(s, b, h, q + first if first else q, k)

    return moved


def _documents(tokens: int, device: str) -> Tensor:
    """Which document a token is of: lengths from half of the mean to one and a half."""
    generator = torch.Generator().manual_seed(tokens)
    lengths = torch.randint(DOCUMENT // 2, DOCUMENT * 3 // 2, (2 * tokens // DOCUMENT + 2,), generator=generator)
    of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:tokens]
    return of.to(device=device, dtype=torch.int32)


def blocks_of(mask: Mask, queries: int, keys: int, device: str) -> BlockMask:
    """The block mask, made by 4,096 queries at a time: all pairs of 32k tokens at once are gigabytes of positions."""
    kinds = []
    columns = torch.arange(-(-keys // _BLOCK) * _BLOCK, device=device, dtype=torch.int32)
    zero = torch.zeros((), device=device, dtype=torch.int32)
    for start in range(0, queries, 4096):
        count = min(4096, queries - start)
        rows = torch.arange(start, start + count, device=device, dtype=torch.int32)
        seen = mask(zero, zero, rows[:, None], columns.clamp(max=keys - 1)[None]) & (columns < keys)
        side = min(_BLOCK, count)
        kinds.append(seen.view(-1, side, len(columns) // _BLOCK, _BLOCK).permute(0, 2, 1, 3).flatten(2).sum(-1))
    counts = torch.cat(kinds)
    whole = counts == min(_BLOCK, queries) * _BLOCK
    tables = [table for chosen in ((counts > 0) & ~whole, whole) for table in _table(chosen)]
    return BlockMask.from_kv_blocks(*tables, BLOCK_SIZE=_BLOCK, mask_mod=mask, seq_lengths=(queries, keys))


def _table(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are chosen, and which, these first."""
    order = torch.sort(chosen.int(), dim=-1, descending=True, stable=True).indices.int()
    return chosen.sum(-1, dtype=torch.int32)[None, None], order[None, None]


def wanted(found: Case) -> dict[str, Tensor]:
    """Some rows of the first batch's result in float64, and of the queries' gradient; of up to 1k tokens, the first key head's gradients too."""
    q, k, v, grad = (x.detach()[:1].double() for x in (*found.operands, found.grad))
    shared = q.shape[1] // k.shape[1]
    every = found.train and q.shape[2] <= 1024
    rows = torch.arange(q.shape[2], device=q.device) if every else sampled(found)
    heads = shared if every else min(q.shape[1], 2 * shared)
    q, grad = (x[:, :heads, rows].requires_grad_(x is q) for x in (q, grad))
    k, v = (x[:, : heads // shared].requires_grad_() for x in (k, v))
    keys, values = (x.repeat_interleave(shared, 1) for x in (k, v))
    at = [torch.arange(n, device=q.device) for n in (1, heads)] + [rows, torch.arange(k.shape[2], device=q.device)]
    at = [x.view([-1 if d == place else 1 for d in range(4)]) for place, x in enumerate(at)]
    scores = q @ keys.mT / math.sqrt(q.shape[-1])
    scores = scores if found.score is None else found.score(scores, *at)
    out = scores.masked_fill(~found.mask(*at), -math.inf).softmax(-1) @ values
    results = {"out": out.detach()}
    if found.train:
        dq, dk, dv = torch.autograd.grad(out, (q, k, v), grad)
        results |= {"dq": dq, "dk": dk, "dv": dv} if every else {"dq": dq}
    return results


def sampled(found: Case) -> Tensor:
    """Which queries are looked at: spread over all, the last among them."""
    q = found.operands[0]
    count = min(q.shape[2], _SAMPLED)
    return ((torch.arange(count, device=q.device) + 1) * q.shape[2]) // count - 1


def errors(found: Case, out: Tensor, grads: Sequence[Tensor]) -> dict[str, float]:
    """The largest difference from the formulas, relative to the largest value of each result."""
    worst = {}
    results = dict(zip(("out", "dq", "dk", "dv"), (out, *grads)))
    for name, right in wanted(found).items():
        ours = results[name].detach()[:1, : right.shape[1]]
        if ours.shape[2] != right.shape[2]:
            ours = ours[:, :, sampled(found)]
        worst[name] = float((ours.double() - right).abs().max() / right.abs().max())
    return worst


def step_of(found: Case, function: Callable[..., Tensor]) -> Callable[[], tuple[Tensor, Sequence[Tensor]]]:
    """One call of an engine: the result, and the gradients where the case has them."""

    def step() -> tuple[Tensor, Sequence[Tensor]]:
        if not found.train:
            with torch.no_grad():
                return function(*found.operands), ()
        out = function(*found.operands)
        return out, torch.autograd.grad(out, found.operands, found.grad)

    return step


_BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)


def functions(engine: str, found: Case) -> Mapping[str, Callable[..., Tensor]]:
    """What an engine has for a case, by name; nothing where it does not have it."""
    if engine != "library":
        arguments = {"dynamic": False} if engine.startswith("torch.compile") else {}
        return {engine: engines.compiled(engine, found.flex, **arguments)}
    if not found.name.startswith("causal"):
        return {}
    return {backend.name: partial(found.library, backend) for backend in _BACKENDS}


def measured(request: Mapping[str, Any], leave_to: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The cases of a request: all are compiled first, those that are begun within ``deadline`` seconds, then each is timed."""
    device, engine = request.get("device", "cpu"), request["engine"]
    if engine.startswith("torch.compile"):
        # Each case is one more compilation of the same method; beyond the limit it runs in eager.
        torch._dynamo.config.recompile_limit = len(CASES)
    leave_to("compile")
    deadline = time.monotonic() + (request.get("deadline") or math.inf)
    ready: dict[str, dict[str, Callable[[], Any]]] = {}
    records: dict[str, dict[str, Any]] = {}
    for name in request["workloads"]:
        if time.monotonic() > deadline:
            records[name] = {"workload": name, "error": "not begun: out of time"}
            continue
        found, record = case(name, device), {"workload": name}
        for which, function in functions(engine, found).items():
            step = step_of(found, function)
            try:
                seen = errors(found, *step())
            except Exception as error:
                record["error"] = f"{which}: {type(error).__name__}: {str(error).strip()[:150]}"
                continue
            ready.setdefault(name, {})[which] = step
            record["errors"] = {key: round(value, 5) for key, value in seen.items()}
        records[name] = record
    leave_to("time")
    for name, record in records.items():
        times = {which: clock.device_seconds(step, device, _BUDGET) for which, step in ready.get(name, {}).items()}
        if times:
            record.pop("error", None)
            record["by"] = min(times, key=times.__getitem__)
            record["device_seconds"] = times[record["by"]]
        yield record


def requests(only: Sequence[str] | None, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A request for each mask and width; `only` names cases, or parts of them, as "causal/64", "128" or "decode"."""
    chosen = [name for name in CASES if not only or any(set(part.split("/")) <= set(name.split("/")) for part in only)]
    groups: dict[str, list[str]] = {}
    for name in chosen:
        groups.setdefault(name.rsplit("/", 2)[0], []).append(name)
    return [{**common, "workload": group, "workloads": names} for group, names in groups.items()]


def table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each case: milliseconds of each engine, how much faster ours is than each, and the largest error of ours."""
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        rows.setdefault(record["workload"], {})[record["engine"]] = record
    lines = [f"{'':26}" + "".join(f"{engine:>14}" for engine in ENGINES) + f"{'':8}{'x torch':>9}{'x lib':>7}  error"]
    for name in (*CASES, *(name for name in rows if name not in CASES)):
        if name not in rows:
            continue
        row = rows[name]
        seconds = {engine: row.get(engine, {}).get("device_seconds") for engine in ENGINES}
        ours = seconds["flambeau"]
        cells = "".join(f"{'-' if s is None else f'{s * 1e3:.4f}':>14}" for s in seconds.values())
        ratios = [seconds[e] / ours if ours and seconds[e] else None for e in ("torch.compile", "library")]
        by = str(row.get("library", {}).get("by", ""))[:5].lower()
        error = max(row.get("flambeau", {}).get("errors", {"": math.nan}).values())
        shown = "".join(f"{'-' if r is None else f'{r:.2f}':>8}" for r in ratios)
        lines.append(f"{name:26}{cells}  {by:6}{shown}  {error:.4f}")
        lines += [
            f"    {engine}: {r['error']}" for engine, r in row.items() if "error" in r and "device_seconds" not in r
        ]
    return lines
