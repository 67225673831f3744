"""Sizes and numbers that depend on data."""

from __future__ import annotations

import torch
from torch import Tensor

from ..registry import Made, program

SECTION = "data-dependent sizes"


@program(SECTION)
def item_as_a_factor() -> Made:
    return lambda x: x * x.max().item(), [(torch.tensor([1.0, 2.0]),), (torch.tensor([3.0, 2.0]),)]


@program(SECTION)
def item_of_an_integer() -> Made:
    return lambda x, n: x + n.item(), [(torch.ones(3), torch.tensor(4)), (torch.ones(3), torch.tensor(7))]


@program(SECTION)
def item_deciding_a_branch() -> Made:
    def f(x: Tensor) -> Tensor:
        if x.sum().item() > 0:
            return x.sqrt()
        return -x

    return f, [(torch.ones(3),), (-torch.ones(3),)]


@program(SECTION)
def float_of_a_loss() -> Made:
    def f(x: Tensor) -> tuple[Tensor, float]:
        loss = x.pow(2).mean()
        return loss, float(loss)

    return f, [(torch.randn(4, requires_grad=True),)]


@program(SECTION)
def zeros_of_a_data_dependent_size() -> Made:
    def f(n: Tensor) -> Tensor:
        size = n.item()
        torch._check_is_size(size)
        return torch.zeros(size) + 1

    return f, [(torch.tensor(3),), (torch.tensor(5),)]


@program(SECTION)
def arange_up_to_a_maximum() -> Made:
    def f(lengths: Tensor) -> Tensor:
        longest = lengths.max().item()
        torch._check(longest >= 1)
        return torch.arange(longest).unsqueeze(0) < lengths.unsqueeze(1)

    return f, [(torch.tensor([1, 3, 2]),), (torch.tensor([4, 1]),)]


@program(SECTION)
def tolist_splitting_a_tensor() -> Made:
    def f(x: Tensor, sizes: Tensor) -> list[Tensor]:
        return [part.sum(0) for part in x.split(sizes.tolist())]

    return f, [(torch.randn(6, 2), torch.tensor([1, 2, 3])), (torch.randn(6, 2), torch.tensor([2, 2, 2]))]


@program(SECTION)
def tolist_with_checks() -> Made:
    def f(x: Tensor, bounds: Tensor) -> Tensor:
        low, high = bounds.tolist()
        torch._check(low >= 0)
        torch._check(low <= high)
        torch._check(high <= x.shape[0])
        return x[low:high].sum()

    return f, [(torch.randn(6), torch.tensor([1, 4]))]


@program(SECTION)
def nonzero_indices() -> Made:
    return lambda x: x[x.nonzero(as_tuple=True)] * 2, [
        (torch.tensor([0.0, 1.0, 2.0]),),
        (torch.tensor([1.0, 0.0, 0.0]),),
    ]


@program(SECTION)
def nonzero_count() -> Made:
    def f(x: Tensor) -> Tensor:
        rows = torch.nonzero(x > 0)
        return x.sum() / max(rows.shape[0], 1)

    return f, [(torch.tensor([[1.0, -1.0], [2.0, 3.0]]),)]


@program(SECTION)
def masked_select_mean() -> Made:
    return lambda x, m: torch.masked_select(x, m).mean(), [(torch.randn(4, 3), torch.rand(4, 3) > 0.3)]


@program(SECTION)
def boolean_mask_read() -> Made:
    return lambda x: x[x > 0].log().sum(), [(torch.tensor([1.0, -1.0, 2.0], requires_grad=True),)]


@program(SECTION)
def boolean_mask_assigned() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        out = x.clone()
        out[y > 0] = 0.0
        out[y < 0] = y[y < 0]
        return out

    return f, [(torch.randn(5), torch.randn(5))]


@program(SECTION)
def unique_with_counts() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        return values * 2, inverse, counts.float() / x.numel()

    return f, [(torch.tensor([3, 1, 3, 2]),), (torch.tensor([1, 1, 1, 1]),)]


