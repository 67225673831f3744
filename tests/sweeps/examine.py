"""One program from its text to a verdict.

In: a `Program`, or a text. Out: a `Verdict`: the failure if there is one, and what was compiled, broken and refused on the way.
"""

from __future__ import annotations

import re
import textwrap

from attrs import frozen

from .compare import Failure, difference, is_outgrown, needs_judge, silent
from .program import Program
from .run import Run, run_compiled, run_nudged, run_plain, run_widened

#: The narrower formats, as they stand in a text, and what stands there in the run that judges.
_WIDER = (
    (r"torch\.(float32|bfloat16|float16)\b", "torch.float64"),
    (r"torch\.complex64\b", "torch.complex128"),
    (r"\.(float|half|bfloat16)\(\)", ".double()"),
)
#: Something is computed in 16 bits.
_COARSE = re.compile(r"autocast|bfloat16|float16|half")
#: Such programs draw other numbers in float64, or ask for the type: nothing can be said by it.
_DRAWS = re.compile(r"dropout|Dropout|RReLU|bernoulli|rand|default_dtype|finfo|\.eps")
#: A write that autograd does not count.
_UNCOUNTED = re.compile(r"\.data(\[[^\]]*\] *[-+*/]?=[^=]|\.\w+_\()")

#: How often a program whose values float64 does not excuse is run with other roundings.
_NUDGED = 8


@frozen
class Verdict:
    """What became of a program.

    Attributes:
        failure: None where it does the same.
        graphs, breaks, eager: see `Run`.
        broken: the program does not stand by itself.
        known: a limit that ARCHITECTURE.md names, where that is why it does not do the same.
    """

    failure: Failure | None
    graphs: int = 0
    breaks: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    broken: str = ""
    known: str = ""


def examine(program: Program) -> Verdict:
    """Run it plain and compiled."""
    return examine_text(program.source, program.backend, program.exact)


def examine_text(source: str, backend: str, exact: bool = True) -> Verdict:
    """Run a text plain and compiled."""
    plain = run_plain(source)
    if plain.broken:
        return Verdict(None, broken=plain.broken)
    ours = run_compiled(source, backend)
    # Complex numbers have no exact magnitudes, and none is near zero alike.
    exact = exact and "complex" not in source and not is_outgrown(plain)
    coarse = _COARSE.search(source) is not None
    failure = difference(plain, ours, exact, coarse=coarse) or silent(plain, ours)
    if needs_judge(failure, exact) and not _DRAWS.search(source):
        failure = difference(plain, ours, exact, run_widened(widened(source)), coarse)
    for seed in range(_NUDGED):
        if needs_judge(failure, exact):
            failure = difference(plain, ours, exact, run_nudged(source, seed), coarse)
    known = ""
    if failure is not None and failure.kind == "wrong gradient" and ours.breaks and _UNCOUNTED.search(source):
        known = "a write through `data` between a forward and its backward"
    elif failure is not None and failure.kind in ("wrong value", "lost write") and plain.odd_bools:
        known = "a bool whose byte is neither 0 nor 1"
    elif failure is not None and failure.kind == "does not raise in backward" and _looks_again(failure, plain, source):
        known = "an argument of a checkpointed call that changes before its backward"
    return Verdict(None if known else failure, ours.graphs, ours.breaks, ours.eager, known=known)


def _looks_again(failure: Failure, plain: Run, source: str) -> bool:
    """Whether eager's error is of a checkpointed call that finds its arguments changed."""
    said = [e.value for e in plain.entries if e.path == f"{failure.path}.error.args[0]"]
    is_of_a_write = any("modified by an inplace operation" in str(text) for text in said)
    return "checkpoint(" in source and (failure.plain == "CheckpointError" or is_of_a_write)


def widened(source: str) -> str:
    """The same program in float64."""
    for narrow, wide in _WIDER:
        source = re.sub(narrow, wide, source)
    return source


def check(source: str, backend: str = "inductor", *, exact: bool = True, refused: int = 0) -> None:
    """Assert that a text does the same compiled, and that exactly `refused` of its graphs were left to eager."""
    source = textwrap.dedent(source)
    verdict = examine_text(source, backend, exact)
    assert not verdict.broken, verdict.broken
    assert verdict.failure is None, f"{verdict.failure}\nbackend={backend!r}\n{source}"
    assert len(verdict.eager) == refused, verdict.eager
    assert verdict.graphs or verdict.breaks, "nothing was compiled"
