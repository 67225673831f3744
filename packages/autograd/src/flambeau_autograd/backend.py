"""A backend out of two compilers.

In: `fw_compiler(gm, example_inputs) -> callable` and friends, named as in other AOT front ends. Out: a backend
`(gm, example_inputs) -> callable`. The compilers see functional ATen graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import GraphModule

from .config import Config
from .partition.min_cut import min_cut
from .pipeline import Compiler, Partitioner, compile_joint


def aot_autograd(
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Partitioner | None = None,
    decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
    inference_compiler: Compiler | None = None,
    config: Config | None = None,
) -> Callable[[GraphModule, list[Any]], Callable[..., Any]]:
    """Make a backend. `partition_fn(joint, config)` returns the set of nodes to save; default: the min-cut.

    Raises TypeError when a compiler is not callable.
    """
    for name, value in (("fw_compiler", fw_compiler), ("bw_compiler", bw_compiler)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {type(value).__name__}")

    def backend(gm: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return compile_joint(
            gm,
            example_inputs,
            forward_compiler=fw_compiler,
            backward_compiler=bw_compiler,
            partitioner=partition_fn or min_cut,
            decompositions=decompositions,
            config=config,
            inference_compiler=inference_compiler,
        )

    backend.wants_real_inputs = False  # type: ignore[attr-defined]
    return backend
