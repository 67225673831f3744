"""`leaf_function`: calls of a function are one node of the graph, which capture and autograd do not look into, and which runs in plain Python.

In: a function, and of it `register_fake`, which says what a call returns, and `register_multi_grad_hook`. Out: a function to call in its place; in eager it calls
the one that was given, after which its writes are checked. How compiled code calls it: `leaf_calls.py`; how it is captured: `lookaside/leaf_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from attrs import define
from torch.autograd.graph import register_multi_grad_hook
from torch.utils import _pytree as pytree

from . import replacements
from .class_names import class_name, name_of
from .leaf_calls import call_hook, refuse_undeclared
from .leaf_places import check_expressions, tensors_written
from .library import functools

if TYPE_CHECKING:
    from collections.abc import Sequence


@define(eq=False)
class LeafFunction:
    """What the program says of a function."""

    function: Callable[..., Any]
    mutates: tuple[str, ...]
    fake: Callable[..., Any] | None = None
    hook: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return name_of(self.function)

    def plainly(self, fake: Any, hook: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call in eager."""
        if fake is None:
            raise ValueError(missing_fake(self.name))
        tensors = [leaf for leaf in _leaves(args, kwargs) if isinstance(leaf, torch.Tensor)]
        counted = [tensor for tensor in tensors if not tensor.is_inference()]
        versions = [tensor._version for tensor in counted]
        written = tensors_written(self.function, self.mutates, args, kwargs, counted)
        watched = [tensor for tensor in tensors if tensor.requires_grad]
        if hook is not None and watched and torch.is_grad_enabled():
            _watch(self.name, hook, watched)
        result = self.function(*args, **kwargs)
        refuse_undeclared(self.name, counted, versions, written)
        return result


def missing_fake(name: str) -> str:
    """What is wrong where a function has no fake implementation."""
    return f"leaf_function {name} has no fake implementation: give one that says what it returns, with @{name}.register_fake"


def _watch(name: str, hook: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> None:
    """Call the hook with the gradients of tensors: once for this call, where some of them are there for later ones too."""
    stay = any(tensor.is_leaf for tensor in tensors)

    def call(gradients: Sequence[Any]) -> None:
        if stay:
            handle.remove()
        call_hook(name, hook, gradients)

    handle = register_multi_grad_hook(tensors, call)


def _leaves(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of arguments; of modules their parameters and buffers."""
    leaves: list[Any] = []
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.nn.Module):
            leaves += [*leaf.parameters(), *leaf.buffers()]
        else:
            leaves.append(leaf)
    return leaves


def leaf_function(fn: Callable[..., Any] | None = None, *, mutates_args: set[str] | None = None) -> Any:
    """Calls of `fn` are one node, which runs `fn` in plain Python: capture and autograd do not look inside.

    `fn` may print, ask for values, call libraries. `register_fake` of what this returns takes a function that says, of fake tensors, what a call returns: it is needed.
    Arguments and results are of what torch's pytrees know; modules may be arguments. Tensors that are returned are arguments themselves, or new ones. Gradients come from
    `fn`'s own operations, to its arguments and to the parameters of modules among them. `register_multi_grad_hook` takes a function that is called in a backward with the
    gradients of all tensor arguments that require grad.

    Args:
        fn: the function.
        mutates_args: the arguments that it writes to: parameters' names, or expressions as `"model.running_mean"`, `"buffers[0]"`.

    Raises:
        TypeError: for what cannot be called.
        ValueError: for expressions that name no parameter.
    """
    if fn is None:
        return functools.partial(leaf_function, mutates_args=mutates_args)
    if not callable(fn):
        raise TypeError(f"leaf_function takes a function, not {class_name(type(fn))}")
    leaf = LeafFunction(fn, tuple(sorted(mutates_args or ())))
    check_expressions(fn, leaf.mutates)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return replacements.call_leaf(leaf, leaf.fake, leaf.hook, args, kwargs)

    def register_fake(fake: Callable[..., Any]) -> Callable[..., Any]:
        leaf.fake = fake
        return call

    def register_hook(hook: Callable[..., Any]) -> Callable[..., Any]:
        leaf.hook = hook
        return call

    made: Any = call
    made.register_fake, made.register_multi_grad_hook = register_fake, register_hook
    return call


_OF_PEER = "_flambeau_leaf"


def leaf_of_peer(function: Any) -> LeafFunction:
    """What the program says with `leaf_function` of torch's own compiler."""
    leaf = vars(function).get(_OF_PEER)
    if leaf is None:
        mutates = tuple(sorted(function._torchdynamo_leaf_mutates_args))
        leaf = LeafFunction(function._torchdynamo_leaf_real_fn, mutates)
        setattr(function, _OF_PEER, leaf)
    leaf.fake, leaf.hook = function._torchdynamo_leaf_fake_fn, function._torchdynamo_leaf_hook_fn
    return leaf
