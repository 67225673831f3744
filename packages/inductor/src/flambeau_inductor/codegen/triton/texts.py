"""The texts of many bodies, of which equal ones are written once.

In: bodies with canonical names. Out: a ``KernelText`` each. Layers of a model that are alike differ in the names of their kernels and in where they come from.
"""

from __future__ import annotations

from attrs import evolve, field, frozen

from ...ir.kernel import KernelBody
from .kernel import KernelText, kernel_text
from .options import Config


@frozen
class KernelTexts:
    """``first`` is ``kernel_text``'s."""

    first: str = ""
    _known: dict[KernelBody, KernelText] = field(factory=dict)

    def of(self, body: KernelBody) -> KernelText:
        """The text of ``body``. Raises UnsupportedKernel, with the reason."""
        nameless = evolve(body, name="", origins=(), stacks=())
        found = self._known.get(nameless)
        if found is None:
            config = body.launch if isinstance(body.launch, Config) else None
            found = self._known[nameless] = kernel_text(body, config, self.first)
        return found.of(body)
