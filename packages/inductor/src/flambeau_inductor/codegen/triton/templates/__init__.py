"""Templates as Triton kernels: one file for each family, one writer for each kind.

In: ``Template`` operations with names. Out: ``GeneratedKernel`` records, in order; templates with equal text share one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from attrs import evolve

from ....ir import templates
from ....ir.loops import Template
from ...kernel import GeneratedKernel
from . import attention

#: Kind -> who writes it under a given name.
_WRITERS: dict[str, Callable[[Template, str], GeneratedKernel]] = {
    templates.ATTENTION: attention.forward,
    templates.ATTENTION_QUERY_GRADIENT: attention.query_gradient,
    templates.ATTENTION_KEY_GRADIENTS: attention.key_gradients,
}
_ANY_NAME = "template"


def template_kernel(template: Template) -> GeneratedKernel:
    """The kernel of one template. Raises UnsupportedKernel where its bodies hold what Triton cannot express."""
    return _WRITERS[template.kind](template, f"triton_{template.kind}_{template.name}")


def generate_templates(templates: Sequence[Template]) -> list[GeneratedKernel]:
    """One kernel for each, in order."""
    known: dict[Hashable, GeneratedKernel] = {}
    kernels: list[GeneratedKernel] = []
    for template in templates:
        kernel = template_kernel(template)
        code = kernel.source.replace(kernel.name, _ANY_NAME)
        key = (code, str(kernel.extent), repr(sorted((k, v) for k, v in kernel.meta.items() if k != "origins")))
        same = known.setdefault(key, kernel)
        kernels.append(evolve(kernel, name=same.name, source=same.source))
    return kernels


__all__ = ["generate_templates", "template_kernel"]
