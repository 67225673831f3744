"""Runs a torch-level graph on fake tensors, node by node, under a recorder, and the graphs inside it that its functions call.

In: the captured GraphModule and its inputs. Out: its outputs. Grad-mode switches, autocast regions and settings in
the graph take effect while replaying and are undone at the end; user positions and checkpoint regions are handed to the recorder.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, Final

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ..config import Config
from ..errors import UnsupportedGraph, UnsupportedMutation
from ..functional.opaque import tensors_in
from ..functional.origins import Origin
from ..functional.recorder import Recorder
from ..functional.values import Cell
from .checks import record_checks
from .lists import saved_by_list_op
from .nested.table import OPERATORS
from .rewriting import Rewrite
from .settings import settings_kept

_PRODUCTS: Final = (torch.nn.functional.linear, torch.matmul, operator.matmul, "matmul", "__matmul__")
#: Functions whose C++ reads the sizes of its operands as plain numbers (products only before torch 2.13), so that symbolic ones become
#: constants. Their decomposition in Python, which the Python dispatcher takes, keeps them.
_READS_SIZES: Final[frozenset[Any]] = frozenset((
    torch.nn.functional.interpolate, torch.nn.functional.upsample, torch.nn.functional.upsample_nearest, torch.nn.functional.upsample_bilinear,
    torch.nn.functional.local_response_norm,
    *(
        getattr(torch.ops.aten, name).vec
        for name in (
            "upsample_linear1d", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest2d",
            "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "upsample_trilinear3d", "upsample_nearest3d",
            "_upsample_nearest_exact3d",
        )
    ),
    *(_PRODUCTS if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13) else ()),
))  # fmt: skip


_ITEM: Final[frozenset[Any]] = frozenset((operator.getitem, torch.Tensor.__getitem__, "__getitem__"))


class Replay:
    """Replays graphs into `recorder`; nested graphs (checkpoint bodies) are inlined."""

    def __init__(self, recorder: Recorder, config: Config, rewrite_body: Rewrite | None = None) -> None:
        self.recorder = recorder
        #: What bodies with gradients are given to before they are cut.
        self.rewrite_body = rewrite_body
        #: How bodies of operators are cut into halves.
        self.config = config
        #: Of the nodes of list ops in autograd's graph.
        self.saved_by_lists: dict[Any, list[torch.Tensor]] = {}
        #: Nodes of `autograd.Function`s whose backward is given None for a gradient that is absent.
        self.told_absent: set[Any] = set()
        #: Whether an element at places that tensors hold is taken without looking at those, as bodies of flex_attention take it.
        self.index_by_tensors = False
        self._regions = 0

    def run(self, gm: GraphModule, inputs: list[Any]) -> Any:
        """The graph's outputs on `inputs`. Ambient grad mode, autocast and settings are restored, whatever the graph did."""
        grad_mode = torch.is_grad_enabled()
        autocast_depth: list[Any] = []
        try:
            with settings_kept(gm.graph):
                return self._walk(gm, inputs, autocast_depth)
        finally:
            torch.set_grad_enabled(grad_mode)
            for context in reversed(autocast_depth):
                torch.amp.autocast_mode._exit_autocast(context)

    def _walk(self, gm: GraphModule, inputs: list[Any], autocast_depth: list[Any]) -> Any:
        env: dict[Node, Any] = {}
        feed = iter(inputs)
        recorder = self.recorder
        outer_checkpoint = recorder.checkpoint
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(feed)
                continue
            if node.op == "output":
                return map_arg(node.args[0], env.__getitem__)
            if node.op == "get_attr":
                env[node] = self._attribute(gm, node)
                continue
            meta = node.meta
            recorder.origins.enter(Origin(meta.get("stack") or meta.get("stack_trace") or (), meta.get("module", "")))
            recorder.checkpoint = meta.get("checkpoint", outer_checkpoint)
            args = map_arg(node.args, env.__getitem__)
            kwargs = map_arg(node.kwargs, env.__getitem__)
            env[node] = self._call(gm, node, args, kwargs, autocast_depth)
        raise UnsupportedGraph("the graph has no output node")

    def _attribute(self, gm: GraphModule, node: Node) -> Any:
        value: Any = gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, torch.Tensor):
            return self.recorder.constant(value)
        if isinstance(value, GraphModule) and not all(
            isinstance(user.target, HigherOrderOperator) for user in node.users
        ):
            return partial(self._called_back, value)
        return value

    def _called_back(self, gm: GraphModule, *inputs: Any) -> Any:
        """A graph that a function calls (a transform of `torch.func`, say): replayed by the same rules, whatever levels the function has opened."""
        recorder = self.recorder
        origin, checkpoint = recorder.origins.now, recorder.checkpoint
        try:
            return self.run(gm, list(inputs))
        finally:
            recorder.origins.enter(origin)
            recorder.checkpoint = checkpoint

    def _call(self, gm: GraphModule, node: Node, args: Any, kwargs: Any, autocast_depth: list[Any]) -> Any:
        target: Any = node.target
        if target in _READS_SIZES and _is_symbolic(args):
            with torch._C._EnablePythonDispatcher():
                return (
                    getattr(args[0], target)(*args[1:], **kwargs)
                    if isinstance(target, str)
                    else target(*args, **kwargs)
                )
        if self.index_by_tensors and target in _ITEM and (places := _places(args[1])):
            return torch.ops.aten.index.Tensor(args[0], places)
        record_checks(target, args, kwargs)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if node.op == "call_module":
            body = gm.get_submodule(target)
            if not isinstance(body, GraphModule):
                raise UnsupportedGraph(f"the graph calls the module {target}; its parameters were not lifted")
            return self._walk(body, list(args), autocast_depth)
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(target, args, kwargs, autocast_depth)
        written = self._states(kwargs["out"]) if kwargs.get("out") is not None else []
        result = target(*args, **kwargs)
        if any(cell.version == version for cell, version in written):
            # The kernel of `kron` writes through a tensor that is said to have memory of its own.
            raise UnsupportedMutation(f"{target.__name__} writes to its out= by ways that are not known")
        if (listed := saved_by_list_op(target, args, kwargs, result)) is not None:
            self.saved_by_lists[listed[0]] = listed[1]
        if getattr(target, "told_absent", False):
            self.told_absent.update(item.grad_fn for item in tensors_in(result) if item.grad_fn is not None)
        if target is torch.nn.functional.one_hot:
            # Eager fills new memory; on fakes the function compares, and its result lies as the argument does.
            return result.contiguous()
        if target is torch.amp.autocast_mode._enter_autocast:
            autocast_depth.append(result)
        elif target is torch.amp.autocast_mode._exit_autocast:
            autocast_depth.remove(args[0])
        return result

    def _states(self, out: Any) -> list[tuple[Cell, int]]:
        """The contents of what a call is told to write to, and how often they were written; without elements there is nothing to write."""
        given = [t for t in tensors_in(out) if not any(isinstance(size, int) and size == 0 for size in t.shape)]
        cells = [self.recorder.value_of(t).cell for t in given]
        return [(cell, cell.version) for cell in cells]

    def _higher_order(self, target: Any, args: Any, kwargs: Any, autocast_depth: list[Any]) -> Any:
        """An operator over bodies. Below the levels of a transform torch has a rule of its own for it, as `cond` of samples computes both branches."""
        name = target.name()
        if name in ("tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap") and isinstance(
            args[0], GraphModule
        ):
            outer = self.recorder.checkpoint
            if name != "wrap":
                self._regions += 1
                self.recorder.checkpoint = -self._regions
            try:
                return self._walk(args[0], list(args[1:]), autocast_depth)
            finally:
                self.recorder.checkpoint = outer
        if name == "autograd_function_apply":
            raise UnsupportedGraph("autograd_function_apply is not traced through")
        if name in OPERATORS and torch._C._functorch.peek_interpreter_stack() is None:
            return OPERATORS[name](self, *args, **kwargs)
        return target(*args, **kwargs)

    def on(self, recorder: Recorder) -> Replay:
        """Another, for the body of an operator, which has a graph of its own."""
        return Replay(recorder, self.config, self.rewrite_body)


def _is_symbolic(args: Any) -> bool:
    return any(isinstance(size, torch.SymInt) for arg in args if isinstance(arg, torch.Tensor) for size in arg.shape)


def _places(index: Any) -> list[torch.Tensor]:
    """What an index of tensors and numbers asks for, as tensors; nothing where it is of other parts as well."""
    parts = index if isinstance(index, (list, tuple)) else (index,)
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if not tensors or any(not isinstance(part, (torch.Tensor, int)) or part is True or part is False for part in parts):
        return []
    return [part if isinstance(part, torch.Tensor) else torch.full_like(tensors[0], part) for part in parts]
