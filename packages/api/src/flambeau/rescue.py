"""What happens where a compiled program raises: eager says whether it should have.

In: the captured graph, its signature, the error, the inputs. Out: eager's own error where eager raises too; else eager's results after one warning,
or the program's error where repeating is not allowed, as a `FlambeauError`. The same of a backward, whose gradients autograd computes again. That an operator of somebody else is not what its fake said is no failure of ours: its graphs are
repeated in eager, and later ones are not compiled. Runs only after an error: a call that succeeds never comes here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx._lazy_graph_module import _LazyGraphModule

import flambeau_autograd as autograd
from flambeau_capture import hold_replaced, left_as_before, raised_in_hook, with_marked_hooks
from flambeau_runtime import PredictionError, ReleasedError

from .errors import FlambeauError, InternalError, NotFinite, NotRecorded
from .stages import Stages

REPORT = (
    "FLAMBEAU_SUPPRESS_ERRORS=0 raises instead; please report it with the output of FLAMBEAU_LOGS=graph_code,output_code "
    "and the program, which flambeau.compile(..., backend='eager') should run"
)
_OF_TORCH = ("aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "xnnpack", "flambeau")
_mispredicted: set[str] = set()
"""Operators of others that returned something else than their fakes said, in this process."""

_NOT_REPEATED = (MemoryError, torch.OutOfMemoryError, RecursionError, NotFinite, NotRecorded, ReleasedError)
"""Nothing of the program's: trying again in eager would need at least as much, or what is gone, or is not what was asked for."""

_ASSUMED = ("the program was compiled for sizes with", "the program was captured for numbers with")
"""How a program says that numbers which it read out of tensors are not as was assumed: plain Python runs the frame then, or eager the graph."""


class StartAnew(Exception):
    """Says to the frame that its graph has done nothing."""


def rescue(
    gm: fx.GraphModule, signature: autograd.Signature, stages: Stages, *, in_order: bool = False
) -> Callable[..., Any]:
    """The function `(error, *inputs) -> results` for one compiled graph.

    A graph that writes to its inputs may have written to some before it failed: eager is then asked on copies, only for its error.
    One that does so after everything else (`in_order`) has not: where eager raises too, it writes what it writes before that.
    Where plain Python runs the frame again (`starts_anew`), nothing is written and nothing drawn. What a hook on saved tensors raises is the
    program's: the graph has run, and checkpointing stops a forward so that it repeats.
    """
    written = sorted({mutation.index for mutation in signature.mutations})
    generator = torch.default_generator
    anew = gm.meta.get("starts_anew", False)
    run = left_as_before(partial(run_in_eager, gm), gm)

    def answer(error: Exception, *inputs: Any) -> Any:
        eagers: Exception | None = None
        try:
            assumed = str(error).startswith(_ASSUMED)
            if isinstance(error, _NOT_REPEATED) or raised_in_hook(error) or (assumed and anew):
                raise error
            given = [_copy(value) if place in written else value for place, value in enumerate(inputs)]
            drawn = generator.get_state() if signature.draws else None
            results, eagers = _results_or_error(run, given)
            if eagers is not None:
                writes = written and in_order and not anew and not isinstance(error, PredictionError)
                if drawn is not None and (writes or anew):
                    generator.set_state(drawn)
                if writes:
                    run(list(inputs))
                raise _in_words_of_the_program(eagers, error)
            if isinstance(error, PredictionError) and _is_of_others(error) and not written and not stages.is_strict:
                _note_misprediction(error)
                return results
            if assumed and not written:
                return results
            warned = stages.suppress_errors and not stages.is_strict and (anew or not written)
            if warned:
                _warn_of(error, "a compiled graph")
            if warned and not written:
                return results
            if drawn is not None:
                generator.set_state(drawn)  # what was drawn for copies is nobody's
            note = f"eager runs this graph without an error. {REPORT}"
            # Autograd refuses copies where it refuses the tensors themselves. Torch refuses other writes for how memory lies, which copies of tensors that
            # share it do not: its class of error passes.
            if written and type(error) is RuntimeError:
                error.add_note(note)
                raise error
            raise _of_ours(error, "a compiled graph", note)
        finally:
            # This frame is in the traceback of what it raises: with the error it would keep the program's frame, and what that left open.
            del error, eagers

    return answer


