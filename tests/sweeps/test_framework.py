"""The sweeps themselves: seeds give the same text, faults are noticed and named, failures become small."""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau

from . import __main__ as sweeps
from . import run, worker
from .compare import difference, is_outgrown
from .examine import examine_text
from .generators import GENERATORS
from .observe import Entry, Observer
from .program import Program
from .run import run_plain
from .shrink import shrink

_ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
KEPT = [1]
def f(a, b):
    c = a * 2 + b
    b.add_(1)
    KEPT.append(2)
    if a.shape[0] > 50:
        raise ValueError('long')
    print('ran')
    return c.t(), a[0]

def drive(compile, call, show, backward):
    g = compile(f)
    a, b = whole((3, 4)).requires_grad_(), whole((3, 4), seed=2)
    for _ in range(2):
        backward(call(g, a, b))
        show(a, KEPT)
    call(g, whole((60, 4)), whole((60, 4)))
"""

#: The class of fault -> what a wrong compiler makes of the function.
FAULTS: dict[str, Callable[[Any], Any]] = {
    "wrong value": lambda f: lambda a, b: (f(a, b)[0] + 1, a[0]),
    "lost write": lambda f: lambda a, b: f(a, b.clone()),
    "other strides": lambda f: lambda a, b: (f(a, b)[0].contiguous(), a[0]),
    "other aliasing": lambda f: lambda a, b: (f(a, b)[0], a[0].clone()),
    "other requires_grad": lambda f: lambda a, b: (f(a, b)[0].detach(), a[0]),
    "wrong dtype": lambda f: lambda a, b: (f(a, b)[0].float(), a[0]),
    "wrong type": lambda f: lambda a, b: list(f(a, b)),
    "raises": lambda f: lambda a, b: 1 // 0,
    "does not raise": lambda f: lambda a, b: f(a[:3], b[:3]) if a.shape[0] > 50 else f(a, b),
    "other output": lambda f: lambda a, b: (print("more"), f(a, b))[1],
    "state left changed": lambda f: lambda a, b: (f(a, b), torch.set_default_dtype(torch.float64))[0],
    "other random numbers": lambda f: lambda a, b: (f(a, b), torch.rand(1))[0],
}


@pytest.mark.parametrize("kind", list(FAULTS))
def test_a_fault_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class, by a compiler that is wrong in that way."""
    plain = run.run_plain(PROGRAM)
    assert not plain.broken
    assert difference(plain, run.run_plain(PROGRAM), exact=True) is None
    monkeypatch.setattr(run, "compile_recorded", lambda function, recorder, **options: FAULTS[kind](function))
    found = difference(plain, run.run_compiled(PROGRAM, "eager"), exact=True)
    assert found is not None and found.kind == kind


def test_a_wrong_gradient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros where eager has none, and other numbers."""
    text = """
def f(a, b):
    return a * 2 + 0 * a

def drive(compile, call, show, backward):
    a, b = whole((3,)).requires_grad_(), whole((3,)).requires_grad_()
    backward(call(compile(f), a, b))
    show(a, b)
"""
    for wrong in (lambda a, b: a * 2 + 0 * b, lambda a, b: a.detach() * 2 + 0 * a):
        monkeypatch.setattr(run, "compile_recorded", lambda function, recorder, wrong=wrong, **options: wrong)
        found = difference(run.run_plain(text), run.run_compiled(text, "eager"), exact=True)
        assert found is not None and found.kind == "wrong gradient"


def test_strides_of_gradients_in_dimensions_of_one_element_are_nobodys() -> None:
    """Of a gradient, other strides are a fault where a dimension has two elements and none where it has one; of a result they always are."""
    text = """
def f(a):
    return a * 2

def drive(compile, call, show, backward):
    a = torch.ones({shape}).requires_grad_()
    a.grad = torch.zeros({shape}).as_strided({shape}, {strides})
    {what}
