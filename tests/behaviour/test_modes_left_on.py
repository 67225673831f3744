"""What a program sets of torch's state is, on every way out of it, what plain Python leaves: modes, defaults and switches.

A context or a setter stands in each shape of `with`, `try`, generators, decorators and loops, and the block ends or raises in each way. Compared are
the state that the program sees, the results, and the state after each call.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau

from .counted_graphs import CountedGraphs

DECLARATIONS = """
import contextlib, torch
class E1(Exception): pass
LOG=[]
def note(): LOG.append(state())
@contextlib.contextmanager
def having(get, put, value):
    old = get()
    put(value)
    try:
        yield
    finally:
        put(old)
def fail(x):
    raise E1(1)
def bad(x):
    return x @ torch.ones(7, 7)
def idx(x):
    return torch.nn.functional.one_hot(torch.tensor([5]) + x.sum().long() * 0, 3)
"""
STATES = {
    "no_grad": ("torch.no_grad()", ""),
    "enable_grad": ("torch.enable_grad()", ""),
    "inference_mode": ("torch.inference_mode()", ""),
    "set_grad_enabled": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(False)"),
    "autocast": ("torch.autocast('cpu', torch.bfloat16)", ""),
    "default dtype": ("having(torch.get_default_dtype, torch.set_default_dtype, torch.float64)", "torch.set_default_dtype(torch.float64)"),
    "default device": ("torch.device('cpu')", "torch.set_default_device('cpu')"),
    "deterministic": (
        "having(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True)",
        "torch.use_deterministic_algorithms(True)",
    ),
    "anomaly": ("torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(True)"),
    "detect_anomaly": ("torch.autograd.detect_anomaly(check_nan=False)", ""),
    "threads": ("having(torch.get_num_threads, torch.set_num_threads, 2)", "torch.set_num_threads(2)"),
    "warn always": ("having(torch.is_warn_always_enabled, torch.set_warn_always, True)", "torch.set_warn_always(True)"),
    "multithreading": ("torch.autograd.set_multithreading_enabled(False)", "torch.autograd.set_multithreading_enabled(False)"),
    "saved tensors": ("torch.autograd.graph.save_on_cpu()", ""),
    "hooks that raise": ("torch.autograd.graph.saved_tensors_hooks(fail, abs)", ""),
    "no hooks": ("torch.autograd.graph.disable_saved_tensors_hooks('none')", ""),
    "denormals": ("", "torch.set_flush_denormal(True)"),
}  # fmt: skip
"""Name -> a context, a setter."""
SHAPES = {
    "with": "with {context}:\n    x = x * 2\n    note()\n    {2}\nreturn x\n",
    "with made before": "manager = {context}\nnote()\nwith manager:\n    x = x * 2\n    {2}\nreturn x\n",
    "with except": "try:\n    with {context}:\n        x = x * 2\n        {3}\nexcept Exception:\n    note()\n    x = x + 3\nreturn x\n",
    "except with": "try:\n    {2}\nexcept Exception:\n    with {context}:\n        note()\n        x = x + 3\n        {3}\nreturn x\n",
    "gen": "def g(x):\n    with {context}:\n        yield x * 2\n        {3}\n        yield x * 3\nfor v in g(x):\n    note()\n    x = x + v\nreturn x\n",
    "gen left": "def g(x):\n    with {context}:\n        yield x * 2\n        yield x * 3\nit = g(x)\nx = x + next(it)\nnote()\n{1}\nreturn x\n",
    "gen throw": "def g(x):\n    with {context}:\n        yield x * 2\n        yield x * 3\nit = g(x)\nx = x + next(it)\ntry:\n    it.throw(E1(3))\nexcept E1:\n    note()\n    x = x * 2\nreturn x\n",
    "gen close": "def g(x):\n    with {context}:\n        yield x * 2\n        yield x * 3\nit = g(x)\nx = x + next(it)\nit.close()\nnote()\n{1}\nreturn x\n",
    "deco": "@{context}\ndef q(x):\n    x = x * 3\n    {2}\n    return x\nx = q(x)\nreturn x\n",
    "nested": "with {context}:\n    try:\n        with {context}:\n            x = x * 2\n            {4}\n    except Exception:\n        note()\n        x = x + 1\nreturn x\n",
    "finally": "try:\n    with {context}:\n        x = x * 2\n        {3}\nfinally:\n    note()\n    x = x * 2\nreturn x\n",
    "loop": "for k in range(3):\n    with {context}:\n        x = x * 2\n        if k == 1:\n            {4}\n            continue\n        note()\nreturn x\n",
    "stack": "with contextlib.ExitStack() as s:\n    s.enter_context({context})\n    x = x * 2\n    note()\n    {2}\nreturn x\n",
    "ret in": "with {context}:\n    x = x * 2\n    note()\n    return x\n",
    "setter": "{setter}\nx = x * 2\n{1}\nnote()\nreturn x\n",
    "setter try": "try:\n    {setter}\n    x = x * 2\n    {2}\nexcept Exception:\n    note()\n    x = x + 1\nreturn x\n",
    "setter in with": "with torch.no_grad():\n    {setter}\n    x = x * 2\n    {2}\nreturn x\n",
}  # fmt: skip
"""`{1}` to `{4}`: what may raise, so many blocks deep."""
ENDS = {
    "a function raises": "x = fail(x)\n",
    "an op raises": "x = bad(x)\n",
    "an op raises for values": "x = x + idx(x).sum()\n",
    "a break, and a function raises": "breaks()\nx = fail(x)\n",
    "a break, and an op raises for values": "breaks()\nx = x + idx(x).sum()\n",
    "a branch raises": "if x.sum().item() > -100:\n    raise E1(2)\n",
    "nothing raises": "x = x * 2\n",
}  # fmt: skip


def _state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(), torch.get_default_device(), torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(), torch.get_num_threads(), torch.is_warn_always_enabled(),
        torch._C._is_multithreading_enabled(), torch._C._autograd._top_saved_tensors_default_hooks(True) is None,
        torch._C._autograd._saved_tensors_hooks_is_enabled(),
    )  # fmt: skip


def _reset() -> None:
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)
    torch.set_num_threads(1)
    torch.set_warn_always(False)
    torch.set_flush_denormal(False)
    torch.autograd.set_multithreading_enabled(True)
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()


@pytest.fixture(autouse=True)
def _same_state() -> Any:
    threads = torch.get_num_threads()
    _reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    _reset()
    torch.set_num_threads(threads)


def _source(state: str, shape: str, end: str) -> str:
    context, setter = STATES[state]
    body = SHAPES[shape].replace("{context}", context).replace("{setter}", setter)
    for depth in range(1, 5):
        body = body.replace(f"{{{depth}}}", ("\n" + "    " * (depth - 1)).join(ENDS[end].splitlines()))
    return "def f(x):\n    x = x + 1\n" + "".join(f"    {line}\n" for line in body.splitlines())


def _run(source: str, compiler: Callable[..., Any], breaks: Callable[[], None], outer: bool) -> list[Any]:
    _reset()
    space: dict[str, Any] = {"breaks": breaks, "state": _state}
    exec(compile(DECLARATIONS + source, "<modes>", "exec"), space)
    function = compiler(space["f"])
    found: list[Any] = []
    for needs_grad in (False, True, False):
        x = torch.ones(2, 2, requires_grad=needs_grad)
        with torch.no_grad() if outer else contextlib.nullcontext():
            try:
                result = function(x)
                outcome: Any = (result.dtype, result.requires_grad, result.is_inference(), result.tolist())
            except Exception as error:
                outcome = type(error).__name__
            found.append((outcome, _state(), list(space["LOG"])))
        space["LOG"].clear()
        found.append(_state())
        _reset()
    return found


GRID = [
    (state, shape, end)
    for state, shape, end in itertools.product(STATES, SHAPES, ENDS)
    if ("{context}" not in SHAPES[shape] or STATES[state][0]) and ("{setter}" not in SHAPES[shape] or STATES[state][1])
]


def _compare(cases: list[tuple[str, str, str]]) -> None:
    graphs = CountedGraphs()
    for place, (state, shape, end) in enumerate(cases):
        source, outer = _source(state, shape, end), place % 5 == 0
        plain = _run(source, lambda function: function, lambda: None, outer)
        flambeau.compiler.reset()
        found = _run(source, graphs, flambeau.compiler.graph_break, outer)
        assert found == plain, f"{state}, {shape}, {end}, under no_grad: {outer}\n{source}\n{plain}\n{found}"
    assert graphs.number * 4 >= len(cases)


@pytest.mark.judges_itself  # some frames are left to Python
def test_a_slice_leaves_what_python_leaves() -> None:
    suspended = [case for case in GRID if case[1:] == ("gen left", "nothing raises")]
    _compare([*GRID[::97], *suspended[::4]])


@pytest.mark.judges_itself
@pytest.mark.parametrize("shape", ["with", "with made before"])
def test_what_was_entered_before_a_graph_is_left_where_it_raises(shape: str) -> None:
    _compare([case for case in GRID if case[1:] == (shape, "a break, and an op raises for values")])


@pytest.mark.slow
@pytest.mark.judges_itself
@pytest.mark.parametrize("state", STATES)
def test_every_way_out_leaves_what_python_leaves(state: str) -> None:
    _compare([case for case in GRID if case[0] == state])
