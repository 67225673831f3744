"""Capture alone: `flambeau_capture` as the front end of a tool of your own, here a counter of operators.

Run it with `python examples/embedding_capture.py`. Nothing but flambeau-capture and torch is imported.
"""

from __future__ import annotations

import collections
import logging
from typing import Any

import structlog
import torch

from flambeau_capture import CompileRecord, make_region

# The packages log through structlog and leave its configuration to the program; `import flambeau` would configure it.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

counts: collections.Counter[str] = collections.Counter()


def counting_backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
    """Count the operators of a graph, then run it as it is."""
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method"):
            counts[getattr(node.target, "__name__", str(node.target))] += 1
    return gm.forward


def observe(record: CompileRecord) -> None:
    """Print what one compile saw: this is called once for every captured frame."""
    print(f"captured {record.code.co_qualname}: {record.operations} operations, {len(record.guards)} guards")
    for broken in record.breaks:
        print(f"  break [{broken.code}] at line {broken.line}: {broken.reason}")


class Model(torch.nn.Module):
    """Two layers, a branch that depends on data, and an attribute written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 2)
        self.seen: torch.Size | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (n, 8) to (n, 2)."""
        self.seen = x.shape
        x = torch.relu(self.first(x))
        if x.sum() > 0:
            x = x / x.sum()
        return self.second(x)


def main() -> None:
    """Capture a model with a graph break, call it twice, compare with eager."""
    torch.manual_seed(0)
    model = Model()
    captured = make_region(model, counting_backend, observer=observe)
    x = torch.randn(4, 8)
    with torch.no_grad():
        results = [captured(x), captured(x)]
        expected = model(x)
    for result in results:
        torch.testing.assert_close(result, expected)
    print("operators:", dict(counts))
    print("written by the model, replayed after its graph:", model.seen)


if __name__ == "__main__":
    main()
