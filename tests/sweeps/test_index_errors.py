"""Which indices are looked at is what eager's kernels do: of tensors without elements, of one element, and of expanded ones.

A result that is read and one that is not raise alike. One program of forty in CI, all under `slow`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .examine import examine_text

_CALLS = (
    "{own}.index_select({dim}, {index})",
    "{own}.index_fill({dim}, {index}, 7)",
    "{own}.index_copy({dim}, {index}, {part})",
    "{own}.index_add({dim}, {index}, {part})",
    "{own}.index_reduce({dim}, {index}, {part}, 'amax')",
    "{own}[{before}{index}]",
    "{own}.take({index})",
    "{own}.gather({dim}, {index}.expand(1, 1))",
    "F.embedding({index}, {own})",
    "F.embedding({index}[:0], {own})",
    "F.one_hot({own}.to(torch.int64), 5)[..., {index}[:0]]",
)
#: Shape -> an expression for it of `a`, of one element, and `b`, of none.
_SHAPES = {
    (0, 0): "b.reshape(0, 0)",
    (0, 3): "b.reshape(0, 3)",
    (3, 0): "b.reshape(3, 0)",
    (1, 1): "a.reshape(()).reshape(1, 1)",
    (3, 1): "a.reshape(()).expand(3, 1)",
    (5, 3): "(a * 2).expand(5, 3)",
}


def _programs() -> Iterator[str]:
    for (rows, columns), own in _SHAPES.items():
        for call in _CALLS:
            for dim in (0, 1):
                sizes = (1, columns) if dim == 0 else (rows, 1)
                part = f"b.reshape{sizes}" if 0 in sizes else f"a.reshape(1, 1).expand{sizes}"
                for index in ("torch.tensor([0])", "torch.tensor([5])", "torch.tensor([-1])"):
                    made = call.format(own=own, dim=dim, index=index, part=part, before=":, " * dim)
                    yield from (f"return {made}", made)


PROGRAMS = sorted(set(_programs()))


@pytest.mark.parametrize("backend", ["aot_eager", "lowered"])
@pytest.mark.parametrize("part", [0, *(pytest.param(p, marks=pytest.mark.slow) for p in range(1, 40))])
def test_indices_are_looked_at_as_in_eager(backend: str, part: int) -> None:
    graphs = 0
    for program in PROGRAMS[part::40]:
        source = (
            f"def f(a, b):\n    {program}\n\n"
            "def drive(compile, call, show, backward):\n"
            "    call(compile(f), whole((1,)).requires_grad_() * 1, whole((0,)))\n"
        )
        verdict = examine_text(source, backend)
        assert verdict.failure is None and not verdict.broken, f"{verdict}\nbackend={backend!r}\n{source}"
        graphs += verdict.graphs
    assert graphs > 8


#: What asks an indexed tensor for its sizes only, directly or at the end of a row of calls.
_ASKED_FOR_SIZES = (
    "v.fill_(2)",
    "torch.zeros_like(v)",
    "v.new_ones(3)",
    "v.copy_(x[0, 0])",
    "(v * 2).transpose(0, -1).zero_()",
    "v.shape[0] + x",
    "torch.full_like(v, 2) + v.sum() * 0",
    "v",
)
_INDEXED = (
    "torch.zeros_like(x)[i]",
    "F.embedding(i, x)",
    "x[i]",
    "x.gather(0, i[:, None])",
    "torch.ones_like(i) // (i - 5)",
)


@pytest.mark.parametrize("asked", _ASKED_FOR_SIZES)
def test_what_nobody_reads_is_computed_for_its_error(asked: str) -> None:
    for made in _INDEXED:
        source = (
            f"def f(i, x):\n    v = {made}\n    return {asked}\n\n"
            "def drive(compile, call, show, backward):\n"
            "    g = compile(f)\n    call(g, torch.tensor([0, 1]), whole((3, 2)))\n"
            "    call(g, torch.tensor([0, 5]), whole((3, 2)))\n"
        )
        verdict = examine_text(source, "lowered")
        assert verdict.failure is None and not verdict.broken and verdict.graphs == 1, f"{verdict}\n{source}"
