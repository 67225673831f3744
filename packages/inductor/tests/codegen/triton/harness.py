"""Bodies written by hand, run under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_inductor.codegen.triton import Config, generated, kernel_text, support
from flambeau_inductor.expr import Expr, evaluate
from flambeau_inductor.ir.kernel import KernelBody, Statement
from flambeau_inductor.ir.layout import Buffer, Layout
from flambeau_inductor.ir.loops import Axis
from flambeau_runtime.triton_kernels import CompileRequest, launch_arguments, run_interpreted

CPU = torch.device("cpu")


def buffer(name: str, tensor: torch.Tensor, storage: str = "") -> Buffer:
    """The buffer record of a tensor."""
    layout = Layout(tuple(tensor.shape), tuple(tensor.stride()), 0, tensor.dtype, tensor.device)
    return Buffer(name, layout, storage)


def make_body(
    tensors: dict[str, torch.Tensor],
    outer: Sequence[Axis],
    inner: Sequence[Axis],
    statements: Sequence[Statement],
    scalars: Sequence[Expr | str] = (),
    aliases: dict[str, str] | None = None,
) -> KernelBody:
    """A body over buffers shaped like ``tensors``; ``aliases`` maps a buffer to the one whose memory it takes."""
    buffers = tuple(buffer(name, t, (aliases or {}).get(name, "")) for name, t in tensors.items())
    return KernelBody("test", tuple(outer), tuple(inner), tuple(statements), buffers, tuple(scalars), CPU)


def request(body: KernelBody, config: Config | None = None) -> CompileRequest:
    """What compiling ``body`` for a GPU takes."""
    kernel = generated(kernel_text(body, config=config))
    return CompileRequest.from_meta(support([kernel]) + kernel.source, kernel.name, kernel.meta)


def run(
    body: KernelBody,
    tensors: dict[str, torch.Tensor],
    values: dict[Expr | str, float] | None = None,
    config: Config | None = None,
) -> str:
    """Run ``body`` on ``tensors`` (by buffer name), sizes and parameters in ``values``; the source that was run."""
    values = values or {}
    kernel = generated(kernel_text(body, config=config))
    args = launch_arguments(
        kernel.meta, [tensors[name] for name in kernel.buffers], [values[s] for s in kernel.scalars]
    )
    extent = evaluate(kernel.extent, lambda s: int(values[s]))
    source = support([kernel]) + kernel.source
    try:
        run_interpreted(source, kernel.name, (extent, 1, 1), args)
    except Exception:
        print(source)
        raise
    return source
