"""What ``batch_invariant`` refuses: calls and kernels in which a row's result may depend on how many rows there are.

In: a lowered graph. Out: nothing, or ``OptionError`` for the first such operation. Generated kernels keep the order of sums (``KernelBody.in_order``), so that what
remains are kernels of attention and library calls. Of those only such are allowed as give nothing, and ATen's that draw nothing and compute no float or pick floats that are there.
"""

from __future__ import annotations

from torch._ops import OpOverload

from flambeau_runtime.ordered import ordered_products

from ..devices import device_of
from ..errors import OptionError
from ..ir.graph import Graph
from ..ir.loops import Extern, Nested, Template, written
from ..ops.aten import Trait, aten_op

#: They copy elements, or pick some by comparing them within a row.
_PICKS = frozenset({
    "clone", "copy_", "empty_strided", "sort", "topk", "kthvalue", "cummax", "cummin", "masked_select", "repeat_interleave",
})  # fmt: skip
_HINT = "leave the option out for this function, or compile the function in parts: eager and torch.compile give no such promise for it either"


def check_rows(graph: Graph) -> None:
    """Raises OptionError."""
    for part in (graph, *graph.bodies.values()):
        for name, buffer in part.buffers.items():
            if not device_of(buffer.layout.device).is_host:
                raise OptionError(
                    f"batch_invariant holds on a CPU only; {name} is on {buffer.layout.device}",
                    hint="leave the option out on other devices: which kernels their libraries choose depends on the number of rows",
                )
        for operation in part.operations:
            if isinstance(operation, Template):
                raise OptionError(
                    f"batch_invariant: no kernel of {operation.kind} is known to compute each row by itself", hint=_HINT
                )
            if isinstance(operation, Extern) and not _is_allowed(operation):
                raise OptionError(
                    f"batch_invariant: {operation.op} is the library's, which may compute a row in another way where there are more rows",
                    hint=_HINT,
                )


def _is_allowed(call: Extern) -> bool:
    """The bodies of nested graphs are looked at as graphs."""
    op = call.op
    made = [buffer.layout.dtype for buffer in written(call)]
    if isinstance(op, Nested) or op is ordered_products() or not (made or call.binds):
        return True
    if not isinstance(op, OpOverload) or op.namespace != "aten" or aten_op(op).draws:
        return False
    if not any(dtype.is_floating_point or dtype.is_complex for dtype in made):
        return True
    return op.overloadpacket.__name__ in _PICKS or Trait.MOVES in aten_op(op).traits
