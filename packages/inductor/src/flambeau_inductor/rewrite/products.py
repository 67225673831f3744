"""What a small matrix product is, and when several are worth being one.

In: nodes. Out: ``Product`` records, and the costs that ``batch_products.py`` and ``sum_products.py`` weigh.

The costs are bytes that memory moves in the same time. Everything is decided from sizes (the hints of symbolic ones, without a
guard) and never from a measurement, so that a graph has one program.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from .fakes import bytes_of, hint_of

aten = torch.ops.aten

#: Fewer products than this stay as they are.
FEWEST = 3
#: Multiplications from which on a product takes much longer than starting it.
LARGE_PRODUCT = 1 << 28
#: Results and copies that exist earlier, or longer, than they would have may take this much in all,
MOST_BYTES = 32 << 20
#: and this much where a program is to need no more memory than eager: as small as what varies anyway.
FREE_BYTES = 512 << 10


@frozen
class Product:
    """``alpha * left @ right + beta * bias``: an ``mm``, or an ``addmm`` whose bias is a row."""

    node: fx.Node
    left: fx.Node
    right: fx.Node
    bias: fx.Node | None

    @property
    def val(self) -> torch.Tensor:
        result: torch.Tensor = self.node.meta["val"]
        return result

    @property
    def work(self) -> int:
        """Multiplications."""
        return hint_of(self.val.shape[0]) * hint_of(self.val.shape[1]) * hint_of(self.left.meta["val"].shape[1])

    def is_small(self) -> bool:
        """Whether starting it takes about as long as doing it."""
        return self.work < LARGE_PRODUCT


def read_product(node: fx.Node) -> Product | None:
    """``node`` as a product of floating-point matrices; None for anything else."""
    if node.op != "call_function" or node.target not in (aten.mm.default, aten.addmm.default):
        return None
    bias = node.args[0] if node.target is aten.addmm.default else None
    left, right = node.args[-2:]
    vals = [part.meta.get("val") if isinstance(part, fx.Node) else None for part in (node, left, right)]
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return None
    if any(not isinstance(val, torch.Tensor) or not _is_plain(val) for val in vals):
        return None
    if bias is None:
        return Product(node, left, right, None)
    row = bias.meta.get("val") if isinstance(bias, fx.Node) else None
    if not isinstance(bias, fx.Node) or not isinstance(row, torch.Tensor) or row.dim() != 1:
        return None
    return Product(node, left, right, bias)


def products_of(graph: fx.Graph) -> list[Product]:
    """All products of a graph, in its order."""
    nodes = (
        node for op in (aten.mm.default, aten.addmm.default) for node in graph.find_nodes(op="call_function", target=op)
    )
    return [product for product in map(read_product, sorted(nodes)) if product is not None]


def _is_plain(val: Any) -> bool:
    if val.dim() != 2 or not val.dtype.is_floating_point or device_of(val.device).libraries.call_bytes is None:
        return False
    # Sizes that only the run knows may be zero or huge.
    return all(isinstance(n, int) or (isinstance(n, torch.SymInt) and n.node.has_hint()) for n in val.shape)


def free_bytes(graph: fx.Graph, context: CompileContext) -> int:
    """What rewrites may hold at once beyond what eager holds.

    As much as the results of the graph take (where those are saved activations, the peak comes later), or ``MOST_BYTES`` if the
    options say so.
    """
    if context.config.spend_memory:
        return MOST_BYTES
    (output,) = graph.find_nodes(op="output")
    results = {node for node in output.all_input_nodes if node.op == "call_function"}
    return min(MOST_BYTES, max(FREE_BYTES, sum(bytes_of(node.meta.get("val")) for node in results)))


def saved_calls(count: int, each: int, device: torch.device) -> int:
    """What is gained by one call in the place of ``count``, if each of the others moves ``each`` bytes that it alone needs."""
    return (count - 1) * ((device_of(device).libraries.call_bytes or 0) + each)


def is_worth_it(gain: int, copied: int) -> bool:
    """Weigh what is gained against copies, which are read and written."""
    return gain > 2 * copied and copied <= MOST_BYTES
