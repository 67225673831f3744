"""What is kept of fakes' results makes the same fakes again, for every operator of torch's database (two of eight parts in CI, all under `slow`); what depends on more is not kept."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from flambeau_capture.graph.fake_mode import new_fake_mode
from flambeau_capture.graph.fake_results import FakeResults

_SAMPLES = 2
"""Of each operator."""


def _looks(result: Any, given: list[torch.Tensor]) -> list[Any]:
    """All that a program can ask of each result, and which of the others, or of what was given, it shares memory with."""
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    storages = [tensor.untyped_storage()._cdata for tensor in (*given, *leaves)]
    return [
        (
            type(leaf), leaf.shape, leaf.stride(), leaf.storage_offset(), leaf.dtype, leaf.device, leaf.requires_grad,
            leaf.is_leaf, leaf.is_inference(), leaf._is_view(), leaf._version, leaf.untyped_storage().nbytes(),
            storages.index(leaf.untyped_storage()._cdata), type(result),
        )
        for leaf in leaves
    ]  # fmt: skip


def _ran(mode: Any, op: Any, sample: Any) -> list[Any]:
    """What an operator gives for new fakes of a sample, or the kind of its error."""
    with mode:
        args = tree_map(_faked, (sample.input, sample.args, sample.kwargs))
        given = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        try:
            return _looks(op(args[0], *args[1], **args[2]), given)
        except Exception as error:
            return [type(error)]


def _faked(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return fake.requires_grad_(value.requires_grad)


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in range(2, 8))])
def test_the_database_looks_the_same_with_kept_results(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    find = FakeResults.find

    def counted(self: FakeResults, key: Any, mode: Any, args: Any) -> Any:
        nonlocal found
        out = find(self, key, mode, args)
        found += out is not None
        return out

    monkeypatch.setattr(FakeResults, "find", counted)
    ops = (op for op in op_db[part::8] if op.supports_dtype(torch.float32, "cpu"))
    for op in ops:
        samples = islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), _SAMPLES)
        for sample in samples:
            tensors = (
                leaf
                for leaf in tree_leaves((sample.input, sample.args, sample.kwargs))
                if isinstance(leaf, torch.Tensor)
            )
            if any(tensor.layout is not torch.strided for tensor in tensors):
                continue
            keeps, without = new_fake_mode(), new_fake_mode()
            without.results = None
            expected = _ran(without, op, sample)
            for _ in range(3):
                assert _ran(keeps, op, sample) == expected, (op.name, sample)
    assert found > 300


def _fakes(mode: Any, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    with mode:
        return [torch.empty(shape) for shape in shapes]


def _kept_of(mode: Any) -> int:
    return len(mode.results._kept)


def test_a_kept_result_is_a_new_fake() -> None:
    mode = new_fake_mode()
    (x,) = _fakes(mode, (2, 3))
    with mode:
        one, two, three = x.exp(), x.exp(), x.exp()
        views = [x.t() for _ in range(3)]
    assert all(type(fake) is FakeTensor for fake in (one, two, three))
    assert len({fake.untyped_storage()._cdata for fake in (one, two, three)}) == 3
    assert {view.untyped_storage()._cdata for view in views} == {x.untyped_storage()._cdata}
    with mode:
        views[-1].add_(1)
    assert x._version == views[0]._version == 1


def test_the_default_dtype_is_part_of_what_is_asked() -> None:
    mode = new_fake_mode()
    with mode:
        x = torch.empty(3, dtype=torch.int64)
        for _ in range(3):
            assert (x / 2).dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert (x / 2).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_numbers_of_other_types_are_told_apart() -> None:
    mode = new_fake_mode()
    with mode:
        x = torch.empty(3, dtype=torch.int64)
        for _ in range(3):
            assert [(x + y).dtype for y in (1, True, 1.0)] == [torch.int64, torch.int64, torch.float32]


def test_a_tensor_given_twice_is_told_from_two() -> None:
    mode = new_fake_mode()
    x, y = _fakes(mode, (2, 2), (2, 2))
    with mode:
        for _ in range(3):
            assert torch.add(x, y).shape == (2, 2)
        before = _kept_of(mode)
        for _ in range(3):
            torch.add(x, x)
    assert _kept_of(mode) == before + 1


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.add_(1),
        lambda x: x.as_strided((1,), (1,)),
        lambda x: torch.rand_like(x).uniform_(),
        lambda x: x.to(torch.complex64).conj(),
    ],
)
def test_writes_and_unusual_tensors_are_left_to_torch(run: Any) -> None:
    mode = new_fake_mode()
    (x,) = _fakes(mode, (2, 2))
    targets = {"aten::add_", "aten::as_strided", "aten::uniform_", "aten::conj", "aten::_conj"}
    with mode:
        for _ in range(3):
            run(x)
    assert targets.isdisjoint(key[0]._schema.name for key in mode.results._kept)


def test_nothing_is_kept_in_inference_mode() -> None:
    mode = new_fake_mode()
    with torch.inference_mode():
        (x,) = _fakes(mode, (2, 2))
        with mode:
            assert all(x.exp().is_inference() for _ in range(3))
    assert _kept_of(mode) == 0
