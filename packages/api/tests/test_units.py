"""Numbers as people read them."""

from __future__ import annotations

import pytest

from flambeau.units import bytes_text, number_text, seconds_text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (seconds_text, 1.5, "1.5 s"), (seconds_text, 0.0021, "2.1 ms"), (seconds_text, 3e-6, "3 µs"), (seconds_text, 4e-9, "4 ns"),
        (seconds_text, 0.0, "0 s"), (seconds_text, None, ""), (bytes_text, 12, "12 B"), (bytes_text, 3 << 20, "3 MiB"),
        (number_text, 2e9, "2 G"), (number_text, 7.0, "7"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_a_unit(function: object, value: object, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]
