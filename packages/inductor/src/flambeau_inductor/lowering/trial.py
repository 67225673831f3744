"""Whether a higher-order operator becomes a template: found out by lowering it on its own, before other passes see it.

In: its node. Out: why not, "" where it does. Rules ask for sizes and types of operands alone, so that operands in memory stand for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import fx

from ..codegen.errors import UnsupportedKernel
from ..codegen.languages import writer_of
from ..context import CompileContext
from ..devices import device_of
from ..errors import UnsupportedGraphError
from ..expr import SymbolTable
from ..ir.layout import Buffer, Layout, Ref
from ..ir.loops import Template
from .builder import Builder
from .registry import Decline
from .values import TensorValue
from .written_gradients import RULES as ATTENTION_RULES

#: The note on a node that is a nested graph of a graph without a module; autograd reads it.
BODY = "body"
_Answer = TypeVar("_Answer")


def declined(gm: fx.GraphModule, node: fx.Node, context: CompileContext) -> str:
    """Why ``node`` of ``gm`` is no template."""
    return refusal(gm, node, node.target, node.args, node.meta["val"], context)


def refusal(
    gm: fx.GraphModule | None,
    place: fx.Node,
    target: Any,
    operands: Sequence[Any],
    vals: Sequence[Any],
    context: CompileContext,
) -> str:
    """Why a call of ``target`` with results like ``vals`` would be none at ``place``; ``operands`` may hold bodies as they are."""
    device = vals[0].device
    write = writer_of(device_of(device).language(context.config)).templates
    if write is None:
        return "a processor without tensor cores"
    trial = Builder(context, SymbolTable())
    trial.node = place
    if not trial.may_loop(device):
        return "kernels are switched off"
    try:
        args = fx.node.map_arg(tuple(operands), lambda operand: _operand(trial, gm, operand))
        ATTENTION_RULES[target](trial, vals, *args)
        for operation in trial.operations:
            if isinstance(operation, Template):
                write([operation])
    except (Decline, UnsupportedKernel, UnsupportedGraphError) as error:
        return str(error)
    return ""


def asked(
    gm: fx.GraphModule | None,
    place: fx.Node,
    question: Callable[..., _Answer],
    context: CompileContext,
    *operands: Any,
    **bodies: Any,
) -> _Answer | None:
    """The answer of ``question`` to a builder and ``operands`` as lowering would have them at ``place``; None where it declines."""
    trial = Builder(context, SymbolTable())
    trial.node = place
    try:
        args, kwargs = fx.node.map_arg((operands, bodies), lambda operand: _operand(trial, gm, operand))
        return question(trial, *args, **kwargs)
    except (Decline, UnsupportedGraphError):
        return None


def _operand(g: Builder, gm: fx.GraphModule | None, node: fx.Node) -> Any:
    """What an operand's node will be."""
    val: Any = node.meta.get("val")
    if isinstance(val, torch.Tensor):
        layout = Layout(g.exprs(val.shape), g.exprs(val.stride()), g.expr(val.storage_offset()), val.dtype, val.device)
        g.buffers[node.name] = Buffer(node.name, layout)
        return TensorValue.of_ref(Ref.whole(g.buffers[node.name]))
    if isinstance(val, int | torch.SymInt):
        return g.expr(val)
    if BODY in node.meta:
        return node.meta[BODY]
    return attrgetter(str(node.target))(gm) if node.op == "get_attr" else val
