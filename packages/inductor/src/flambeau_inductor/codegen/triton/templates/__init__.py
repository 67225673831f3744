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


def template_kernel(template: Template) -> GeneratedKernel:
    """The kernel of one template. Raises UnsupportedKernel where its bodies hold what Triton cannot express."""
    return _WRITERS[template.kind](template, f"triton_{template.kind}_{template.name.removeprefix('fused_')}")


def generate_templates(templates: Sequence[Template]) -> list[GeneratedKernel]:
    """One kernel for each, in order."""
    known: dict[Hashable, GeneratedKernel] = {}
    kernels: list[GeneratedKernel] = []
    for template in templates:
        kernel = template_kernel(template)
        same = known.setdefault(_identity(kernel), kernel)
        kernels.append(evolve(kernel, name=same.name, source=same.source))
    return kernels


def _identity(kernel: GeneratedKernel) -> Hashable:
    """What makes two kernels one: the code without its name and comments, and how it is compiled."""
    code = [line for line in kernel.source.splitlines() if not line.startswith("#")]
    compiled = {key: value for key, value in kernel.meta.items() if key not in ("origins", "bytes")}
    return "\n".join(code).replace(f"def {kernel.name}(", "def kernel("), repr(compiled)


__all__ = ["generate_templates", "template_kernel"]
