"""What each output of a traced graph is to its inputs, and which inputs it writes.

In: traced inputs and output values after the forward was recorded. Out: `Analysis`: output specs, mutations, and the
tensors whose nodes the forward graph must return ("results").
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import define, evolve, field, frozen

from ..errors import UnsupportedGraph, UnsupportedMutation
from ..functional.overlap import folds_onto_itself
from ..functional.recorder import Recorder
from ..functional.values import Cell, Step, Value
from ..joint.inputs import TracedInput, version_of
from ..records import MutationSpec, OutputSpec, ResultNumber, TypeName, ViewStep


@define
class Analysis:
    """`results`: tensors or symbolic numbers that the forward returns before the saved ones, in order."""

    results: list[Any] = field(factory=list)
    outputs: list[OutputSpec] = field(factory=list)
    mutations: list[MutationSpec] = field(factory=list)

    def add_result(self, value: Any) -> int:
        self.results.append(value)
        return len(self.results) - 1

    def number(self, value: torch.SymInt) -> int | ResultNumber:
        """The symbolic size as a number or as a place among the results, one for equal expressions."""
        known = value.node.maybe_as_int()
        if known is not None:
            return int(known)
        for place, result in enumerate(self.results):
            if isinstance(result, torch.SymInt) and result.node.expr == value.node.expr:
                return ResultNumber(place)
        return ResultNumber(self.add_result(value))


def analyse(recorder: Recorder, inputs: list[TracedInput], outputs: list[Any]) -> Analysis:
    """Classify mutations and outputs; see `OutputSpec` and `MutationSpec` for the vocabulary."""
    analysis = Analysis()
    _mutations(inputs, analysis)
    by_identity = {id(i.seen): i for i in inputs if i.is_tensor}
    by_cell = {i.cell: i for i in inputs if i.is_tensor}
    roots = _roots(recorder, outputs)
    seen: dict[int, int] = {}
    bases: dict[Cell, int] = {}
    start = len(analysis.results)
    # Places of plain outputs are fixed first, so that extra bases come after them.
    plain: dict[int, int] = {}
    for i, out in enumerate(outputs):
        if isinstance(out, torch.Tensor):
            if id(out) in seen:
                continue
            seen[id(out)] = i
            cell = recorder.value_of(out).cell
            if id(out) in by_identity or cell in by_cell:
                continue
            root = roots.get(cell)
            if root is not None and root.tensor is not out and _has_base(cell):
                continue
            plain[i] = analysis.add_result(out)
            if (cell.meta if root is None else root.tensor) is out:
                bases[cell] = plain[i]
        elif isinstance(out, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            plain[i] = analysis.add_result(out)
    assert start <= len(analysis.results)
    for i, out in enumerate(outputs):
        analysis.outputs.append(_output(recorder, analysis, i, out, seen, plain, bases, roots, by_identity, by_cell))
    return analysis


@frozen
class _Root:
    """What the results in one memory are views of: the tensor, the views that lead to it from the memory's own, and the results."""

    tensor: torch.Tensor
    chain: tuple[Step, ...] = ()
    results: tuple[torch.Tensor, ...] = ()


def _roots(recorder: Recorder, outputs: list[Any]) -> dict[Cell, _Root]:
    """The root of each memory that several results show, or one that eager does not let the program write, or that is conjugated or negated lazily.

    It is the memory's own tensor, unless autograd does not know that one (it was made inside an op that has a formula of its own, or
    a write brought the history) while results have a history: then it is the first in a chain of views that has one.
    """
    sharing: dict[Cell, dict[int, torch.Tensor]] = {}
    for out in outputs:
        if isinstance(out, torch.Tensor):
            sharing.setdefault(recorder.value_of(out).cell, {})[id(out)] = out
    roots: dict[Cell, _Root] = {}
    for cell, results in sharing.items():
        if len(results) < 2 and not any(_is_guarded(out) or _is_lazy(out) for out in results.values()):
            continue
        shown = tuple(results.values())
        roots[cell] = _Root(_counted(recorder, cell, shown), (), shown)
        if not cell.meta.requires_grad:
            known = [found for out in results.values() if (found := _first_known(recorder, out)) is not None]
            roots[cell] = evolve(min(known, key=lambda root: len(root.chain), default=roots[cell]), results=shown)
    return roots


