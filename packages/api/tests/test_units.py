"""Numbers as people read them."""

from __future__ import annotations

import pytest

from flambeau.units import bytes_text, counted, number_text, seconds_text


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (seconds_text, 1.5, "1.5 s"), (seconds_text, 0.0021, "2.1 ms"), (seconds_text, 3e-6, "3 µs"), (seconds_text, 4e-9, "4 ns"),
        (seconds_text, 0.0, "0 s"), (seconds_text, None, ""), (bytes_text, 12, "12 B"), (bytes_text, 3 << 20, "3 MiB"),
        (number_text, 2e9, "2 G"), (number_text, 7.0, "7"),
        (seconds_text, 0.9996, "1000 ms"), (seconds_text, 12345.0, "12345 s"), (bytes_text, 1023 << 10, "1023 KiB"), (number_text, 999_999.0, "1000 k"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_a_unit(function: object, value: object, text: str) -> None:
    assert function(value) == text  # type: ignore[operator]


def test_one_and_several() -> None:
    assert [counted(1, "break"), counted(2, "break"), counted(0, "entry", "entries")] == [
        "1 break",
        "2 breaks",
        "0 entries",
    ]
