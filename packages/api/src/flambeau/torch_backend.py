"""The backend that `torch.compile(backend="flambeau")` finds through its entry point.

In: a graph as torch.compile captures it and its example inputs. Out: a compiled callable with the graph's calling convention. torch.compile does
the capturing and the guards; autograd, inductor and runtime are ours. What is particular to its graphs is brought into the form that the
default stack reads: the fakes lie under another name, and symbolic sizes belong to its `ShapeEnv`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from flambeau_capture import call_disabled, unpatched

from .log import logger
from .options import resolve
from .stack import CompiledFn, compile_stack


def flambeau(
    gm: fx.GraphModule,
    inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that torch.compile captured.

    Args:
        gm: torch-level graph; placeholders carry `meta["example_value"]`.
        inputs: real tensors and numbers, or fakes and symbolic numbers.
        mode: as for `flambeau.compile`.
        options: as for `flambeau.compile`.

    Raises:
        UnknownName, InvalidOption: as `flambeau.compile`.
    """
    with unpatched():
        fakes = _describe_inputs(gm, inputs)
    compiled = compile_stack(gm, fakes, resolve(mode, options))
    if any("as_strided" in str(node.target) for node in gm.graph.nodes):
        compiled = _only_from_the_start(compiled, gm)
    return call_disabled(compiled, rescue=gm.meta.get("rescue"))


def _only_from_the_start(compiled: CompiledFn, gm: fx.GraphModule) -> CompiledFn:
    """The graph runs as it is where an input begins within its memory: a view in strides may count from the memory's beginning, and
    torch.compile does not guard how far that is."""

    def run(*inputs: Any) -> Any:
        if any(isinstance(value, Tensor) and value.storage_offset() for value in inputs):
            logger.info("graph_runs_in_eager", artifact="fallbacks", reason="an input begins within its memory")
            return gm(*inputs)
        return compiled(*inputs)

    return run


def _describe_inputs(gm: fx.GraphModule, inputs: list[Any]) -> list[Any]:
    """What stands for each input while the graph is compiled; written to `meta["val"]` of the placeholders."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    known = [node.meta.get("example_value", given) for node, given in zip(placeholders, inputs, strict=True)]
    mode = next((value.fake_mode for value in known if isinstance(value, FakeTensor)), None) or FakeTensorMode()
    described = []
    for node, value in zip(placeholders, known, strict=True):
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor) and node.meta.get("example_value") is None:
            value = mode.from_tensor(value, static_shapes=True)
        node.meta["val"] = value
        described.append(value)
    _keep_positions(gm)
    return described


def _keep_positions(gm: fx.GraphModule) -> None:
    """The program's lines, where the default stack looks for them."""
    for node in gm.graph.nodes:
        frames = str(node.meta.get("stack_trace") or "").splitlines()
        named = [line.strip() for line in frames if line.lstrip().startswith('File "')]
        if named and "stack" not in node.meta:
            file, line, function = (*named[-1].split(", "), "")[:3]
            number = line.removeprefix("line ")
            node.meta["stack"] = (
                (
                    file.removeprefix('File "').rstrip('"'),
                    int(number) if number.isdigit() else 0,
                    function.removeprefix("in "),
                ),
            )
