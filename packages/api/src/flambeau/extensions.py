"""What a program adds to the compiler, under torch's names: `flambeau.inductor.register_lowering` and its like.

In: operators, functions, patterns. Out: `Registration` handles. Everything that is registered may take part in any graph, so that its `uuid` is in the key of each: a
graph compiled meanwhile is kept on disk only if all of them say one, a text that changes with what the function does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

import flambeau_autograd as autograd
import flambeau_inductor as inductor
from flambeau_capture import no_warnings, unpatched
from flambeau_inductor.extensions import decompositions, lowerings, replacements
from flambeau_inductor.extensions.lowerings import Loops
from flambeau_inductor.extensions.table import Registration
from flambeau_inductor.rewrite.engine import Editor, Match
from flambeau_inductor.rewrite.patterns import Anything, Call, Constant, Either, Like, Operand, Through, call

from .defaults import user_errors
from .errors import InvalidOption

__all__ = [
    "Anything", "Call", "Constant", "Editor", "Either", "Like", "Loops", "Match", "Operand", "Registration", "Through", "call",
    "register_decomposition", "register_graph_pattern", "register_lowering", "register_replacement",
]  # fmt: skip


def register_lowering(ops: Any, rule: Callable[..., Any] | None = None, *, uuid: str | None = None) -> Registration:
    """Make loops of an operator, where it would be a call of its kernel, and fuse them with their surroundings.

    Args:
        ops: functional operators of torch's dispatcher: what `torch.library.custom_op` made, `torch.ops.library.name`, or a list of them.
        rule: `rule(loops, *args, **kwargs)` with the operator's arguments; a tensor has `sizes`, `dtype`, `device`, `rank` and `at(index)`. It returns what `loops.elementwise`,
            `loops.tensor`, `loops.reduce` or `loops.call` gives, or leaves a call to the operator's kernel by `loops.decline(reason)`. Without it the result is a decorator.
        uuid: see the module.

    Returns:
        A handle: `remove()`, or a `with` block, takes it back.

    Example:
        >>> @flambeau.inductor.register_lowering(torch.ops.mylib.twice)
        ... def twice(loops, x):
        ...     return loops.elementwise(lambda a: loops.op("add", a, a), x)
    """
    with user_errors():
        return _UserRegistration(lowerings.register_lowering(ops, uuid=uuid), rule)


def register_decomposition(
    ops: Any, formula: Callable[..., Any] | None = None, *, uuid: str | None = None
) -> Registration:
    """Have graphs contain what `formula` calls in the place of an operator. Gradients are those of the operator: it is taken apart below autograd.

    Args:
        ops: as for `register_lowering`.
        formula: takes the operator's arguments and gives its results. Without it the result is a decorator.
        uuid: see the module.
    """
    with user_errors():
        return _UserRegistration(decompositions.register_decomposition(ops, uuid=uuid), formula)


def register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[torch.Tensor],
    *,
    extra_check: Callable[[dict[str, torch.Tensor]], bool] | None = None,
    name: str = "",
    uuid: str | None = None,
) -> Registration:
    """Where a compiled graph computes what `search_fn` computes, compute what `replace_fn` does.

    Both are traced as graphs are, with their operators taken apart alike; every number in what is found has to be that of `search_fn` on the tensors there. Applied to forwards and backwards,
    not where a value in the midst is needed elsewhere (by the backward, for one).

    Args:
        search_fn, replace_fn: functions of tensors that give a tensor, or a tuple of as many.
        example_inputs: tensors like those that it is to be found for: sizes may differ there, operations may not.
        extra_check: gets the fakes by the names of the parameters of `search_fn` and may refuse.
        name: in errors and logs, and unique; that of `search_fn` by default.
        uuid: see the module.

    Raises:
        InvalidOption: for functions that do not fit each other, and for a search function that draws random numbers, writes, or returns an operand.
    """
    name = name or getattr(search_fn, "__qualname__", type(search_fn).__qualname__)
    parameters = _parameters(name, search_fn, example_inputs)
    _parameters(name, replace_fn, example_inputs)
    if extra_check is not None and not callable(extra_check):
        raise InvalidOption(f"extra_check takes a function, not {extra_check!r}")
    with FakeTensorMode() as mode:
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in example_inputs]
    with mode:
        pattern, replacement = traced(search_fn, fakes), traced(replace_fn, fakes)
    wanted, given = (_facts(gm) for gm in (pattern, replacement))
    if wanted != given:
        raise InvalidOption(f"replacement {name}: search_fn gives {wanted}, replace_fn {given}")
    made = replacements.Replacement(
        name=name,
        search=search_fn,
        replace=replace_fn,
        parameters=parameters,
        pattern=pattern.graph,
        trace=traced,
        check=extra_check,
    )
    with user_errors():
        return replacements.register_replacement(made, uuid=uuid)


def register_graph_pattern(
    pattern: Call,
    handler: Callable[[Match, Editor], Any] | None = None,
    *,
    extra_check: Callable[[Match], bool] | None = None,
    name: str = "",
    uuid: str | None = None,
) -> Registration:
    """Have `handler` replace the calls in compiled graphs that match a pattern.

    Args:
        pattern: `call(torch.ops.aten.add.Tensor, Operand("x"), Constant("n"))` and the like, in ATen's operators as compiled graphs have them.
        handler: gets the `Match` (`match["x"]` is what was captured) and an `Editor`, whose `call` makes nodes; it returns the node that takes the place of the root, or None to leave it. Without it
            the result is a decorator.
        extra_check: gets the `Match` and may refuse it.
        name: in errors and logs, and unique; that of the handler by default.
        uuid: see the module.
    """
    with user_errors():
        waiting = replacements.register_graph_pattern(pattern, extra_check=extra_check, name=name, uuid=uuid)
        return _UserRegistration(waiting, handler)


class _UserRegistration(Registration):
    """A registration of inductor's whose errors are this package's."""

    def __init__(self, inner: Registration, function: Callable[..., Any] | None) -> None:
        self._inner = inner
        if function is not None:
            self(function)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        with user_errors():
            return self._inner(function)

    def remove(self) -> None:
        self._inner.remove()


def traced(function: Callable[..., Any], fakes: Sequence[torch.Tensor]) -> fx.GraphModule:
    """The functional graph of a function, by the same stage as graphs of programs."""
    graph = fx.Graph()
    operands = [graph.placeholder(f"operand_{place}") for place in range(len(fakes))]
    for node, fake in zip(operands, fakes, strict=True):
        node.meta["val"] = fake
    graph.output(graph.call_function(_flat(function), tuple(operands)))
    name = getattr(function, "__qualname__", repr(function))
    try:
        with torch.no_grad(), unpatched(), no_warnings():
            prepared = autograd.prepare(
                fx.GraphModule({}, graph), list(fakes), decompositions=inductor.decompositions()
            )
    except autograd.AutogradError as error:
        raise InvalidOption(f"{name} cannot be traced: {error.message}", error.hint) from error
    signature = prepared.signature
    if signature.mutations:
        raise InvalidOption(f"{name} writes to an operand")
    if any(output.kind != "graph" for output in signature.outputs):
        raise InvalidOption(f"{name} returns an operand, a view of one, or a number")
    return prepared.forward


def _flat(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*operands: torch.Tensor) -> tuple[Any, ...]:
        results = function(*operands)
        return tuple(results) if isinstance(results, tuple | list) else (results,)

    return run


def _parameters(name: str, function: Any, examples: Any) -> tuple[str, ...]:
    if not callable(function):
        raise InvalidOption(f"replacement {name} takes functions, not {function!r}")
    if not isinstance(examples, list | tuple) or not examples or not all(type(t) in _TENSORS for t in examples):
        raise InvalidOption(f"replacement {name}: example_inputs takes a list of tensors, not {examples!r}")
    try:
        bound = inspect.signature(function).bind(*examples)
    except TypeError as error:
        raise InvalidOption(f"replacement {name}: {len(examples)} example_inputs, but {error}") from None
    return tuple(
        f"{key}" for key, value in bound.arguments.items() for _ in (value if isinstance(value, tuple) else (value,))
    )


_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def _facts(gm: fx.GraphModule) -> list[str]:
    (results,) = gm.graph.output_node().args
    vals = [node.meta["val"] for node in pytree.tree_leaves(results)]
    return [f"{val.dtype} {list(val.shape)}" for val in vals]
