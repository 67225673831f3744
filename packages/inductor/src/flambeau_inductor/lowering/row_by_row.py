"""What ``batch_invariant`` refuses: calls and kernels in which a row's result may depend on how many rows there are.

In: a lowered graph. Out: nothing, or ``OptionError`` for the first such operation. Generated kernels keep the order of sums (``KernelBody.in_order``), so that what
remains are library calls, of which only those are allowed that compute no float or pick floats that are there, and kernels of attention.
"""

from __future__ import annotations

import torch

from flambeau_runtime.ordered import ordered_products

from ..devices import device_of
from ..errors import OptionError
from ..ir.graph import Graph
from ..ir.loops import Extern, Template
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
    if call.op is ordered_products() or not isinstance(call.op, torch._ops.OpOverload):
        return call.op is ordered_products()
    outs = [out for out in call.outs if out is not None]
    if all(not out.layout.dtype.is_floating_point and not out.layout.dtype.is_complex for out in outs):
        return True
    name = call.op.overloadpacket.__name__
    return call.op.namespace == "aten" and (name in _PICKS or Trait.MOVES in aten_op(call.op).traits)
