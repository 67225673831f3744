"""Hold a compiled run against the plain one: the first difference, and which class of fault it is.

In: two runs. Out: None, or a `Failure`. Inexact programs are also run in float64, then with other roundings: a compiled value may be as far from these as a few
times eager's own.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from .observe import Entry
from .run import Run

#: Kind of entry -> class of fault, where the place does not decide.
_CLASSES = {
    "strides": "other strides",
    "memory": "other aliasing",
    "object": "other identity",
    "requires_grad": "other requires_grad",
    "is_leaf": "other requires_grad",
    "dtype": "wrong dtype",
    "shape": "wrong shape",
    "type": "wrong type",
    "printed": "other output",
    "surroundings": "state left changed",
    "random": "other random numbers",
    "context": "other exception",
}

#: By whether something is computed in 16 bits: what a rounding may grow to in a few steps, in units of the largest number.
_GROWN = {False: 1000 * torch.finfo(torch.float32).eps, True: 16 * torch.finfo(torch.bfloat16).eps}


@frozen
class Failure:
    """How a compiled run differs.

    Attributes:
        kind: the class of fault.
        path: where.
        plain, ours: what was seen there.
    """

    kind: str
    path: str
    plain: str
    ours: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}: plain {self.plain}, compiled {self.ours}"


#: What comes before the functions of torch that an error went through, and their addresses.
_STACK = " (most recent call first):"


def difference(plain: Run, ours: Run, exact: bool, wide: Run | None = None, coarse: bool = False) -> Failure | None:
    """The first difference; `wide` is the plain run in float64 or with other roundings, `coarse` says that the program computes in 16 bits somewhere."""
    grown = 0.0 if exact else _GROWN[coarse] * _largest_of(plain)
    of_other_sizes = ""
    for number, (theirs, mine) in enumerate(zip(plain.entries, ours.entries, strict=False)):
        if (theirs.path, theirs.kind) != (mine.path, mine.kind):
            if theirs.kind == "raised" and _is_eagers_own(plain.entries[number:]):
                return None
            return _of_structure(theirs, mine, ours.entries[number:])
        judge = _fact_of(wide, number, theirs)
        if _hangs_on_rounding(theirs, judge):
            if theirs.kind == "shape" and theirs.value != mine.value:
                of_other_sizes = theirs.path  # and so its strides are others
            continue
        if theirs.kind == "strides" and theirs.path == of_other_sizes:
            continue
        if isinstance(theirs.value, Tensor):
            problem = _of_values(theirs, mine.value, exact, judge, grown)
            if problem:
                return Failure(_class_of_value(theirs.path), theirs.path, problem, _words(mine.value))
        elif theirs.value != mine.value:
            if not (theirs.path.endswith(".args[0]") and _same_but_for_names(theirs.value, mine.value)):
                return Failure(_class_of(theirs), theirs.path, _words(theirs.value), _words(mine.value))
        if theirs.kind == "raised" and theirs.path.startswith("backward"):
            return None  # which gradients are there by then is the engine's choice
    longer = plain.entries[len(ours.entries) :] or ours.entries[len(plain.entries) :]
    if longer:
        return Failure("wrong value", longer[0].path, f"{len(plain.entries)} facts", f"{len(ours.entries)} facts")
    return None


def _fact_of(wide: Run | None, number: int, theirs: Entry) -> Entry | None:
    """The same fact of the run in float64; one of the two may have raised before, which takes other places."""
    if wide is None:
        return None
    for candidates in (wide.entries[number : number + 1], wide.entries):
        same = [e for e in candidates if (e.path, e.kind) == (theirs.path, theirs.kind)]
        if len(same) == 1:
            return same[0]
    return None


def _hangs_on_rounding(theirs: Entry, judge: Entry | None) -> bool:
    """Whether eager itself gives another size or other whole numbers in float64: how many values are unique, the bits of a logarithm;
    or draws more random numbers where it rounds otherwise: `rrelu` draws one for each element that is not positive."""
    if judge is None or (theirs.path, theirs.kind) != (judge.path, judge.kind):
        return False
    if not isinstance(theirs.value, Tensor) or not isinstance(judge.value, Tensor):
        return theirs.kind in ("shape", "random") and theirs.value != judge.value
    if theirs.value.shape != judge.value.shape:
        return True
    whole = not (theirs.value.is_floating_point() or theirs.value.is_complex())
    return whole and theirs.value.dtype is judge.value.dtype and not torch.equal(theirs.value, judge.value)


def _is_eagers_own(raised: list[Entry]) -> bool:
    """An error of eager's making: the gradient of `sgn` is a tensor that holds no zeros and stays as `.grad`, to which the next backward cannot add;
    that of a write through a view of another dtype (`x.real`) counts its offset in the elements of the base, and looks beyond the memory."""
    words = "".join(str(e.value) for e in raised if e.path == f"{raised[0].path}.error.args[0]")
    looks_beyond = raised[0].path.startswith("backward") and "setStorage: " in words
    return looks_beyond or "ZeroTensors are immutable" in words


def _same_but_for_names(theirs: str, mine: str) -> bool:
    """A compiled graph has one node for many: which operator saved what was written cannot be told. And some errors of torch's carry its C++ stack."""
    if _STACK in theirs and theirs.partition(_STACK)[0] == mine.partition(_STACK)[0]:
        return _STACK in mine
    return all("modified by an inplace operation" in text for text in (theirs, mine))


