"""Several kernels as one Triton module.

In: kernel bodies. Out: ``GeneratedKernel`` records, and what their module holds before them, which needs triton only.
The grid of every kernel is ``(extent, 1, 1)``: the programs of all tiles are numbered through.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from attrs import evolve

from ... import expr as ex
from ...ir.kernel import KernelBody
from ..cpp.canonical import canonical
from ..errors import UnsupportedKernel
from ..kernel import GeneratedKernel, sources_of, with_shared_sources
from .helpers import helper_sources
from .kernel import KernelText, kernel_text
from .texts import KernelTexts

_PREAMBLE = """\
import triton
import triton.language as tl
"""
_LIBDEVICE = "from triton.language.extra import libdevice\n"


def generate(bodies: Sequence[KernelBody]) -> list[GeneratedKernel]:
    """Triton for every kernel, in order; bodies with equal text share one kernel, which is compiled once.

    Raises one UnsupportedKernel with the origins of every body that is refused.
    """
    kernels: list[GeneratedKernel] = []
    texts = KernelTexts()
    known: set[Hashable] = set()
    taken: set[str] = set()
    refused: dict[str, str] = {}
    for body in bodies:
        renamed, names = canonical(body)
        try:
            text = texts.of(renamed)
        except UnsupportedKernel as error:
            refused |= dict.fromkeys(body.origins, str(error)) or {"": str(error)}
            continue
        kernel = generated(text)
        if kernel.code not in known:
            if text.entry in taken:
                kernel = generated(evolve(text, entry=f"{text.entry}_{len(taken)}"))
            taken.add(kernel.name)
            known.add(kernel.code)
        kernels.append(evolve(kernel, buffers=tuple(names[name] for name in kernel.buffers)))
    if refused:
        raise UnsupportedKernel("; ".join(dict.fromkeys(refused.values())), tuple(filter(None, refused)))
    return with_shared_sources(kernels)


def unsupported(body: KernelBody) -> str | None:
    """Why ``body`` cannot be a Triton kernel, None when it can."""
    try:
        kernel_text(body)
    except UnsupportedKernel as error:
        return str(error)
    return None


def support(kernels: Sequence[GeneratedKernel]) -> str:
    """What comes before the sources of ``kernels`` in their module: imports, and the helper functions that they call."""
    helpers = helper_sources({name for kernel in kernels for name in kernel.meta["helpers"]})
    library = _LIBDEVICE if any("libdevice." in part for part in (*helpers, *sources_of(kernels))) else ""
    return "".join(f"{part}\n\n" for part in (_PREAMBLE + library, *helpers))


def generated(text: KernelText) -> GeneratedKernel:
    """A kernel's text in the terms of ``program``: ``meta`` is what compiling and launching it takes."""
    body = text.body
    dtypes = {buffer.name: buffer.layout.dtype for buffer in body.buffers}
    config = (tuple(text.config.blocks.items()), text.config.num_warps, text.config.num_stages)
    return GeneratedKernel(
        name=text.entry,
        source=text.source,
        buffers=text.buffers,
        dtypes=tuple(dtypes[name] for name in text.buffers),
        scalars=text.scalars,
        scalar_kinds="".join(
            "f" if kind == "fp64" else "i" for kind in list(text.signature.values())[len(text.buffers) :]
        ),
        extent=text.programs,
        grain=1,
        checks=("index out of range",) if text.asserts else (),
        meta={
            "signature": dict(text.signature),
            "constexprs": {f"{p.upper()}BLOCK": size for p, size in text.config.blocks.items()},
            "divisible": list(text.divisible),
            "num_warps": text.config.num_warps,
            "num_stages": text.config.num_stages,
            "asserts": text.asserts,
            "helpers": sorted(text.helpers),
            "bytes": ex.hint(text.moved),
            "origins": list(body.origins),
        },
        kernels=(text.kernel,),
        code=(text.function, tuple(text.signature.items()), text.divisible, text.asserts, config),
    )
