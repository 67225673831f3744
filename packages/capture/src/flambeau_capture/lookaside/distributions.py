"""`torch.distributions`: parameters that are computed from each other when they are first read.

In: a class of distributions that is asked for such a parameter. Out: a property that stands for it, which `Distribution.__init__` looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributions.utils import lazy_property

from ..replacements import replaces
from ..sources.source import Pinned
from ..values.base import Value
from ..values.functions import FunctionValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_GET: Any = lazy_property.__get__


@replaces(_GET)
def get_lazy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`lazy_property.__get__`: of an object the function itself; of the class, a new property at every look, of which one does for all."""
    owned = len(args) > 1 and not (args[1].is_constant() and args[1].constant() is None)
    if owned or kwargs or args[0].real().__class__ is not lazy_property:
        return t.caller.inline_function(FunctionValue(_GET, Pinned(_GET)), _GET, args, kwargs)
    return t.wrapper.wrap_pinned(_GET(args[0].real(), None))
