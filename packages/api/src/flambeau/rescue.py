"""What happens where a compiled program raises: eager says whether it should have.

In: the captured graph, its signature, the error, the inputs. Out: eager's own error where eager raises too; else eager's results after one warning,
or the program's error where repeating is not allowed. That an operator of somebody else is not what its fake said is no failure of ours: its graphs are
repeated in eager, and later ones are not compiled. Runs only after an error: a call that succeeds never comes here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

import flambeau_autograd as autograd
from flambeau_capture import left_as_before
from flambeau_runtime import PredictionError

from .stages import Stages

REPORT = (
    "FLAMBEAU_SUPPRESS_ERRORS=0 raises instead; please report it with the output of FLAMBEAU_LOGS=graph_code,output_code "
    "and the program, which flambeau.compile(..., backend='eager') should run"
)
_OF_TORCH = ("aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "xnnpack", "flambeau")
_mispredicted: set[str] = set()
"""Operators of others that returned something else than their fakes said, in this process."""

_NOT_REPEATED = (MemoryError, torch.OutOfMemoryError, RecursionError)
"""Nothing of the program's: trying again in eager would need at least as much."""


def rescue(
    gm: fx.GraphModule, signature: autograd.Signature, stages: Stages, *, in_order: bool = False
) -> Callable[..., Any]:
    """The function `(error, *inputs) -> results` for one compiled graph.

    A graph that writes to its inputs may have written to some before it failed: eager is then asked on copies, only for its error.
    One that does so after everything else (`in_order`) has not: where eager raises too, it writes what it writes before that.
    """
    written = sorted({mutation.index for mutation in signature.mutations})
    generator = torch.default_generator
    run = left_as_before(partial(run_in_eager, gm))

    def answer(error: Exception, *inputs: Any) -> Any:
        if isinstance(error, _NOT_REPEATED):
            raise error
        given = [_copy(value) if place in written else value for place, value in enumerate(inputs)]
        drawn = generator.get_state() if signature.draws else None
        results, eagers = _results_or_error(run, given)
        if eagers is not None:
            if written and in_order:
                if drawn is not None:
                    generator.set_state(drawn)
                run(list(inputs))
            raise eagers
        if isinstance(error, PredictionError) and _is_of_others(error) and not written and not stages.is_strict:
            _note_misprediction(error)
            return results
        if written or stages.is_strict or not stages.suppress_errors:
            if drawn is not None:
                generator.set_state(drawn)  # what was drawn for copies is nobody's
            error.add_note(f"eager runs this graph without an error. {REPORT}")
            raise error
        warnings.warn(
            f"a compiled graph failed and is repeated in eager: {type(error).__name__}: {error}\n  {REPORT}",
            RuntimeWarning,
            stacklevel=2,
        )
        return results

    return answer


def writes_last(graph: fx.Graph) -> bool:
    """Whether a forward that runs as it is written copies into its inputs after all that may raise."""
    copies = [node.target is torch.ops.aten.copy_.default for node in graph.nodes if node.op == "call_function"]
    return copies == sorted(copies)


def from_the_same_numbers(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, of a graph that draws on the CPU: where it raises, the generator is as before, and who repeats the call draws the same numbers.

    Graphs that draw on a GPU need none of it: what a GPU reports it reports too late to be repeated.
    """
    generator = torch.default_generator

    def call(*inputs: Any) -> Any:
        before = generator.get_state()
        try:
            return compiled(*inputs)
        except BaseException:
            generator.set_state(before)
            raise

    return call


def _is_of_others(error: PredictionError) -> bool:
    return error.operator.partition("::")[0] not in _OF_TORCH


def _note_misprediction(error: PredictionError) -> None:
    """Warn once for each operator, and remember it."""
    if error.operator in _mispredicted:
        return
    _mispredicted.add(error.operator)
    warnings.warn(
        f"a compiled graph is repeated in eager: {error.message}; correct the operator's fake to have graphs with it compiled",
        RuntimeWarning,
        stacklevel=3,
    )


def mispredicted_operator(graph: fx.Graph) -> str | None:
    """An operator of an ATen graph that is known to return something else than its fake says."""
    names = (node.target._schema.name for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload))
    return next((name for name in names if name in _mispredicted), None)


def _results_or_error(run: Callable[..., Any], inputs: list[Any]) -> tuple[Any, Exception | None]:
    try:
        return run(inputs), None
    except Exception as error:
        return None, error


def run_in_eager(gm: fx.GraphModule, inputs: list[Any]) -> Any:
    """Run a captured graph operation by operation; an error gets the line of the program as a note."""
    values: dict[fx.Node, Any] = {}
    given = iter(inputs)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "output":
            return args[0]
        try:
            values[node] = _run_node(gm, node, args, kwargs)
        except Exception as error:
            position = _position(node)
            if position:
                error.add_note(position)
            raise
    raise AssertionError("a graph without an output")


def _run_node(gm: fx.GraphModule, node: fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "get_attr":
        value: Any = gm
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return value
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    function: Any = gm.get_submodule(str(node.target)) if node.op == "call_module" else node.target
    return function(*args, **kwargs)


def _position(node: fx.Node) -> str:
    """The program's line that a node came from, as capture notes it."""
    stack = node.meta.get("stack") or ()
    if not stack:
        return ""
    file, line, function = stack[-1][:3]
    return f'in the compiled program: File "{file}", line {line}, in {function}'


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad and value._is_view() and value._base is not None:
        # What autograd says of a write to a view depends on its base.
        return value._view_func_unsafe(_copy(value._base))
    if not value.is_leaf:
        with torch.enable_grad():
            return value.clone()
    copy = value.detach().clone()
    return copy.requires_grad_(value.requires_grad)
