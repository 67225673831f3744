"""Several kernels as one Triton module, in the terms of an artifact.

In: kernel bodies. Out: a ``Library`` of language ``"triton"`` and, for each body, a ``Kernel`` record with the storage names
and scalars of its arguments in order, and its grid. The module's text needs triton only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from attrs import frozen
from flambeau_runtime.artifact import Kernel, Library

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import KernelBody
from .errors import UnsupportedKernel
from .helpers import helper_sources
from .kernel import KernelText, kernel_text

_PREAMBLE = """\
import triton
import triton.language as tl
"""
_LIBDEVICE = "from triton.language.extra import libdevice\n"


@frozen
class GeneratedKernel:
    """A kernel and how to call it: ``buffers`` are storage names, ``scalars`` symbols or parameter names, in argument order;
    ``grid`` are expressions over the symbols."""

    kernel: Kernel
    body: KernelBody
    buffers: tuple[str, ...]
    scalars: tuple[Expr | str, ...]
    grid: tuple[Expr, Expr, Expr]


def generate(bodies: Sequence[KernelBody], library: int = 0, name: str = "kernels") -> tuple[Library, tuple[GeneratedKernel, ...]]:
    """One library with a kernel for each body; ``library`` is its place in the artifact.

    Raises UnsupportedKernel; ask ``unsupported`` first.
    """
    texts: list[KernelText] = []
    taken: set[str] = set()
    for body in bodies:
        text = kernel_text(body)
        if text.entry in taken:
            text = kernel_text(body, name=f"{text.entry}_{len(taken)}")
        taken.add(text.entry)
        texts.append(text)
    return Library(name, "triton", module_source(texts)), tuple(_record(text, library) for text in texts)


def unsupported(body: KernelBody) -> str | None:
    """Why ``body`` cannot be a Triton kernel, None when it can."""
    try:
        kernel_text(body)
    except UnsupportedKernel as error:
        return str(error)
    return None


def module_source(texts: Sequence[KernelText]) -> str:
    """The module that holds ``texts`` and the helpers they call."""
    helpers = helper_sources(frozenset().union(*(text.helpers for text in texts)))
    parts = [*helpers, *(text.source for text in texts)]
    library = _LIBDEVICE if any("libdevice." in part for part in parts) else ""
    return "\n\n".join([_PREAMBLE + library, *parts])


def _record(text: KernelText, library: int) -> GeneratedKernel:
    body = text.body
    dtypes: dict[str, torch.dtype] = {}
    for buffer in body.buffers:
        dtypes.setdefault(buffer.storage, buffer.layout.dtype)
    kernel = Kernel(
        name=text.entry,
        library=library,
        entry=text.entry,
        buffers=len(text.buffers),
        scalars=len(text.scalars),
        dtypes=tuple(dtypes[storage] for storage in text.buffers),
        scalar_kinds="".join("f" if kind == "fp64" else "i" for kind in list(text.signature.values())[len(text.buffers) :]),
        checks=("index out of range",) if text.asserts else (),
        meta={
            "signature": dict(text.signature),
            "constexprs": {f"{p.upper()}BLOCK": size for p, size in text.config.blocks.items()},
            "divisible": list(text.divisible),
            "num_warps": text.config.num_warps,
            "num_stages": text.config.num_stages,
            "asserts": text.asserts,
            "bytes": ex.hint(text.moved),
            "origins": list(body.origins),
            "stack": list(body.stacks),
        },
    )
    return GeneratedKernel(kernel, body, text.buffers, text.scalars, text.grid)