"""
    shown, returned = "show(a)", "call(lambda: a.grad)"
    for what, shape, strides, kind in (
        (shown, (3, 1), (1, 7), None),
        (shown, (1, 2, 1), (9, 1, 4), None),
        (shown, (2, 2), (1, 2), "other strides"),
        (shown, (2, 1, 2), (1, 4, 2), "other strides"),
        (returned, (3, 1), (1, 7), "other strides"),
    ):
        plain, other = (
            run.run_plain(text.format(shape=shape, strides=laid, what=what))
            for laid in (torch.empty(shape).stride(), strides)
        )
        found = difference(plain, other, exact=True)
        assert (found and found.kind) == kind, (shape, strides)


@pytest.mark.parametrize(
    ("step", "decided"),
    [
        ("a.softmax(0).view(torch.int32)", False),
        ("a.softmax(0).unique()", True),
        ("(a * 4).to(torch.int32)", True),
        ("torch.nonzero((a * 0 + 0.1).double() - 0.1)", False),
    ],
)
def test_whole_numbers_of_rounded_ones_are_compared_where_eager_is_sure(
    step: str, decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits of a rounded number are another matter in float64 than in float32; what is the same in both has to be the same here."""
    text = f"def f(a):\n    return {step}\ndef drive(compile, call, show, backward):\n    call(compile(f), whole((9,), torch.float32))\n"

    def wrong(function: Any, recorder: Any, **options: Any) -> Any:
        changed = {"unique": lambda found: found[:-1], "nonzero": lambda found: torch.nonzero(found > 99)[:, :1]}
        change = next((changed[name] for name in changed if name in step), lambda found: found + 1)
        return flambeau.compile(lambda a: change(function(a)), backend="eager")

    monkeypatch.setattr(run, "compile_recorded", wrong)
    assert (examine_text(text, "eager", exact=False).failure is not None) == decided


def test_nothing_compiled_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that gives back what it got is right about everything, and is told."""
    monkeypatch.setattr(run, "compile_recorded", lambda function, recorder, **options: function)
    text = "def f(a):\n    return a + 1\ndef drive(compile, call, show, backward):\n    call(compile(f), whole((3,)))\n"
    found = examine_text(text, "eager").failure
    assert found is not None and found.kind == "nothing compiled, nothing said"


@pytest.mark.parametrize("sweep", list(GENERATORS))
def test_a_seed_is_a_text(sweep: str) -> None:
    """The same twice, and a program."""
    for seed in (1, 2, 3):
        first, again = GENERATORS[sweep](seed, None), GENERATORS[sweep](seed, None)
        assert first == again
        assert not run.run_plain(first.source).broken
    assert GENERATORS[sweep](1, None).source != GENERATORS[sweep](2, None).source


def test_failures_become_small() -> None:
    """What has nothing to do with the failure goes: statements, blocks, arguments."""
    text = """
def f(a, b):
    x = a + 1
    try:
        for i in range(3):
            y = torch.cat([a, bad(a, b * 2)], 0)
    finally:
        z = 3
    return x, y
"""
    small = shrink(text, lambda candidate: "bad(" in candidate)
    assert ast.unparse(ast.parse(small)).count("\n") <= 1
    assert "cat" not in small and "range" not in small


def test_a_call_that_raised_leaves_nothing_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks of a checkpointed call would stay in place as long as the frames of its error live."""
    text = """
def drive(compile, call, show, backward):
    layer = nn.Linear(4, 4)
    call(lambda t: torch.utils.checkpoint.checkpoint(layer, t, use_reentrant=False), torch.ones(3, 5))
    G.append(torch._C._autograd._top_saved_tensors_default_hooks(False))
"""
    left: list[Any] = []
    monkeypatch.setitem(run.NAMES, "G", left)
    found = run.run_plain(text)
    assert left == [None]
    assert any(entry.kind == "raised" for entry in found.entries)


