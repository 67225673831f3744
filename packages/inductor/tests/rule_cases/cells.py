"""Cases of the rules for cells of recurrent networks."""

from functools import partial
from operator import getitem

import torch
from attrs import frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from .case import Case, floats

aten = torch.ops.aten


@frozen
class Cell:
    """A call of a cell's op of which ``read`` are read; ``widths`` of its results, as multiples of the state's."""

    op: object
    widths: tuple
    read: tuple

    def graph(self, inputs):
        """By hand: the op of a GRU has no fake results where there is no GPU."""
        graph, mode = fx.Graph(), FakeTensorMode()
        places = [graph.placeholder(f"x{n}") for n in range(len(inputs))]
        with mode:
            for place, t in zip(places, inputs, strict=True):
                place.meta["val"] = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda")
            rows, width = places[2].meta["val"].shape
            vals = tuple(places[2].meta["val"].new_empty(rows, n * width) for n in self.widths)
        node = graph.call_function(self.op, tuple(places))
        node.meta["val"] = vals
        parts = [graph.call_function(getitem, (node, n)) for n in self.read]
        for n, part in zip(self.read, parts, strict=True):
            part.meta["val"] = vals[n]
        graph.output(tuple(parts))
        return fx.GraphModule({}, graph)


LSTM = partial(Cell, aten._thnn_fused_lstm_cell.default, (1, 1, 4))
GRU = partial(Cell, aten._thnn_fused_gru_cell.default, (1, 5))
CELL = floats((3, 20), (3, 20), (3, 5), (20,), (20,))
SMALL_CELL = floats((3, 15), (3, 15), (3, 5), (15,), (15,))

CASES = {
    "thnn_fused_lstm_cell": Case(LSTM((0, 1)), CELL, ((LSTM((0, 1, 2)), CELL),), runs=False),
    "thnn_fused_gru_cell": Case(GRU((0,)), SMALL_CELL, ((GRU((0, 1)), SMALL_CELL),), runs=False),
}  # fmt: skip
