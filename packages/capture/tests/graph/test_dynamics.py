"""What is learnt about sizes as records: between processes and ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flambeau_capture.graph.dynamics import Dynamics


def learnt(*records: Any) -> Dynamics:
    found = Dynamics()
    for record in records:
        found.learn(json.loads(json.dumps(record)))
    return found


def seen(sizes: tuple[int, ...], number: float) -> Dynamics:
    found = Dynamics()
    found.see_sizes("x", sizes, learn=True)
    found.see_number("n", number, learn=True)
    return found


def test_what_changed_has_changed_for_who_reads_it() -> None:
    """And what is another size, or number, than the record's."""
    writer = seen((3, 4), 5)
    writer.see_sizes("x", (6, 4), learn=True)
    reader = learnt(writer.record())
    assert reader.see_sizes("x", (6, 4), learn=True) == {0}
    assert reader.see_sizes("x", (6, 7), learn=True) == {0, 1}
    assert not reader.see_number("n", 5, learn=True)
    assert reader.see_number("n", 6, learn=True)
    again = learnt(reader.record())
    assert again.see_number("n", 6, learn=True) and again.see_sizes("x", (6, 7), learn=True) == {0, 1}


def test_ranks_that_differ() -> None:
    """Learning from all ranks, itself included, gives each of them the same."""
    ranks = [seen((3, 4), 1.5), seen((5, 4), 1.5)]
    for rank in ranks:
        for record in [one.record() for one in ranks]:
            rank.learn(record)
        assert rank.changed_dims["x"] == {0} and not rank.changed_numbers


def test_what_outlives_no_process_is_left_out() -> None:
    """Addresses in names, and numbers that JSON does not have."""
    found = Dynamics()
    found.see_sizes("pinned<Tensor 0x7f00>", (2,), learn=True)
    found.see_number("n", float("nan"), learn=True)
    found.see_number("contents of L['mask']", (1, 2), learn=True)
    assert found.record() == {"sizes": {}, "numbers": {}, "changed_dims": {}, "changed_numbers": []}


@pytest.mark.parametrize(
    "record",
    [None, 3, [], {"sizes": 3}, {"sizes": {"x": [1, "a"]}}, {"numbers": {"n": []}}, {"changed_dims": {"x": {"0": 1}}},
     {"changed_numbers": 3}, {"changed_numbers": [[]]}, {"others": 1}],
)  # fmt: skip
def test_what_is_no_record_is_ignored(record: Any) -> None:
    assert learnt(record).record() == Dynamics().record()
