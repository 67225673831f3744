"""Times, sizes and counts as people read them: three digits and a unit.

In: plain numbers. Out: text; "" for None.
"""

from __future__ import annotations


def seconds_text(seconds: float | None) -> str:
    """Three digits and a unit: "1.23 ms"."""
    if seconds is None:
        return ""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= factor:
            return f"{_digits(seconds / factor)} {unit}"
    return f"{_digits(seconds * 1e9)} ns" if seconds else "0 s"


def bytes_text(amount: float | None) -> str:
    """Three digits and a unit: "1.5 MiB"."""
    if amount is None:
        return ""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(amount) >= 1024**power:
            return f"{_digits(amount / 1024**power)} {unit}"
    return f"{amount:.0f} B"


def number_text(amount: float | None) -> str:
    """Three digits and a factor: "1.5 G"."""
    if amount is None:
        return ""
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(amount) >= factor:
            return f"{_digits(amount / factor)}{unit}"
    return _digits(amount)


def counted(amount: int, one: str, several: str = "") -> str:
    """ "1 break", "2 breaks"."""
    return f"{amount} {one if amount == 1 else several or one + 's'}"


def _digits(number: float) -> str:
    """Three of them, and no exponent for what has four in front of the point, as 1023 KiB."""
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"
