"""What the stages of a compile are, in a sentence each, for readers who do not know this compiler.

In: the name of a stage, as a trace has it. Out: what it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Stage -> what it does, in the order in which they run; a stage of inductor runs once for each program (forward, backward).
STAGES: Mapping[str, str] = MappingProxyType(
    {
        "trace": "follow the Python bytecode and collect tensor operations into a graph, on tensors without data",
        "backend": "everything that is done to a graph: the stages below",
        "masks": "leave out attention masks that hide nothing, or no more than what is causal hides",
        "repeats": "find parts of the graph that are alike, so that each is compiled once",
        "cache": "look the graph up in the store on disk",
        "autograd": "make functional graphs for forward and backward",
        "joint graph": "trace forward and backward together, as ATen operations",
        "joint": "rewrite operations while both directions can be seen",
        "partition": "cut the graph in two: what the forward keeps, what the backward computes again",
        "inductor": "make programs of kernels out of ATen graphs",
        "passes": "rewrite the graph into fewer, better operations",
        "lowering": "turn operations into loops and library calls",
        "splitting": "cut large reductions in two, so that all cores have work",
        "fusion": "decide which loops become one kernel, and their order",
        "measuring": "try the choices that are to be measured",
        "products": "choose how matrix products are computed, and what is fused into them",
        "memory": "let results take the place of what is not needed any more",
        "combining": "launch small kernels as one",
        "launches": "choose blocks and warps of kernels by measuring",
        "text": "write the kernels' sources, C++ or Triton",
        "program": "put allocations, launches and calls in order",
        "build": "wait for the compilers of kernels",
        "load": "load kernels and program into the executor",
        "rewrite": "write the bytecode that runs the graph instead of the frame",
        "measure for the trace": "time each kernel for this report: no part of a compile that is not traced",
    }
)


def meaning(stage: str) -> str:
    """What a stage does; "" for one that has no name of its own."""
    if stage.startswith("pass "):
        return "one of the passes"
    if stage.startswith("compile "):
        return "the compiler of kernels, beside the other stages, in a thread or process of its own"
    return STAGES.get(stage, "")
