"""A write to what a list op saved is an error of the backward, as in eager: every list op, every operand, every result."""

import pytest
import torch
from lifting import compile_function

NUMBERS = [[], [2.0], [[2.0, 3.0]], [torch.tensor(2.0)]]
#: Of each op: its arguments after the lists of tensors, by how many lists it takes.
LISTS = {1: NUMBERS, 2: [[], [0.5]], 3: [[], [0.5], [[0.5, 2.0]], [torch.tensor([0.5, 2.0])]]}
#: For which a number in a tensor is not captured.
PLAIN = ("_foreach_norm", "_foreach_pow")
NAMES = sorted(name for name in dir(torch) if name.startswith("_foreach_") and not name.endswith("_"))


def operands(lists, needs):
    tensors = [[torch.rand(size) + 0.5 for size in (3, 4)] for _ in range(lists)]
    return [[t.requires_grad_() * 1 if need else t for t in part] for part, need in zip(tensors, needs)]


def outcome(run, lists, needs, place):
    """Whether there is each gradient, or "raises", of a backward after a write to the tensor at `place` of operands and results."""
    given = [t for part in operands(lists, needs) for t in part]
    results = run(*given)
    written = (*given, *results)[place]
    with torch.no_grad():
        written.mul_(1)
    inputs = [t for t in given if t.requires_grad]
    try:
        found = torch.autograd.grad(results[0].sum(), inputs, allow_unused=True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return "raises"
    return [grad is not None for grad in found]


def cases(name):
    """Calls of the op that eager differentiates."""
    for lists, numbers in LISTS.items():
        for more in numbers[: 3 if name in PLAIN else None]:
            for needs in {(True,) * lists, (True,) + (False,) * (lists - 1), (False,) * (lists - 1) + (True,)}:

                def call(*tensors, lists=lists, more=more):
                    parts = [list(tensors[2 * i : 2 * i + 2]) for i in range(lists)]
                    return tuple(getattr(torch, name)(*parts, *more))

                given = [t for part in operands(lists, needs) for t in part]
                try:
                    torch.autograd.grad(call(*given)[0].sum(), [t for t in given if t.requires_grad], allow_unused=True)
                except (TypeError, RuntimeError, NotImplementedError):
                    continue
                yield call, lists, needs


@pytest.mark.parametrize("name", NAMES)
def test_writes_after_a_list_op(name):
    for call, lists, needs in cases(name):
        compiled = compile_function(call, [t for part in operands(lists, needs) for t in part])
        for place in range(2 * lists + 2):
            assert outcome(compiled, lists, needs, place) == outcome(call, lists, needs, place), (needs, place)


def test_the_writes_are_told_apart():
    """Of a product each operand is saved, of a negation none, of an exponential the result."""
    found = {}
    for name in ("_foreach_mul", "_foreach_neg", "_foreach_exp"):
        lists = 2 if name == "_foreach_mul" else 1
        call, _, needs = next(case for case in cases(name) if case[1] == lists and all(case[2]))
        found[name] = [outcome(call, lists, needs, place) == "raises" for place in range(2 * lists + 2)]
    assert found["_foreach_mul"] == [True] * 4 + [False] * 2
    assert found["_foreach_neg"] == [False] * 4
    assert found["_foreach_exp"] == [False] * 2 + [True] * 2
