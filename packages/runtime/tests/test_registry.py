"""A registry has one record for a key."""

from __future__ import annotations

import pytest

from flambeau_runtime.registry import Registry


def test_records_are_found_by_their_key_in_the_order_of_registration():
    table: Registry[str, int] = Registry("shape")
    assert table.register("square", 4) == 4
    table.register("line", 1)
    assert (table.get("line"), table.get("circle"), table.records()) == (1, None, (4, 1))


def test_a_second_record_of_a_key_is_refused_and_the_first_stays():
    table: Registry[str, int] = Registry("shape")
    table.register("square", 4)
    with pytest.raises(ValueError, match="shape square is registered twice"):
        table.register("square", 5)
    with pytest.raises(ValueError, match="registered twice"), table.registered("square", 5):
        pass
    assert table.get("square") == 4


def test_a_block_takes_its_record_away_also_after_an_error():
    table: Registry[str, int] = Registry("shape")
    with pytest.raises(KeyError), table.registered("square", 4) as record:
        assert table.get("square") == record == 4
        raise KeyError
    assert table.get("square") is None
