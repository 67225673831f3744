"""Whose error is it? The captured graph once more, on fakes, without anything of ours.

In: a graph whose trace failed, and its inputs. Out: the exception that torch raises when it runs and differentiates the graph by
itself, or None. An error that comes up here too is eager's own (a shape that does not fit, something saved that was overwritten, no
derivative) or a limit of fake tensors (a value that decides a size): the graph is refused, and eager speaks for itself. One that
does not is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from .dispatch import dispatch_kept
from .inputs import find_fake_mode
from .packed import without_saved_hooks
from .settings import levels_kept

#: What torch raises where fakes cannot tell: a value decides a size or a branch, or an op has no fake at all.
LIMITS_OF_FAKES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    GuardOnDataDependentSymNode,
)

#: What autograd says where the program wrote something that was saved, or where an operator has no derivative: fakes alone tell neither of list
#: ops, the trace does. And what torch says where it has no formula in Python for symbolic sizes.
_WORDS = (
    "modified by an inplace operation", "derivative for", "does not support symbolic shapes", "on tensor with symbolic sizes",
)  # fmt: skip


def is_torchs_own(error: Exception) -> bool:
    """Whether an error of the trace says by itself that it is eager's, or a limit of fakes."""
    return isinstance(error, LIMITS_OF_FAKES) or any(words in str(error) for words in _WORDS)


class _Run(Interpreter):
    """Runs the graph under the mode of its inputs, and leaves no autocast region open."""

    def __init__(self, gm: GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(gm)
        self.mode = mode
        self.open: list[Any] = []

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        if isinstance(value, GraphModule) and not any(
            isinstance(node.target, HigherOrderOperator) for node in self.module.graph.nodes
        ):
            return self._called_back(value)
        return self.mode.from_tensor(value.detach(), static_shapes=True) if isinstance(value, torch.Tensor) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        if target is torch.amp.autocast_mode._enter_autocast:
            self.open.append(result)
        elif target is torch.amp.autocast_mode._exit_autocast:
            self.open.remove(args[0])
        return result

    def _called_back(self, body: GraphModule) -> Callable[..., Any]:
        """A graph that a function calls, run in the same way."""

        def call(*args: Any) -> Any:
            run = _Run(body, self.mode)
            try:
                return run.run(*args)
            finally:
                run.close()

        return call

    def close(self) -> None:
        for region in reversed(self.open):
            torch.amp.autocast_mode._exit_autocast(region)


def error_without_us(gm: GraphModule, inputs: list[Any]) -> Exception | None:
    """What torch alone raises for the graph and its gradients, or for those of one output alone: a sum may hide it."""
    mode = find_fake_mode(inputs)
    run = _Run(gm, mode)
    grad_mode = torch.is_grad_enabled()
    try:
        with torch._C.DisableTorchFunction(), without_saved_hooks(), dispatch_kept(), levels_kept(), mode:
            leaves = [_leaf(mode, value) for value in inputs]
            with torch.enable_grad():
                given = [
                    leaf.clone()
                    if isinstance(value, torch.Tensor) and leaf.requires_grad and not value.is_leaf
                    else leaf
                    for leaf, value in zip(leaves, inputs)
                ]
            outputs = [
                o for o in pytree.tree_leaves(run.run(*given)) if isinstance(o, torch.Tensor) and o.requires_grad
            ]
            outputs += [g for g in given if isinstance(g, torch.Tensor) and g.grad_fn is not None]
            wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            if outputs and wanted:
                with torch.autograd.set_multithreading_enabled(False):
                    for part in (outputs, *([o] for o in outputs)):
                        tangents = [torch.ones_like(o) for o in part]
                        torch.autograd.grad(part, wanted, tangents, retain_graph=True, allow_unused=True)
    except Exception as error:  # whatever torch raises, eager's caller gets
        return error
    finally:
        torch.set_grad_enabled(grad_mode)
        run.close()
    return None


def _leaf(mode: FakeTensorMode, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    fake = value if isinstance(value, FakeTensor) else mode.from_tensor(value)
    return fake.detach().requires_grad_(value.requires_grad)
