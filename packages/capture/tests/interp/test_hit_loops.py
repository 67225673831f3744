"""Loops over the experts that have tokens: one graph where a round adds rows and does nothing else, and eager's results and effects wherever one does more."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from both_ways import assert_equal, eager, outcome, recorded

from flambeau_capture import make_region

NOTES: list[int] = []
EXPERTS, WIDTH = 4, 5
#: Of which tokens choose which experts: some have none, one has all.
SCORES = {
    "some": torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0], [3.0, 0.0, 1.0, 2.0]]),
    "few": torch.tensor([[3.0, 0.0, 2.0, 1.0]] * 3),
}


def _hits(index, classes):
    mask = F.one_hot(index, num_classes=classes).permute(2, 1, 0)
    return mask, torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()


def layer(
    body, *, classes=EXPERTS + 1, choose=lambda scores: torch.topk(scores, 2, dim=-1), adds=True, over=iter, after=None
):
    """A layer of experts; `body(rows, expert, weights)` computes what rows give."""

    def function(x, scores, up):
        weights, index = choose(scores)
        result, read = torch.zeros_like(x), None
        with torch.no_grad():
            mask, hits = _hits(index, classes)
        for expert in over(hits) if over is not iter else hits:
            expert = expert[0]
            if expert == EXPERTS:
                continue
            rank, token = torch.where(mask[expert])
            found = body(x[token], expert, up)
            read = found if after else None
            if adds:
                result.index_add_(0, token, found * weights[token, rank, None])
        return (result, after(read)) if after else result

    return function


def plain(rows, expert, up):
    return F.silu(F.linear(rows, up[expert]))


def inputs(name="some", *, grad=False):
    torch.manual_seed(0)
    x, up = torch.randn(3, WIDTH), torch.randn(EXPERTS, WIDTH, WIDTH)
    return tuple(tensor.clone().requires_grad_(grad) for tensor in (x, SCORES[name], up))


def outcome_of(function, name, *, grad=False):
    """What it gives, its gradients, and what it noted."""
    NOTES.clear()
    args = inputs(name, grad=grad)
    found = outcome(function, *args)
    if grad and found[0] == "returned":
        result = found[1]
        (result[0] if isinstance(result, tuple) else result).square().sum().backward()
    return found[0], found[1], [tensor.grad for tensor in args], list(NOTES)


def assert_as_eager(function, *, one_graph, grad=False):
    graphs = []
    region = recorded(function, graphs)
    for name in SCORES:
        kind, found, gradients, notes = outcome_of(region, name, grad=grad)
        expected = outcome_of(function, name, grad=grad)
        assert (kind, notes) == (expected[0], expected[3])
        torch.testing.assert_close(gradients, expected[2])
        if kind == "returned":
            assert_equal(found, expected[1])
    rounds = [sum(node.target is torch.where for node in graph.graph.nodes) for graph in graphs]
    assert (rounds == [EXPERTS]) if one_graph else (max(rounds, default=0) <= 1)


def _numbered(rows, expert, up):
    return rows * int(expert) + up[expert.item(), 0]


def _written(rows, expert, up):
    found = rows.matmul(up[expert].T)
    found *= 2
    with torch.no_grad():
        found = found + expert
    return found


LOOPS = {
    "a product": layer(plain),
    "classes for experts alone": layer(plain, classes=EXPERTS),
    "numbers of the expert": layer(_numbered),
    "writes to rows": layer(_written),
    "a product and a view": layer(lambda rows, expert, up: torch.mm(rows, up[expert]).view(-1, WIDTH)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_one_graph(name, grad):
    assert_as_eager(LOOPS[name], one_graph=True, grad=grad)


def _empty_rows_skipped(x, scores, up):
    mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
    result = torch.zeros_like(x)
    for expert in hits.squeeze(-1):
        expert = expert.item()
        _, token = torch.where(mask[expert])
        if token.numel() == 0:
            continue
        result[token] += x[token] @ up[expert]
    return result


def _by_name(x, scores, up):
    parts = {f"expert_{number}": up[number] for number in range(EXPERTS)}
    mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
    result = torch.zeros_like(x)
    for expert in hits:
        _, token = torch.where(mask[expert].squeeze(0))
        result.index_add_(0, token, x[None, token].reshape(-1, WIDTH) @ parts[f"expert_{expert[0]}"])
    return result


@pytest.mark.parametrize("function", [_empty_rows_skipped, _by_name])
def test_one_graph_of_other_wordings(function):
    assert_as_eager(function, one_graph=True)


def _noting(rows, expert, up):
    NOTES.append(1)
    return plain(rows, expert, up)


def _drawing(rows, expert, up):
    return rows + torch.rand(1)


def _refusing(rows, expert, up):
    return rows - rows.amax(0)


def _writing(rows, expert, up):
    up[expert].mul_(2)
    return plain(rows, expert, up)


def _ambiguous(rows, expert, up):
    return rows.reshape(rows.shape[0], -1)


class _Counter:
    rounds = 0


def _counting(x, scores, up):
    mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
    counter, seen, total = _Counter(), [], 0
    draws = iter(range(9))
    for expert in hits:
        _, token = torch.where(mask[expert[0]])
        x = x.index_add(0, token, x[token])
        seen.append(next(draws))
        counter.rounds += 1
        total = total + 1
    return x * total, counter.rounds, seen


def _drawing_from_outside(x, scores, up):
    mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
    numbers = iter((1, 2, 3, 4))
    for expert in hits:
        _, token = torch.where(mask[expert[0]])
        x.index_add_(0, token, x[token] * next(numbers))
    return x + next(numbers, 9)


def _unchosen(x, scores, up):
    """The mask changes after it was asked who is chosen."""
    mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
    mask[1] = 1
    result = torch.zeros_like(x)
    for expert in hits:
        _, token = torch.where(mask[expert[0]])
        result.index_add_(0, token, x[token])
    return result


def _left(x, scores, up):
    mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
    result = torch.zeros_like(x)
    for expert in hits:
        _, token = torch.where(mask[expert[0]])
        result.index_add_(0, token, x[token])
        if expert == 2:
            break
    return result


NEAR = {
    "a list that grows": layer(_noting),
    "random numbers": layer(_drawing),
    "rows that none have": layer(_refusing),
    "matrices that change": layer(_writing),
    "sizes that nothing tells": layer(_ambiguous),
    "rows that are kept": layer(plain, adds=False, after=lambda read: read),
    "the last one's rows": layer(plain, after=lambda read: read),
    "a count of rounds": layer(plain, over=lambda hits: [each for _, each in zip(range(9), hits, strict=False)]),
    "variables, lists and objects": _counting,
    "an iterator from outside": _drawing_from_outside,
    "a mask that changes": _unchosen,
    "a break": _left,
}


@pytest.mark.parametrize("name", NEAR)
def test_what_a_round_does_besides_is_done_for_those_with_tokens_alone(name):
    torch.manual_seed(1)
    if name == "random numbers":
        function = NEAR[name]
        assert_equal(_seeded(make_region(function, eager)), _seeded(function))
        return
    assert_as_eager(NEAR[name], one_graph=False)


def _seeded(function):
    args = inputs()
    torch.manual_seed(7)
    return function(*args), torch.rand(1)


def test_matrices_without_tokens_get_no_gradient():
    """Where each expert has its own, eager gives those without tokens none; a graph of all rounds would give zeros."""
    matrices = [torch.randn(WIDTH, WIDTH, requires_grad=True) for _ in range(EXPERTS)]

    def function(x, scores):
        mask, hits = _hits(torch.topk(scores, 2, dim=-1)[1], EXPERTS)
        result = torch.zeros_like(x)
        for expert in hits:
            _, token = torch.where(mask[expert[0]])
            result.index_add_(0, token, x[token] @ matrices[int(expert[0])])
        return result

    make_region(function, eager)(torch.randn(3, WIDTH), SCORES["few"]).sum().backward()
    assert [matrix.grad is None for matrix in matrices] == [False, True, False, True]


def test_no_choice_leads_nowhere():
    """Of numbers that come from elsewhere all may be no expert's: then the result has no history."""

    def function(x, index, up):
        return layer(plain, choose=lambda _: (torch.ones(3, 2), index))(x, None, up)

    x, _, up = inputs(grad=True)
    for index in (torch.tensor([[0, 1]] * 3), torch.full((3, 2), EXPERTS)):
        found, expected = make_region(function, eager)(x, index, up), function(x, index, up)
        assert_equal(found.detach(), expected.detach())
        assert found.requires_grad == expected.requires_grad