@pytest.mark.compiles(graphs=0)
def test_the_judge_has_the_weights_of_the_program() -> None:
    """It computes in float64 with the numbers that the layers of the plain run drew in float32."""
    source = """
def drive(compile, call, show, backward):
    m = nn.Sequential(nn.Linear(4, 3), nn.Embedding(5, 4))
    show(m[0].weight.detach(), m[1].weight.detach(), m[0](torch.ones(4)))
"""
    plain, judge = (
        [e.value for e in made.entries if isinstance(e.value, torch.Tensor)]
        for made in (run.run_plain(source), run.run_widened(source))
    )
    assert {value.dtype for value in judge} == {torch.float64}
    assert all(torch.equal(a.double(), b) for a, b in zip(plain[:2], judge[:2], strict=True))
    torch.testing.assert_close(plain[2].double(), judge[2])
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    "value, other, is_compared",
    [
        (torch.tensor([20.0, 3.0]), 1.0, True),
        (torch.tensor([20.0, 3.0], dtype=torch.bfloat16), 1.0, True),
        (torch.tensor([306.0, 3.0], dtype=torch.bfloat16), 2.0, False),
        (torch.tensor([20.0, 4 / 3], dtype=torch.bfloat16), 0.0625, False),
        (torch.tensor([1030.5, 3.0], dtype=torch.float16), 1.0, True),
        (torch.tensor([2051.0, 3.0], dtype=torch.float16), 2.0, False),
        (torch.tensor([306.0, 3.0], dtype=torch.bfloat16), 300.0, True),
        (torch.tensor([2.0, 1.328125], dtype=torch.bfloat16), torch.tensor([0, 1 / 128]), False),
        (torch.tensor([2.0, 1.328125], dtype=torch.bfloat16), 1.0, True),
    ],
)
def test_gradients_that_have_used_up_16_bits_are_compared_as_rounded(
    value: torch.Tensor, other: float | torch.Tensor, is_compared: bool
) -> None:
    apart = (value + other).to(value.dtype)
    theirs, mine = (run.Run([Entry("shown after call 1[0].grad", "value", v)]) for v in (value, apart))
    assert (difference(theirs, mine, exact=True) is not None) == is_compared


@pytest.mark.parametrize("died_of, told", [(-9, "broken"), (-11, "failure")])
def test_a_crash_is_eagers_where_the_plain_run_dies_of_the_same(died_of: int, told: str, tmp_path: Path) -> None:
    """The interpreter here is a script that dies of signal 9, whatever it is asked; the process of the sweep died of another or of the same."""
    options = _options(tmp_path, f'echo "$3" > {tmp_path}/asked\nkill -9 $$')
    result = sweeps._lost({"seeds": [7]}, "crash", died_of, options)
    assert list(result) == [told] and str(died_of) in str(result)
    assert json.loads((tmp_path / "asked").read_text()) == {"seeds": [7], "plain": True}


def _options(folder: Path, script: str, **changed: Any) -> argparse.Namespace:
    """Those of a sweep whose interpreter is a script."""
    path = folder / "worker"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return argparse.Namespace(
        **{"python": str(path), "backend": None, "shrink": 0.0, "limit": 30, "count": 1} | changed
    )


def test_float64_judges_what_follows_an_error() -> None:
    """A layer that refuses mixed types passes in float64, which has other facts then; the call behind it is judged all the same."""
    text = """
layer = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.GroupNorm(2, 4))

def drive(compile, call, show, backward):
    g = compile(lambda t: layer(t))
    call(g, whole((3, 4)).double())
    with torch.no_grad():
        call(g, whole((2, 4), torch.float32, 5))
"""
    assert examine_text(text, "lowered", exact=False).failure is None


_STARTS, _DRAWN = """echo '{"starts": 3}'""", """echo '{"drawn": 3}'"""
_FOUND = """echo '{"found": 3, "failure": {"kind": "raises"}}'"""
_ENDS = """echo '{"ends": 3}'"""
_CHILD = 'sleep 100 & echo $! > "$0.child";'


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ([_STARTS, _DRAWN, _FOUND, "kill -11 $$"], [("failure", "raises")]),
        ([_STARTS, _DRAWN, "kill -11 $$"], [("failure", "crash")]),
        ([_STARTS, _DRAWN, _ENDS, "kill -11 $$"], [(), ("failure", "crash")]),
        ([_STARTS, _DRAWN, "exec sleep 100"], [("failure", "hangs")]),
        ([_STARTS, _DRAWN, f"{_CHILD} kill -11 $$"], [("failure", "crash")]),
        ([_STARTS, _DRAWN, _ENDS, _CHILD], [()]),
    ],
    ids=[
        "dies with a failure",
        "dies",
        "dies at its end",
        "hangs",
        "dies, its child does not",
        "ends, its child does not",
    ],
)
def test_a_process_that_goes_wrong(says: list[str], told: list[tuple[str, ...]], tmp_path: Path) -> None:
    """What it has found counts, whoever holds its pipe; none of its children stays. The plain run of the seed ends well."""
    first = f"[ -e {tmp_path}/again ] && exit 0\ntouch {tmp_path}/again"
    options = _options(tmp_path, "\n".join([first, *says]), limit=0.2)
    results = list(sweeps._results("python", 3, options, until=time.monotonic() + 60))
    assert [("failure", r["failure"]["kind"]) if "failure" in r else () for r in results] == told
    assert {r["seed"] for r in results} == {3}
    tries = 0
    child = tmp_path / "worker.child"
    while child.exists() and _runs(child.read_text().strip()):
        time.sleep(0.01)  # it was killed, and nobody can wait for it; one that was not is there for a hundred seconds
        assert (tries := tries + 1) < 1000