def _counted(recorder: Recorder, cell: Cell, results: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The memory's own tensor, as the program has it: torch's factories, as `tensor.data` does, make another of it for which writes are counted apart."""
    if not any(_counts_with(out, cell.meta) for out in results):
        for out in results:
            base = _base_of(out)
            value = None if base is None else recorder.value_of(base)
            if value is not None and value.cell is cell and not value.chain:
                return base
    return cell.meta


def _is_lazy(out: torch.Tensor) -> bool:
    """Whether the memory holds other numbers than the tensor shows; what is compiled for tensors that do not computes these."""
    return out.is_conj() or out.is_neg()


def _is_guarded(out: torch.Tensor) -> bool:
    """Whether writing to this view is an error, as it is not for a tensor of its own: an op gave it and others at once, the program took it
    without gradients, which it wants now, or its elements share memory, in which the backward of the write cannot put gradients."""
    if not out._is_view():
        return False
    several = out.requires_grad and any(s.item is not None for s in out._flambeau.chain)
    return several or (torch.is_grad_enabled() and (_is_taken_without_gradients(out) or _is_spread(out)))


def _is_spread(out: torch.Tensor) -> bool:
    return out.requires_grad and folds_onto_itself(out)


def _is_taken_without_gradients(out: torch.Tensor) -> bool:
    meta = torch._C._autograd
    return out._is_view() and meta._get_creation_meta(out) == meta.CreationMeta.NO_GRAD_MODE


def _first_known(recorder: Recorder, out: torch.Tensor) -> _Root | None:
    """The first tensor on the way to `out` that has a history."""
    chain = recorder.value_of(out).chain
    for length, step in enumerate(chain):
        # A tensor whose shape was changed in place since stands further down the chain.
        if step.source.requires_grad and len(recorder.value_of(step.source).chain) == length:
            return _Root(step.source, chain[:length])
    return _Root(out, chain) if out.requires_grad else None


def _has_base(cell: Cell) -> bool:
    value = getattr(cell.meta, "_flambeau", None)
    return isinstance(value, Value) and value.cell is cell and not value.chain


def _mutations(inputs: list[TracedInput], analysis: Analysis) -> None:
    shared: dict[int, int] = {}
    for item in inputs:
        if item.is_tensor:
            shared[item.storage] = shared.get(item.storage, 0) + 1
    for item in inputs:
        if item.cell is None or item.cell.version == 0:
            continue
        if shared[item.storage] > 1:
            raise UnsupportedMutation(f"input {item.index} is written and shares memory with another input")
        if folds_onto_itself(item.seen):
            raise UnsupportedMutation(
                f"input {item.index} is written and several of its elements share one memory location"
            )
        if item.seen.grad_fn is not item.history:
            analysis.mutations.append(MutationSpec(item.index, "wrapper", analysis.add_result(item.seen)))
        else:
            silent = 0 <= version_of(item.seen) == item.version
            analysis.mutations.append(MutationSpec(item.index, "silent" if silent else "graph"))


def _output(
    recorder: Recorder,
    analysis: Analysis,
    position: int,
    out: Any,
    seen: dict[int, int],
    plain: dict[int, int],
    bases: dict[Cell, int],
    roots: dict[Cell, _Root],
    by_identity: dict[int, TracedInput],
    by_cell: dict[Cell | None, TracedInput],
) -> OutputSpec:
    if position in plain:
        grad = isinstance(out, torch.Tensor) and out.requires_grad
        if grad and out._is_view() and _is_of_a_function(out):
            raise UnsupportedGraph(
                f"output {position} is a view that an autograd.Function gave, to which nobody may write"
            )
        return OutputSpec("graph", plain[position], grad)
    if not isinstance(out, torch.Tensor):
        if not isinstance(out, (int, float, bool, str, type(None))):
            raise UnsupportedGraph(f"output {position} is a {type(out).__name__}")
        return OutputSpec("constant", value=out)
    _refuse_stale(out)
    if seen[id(out)] != position:
        return OutputSpec("same_as", seen[id(out)], out.requires_grad)
    if id(out) in by_identity:
        return OutputSpec("input", by_identity[id(out)].index, out.requires_grad)
    value = recorder.value_of(out)
    owner, chain = by_cell.get(value.cell), value.chain
    root = _Root(owner.seen) if owner is not None else roots.get(value.cell, _Root(value.cell.meta))
    is_apart = out.requires_grad and _base_of(out) is not _base_of(root.tensor)
    if is_apart or chain[: len(root.chain)] != root.chain:
        raise UnsupportedGraph(f"output {position} shares its memory with another that has a history of its own")
    if (shown := _shown_base(recorder, out, root.tensor, seen)) is not None:
        kind, (index, taken) = "view_of_output", shown
        chain = chain[taken:]
    elif owner is not None:
        kind, index = "view_of_input", owner.index
        if torch.is_inference_mode_enabled() and owner.leaf.requires_grad and not _is_detached(out, chain):
            # To the trace all tensors are of that mode. The view of one that is not has a history, which autograd refuses outside.
            raise UnsupportedGraph("a view of a tensor that requires grad is taken in inference mode")
    else:
        kind = "view_of_base"
        if value.cell not in bases:
            bases[value.cell] = analysis.add_result(root.tensor)
        index, chain = bases[value.cell], chain[len(root.chain) :]
    if any(map(_is_of_a_function, (*(step.result for step in chain), *(() if out is root.tensor else (out,))))):
        raise UnsupportedGraph(f"output {position} is a view that an autograd.Function gave, whose gradient is its own")
    steps = tuple(_view_step(analysis, step) for step in chain)
    if kind != "view_of_output" and not _counts_with(out, root.tensor):
        others = roots[value.cell].results if value.cell in roots else ()
        if any(_base_of(other) is not out and _counts_with(out, other) for other in others if other is not out):
            raise UnsupportedGraph(f"output {position} counts writes with another, as views of one `tensor.data` do")
        steps = (ViewStep("prim.data.default"), *steps)
    if all(step.grad for step in steps) and out.requires_grad and out.grad_fn is None:
        # The same elements, taken without gradients: no step of a chain, and a leaf for autograd.
        steps = (*steps, ViewStep("aten.alias.default", (), (), None, False))
    elif steps and not steps[-1].grad and out.grad_fn is not None:
        # The same elements again, taken with gradients of a view that was not.
        steps = (*steps, ViewStep("aten.alias.default"))
    detached = _is_detached(out, chain) if torch.is_inference_mode_enabled() else not out._is_view()
    if not steps and not out.requires_grad and not detached and out is not root.tensor:
        # A view of all elements (`y[...]`), which is no step of a chain.
        steps = (ViewStep("aten.alias.default", (), (), None, not _is_taken_without_gradients(out)),)
    if steps and not out.requires_grad and detached:
        # To autograd no view, also where somebody asks it for gradients later.
        steps = (*steps, ViewStep("aten.detach.default"))
    elif steps and not out.requires_grad and kind != "view_of_output" and _is_beside(out, root.tensor):
        # A view of a detached tensor, which stays as it is where somebody asks the root for gradients later.
        steps = (ViewStep("aten.detach.default"), *steps)
    return OutputSpec(kind, index, out.requires_grad, steps)


def _is_beside(view: torch.Tensor, root: torch.Tensor) -> bool:
    return not torch.is_inference_mode_enabled() and _base_of(view) is not _base_of(root)


def _is_detached(out: torch.Tensor, chain: tuple[Step, ...]) -> bool:
    return any(getattr(tensor, "_is_detached", False) for tensor in (out, *(step.source for step in chain)))


def _shown_base(
    recorder: Recorder, out: torch.Tensor, root: torch.Tensor, seen: dict[int, int]
) -> tuple[int, int] | None:
    """The place of a detached tensor among the outputs whose view `out` is, and how many steps lead to that one: it counts writes with its views, and
    gives them a history where it is asked for gradients later."""
    base = out._base if out._is_view() and not out.requires_grad else None
    if base is None or base is root or id(base) not in seen:
        return None
    before, steps = recorder.value_of(base).chain, recorder.value_of(out).chain
    if steps[: len(before)] != before:
        return None
    if (base.is_floating_point() or base.is_complex()) and _gains_history(out, base):
        raise UnsupportedGraph("a view was taken of a detached tensor before that was written")
    return seen[id(base)], len(before)


def _counts_with(out: torch.Tensor, root: torch.Tensor) -> bool:
    """Whether a write to one is counted for the other: not where `tensor.data` lies between."""
    if out.is_inference() or root.is_inference():
        return True
    with torch.autograd._unsafe_preserve_version_counter(out):
        before = root._version
        torch.autograd.graph.increment_version(out)
        return root._version != before


def _gains_history(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether the view would get a history with its base, as one does that is older than a write; a new view of the same would not."""
    base.requires_grad_()
    try:
        return view.grad_fn is not None
    except RuntimeError:
        return True  # of a view taken without gradients autograd refuses it
    finally:
        base.requires_grad_(False)


def _base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Whose history the tensor shares: a detached one that was written has its own."""
    return tensor._base if tensor._is_view() else tensor


def _is_of_a_function(view: torch.Tensor) -> bool:
    """Whether a gradient passes through the program's own formula here, which taking the view again would leave out."""
    return view.requires_grad and isinstance(view.grad_fn, torch.autograd.function.BackwardCFunction)


def _refuse_stale(view: torch.Tensor) -> None:
    """Raise `UnsupportedGraph` for a view whose memory was written since it was taken, by an op that gives several or without gradients.

    Eager raises where somebody asks for its history; one that is taken of the written memory has a history.
    """
    try:
        _ = view.requires_grad and view.grad_fn
    except RuntimeError as error:
        raise UnsupportedGraph(f"an output has no history any more: {error}") from error


def _view_step(analysis: Analysis, step: Step) -> ViewStep:
    kwargs = tuple(sorted((name, _frozen(analysis, value)) for name, value in step.kwargs.items()))
    _refuse_stale(step.result)
    # A view of such a view counts as one, however it was taken.
    taken = _is_taken_without_gradients(step.result) and not _is_taken_without_gradients(step.source)
    unseen = taken or (step.source.requires_grad and step.result.requires_grad and step.result.grad_fn is None)
    return ViewStep(str(step.op), _frozen(analysis, tuple(step.args)), kwargs, step.item, not unseen)


def _frozen(analysis: Analysis, value: Any) -> Any:
    """An argument of a view as a `ViewStep` holds it."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(analysis, v) for v in value)
    if isinstance(value, torch.SymInt):
        return analysis.number(value)
    if isinstance(value, torch.dtype):
        return TypeName(str(value).removeprefix("torch."))
    if isinstance(value, (int, float, bool, str, type(None))):
        return value
    raise UnsupportedGraph(f"an output is a view with the argument {value!r}")
