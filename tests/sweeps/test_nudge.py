"""Eager with other roundings says which values hang on them; a wrong value is found all the same."""

from __future__ import annotations

import pytest
import torch

from . import examine
from .compare import difference
from .examine import examine_text
from .nudge import Nudging
from .run import run_nudged, run_plain

PROGRAM = """
def drive(compile, call, show, backward):
    a = whole((4, 3), {dtype}, 5).requires_grad_()
    r = call(lambda a: {value}, a)
    backward(r)
    show(a)
"""


@pytest.mark.parametrize(
    "value",
    [
        "x + 1",
        "x * 0.5",
        "x.clone() / 3 * 0",
        "torch.cat([x, x])",
        "x.sum(0)",
        "x[1:] - x[1:]",
        "x.sort(0).values",
        "x @ x.T",
    ],
)
def test_what_is_exact_stays(value: str) -> None:
    """Whole numbers and small fractions, and copies of any number."""
    x = torch.arange(12.0).reshape(4, 3)
    expected = eval(value, {"torch": torch, "x": x})
    with Nudging(1):
        assert torch.equal(eval(value, {"torch": torch, "x": x}), expected)
    thirds = torch.arange(12.0) / 3
    with Nudging(1):
        assert torch.equal(torch.cat([thirds, thirds.flip(0).abs()])[:12], thirds)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("a.exp()", "a.exp() * 1.001"), ("a.softmax(0)", "a.softmax(1)"), ("(a / 3).tanh()", "(a / 3)")],
)
@pytest.mark.parametrize("dtype", ["torch.float32", "torch.float64"])
def test_wrong_values_are_found(value: str, wrong: str, dtype: str) -> None:
    """By each of the runs that would excuse what rounding does."""
    plain, other = (run_plain(PROGRAM.format(value=text, dtype=dtype)) for text in (value, wrong))
    for seed in range(8):
        nudged = run_nudged(PROGRAM.format(value=value, dtype=dtype), seed)
        assert difference(plain, other, False, nudged) is not None
        assert difference(plain, nudged, False, nudged) is None


@pytest.mark.parametrize(
    ("value", "makes"),
    [
        ("F.cosine_similarity(b, b).long()", "whole((64, 7), torch.float64, 1)"),
        ("torch.atan2(F.kl_div(b.log_softmax(-1), b.softmax(-1)), torch.tensor(0))", "whole((5, 5, 5, 3))"),
    ],
)
def test_what_hangs_on_rounding_is_no_fault(value: str, makes: str) -> None:
    """In float64 too, where no wider run tells."""
    text = f"""
def f(b):
    return {value}

def drive(compile, call, show, backward):
    call(compile(f), {makes})
"""
    assert examine_text(text, "lowered", exact=False).failure is None
    assert examine_text(text, "lowered").failure is not None


@pytest.mark.parametrize(
    ("value", "other", "makes", "is_compared"),
    [
        ("a[0] + a[1] + a[2] + a[3]", "a[1] + a[2] + a[3] + a[0]", "torch.tensor([2.0**24, 1, 1, 1])", False),
        ("a[0] + a[1] + a[2] + a[3]", "a[1] + a[2] + a[3] + a[0] * 1.01", "torch.tensor([2.0**24, 1, 1, 1])", True),
        ("a[0] + a[1] + a[2] + a[3]", "a[1] + a[2] + a[3] + a[0] + 4", "torch.tensor([2.0**22, 1, 1, 1])", True),
        ("(a / 3 - a * (1 / 3)).sgn()", "(a * (1 / 3) - a / 3).sgn()", "whole((4, 4), torch.complex128)", False),
        ("(a * 3).sgn()", "(a * -3).sgn()", "whole((4, 4), torch.complex128)", True),
    ],
)
def test_numbers_that_cannot_be_exact_are_judged_as_rounded(
    value: str, other: str, makes: str, is_compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the whole numbers that all are there, and complex ones."""
    text, wrong = (
        f"def f(a):\n    return {what}\n\ndef drive(compile, call, show, backward):\n    call(compile(f), {makes})\n"
        for what in (value, other)
    )
    monkeypatch.setattr(examine, "run_compiled", lambda source, backend: run_plain(wrong))
    failure = examine.examine_text(text, "eager").failure
    assert (failure is not None and failure.kind == "wrong value") == is_compared, failure