def _runs(number: str) -> bool:
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"


@pytest.mark.parametrize("found", [True, False])
def test_what_is_not_finished_in_time_is_named(
    found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table comes in any case, and what was found while a failure was made small is in it."""
    monkeypatch.setattr(sweeps, "_GRACE", 0.3)
    options = _options(tmp_path, "\n".join([_STARTS, _DRAWN, *[_FOUND] * found, "exec sleep 100"]), seed=3, seconds=0.2)
    options.out, options.quiet = None, True
    assert sweeps._sweep("python", options) == found
    table = capsys.readouterr().out
    assert "python: " + ("1" if found else "0") + " programs from seed 3" in table
    assert ("! raises" in table) == found and ("not finished when the time was over: seed 3" in table) == (not found)


@pytest.mark.slow
def test_the_pipe_of_a_process_is_its_own() -> None:
    """What C++ or children of a program print goes elsewhere: it could look like a verdict."""
    wanted = json.dumps({"sweep": "python", "seeds": [], "backend": None, "shrink": 0, "limit": 5})
    code = f"from tests.sweeps import worker; worker.main({wanted!r}); import os; os.system('echo printed')"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60, check=True, cwd=_ROOT)
    assert done.stdout == b""


def test_a_history_calls_what_it_compiles() -> None:
    """This seed draws calls of the module itself only."""
    source = GENERATORS["states"](89071076, None).source
    assert source.count("call(m, ") == 3 and source.count("call(g, ") == 1


@pytest.mark.parametrize("where", ["plain", "compiled"])
def test_a_program_that_never_ends_is_a_fault_where_plain_python_ends(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor's time is what counts; nothing is said of a program that does not end in plain Python."""
    text = "def f(a):\n    while ENDLESS: pass\n    return a + 1\ndef drive(compile, call, show, backward):\n    call(compile(f), whole((3,)))\n"
    monkeypatch.setitem(run.NAMES, "ENDLESS", where == "plain")
    monkeypatch.setattr(run, "compile_recorded", lambda function, recorder, **options: _endless)
    result = worker._one(Program("python", 1, text, "eager"), {"limit": 0.2})
    assert result["stopped"]
    assert ("broken" in result, "failure" in result) == ((True, False) if where == "plain" else (False, True))


@pytest.mark.parametrize("said", ["dimension 0", "dimension 1"])
def test_the_stack_of_cpp_in_an_error_is_not_compared(said: str) -> None:
    """What is said before it is."""
    runs = []
    for words, address in (("dimension 0", "0x7f01"), (said, "0x7f02")):
        observer = Observer()
        observer.error(
            "call 1", RuntimeError(f"{words}\nraised from a (most recent call first):\nframe #0: f ({address})")
        )
        runs.append(run.Run(observer.entries))
    assert (difference(*runs, exact=True) is None) == (said == "dimension 0")


def test_a_program_whose_manager_swallows_the_end_of_its_time_is_too_slow_in_plain_python() -> None:
    text = (
        "class Swallows:\n    def __enter__(self): pass\n    def __exit__(self, *error): return True\n"
        "def f(a):\n    with Swallows():\n        while True: pass\n    return a + 1\n"
        "def drive(compile, call, show, backward):\n    call(compile(f), whole((3,)))\n"
    )
    result = worker._one(Program("python", 1, text, "eager"), {"limit": 0.2})
    assert (result["broken"], result["stopped"]) == ("too slow in plain Python", True)


def _endless(*args: Any) -> None:
    while True:
        pass


def test_random_numbers_that_hang_on_rounding_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rrelu` draws a number for each element that is not positive, and behind a norm it hangs on rounding which these are; elsewhere it does not."""
    text = """
layer = nn.RReLU()

def drive(compile, call, show, backward):
    call(compile(lambda t: layer({of})), torch.tensor([1.0, 1.1, 1.2, 1.3]))
"""

    def draws_more(function: Any, recorder: Any, **options: Any) -> Any:
        return flambeau.compile(lambda t: (function(t), torch.rand(1))[0], backend="eager")

    monkeypatch.setattr(run, "compile_recorded", draws_more)
    rounds, exact = (examine_text(text.format(of=of), "eager", exact=False) for of in ("t - t / 3 * 3", "t - 2.5"))
    assert rounds.failure is None
    assert exact.failure is not None and exact.failure.kind == "other random numbers"


UNCOUNTED = """
def f(x):
    y = x.amax(0)
    print(end='')
    x{write}
    return y

def drive(compile, call, show, backward):
    g = compile(f)
    x = whole((2, 1, 2), torch.bfloat16, 8, 't').requires_grad_()
    backward(call(g, x))
    show(x)
"""


def test_only_a_write_that_is_not_counted_is_a_known_limit() -> None:
    """Behind a break, where eager's gradient is of what no forward computed; another fault of a gradient stays a fault."""
    found = examine_text(UNCOUNTED.replace("{write}", ".data.add_(1)"), "aot_eager")
    assert found.failure is None and "through `data`" in found.known
    assert examine_text(UNCOUNTED.replace("{write}", ".sin()"), "aot_eager").known == ""


def test_a_gradient_that_overflows_16_bits_is_judged_in_float64() -> None:
    """The formula that torch takes for `cumprod` with a zero hangs on the modes that are on: it adds what the other never makes."""
    gradient = torch.tensor([2.0, float("inf")], dtype=torch.float16)
    assert is_outgrown(run.Run([Entry("shown after call 1[0].grad", "value", gradient)]))
    assert not is_outgrown(run.Run([Entry("shown after call 1[0].grad", "value", gradient[:1])]))
    assert not is_outgrown(run.Run([Entry("call 1: result", "value", gradient)]))


@pytest.mark.parametrize(("byte", "known"), [(2, "a bool whose byte is neither 0 nor 1"), (1, "")])
def test_the_bytes_of_what_is_no_bool_are_a_known_limit(byte: int, known: str) -> None:
    """Some copies of torch keep such a byte, others make it 1: which of them eager takes is nobody's promise."""
    source = """
def f(s):
    s.T[0] = True
    s.view(torch.int32).add_(0)

def drive(compile, call, show, backward):
    s = torch.tensor([[1, 0, {byte}, 0], [0, 0, 0, {byte}]], dtype=torch.uint8).view(torch.bool)
    call(compile(f), s)
    show(s.view(torch.uint8))
""".replace("{byte}", str(byte))
    found = examine_text(source, "aot_eager")
    assert found.failure is None and found.known == known


@pytest.mark.parametrize(
    ("call", "known"),
    [("checkpoint(torch.mul, w, w, use_reentrant=False)", "an argument of a checkpointed call"), ("w * w", "")],
)
def test_what_a_checkpointed_call_is_given_is_what_its_gradient_is_of(call: str, known: str) -> None:
    """Eager looks at its arguments again in the backward."""
    source = """
from torch.utils.checkpoint import checkpoint

def f(w):
    return {call}

def drive(compile, call, show, backward):
    w = whole((3,)).requires_grad_()
    r = call(compile(f), w)
    w.requires_grad_(False)
    w.detach_()
    backward(r)
    show(w)
""".replace("{call}", call)
    found = examine_text(source, "aot_eager")
    assert found.failure is None and found.known.startswith(known) and bool(found.known) == bool(known)


def test_an_error_of_eagers_own_is_no_fault() -> None:
    """Eager's backward of a write through a view of another dtype looks beyond the memory of a base with an offset."""
    source = """
def f(a, b):
    v = a.real
    v.mul_(b)
    return v

def drive(compile, call, show, backward):
    backward(call(compile(f), whole((2, 5), torch.complex64, 72, 'late'), whole((5,)).requires_grad_()))
"""
    assert any("setStorage: " in str(entry.value) for entry in run_plain(source).entries)
    assert examine_text(source, "aot_eager").failure is None