@program(SECTION)
def repeat_interleave_of_lengths() -> Made:
    def f(x: Tensor, lengths: Tensor) -> Tensor:
        return x.repeat_interleave(lengths, dim=0) + 1

    return f, [(torch.randn(3, 2), torch.tensor([1, 0, 3]))]


@program(SECTION)
def bincount_histogram() -> Made:
    return lambda ids: torch.bincount(ids).float().softmax(0), [(torch.tensor([0, 2, 2, 1]),)]


@program(SECTION)
def where_of_one_argument() -> Made:
    def f(x: Tensor) -> Tensor:
        rows, columns = torch.where(x > 0)
        return x[rows, columns] + rows + columns

    return f, [(torch.randn(3, 3),)]


@program(SECTION)
def loop_up_to_an_item() -> Made:
    def f(x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x * 1.5 + 1
        return x

    return f, [(torch.ones(3), torch.tensor(3)), (torch.ones(3), torch.tensor(2))]


@program(SECTION)
def loop_until_converged() -> Made:
    def f(x: Tensor) -> Tensor:
        while (x.abs() > 1).any():
            x = x / 2
        return x

    return f, [(torch.tensor([5.0, 0.5]),), (torch.tensor([0.1]),)]


@program(SECTION)
def index_by_an_item() -> Made:
    def f(x: Tensor, i: Tensor) -> Tensor:
        k = i.item()
        torch._check(0 <= k)
        torch._check(k < x.shape[0])
        return x[k] * 2

    return f, [(torch.randn(4, 2), torch.tensor(2))]


@program(SECTION)
def topk_of_a_fraction() -> Made:
    def f(x: Tensor, fraction: float) -> Tensor:
        k = max(1, int(fraction * x.numel()))
        return x.flatten().topk(k).values.min()

    return f, [(torch.randn(4, 4), 0.25), (torch.randn(4, 4), 0.5)]


@program(SECTION)
def sizes_checked_equal() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b = x[x > 0], y[y > 0]
        torch._check(a.shape[0] == b.shape[0])
        return a + b

    return f, [(torch.tensor([1.0, -1.0, 2.0]), torch.tensor([3.0, 4.0, -1.0]))]


@program(SECTION)
def graph_pooling_by_segment() -> Made:
    def f(x: Tensor, batch: Tensor) -> Tensor:
        groups = int(batch.max()) + 1
        out = torch.zeros(groups, x.shape[1])
        return out.index_add(0, batch, x)

    return f, [(torch.randn(5, 2), torch.tensor([0, 0, 1, 2, 2]))]


@program(SECTION)
def packed_sequence() -> Made:
    def f(x: Tensor, lengths: Tensor) -> Tensor:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return packed.data * 2

    return f, [(torch.randn(2, 3, 2), torch.tensor([3, 2]))]


@program(SECTION)
def sum_over_python_numbers_of_a_tensor() -> Made:
    def f(x: Tensor) -> Tensor:
        weights = [float(v) for v in x]
        return x * sum(weights)

    return f, [(torch.tensor([1.0, 2.0, 3.0]),)]


@program(SECTION)
def bool_of_a_comparison() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x + 1 if torch.equal(x, y) else x - y

    return f, [(torch.ones(3), torch.ones(3)), (torch.ones(3), torch.zeros(3))]


@program(SECTION)
def nms_like_loop() -> Made:
    def f(scores: Tensor, limit: float) -> Tensor:
        keep = torch.nonzero(scores > limit).flatten()
        order = scores[keep].argsort(descending=True)
        return keep[order][:2]

    return f, [(torch.tensor([0.1, 0.9, 0.5, 0.7]), 0.3)]


@program(SECTION, raises=True)
def check_that_fails() -> Made:
    def f(x: Tensor) -> Tensor:
        n = x.sum().item()
        torch._check(n > 0, lambda: f"sum is {n}")
        return x * 2

    return f, [(torch.ones(3),), (-torch.ones(3),)]
