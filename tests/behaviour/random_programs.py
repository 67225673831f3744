"""Random programs of tensors whose every step is exact: views of views, writes through them, broadcasts, indices, conversions.

In: a seed. Out: a `Program`: the source of a function of two tensors, and those tensors. Values are small whole numbers in float64, int64, int32, uint8 or
bool, and no step rounds, so that a compiled program must give the very same bits. The steps are texts in which `x` and `y` stand for any value made before
and `D` for a dimension; one that eager refuses is not taken.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

#: New values of one or two others, element by element.
POINTWISE = [
    "-x", "x + 1", "x * 2", "x - 3", "x + y", "x - y", "x * y", "torch.maximum(x, y)", "torch.minimum(x, y)", "torch.where(x > y, x, y)",
    "torch.where(x > 0, x, 0)", "torch.where(y > 0, 1, x)", "x == 0", "x > 0", "x < y", "x == y", "x.logical_not()", "x.logical_and(y)", "x.abs()",
    "x.clamp(-1, 2)", "torch.clamp(x, min=y)", "x.to(torch.int64)", "x.to(torch.int32)", "x.to(torch.float64)", "x.to(torch.bool)",
    "x.to(torch.int64).to(torch.uint8)", "x % 3", "x // 2", "x & y", "x | y", "x ^ 3", "~x", "x.sign()", "x.masked_fill(x > 0, 1)", "torch.add(x, y, alpha=2)",
    "torch.zeros_like(x)", "torch.full_like(x, 3)", "x.new_ones(x.shape)", "x.clone()", "x.contiguous()", "x.detach()", "x.type_as(y)",
]  # fmt: skip
#: Along rows, and joins of several tensors.
ROWS = [
    "x.sum(D)", "x.sum()", "x.sum(D, keepdim=True)", "x.sum((0, -1))", "x.amax(D)", "x.amin(D, keepdim=True)", "x.amax((0, -1))", "x.max(D)[0]", "x.any(D)", "x.all(D)",
    "x.cumsum(D)", "x.sort(D)[0]", "x.cummax(D)[0]", "x.topk(1, D)[0]", "torch.count_nonzero(x, D)", "torch.diff(x, dim=D)", "torch.cat([x, y], D)", "torch.cat([x, x], D)",
    "torch.stack([x, x * 2], D)", "torch.outer(x.flatten()[:4], y.flatten()[:5])", "torch.arange(x.shape[0]) + x.sum()",
]  # fmt: skip
#: Windows on the memory of another value, and values in another order.
VIEWS = [
    "x.transpose(0, -1)", "x.flip(D)", "x.unsqueeze(D)", "x.squeeze()", "x[1:]", "x[::2]", "x[..., :2]", "x[..., 1:]", "x[0]", "x[..., -1]", "x.reshape(-1)", "x.flatten()",
    "x.permute(*range(x.dim())[::-1])", "x.expand(2, *x.shape)", "x.roll(1, D)", "F.pad(x, (1, 1))", "F.pad(x, (1, -1), value=2)", "x.chunk(2, D)[0]", "x.split(2, D)[-1]",
    "x.split(2, D)[0]", "x.unfold(D, 2, 1)", "x.diagonal(0, 0, -1)", "x.tril()", "x.triu(1)", "x.movedim(0, -1)", "x.select(D, 0)", "x.narrow(D, 0, 1)", "x.view(-1)",
    "x.view(x.shape[0], -1)", "x.repeat_interleave(2, D)", "x.t()", "x.mT", "x.unbind(D)[-1]", "torch.tensor_split(x, 2, D)[1]", "torch.rot90(x)", "x[None]", "x[:, None]",
    "x.unflatten(-1, (1, -1))", "x[x.shape[0] // 2 :]", "x[: x.shape[0] // 2]", "torch.tile(x, (2,))", "x.swapaxes(0, -1).contiguous()",
]  # fmt: skip
#: Reads and writes at places that indices name.
INDICES = [
    "x.index_select(D, torch.tensor([0, 0]))", "x[torch.tensor([0, -1])]", "x[..., torch.tensor([0, 1, 0])]", "x.gather(D, torch.zeros_like(x, dtype=torch.int64))",
    "x.take(torch.tensor([0, 1]))", "torch.scatter(x, D, torch.zeros_like(x, dtype=torch.int64), 1)", "x.index_add(D, torch.zeros(x.shape[D], dtype=torch.int64), x)",
    "x.scatter_add(D, torch.zeros_like(x, dtype=torch.int64), x)", "x.scatter_reduce(D, torch.zeros_like(x, dtype=torch.int64), x, 'amax')", "x.index_fill(D, torch.tensor([0]), 7)",
    "x.index_copy(0, torch.tensor([0]), x[-1:])", "torch.select_scatter(x, x.select(D, 0) + 1, D, 0)", "torch.slice_scatter(x, x[:1] * 0, 0, 0, 1)", "x.masked_scatter(x > 0, x.clone())",
    "x.put(torch.tensor([0]), x.flatten()[:1] * 2)", "F.one_hot(x.to(torch.int64).abs() % 5, 5)", "torch.bucketize(x, torch.tensor([-1, 0, 1]))",
]  # fmt: skip
#: Writes, through whatever `x` is a window on.
WRITES = [
    "x.add_(1)", "x.mul_(2)", "x.sub_(y)", "x.neg_()", "x.zero_()", "x.fill_(2)", "x.clamp_(min=0)", "x[0].zero_()", "x[..., 0] = 5", "x.copy_(x.flip(0))", "x.t().mul_(2)",
    "x.flatten()[:2].fill_(3)", "x[1:].add_(x[:-1])", "x[x > 0] = 1", "x[torch.tensor([0, -1])] = 2", "x.transpose(0, -1)[0] += 1", "x.masked_fill_(x > 1, 0)", "x.view(-1)[::2] *= 3",
    "x.select(D, 0).copy_(x.select(D, -1))", "x.index_add_(0, torch.tensor([0]), x[-1:].clone())", "x.diagonal(0, 0, -1).fill_(4)", "x.squeeze().neg_()", "x.cumsum_(D)", "x.tril_()",
    "x.scatter_(0, torch.zeros_like(x, dtype=torch.int64), 2)", "x.split(2, D)[-1].add_(1)", "x.unsqueeze(0).add_(y)", "x.chunk(2, D)[0].mul_(2)", "x.logical_not_()",
]  # fmt: skip
FAMILIES, WEIGHTS = [POINTWISE, ROWS, VIEWS, INDICES, WRITES], [6, 4, 6, 3, 4]
DTYPES = [torch.float64, torch.float64, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
#: More elements than this are too slow to be worth it; larger numbers may not be exact.
_MOST_ELEMENTS, _LARGEST = 4000, 2.0**40


@frozen
class Program:
    """`source` defines `f(a, b)`; `inputs` are its arguments, `others` some of the same sizes; `dynamic` is how to compile it."""

    seed: int
    source: str
    inputs: tuple[Tensor, Tensor]
    others: tuple[Tensor, Tensor]
    dynamic: bool | None

    def function(self) -> Any:
        """The function itself."""
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        exec(compile(self.source, f"<program {self.seed}>", "exec"), names)
        return names["f"]


def program(seed: int) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    shapes = [_shape(chance), _shape(chance)]
    if chance.random() < 0.5:
        shapes[1] = shapes[0]
    dtypes = [chance.choice(DTYPES) for _ in shapes]
    generator = torch.Generator().manual_seed(seed)
    first, second = (
        tuple(
            _tensor(shape, dtype, seed + n, generator)
            for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        )
        for _ in range(2)
    )
    lines, names = _lines(chance, first)
    kept = chance.sample(names, min(3, len(names)))
    results = ", ".join(dict.fromkeys([*kept, names[-1]]))
    source = "\n    ".join(["def f(a, b):", *lines, f"return {results},\n"])
    return Program(seed, source, first, second, chance.choice([None, True, False]))


def _lines(chance: random.Random, inputs: tuple[Tensor, ...]) -> tuple[list[str], list[str]]:
    """Steps that eager takes, one after the other, and the names of the values."""
    lines: list[str] = []
    names = ["a", "b"]
    wanted = chance.randint(3, 9)
    for _ in range(60):
        if len(lines) == wanted:
            break
        (family,) = chance.choices(FAMILIES, WEIGHTS)
        step = chance.choice(family).replace("D", str(chance.choice([0, -1, -1, 1])))
        operands = {"x": chance.choice(names[-4:]), "y": chance.choice(names)}
        line = _with_operands(step, operands)
        name = f"v{len(lines)}"
        makes_value = family is not WRITES
        if makes_value:
            line = f"{name} = {line}"
        if _is_fine([*lines, line], inputs, name if makes_value else operands["x"]):
            lines.append(line)
            names += [name] if makes_value else []
    return lines, names


def _with_operands(step: str, operands: Mapping[str, str]) -> str:
    return re.sub(r"\b[xy]\b", lambda match: operands[match[0]], step)


def _is_fine(lines: list[str], inputs: tuple[Tensor, ...], result: str) -> bool:
    """Whether eager takes these steps, and the value of the last is small."""
    values: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "a": inputs[0].clone(), "b": inputs[1].clone()}
    try:
        exec("\n".join(lines), values)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    value = values[result]
    small = isinstance(value, Tensor) and 0 < value.numel() <= _MOST_ELEMENTS
    return small and bool((value.to(torch.float64).abs() < _LARGEST).all())


def _shape(chance: random.Random) -> tuple[int, ...]:
    if chance.random() < 0.7:
        return chance.choice([1, 2, 3, 5, 8, 17]), chance.choice([1, 2, 4, 7, 16, 33])
    return tuple(chance.choice([1, 2, 3, 4, 9]) for _ in range(chance.choice([1, 3, 4])))


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, kind: int, generator: torch.Generator) -> Tensor:
    """Whole numbers, in memory in order, transposed or with gaps."""
    low = 0 if dtype in (torch.bool, torch.uint8) else -4
    values = torch.randint(low, 2 if dtype is torch.bool else 6, shape, generator=generator).to(dtype)
    if kind % 5 == 0:
        return values.transpose(0, -1).contiguous().transpose(0, -1)
    if kind % 7 == 0:
        return torch.stack([values, values], -1)[..., 0]
    return values
