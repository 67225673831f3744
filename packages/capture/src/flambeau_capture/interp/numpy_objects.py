"""NumPy's objects that existed before the frame, as values.

In: the object and its source. Out: an array in whose memory the graph gets a tensor (`ArrayValue`), a function, what tells of a dtype, or an object that is passed on
and not looked into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..numpy_classes import ARRAY, FACTS, FUNCTIONS, as_tensor
from ..sources.source import Computed
from ..values.builtins import BuiltinValue
from ..values.ndarrays import ArrayValue
from ..values.objects import OpaqueValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from ..sources.source import Source
    from ..values.base import Tracer, Value


def wrap_numpy(t: Tracer, obj: Any, source: Source) -> Value:
    """A value for an object whose class is NumPy's, guarded."""
    kind = type(obj)
    if kind in FUNCTIONS or kind in FACTS:
        t.guards.identity(source, obj)
        return BuiltinValue(obj, source)
    t.guards.type_is(source, kind)
    if kind is not ARRAY:
        return OpaqueValue(obj, source, "numpy")
    try:
        tensor = as_tensor(obj)
    except (TypeError, ValueError):
        return OpaqueValue(obj, source, "numpy")
    made = t.wrapper.wrap(tensor, Computed(source, as_tensor, f"as_tensor({source.name})"))
    assert isinstance(made, TensorValue)
    return ArrayValue(made, source=source)
