"""A kernel as something whose launch can be tuned by measurement.

In: made by the generator of a language. Out: read by ``autotune/kernels.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from attrs import field, frozen


@frozen
class Tunable:
    """``asked`` says what decides which launch is fastest, sizes in buckets; ``seconds`` is about how long the kernel takes; ``launches`` are worth
    trying, that of the model first; ``neighbours`` differ from one in one knob. ``record`` makes a launch of its fields' values; ``fits`` tells whether one
    that was found for another kernel of the bucket can be this one's."""

    asked: str
    seconds: float
    launches: tuple[Hashable, ...]
    neighbours: Callable[[Hashable], Iterable[Hashable]] = field(repr=False)
    record: Callable[..., Hashable] = field(repr=False)
    fits: Callable[[Hashable], bool] = field(repr=False)


def bucket(size: int) -> int:
    """The size that stands for all in its bucket: rounded up to three binary digits, so that neighbours differ by a quarter at most."""
    step = 1 << max(size.bit_length() - 3, 0)
    return -(-size // step) * step
