"""Bodies written by hand, run under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flambeau_inductor.codegen.triton import Config, kernel_text, module_source
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
    text = kernel_text(body, config=config)
    constexprs = {f"{p.upper()}BLOCK": size for p, size in text.config.blocks.items()}
    return CompileRequest(
        module_source([text]), text.entry, dict(text.signature), constexprs, text.divisible, text.config.num_warps,
        asserts=text.asserts,
    )  # fmt: skip


def run(
    body: KernelBody,
    tensors: dict[str, torch.Tensor],
    values: dict[Expr | str, float] | None = None,
    config: Config | None = None,
) -> str:
    """Run ``body`` on ``tensors`` (by storage name), sizes and parameters in ``values``; the source that was run."""
    values = values or {}
    text = kernel_text(body, config=config)
    meta = {
        "signature": text.signature,
        "constexprs": {f"{p.upper()}BLOCK": size for p, size in text.config.blocks.items()},
    }
    args = launch_arguments(meta, [tensors[name] for name in text.buffers], [values[s] for s in text.scalars])
    grid = tuple(evaluate(part, lambda s: int(values[s])) for part in text.grid)
    source = module_source([text])
    try:
        run_interpreted(source, text.entry, grid, args)  # type: ignore[arg-type]
    except Exception:
        print(source)
        raise
    return source
