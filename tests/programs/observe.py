"""One program under one compiler: what is seen of it.

In: a `Program` and a compiler's name. Out: a record of plain data: for each call its result or what it raised, its arguments and the
outside afterwards, gradients, and what was printed; for a compiler also how many graphs the first call needed, and whether
`fullgraph=True` works. `verdict` compares two such records.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.comparison import sharing

from .engines import Counted, Told, counted, default, reset, using
from .registry import Program
from .snapshot import difference, snapshot

Record = dict[str, Any]
#: How a program is run: as it stands; compiled with `dynamic=True`; or with gradients of all arguments that can have one.
VARIANTS = ("plain", "dynamic", "gradients")


def missing(program: Program) -> str:
    """What a program needs that is not here, or ""."""
    if program.needs == "cuda":
        return "" if torch.cuda.is_available() else "a CUDA device"
    return "" if not program.needs or importlib.util.find_spec(program.needs) else program.needs


def observe(program: Program, compiler: str, *, fullgraph: bool = True, variant: str = "plain") -> Record:
    """Run the program and say what was seen."""
    absent = missing(program)
    if absent:
        return {"status": "not run", "why": f"needs {absent}"}
    reset(compiler)
    told = Told()
    compiled = default(compiler, told, dynamic=True if variant == "dynamic" else None)
    record: Record = {"status": "ran", "calls": _calls(program, compiled, gradients=variant == "gradients")}
    if compiler == "flambeau":
        record["breaks"] = [f"{each.code}: {each.reason}" for each in told.breaks]
        record["in_eager"] = list(told.in_eager)
    if compiler != "eager":
        record["graphs"] = graphs(program, compiler)
        if fullgraph:
            record["fullgraph"] = _with_fullgraph(program, compiler)
    return record


def graphs(program: Program, compiler: str) -> int:
    """How many graphs the first call needs."""
    reset(compiler)
    backend = Counted()
    _first_call(program, counted(compiler, backend, fullgraph=False))
    return backend.graphs


def _with_fullgraph(program: Program, compiler: str) -> str:
    """What the first call raises with `fullgraph=True`, or ""."""
    reset(compiler)
    return _first_call(program, counted(compiler, Counted(), fullgraph=True))


def _first_call(program: Program, compiled: Callable[..., Any]) -> str:
    with using(compiled), _quiet():
        _seed()
        made = program.make()
        target = compiled(made[0])
        _seed()
        try:
            target(*made[1][0])
        except Exception as error:
            return _told(error)
    return ""


def _told(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__qualname__}: {' '.join(lines[:3])[:300]}"


def _calls(program: Program, compiled: Callable[..., Any], *, gradients: bool) -> list[Record]:
    with using(compiled), _quiet() as printed:
        _seed()
        made = program.make()
        function, calls = made[0], made[1]
        outside = made[2] if len(made) > 2 else None
        target = compiled(function)
        found = []
        for arguments in calls:
            if gradients:
                _ask_for_gradients(arguments)
            _seed()
            start = printed.tell()
            one = _one_call(target, arguments)
            one["arguments"] = snapshot(arguments)
            one["outside"] = snapshot(outside)
            one["module"] = snapshot(function) if isinstance(function, nn.Module) else None
            one["drawn"] = torch.rand(()).item()
            one["printed"] = printed.getvalue()[start:]
            found.append(one)
            if "message" in one and not program.raises:
                break
    return found


def _ask_for_gradients(arguments: Sequence[Any]) -> None:
    for leaf in pytree.tree_leaves(arguments):
        if type(leaf) is Tensor and leaf.is_leaf and leaf.is_floating_point():
            leaf.requires_grad_()


def _one_call(target: Callable[..., Any], arguments: Sequence[Any]) -> Record:
    try:
        result = target(*arguments)
    except Exception as error:
        return {"raised": type(error).__qualname__, "message": _told(error)}
    one: Record = {"result": snapshot(result)}
    one["sharing"] = [list(each) for each in sharing(pytree.tree_leaves((result, arguments)))]
    try:
        _backward(result)
    except Exception as error:
        one.update(raised=f"{type(error).__qualname__} in the backward", message=_told(error))
    return one


def _backward(result: Any) -> None:
    leaves = {id(leaf): leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad}
    sums = [_sum(leaf) for leaf in leaves.values() if leaf.grad_fn is not None]
    if sums:
        torch.autograd.backward(sums)


def _sum(tensor: Tensor) -> Tensor:
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    if tensor.is_nested:
        tensor = tensor.values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.sum()


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


@contextlib.contextmanager
def _quiet() -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield printed


def verdict(ours: Record, eager: Record) -> tuple[str, str]:
    """`equal`, `wrong`, `raises` or the record's own status, and what differs."""
    if ours["status"] != "ran" or eager["status"] != "ran":
        return ours["status"] if ours["status"] != "ran" else eager["status"], str(ours.get("why", ""))
    for number, (mine, theirs) in enumerate(zip(ours["calls"], eager["calls"])):
        if mine.get("raised", "") != theirs.get("raised", ""):
            if "raised" in mine and "raised" not in theirs:
                return "raises", f"call {number}: {mine['message']}"
            return "wrong", f"call {number}: {mine.get('message', 'nothing raised')} instead of {theirs['raised']}"
        plain = [{key: each for key, each in side.items() if key != "message"} for side in (mine, theirs)]
        found = difference(*plain, f"call {number}")
        if found:
            return "wrong", found
    return ("equal", "") if len(ours["calls"]) == len(eager["calls"]) else ("wrong", "calls are missing")


def one_graph(record: Record, eager: Record) -> bool:
    """Whether a compiler took the first call as one graph: no break, and no error but the program's own."""
    if record["status"] != "ran" or record.get("graphs", 2) > 1:
        return False
    told = record.get("fullgraph", "")
    first = eager["calls"][0] if eager.get("calls") else {}
    return not told or (bool(first.get("raised")) and told.partition(":")[0] == first["raised"])
