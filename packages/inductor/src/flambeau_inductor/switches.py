"""Which stages, passes and rules are left out of a compilation, to find the one at fault.

In: the text of the option ``disabled_passes``: names, separated by commas, each alone (never used) or as ``name>n`` (used ``n`` times in a
graph, and no more). Out: how often each may be used. ``pipeline.switches`` lists the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

from .errors import OptionError

#: Stages of ``pipeline.py`` that can be left out, each with what happens then.
STAGES: Mapping[str, str] = MappingProxyType(
    {
        "lowering": "calls of the graph, in order, are the library's",
        "splitting": "each reduction is one kernel",
        "fusion": "each operation is a kernel of its own",
        "generated_products": "the library computes matrix products",
        "memory": "every result has memory of its own",
        "combining": "each kernel is a launch of its own",
        "launches": "kernels are launched as the model of cost says",
    }
)


@cache
def limits(text: str) -> Mapping[str, int]:
    """Name -> how many uses are allowed. Raises OptionError for a number that is none."""
    found: dict[str, int] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, more, count = word.partition(">")
        if more and not count.strip().isdecimal():
            raise OptionError(
                f"disabled_passes has {word!r}: a number is expected behind >", hint="as in channels_last>2"
            )
        found[name.strip()] = int(count) if more else 0
    return MappingProxyType(found)


def check(text: str, known: Iterable[str]) -> None:
    """Raises OptionError for a name that does not exist."""
    names = set(known)
    for name in limits(text):
        if name not in names:
            raise OptionError(
                f"disabled_passes: there is no stage, pass or rule {name!r}",
                hint=f"there are: {', '.join(sorted(names))}",
            )