def _largest_of(run: Run) -> float:
    """The size of the numbers that a run computes with: what cancels out is as exact as these."""
    floats = [e.value for e in run.entries if isinstance(e.value, Tensor) and e.value.is_floating_point()]
    return max((_largest(value.to(torch.float64)) for value in floats), default=1.0)


def is_outgrown(run: Run) -> bool:
    """Whether a number of 32 bits or more is beyond the whole numbers that all are there: sums of such depend on their order, and what follows too.
    So does what a gradient in 16 bits is that has outgrown them: infinite, or no number where two such were added."""
    floats = [(e.path, e.value) for e in run.entries if isinstance(e.value, Tensor) and e.value.is_floating_point()]
    return any(
        _largest(value) >= 2 / torch.finfo(value.dtype).eps
        if value.dtype.itemsize > 2
        else ".grad" in path and not bool(value.isfinite().all())
        for path, value in floats
        if value.numel()
    )


def silent(plain: Run, ours: Run) -> Failure | None:
    """Nothing was compiled, and nothing says why."""
    raised = any(entry.kind == "raised" for entry in plain.entries)
    if ours.captured or ours.breaks or ours.eager or raised or not plain.entries[0].path.startswith("call"):
        return None
    return Failure("nothing compiled, nothing said", "everywhere", "", "no frame was looked at")


def needs_judge(failure: Failure | None, exact: bool) -> bool:
    """Whether float64 has to decide."""
    return (
        failure is not None
        and not exact
        and failure.kind in ("wrong value", "wrong shape", "wrong gradient", "lost write", "other random numbers")
    )


def _of_structure(theirs: Entry, mine: Entry, after: list[Entry]) -> Failure:
    if mine.kind == "raised":
        kind = "raises in backward" if mine.path.startswith("backward") else "raises"
        text = next((e.value for e in after if e.path == f"{mine.path}.error.args[0]"), "")
        return Failure(kind, mine.path, f"{theirs.path} {theirs.kind}", f"{mine.value}: {text}")
    if theirs.kind == "raised":
        kind = "does not raise in backward" if theirs.path.startswith("backward") else "does not raise"
        return Failure(kind, theirs.path, str(theirs.value), f"{mine.path} {mine.kind}")
    kind = "wrong gradient" if ".grad" in theirs.path + mine.path else _class_of_value(theirs.path)
    if theirs.path == mine.path and kind != "wrong gradient":
        kind = "wrong type"
    return Failure(kind, theirs.path, _words(theirs.value), f"{mine.path} {_words(mine.value)}")


