"""Launches of Triton kernels that the program makes itself: `kernel[grid](...)`, with or without `torch.library.wrap_triton`.

In: the kernel, its grid and arguments as values. Out: a break, for nothing tells which tensors a kernel writes. Inside of `torch.library.triton_op`,
whose schema does tell, launches are part of one node and are not met here.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from torch.library import wrap_triton

from ..class_names import class_module
from ..replacements import replaces, replaces_later, replaces_wrapper
from ..signals import GraphBreak
from ..values.base import MISSING
from ..values.functions import ClosureValue
from ..values.objects import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..values.base import Tracer, Value

_KERNELS = "triton.runtime."


@replaces(wrap_triton, as_given=True)
def kernel_itself(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """What is wrapped is launched on real tensors, as the kernel by itself would be."""
    kernel = args[0].realise(t) if len(args) == 1 and not kwargs else None
    if kernel is None or not class_module(kernel.python_type()).startswith(_KERNELS):
        raise GraphBreak("unsupported-call", "wrap_triton of what is no kernel")
    return kernel


@replaces_later("triton.runtime.jit")
def _register() -> None:
    subscript = sys.modules["triton.runtime.jit"].KernelInterface.__getitem__
    for code in subscript.__code__.co_consts:
        if isinstance(code, types.CodeType):
            replaces_wrapper(code)(_launch)


def _launch(t: Tracer, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    kernel = next((value for value in _held(function) if class_module(type(value)).startswith(_KERNELS)), None)
    raise GraphBreak("triton-kernel", f"{getattr(kernel, '__name__', 'a kernel')} on a grid")


def _held(function: Value) -> Iterator[Any]:
    """The objects that existed before the frame in the cells of a function made while tracing."""
    for cell in function.closure if isinstance(function, ClosureValue) else ():
        if isinstance(cell.contents, ObjectValue) and cell.contents.object is not MISSING:
            yield cell.contents.object