def rescue_backward(stages: Stages) -> autograd.Rescue:
    """What autograd asks where a compiled backward raises: the error, and what computes the gradients in eager.

    That cannot be done where the backward has freed what it was given; its error passes then, with a note.
    """

    def answer(error: Exception, repeat: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        try:
            if isinstance(error, _NOT_REPEATED) or raised_in_hook(error):
                raise error
            try:
                gradients = repeat()
            except autograd.UnsupportedDoubleBackward as reason:
                # It may be the program's own.
                error.add_note(
                    f"the backward is not repeated in eager: {reason.message}. Where eager raises no error: {REPORT}"
                )
                raise error from None
            if isinstance(error, PredictionError) and _is_of_others(error) and not stages.is_strict:
                _note_misprediction(error)
                return gradients
            if stages.is_strict or not stages.suppress_errors:
                note = f"eager runs this backward without an error. {REPORT}"
                raise _of_ours(error, "a compiled backward", note)
            _warn_of(error, "a compiled backward")
            return gradients
        finally:
            del error

    return answer


def _warn_of(error: Exception, what: str) -> None:
    warnings.warn(
        f"{what} failed and is repeated in eager: {type(error).__name__}: {error}\n  {REPORT}",
        RuntimeWarning,
        stacklevel=3,
    )


def _of_ours(error: Exception, what: str, note: str) -> Exception:
    """The error as it leaves us: that of a stage as it is, any other as the cause of one."""
    ours = error
    if not isinstance(error, FlambeauError):
        ours = InternalError(f"{what} failed: {type(error).__name__}: {error}")
        ours.__cause__ = error
    ours.add_note(note)
    return ours


def as_if_not_called(
    gm: fx.GraphModule, signature: autograd.Signature, compiled: Callable[..., Any], *, in_order: bool
) -> Callable[..., Any]:
    """`compiled`, where plain Python runs a frame again whose graph raised: it leaves what it is given, and the generator, as before.

    Before each call what it may write to is copied, unless nothing in the graph raises for values: then there is nothing for a handler.
    `meta["starts_anew"]` promises capture, which asked by `may_start_anew`, that it is so.
    """
    if signature.draws:
        compiled = from_the_same_numbers(compiled)
    if not gm.meta.get("may_start_anew") or not (signature.raises or gm.meta.get("is_open")):
        return compiled
    written = sorted({mutation.index for mutation in signature.mutations})
    given = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    gm.meta["starts_anew"] = all(_can_be_restored(gm, given[place]) for place in written)
    if in_order or not written or not gm.meta["starts_anew"]:
        return compiled
    return _restoring(compiled, written)


def _restoring(compiled: Callable[..., Any], written: list[int]) -> Callable[..., Any]:
    """`compiled`, which leaves the inputs at these places as they were where it raises."""

    def call(*inputs: Any) -> Any:
        memory = [_memory(inputs[place]) for place in written]
        before = [window.clone() for window in memory]
        try:
            return compiled(*inputs)
        except BaseException:
            for window, content in zip(memory, before, strict=True):
                window.copy_(content)
            raise

    return call


def as_captured(gm: fx.GraphModule) -> Callable[..., Any]:
    """The graph run by torch's own ops; where plain Python runs its frame again, numbers are drawn once, and hooks on saved tensors called once."""
    run = _forward(gm)
    given = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    written = [place for place, value in enumerate(given) if isinstance(value, Tensor) and _is_written(value)]
    if (
        gm.meta.get("is_open")
        and gm.meta.get("may_start_anew")
        and not any(given[place].requires_grad for place in written)
    ):
        gm.meta["starts_anew"] = True
        run = _restoring(run, written)
    return from_the_same_numbers(with_marked_hooks(run)) if gm.meta.get("starts_anew") else run


def _forward(gm: fx.GraphModule) -> Callable[..., Any]:
    """The graph's code, which calls the functions that were captured, whatever the program has put under their names."""
    if hold_replaced(gm.graph):
        gm.recompile()
    _LazyGraphModule.force_recompile(gm)
    forward: Callable[..., Any] = gm.forward
    return forward


def in_eager(gm: fx.GraphModule) -> Callable[..., Any]:
    """The same, of a graph that could not be compiled, for a frame that nothing else is compiled of.

    Where a handler of the program covers it, the frame is left to plain Python rather than the graph to eager: eager's writes stay when it raises.
    """
    if gm.meta.get("may_start_anew"):
        gm.meta["starts_anew"] = True
        return _start_anew
    return as_captured(gm)


def _is_written(fake: Tensor) -> bool:
    return not fake.is_inference() and fake._version > 0


def _start_anew(*inputs: Any) -> Any:
    raise StartAnew("plain Python runs this frame")


def _can_be_restored(gm: fx.GraphModule, value: Any) -> bool:
    """Of a GPU's memory it is not known when it is written, unless what raises is the program itself, for numbers that it has waited for."""
    return value.layout is torch.strided and (value.device.type == "cpu" or bool(gm.meta.get("is_open")))


def _memory(tensor: Tensor) -> Tensor:
    """What a tensor spans, each element once; no write through it counts as one to the tensor."""
    spans = (max(size - 1, 0) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data.as_strided((1 + sum(spans) if tensor.numel() else 0,), (1,))


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


def _in_words_of_the_program(eagers: Exception, error: Exception) -> Exception:
    """Eager's error; that a view may not be written names the function that made the view, and only the program was given the view itself."""
    words, own = str(eagers).partition(" is a view")[2], str(error).partition(" is a view")[2]
    if not words or words != own or type(eagers) is not type(error):
        return eagers
    for note in getattr(eagers, "__notes__", ()):
        error.add_note(note)
    return error


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
    if value._is_view() and value._base is not None:
        # What autograd says of a write to a view depends on its base, on what made it, and on the mode in which that was.
        made = torch._C._autograd._get_creation_meta(value)
        if value.requires_grad or made != torch._C._autograd.CreationMeta.DEFAULT:
            base = _copy(value._base)
            if value.requires_grad and (base.is_floating_point() or base.is_complex()):
                base.requires_grad_()  # where the view, or one that it is a view of, was told so by itself
            with torch.set_grad_enabled(value.requires_grad):
                copy = value._view_func_unsafe(base)
            torch._C._autograd._set_creation_meta(copy, made)
            return copy
    if not value.is_leaf:
        with torch.enable_grad():
            return value.clone()
    copy = value.detach().clone()
    return copy.requires_grad_(value.requires_grad)
