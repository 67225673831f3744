"""Forward-mode differentiation: `torch.autograd.forward_ad`.

In: calls met while tracing, of what enters and leaves a level and of what makes and unpacks dual tensors. Out: nodes that do the same whenever the graph
is run or traced: between the two that enter and leave a level, torch itself computes a tangent beside each result of a dual tensor.

A level is part of one graph from its beginning to its end: a frame that is cut inside of one runs in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.autograd import forward_ad

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.sequences import TupleValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_ENTER: Any = forward_ad.enter_dual_level
_EXIT: Any = forward_ad.exit_dual_level
_MANAGER: Any = forward_ad.dual_level


def in_a_level() -> bool:
    """Whether the program has entered a level and not left it: no trace begins in one."""
    return forward_ad._current_level >= 0


@contextmanager
def level_left() -> Iterator[None]:
    """Leave the level that what is run within has entered, however it ends."""
    try:
        yield
    finally:
        if in_a_level():
            _EXIT()


@replaces(_ENTER)
def enter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`enter_dual_level()`: the number of the level."""
    if t.graph.bodies or in_a_level():
        raise GraphBreak("autograd-call", "a level of forward-mode differentiation within another, or in a body")
    return t.recorder.record("call_function", _ENTER, args, kwargs)


@replaces(_EXIT)
def leave(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`exit_dual_level(level=None)`: tensors have no tangents from then on."""
    if t.graph.bodies:
        raise GraphBreak("autograd-call", "a level of forward-mode differentiation is left in a body")
    return t.recorder.record("call_function", _EXIT, args, kwargs)


@replaces(_MANAGER.__enter__)
def enter_managed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`with dual_level():`."""
    return enter(t, [], {})


@replaces(_MANAGER.__exit__)
def leave_managed(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return leave(t, [], {})


@replaces(forward_ad.make_dual)
def make_dual(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`make_dual(tensor, tangent, level=None)`: a view of the tensor that has the tangent."""
    return t.recorder.record("call_function", forward_ad.make_dual, args, kwargs)


@replaces(forward_ad.unpack_dual)
def unpack_dual(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`unpack_dual(tensor, level=None)`: the tensor and its tangent; outside of a level the tensor itself, and none."""
    given = args[0].realise(t)
    if not in_a_level() and isinstance(given, TensorValue) and not kwargs:
        return TupleValue([given, ConstantValue(None)], forward_ad.UnpackedDualTensor)
    return t.recorder.record("call_function", forward_ad.unpack_dual, args, kwargs)
