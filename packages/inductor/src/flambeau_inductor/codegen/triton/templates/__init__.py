"""Templates as Triton kernels: one file for each family, one writer for each kind.

In: ``Template`` operations with names. Out: ``GeneratedKernel`` records, in order; templates with equal text share one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir import templates
from ....ir.kernel import Gemm
from ....ir.loops import Template
from ...kernel import GeneratedKernel, with_shared_sources
from . import attention, gemm, gemv, grouped

#: Kind -> who writes it under a given name.
_WRITERS: dict[str, Callable[[Template, str], GeneratedKernel]] = {
    templates.ATTENTION: attention.forward,
    templates.ATTENTION_QUERY_GRADIENT: attention.query_gradient,
    templates.ATTENTION_KEY_GRADIENTS: attention.key_gradients,
}


def template_kernel(template: Template) -> GeneratedKernel:
    """The kernel of one template. Raises UnsupportedKernel where its bodies hold what Triton cannot express."""
    return _WRITERS[template.kind](template, f"triton_{template.kind}_{template.name.removeprefix('fused_')}")


def generate_gemms(gemms: Sequence[Gemm]) -> list[GeneratedKernel]:
    """One kernel for each product, in order."""
    return with_shared_sources(map(product_kernel, gemms))


def product_kernel(product: Gemm) -> GeneratedKernel:
    """The kernel of one product. Raises UnsupportedKernel where its epilogue holds what Triton cannot express."""
    if product.offsets is not None:
        return grouped.grouped_kernel(product)
    few = product.tile.rows < gemv.FEWEST_ROWS
    return gemv.gemv_kernel(product) if few else gemm.gemm_kernel(product)


def generate_templates(templates: Sequence[Template]) -> list[GeneratedKernel]:
    """One kernel for each, in order."""
    return with_shared_sources(map(template_kernel, templates))


__all__ = ["generate_gemms", "generate_templates", "product_kernel", "template_kernel"]
