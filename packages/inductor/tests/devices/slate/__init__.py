"""A device that is in no source: torch's spare type, with a dialect of C++ for its language. All of it is in this folder.

In: nothing. Out: ``slate_is_known()``, in which kernels are written for ``torch.device("privateuseone")``. There is no such processor: what is made
for it is looked at, compiled, and run on the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from flambeau_inductor import devices
from flambeau_inductor.codegen import cpp
from flambeau_inductor.codegen.kernel import GeneratedKernel
from flambeau_inductor.codegen.languages import Writer, registered_language
from flambeau_inductor.devices import Device, Kernels, Language, Reduced
from flambeau_runtime import accelerators, languages

PLACE = torch.device("privateuseone", 0)
#: Every reduction over at least so many elements is split in this many parts.
ENOUGH, PARTS = 2048, 3

_LANGUAGE = Language("slate")
_COMMENT = "// the dialect of slate\n"


def _support(kernels: Sequence[GeneratedKernel]) -> str:
    return _COMMENT + cpp.support(kernels)


def _parts(place: torch.device, reduced: Reduced) -> int:
    return PARTS if reduced.work >= ENOUGH else 1


SLATE = Device(
    type="privateuseone",
    language=lambda config: _LANGUAGE,
    enabled=lambda config: True,
    dtypes=frozenset({torch.float32, torch.int64, torch.bool}),
    parts=_parts,
    kernels=Kernels(in_order=True, scatters_in_order=True),
)

_ACCELERATOR = accelerators.Accelerator(
    type="privateuseone",
    is_available=lambda: False,
    start=lambda: None,
    current=lambda: 0,
    synchronize=lambda: None,
    identity=lambda: "slate",
)


@contextmanager
def slate_is_known() -> Iterator[None]:
    """The registrations."""
    with ExitStack() as stack:
        stack.enter_context(devices.registered(SLATE))
        stack.enter_context(registered_language(_LANGUAGE, Writer(cpp.FLAGS, _support, cpp.generate)))
        stack.enter_context(accelerators.registered(_ACCELERATOR))
        stack.enter_context(languages.registered(languages.Language(name=_LANGUAGE.name)))
        yield
