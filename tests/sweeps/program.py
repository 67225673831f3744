"""What a sweep draws: the text of a program, and how it is compiled and judged.

In: what a generator made of a seed. Out: a `Program`. Its text defines `drive(compile, call, show, backward)`, which does everything: it makes
inputs, compiles (in the plain run `compile` gives back what it gets), calls, changes things between the calls, and shows what came of it.
Because all of it is text, one shrinker serves every sweep, and what is left of a failure is a test.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

#: Backends, from the one that runs what was captured to the whole stack.
BACKENDS = ("eager", "aot_eager", "lowered", "inductor")


@frozen
class Program:
    """One drawn program.

    Attributes:
        sweep: which generator drew it.
        seed: of which it is made.
        source: the text.
        backend: one of `BACKENDS`.
        exact: every step is exact, so that bits are compared; otherwise values are held against float64.
    """

    sweep: str
    seed: int
    source: str
    backend: str
    exact: bool = True


#: Makes the program of a seed, for the backend that is named, or for one of its own choice.
Generator = Callable[[int, str | None], Program]
