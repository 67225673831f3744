"""What a compiled graph could gain, and what would have to change for it: the events of the artifact `perf_hints`.

In: the graphs and programs of one compilation. Out: one event for each missed optimisation, with a hint. Called only where somebody reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import fx

from flambeau_runtime import Artifact
from flambeau_runtime.artifact import Call, Instruction, Launch, Program, Subprogram

from .log import logger

_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "_scaled_mm"))
_ALIGNED = 16
"""Bytes to which the rows of a product's operands have to be aligned for tensor cores."""
_TINY = 1 << 18
"""A kernel that moves less than this is over before the next one is launched."""
_MANY = 8
_MOST_NAMED = 5


def tell_of_graph(graph: fx.Graph) -> None:
    """Products in 16 bits and less on a GPU whose operands lie so that tensor cores cannot read them whole."""
    for node in graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if node.op != "call_function" or getattr(packet, "__name__", "") not in _PRODUCTS:
            continue
        operands = [value.meta.get("val") for value in node.all_input_nodes]
        tensors = [value for value in operands if isinstance(value, torch.Tensor) and value.dim() >= 2]
        uneven = [list(value.shape) for value in tensors if _is_uneven(value)]
        if uneven:
            logger.info(
                "unaligned_product",
                artifact="perf_hints",
                op=str(node.target),
                sizes=uneven,
                at=_place(node),
                hint=f"make the last sizes multiples of {_ALIGNED // tensors[0].element_size()}: rows of {_ALIGNED} bytes are read whole",
            )


def _is_uneven(value: torch.Tensor) -> bool:
    size = value.shape[-1]
    return (
        value.device.type == "cuda"
        and value.element_size() <= 2
        and isinstance(size, int)
        and bool(size * value.element_size() % _ALIGNED)
    )


def tell_of_program(kind: str, artifact: Artifact, *, graphed: bool) -> None:
    """Library calls that no kernel takes part in, and many launches of little work."""
    steps = list(instructions_of(artifact.program))
    python = Counter(step.op for step in steps if isinstance(step, Call))
    launches = [artifact.kernels[step.kernel] for step in steps if isinstance(step, Launch)]
    tiny = [kernel for kernel in launches if int(kernel.meta.get("bytes", _TINY)) < _TINY]
    on_gpu = any(device.startswith("cuda") for device in map(str, artifact.program.devices))
    if on_gpu and not graphed and len(tiny) >= _MANY:
        logger.info(
            "tiny_kernels",
            artifact="perf_hints",
            program=kind,
            kernels=len(tiny),
            of=len(launches),
            hint=f"each moves less than {_TINY >> 10} KiB, so that launching takes longer: mode='reduce-overhead' replays them as one CUDA graph",
        )
    if python and not launches:
        names = ", ".join(f"{name} x {count}" for name, count in python.most_common(_MOST_NAMED))
        logger.info(
            "nothing_fused",
            artifact="perf_hints",
            program=kind,
            calls=names,
            hint="the program is calls of the library alone; FLAMBEAU_LOGS=fallbacks says why of each",
        )


def instructions_of(program: Program) -> Iterator[Instruction]:
    """Those of a program, with those of nested programs in the place of what calls them."""
    for instruction in program.instructions:
        if isinstance(instruction, Subprogram):
            for nested in instruction.programs:
                yield from instructions_of(nested)
        else:
            yield instruction


def _place(node: fx.Node) -> str:
    stack = node.meta.get("stack") or ()
    return f"{stack[-1][0]}:{stack[-1][1]}" if stack and len(stack[-1]) >= 2 else ""