def _class_of(entry: Entry) -> str:
    if entry.kind == "raised" or ".error" in entry.path:
        return "other exception"
    if ".grad" in entry.path and entry.kind == "value":
        return "wrong gradient"
    return _CLASSES.get(entry.kind) or _class_of_value(entry.path)


def _class_of_value(path: str) -> str:
    if ".grad" in path:
        return "wrong gradient"
    return "wrong value" if "result" in path else "lost write"


def _of_values(theirs: Entry, mine: Any, exact: bool, judge: Entry | None, grown: float) -> str:
    """What is wrong with a tensor's values, in words; nothing where they will do. `grown`: what rounding may come to, without a judge."""
    expected: Tensor = theirs.value
    if not isinstance(mine, Tensor) or mine.shape != expected.shape or mine.dtype != expected.dtype:
        return _words(expected)
    if _same_bits(expected, mine):
        return ""
    # Products of complex numbers round in eager too, by the order of their sums, and so do some gradients.
    if (exact and not expected.is_complex() and not _is_rounded(theirs, mine)) or not (
        expected.is_floating_point() or expected.is_complex()
    ):
        return _words(expected)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    scale = _largest(expected.to(wide))
    rounding = torch.finfo(expected.dtype).eps
    apart = _error(mine.to(wide), expected.to(wide))
    if apart <= max(16 * rounding * scale, 2 * rounding):
        return ""
    if (
        judge is None
        or judge.path != theirs.path
        or not isinstance(judge.value, Tensor)
        or judge.value.shape != expected.shape
    ):
        # Nothing to judge by: roundings that differ may have grown, a wrong value is seldom so near. Of 16 bits they would be all.
        far = 0.0 if exact and expected.dtype.itemsize == 2 else max(1000 * rounding * scale, grown)
        return "" if apart <= far else _words(expected)
    true = judge.value.to(wide)
    allowed = 4 * _error(expected.to(wide), true) + 8 * rounding * max(_largest(true), scale, 0.25)
    return "" if _error(mine.to(wide), true) <= allowed else f"{_words(expected)}, in float64 {_words(true)}"


def _is_rounded(entry: Entry, mine: Tensor) -> bool:
    """Whether it is a gradient that was divided (by three, say, where three elements are the greatest), or one in 16 bits that has used them up:
    an element has the last digit, where the other run's may not, or is beyond the whole numbers that all are there."""
    value: Tensor = entry.value
    if ".grad" not in entry.path or not value.is_floating_point():
        return False
    if value.dtype.itemsize > 2:
        return not _same_bits(value * 1024, (value * 1024).round())
    if _uses_last_digit(value) or _largest(value) >= 2 / torch.finfo(value.dtype).eps:
        return True
    return _uses_last_digit(mine[mine != mine.round()])


def _uses_last_digit(value: Tensor) -> bool:
    digits = value.to(torch.float64).frexp().mantissa / torch.finfo(value.dtype).eps
    return not _same_bits(digits, digits.round())


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal with nan equal to itself."""
    if a.is_complex():
        return _same_bits(torch.view_as_real(a), torch.view_as_real(b))
    if not a.is_floating_point():
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _largest(value: Tensor) -> float:
    finite = value.abs()
    finite = finite[finite.isfinite()]
    return float(finite.max()) if finite.numel() else 1.0


def _error(a: Tensor, b: Tensor) -> float:
    if not a.numel():
        return 0.0
    same = (a == b) | (a.isnan() & b.isnan())
    apart = torch.where(same, torch.zeros_like((a - b).abs()), (a - b).abs())
    return float(apart.nan_to_num(nan=float("inf"), posinf=float("inf")).max())


def _words(value: Any) -> str:
    if isinstance(value, Tensor):
        flat = value.flatten()[:8].tolist()
        return f"{str(value.dtype)[6:]}{list(value.shape)} {flat}"
    return str(value)[:200]
