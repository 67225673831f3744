"""What torch hands to `__torch_function__` for a call.

In: an operation as the recorder gets it, with values for arguments. Out: the function, classes and arguments that torch hands on, as values, or None
where it asks nobody. Torch itself says so: the operation is called with stand-ins in the place of tensors, under a mode that notes what it is handed
and ends the call there. So which function it is, in which order the classes are asked and where arguments stand is as torch has it.
"""

from __future__ import annotations

import types
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from torch.overrides import TorchFunctionMode

from ..graph.quiet import no_warnings
from ..signals import GraphBreak
from ..sources.source import Pinned
from ..values.base import MISSING, Value
from ..values.builtins import RealValue
from ..values.constants import plain
from ..values.functions import FunctionValue
from ..values.mappings import DictValue
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, SliceValue, TupleValue
from ..values.subclasses import NO_KEYWORDS, AccessorValue, SubclassValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..values.base import Tracer

_UNKNOWN_SIZE = 2


@frozen(eq=False)
class HandedOn:
    """What `__torch_function__` is called with.

    Attributes:
        given: function, classes, positional arguments and, where torch passes them, keyword arguments.
        owners: for each of the classes the first argument of that class, whose `__torch_function__` is asked.
        name: what the function is called in messages.
    """

    given: tuple[Value, ...]
    owners: tuple[Value, ...]
    name: str


class _Noted(BaseException):
    """Ends the call that is looked at."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        super().__init__()
        self.given = given


class _Listener(TorchFunctionMode):
    def __torch_function__(self, *given: Any) -> Any:
        raise _Noted(given)


class _StandIns:
    """Real objects for values, and the values of those again."""

    def __init__(self, t: Tracer) -> None:
        self._t = t
        self._values: dict[int, Value] = {}
        self._kept: list[Any] = []
        self.tensors: list[SubclassValue | TensorValue] = []

    def of(self, value: Value) -> Any:
        """The object to call torch with."""
        value = value.realise(self._t)
        made = self._make(value)
        if id(made) not in self._values:
            self._values[id(made)] = value
            self._kept.append(made)
        return made

    def _make(self, value: Value) -> Any:
        if isinstance(value, (SubclassValue, TensorValue)):
            self.tensors.append(value)
            made = _empty_like(value.plain.fake if isinstance(value, SubclassValue) else value.fake)
            cls: Any = value.python_type()
            with torch._C.DisableTorchFunction():
                return made if cls is torch.Tensor else torch.Tensor._make_subclass(cls, made, made.requires_grad)
        if isinstance(value, SymbolicValue):
            return value.symbol
        if value.is_constant():
            return plain(value.constant())
        if isinstance(value, ListValue) and value.cls is list:
            return [self.of(item) for item in value.items]
        if isinstance(value, TupleValue):
            return tuple.__new__(value.cls if value.cls is not torch.Size else tuple, [self.of(i) for i in value.items])
        if isinstance(value, DictValue) and value.cls is dict:
            return {key: self.of(item) for key, (_, item) in value.items.items()}
        if isinstance(value, SliceValue):
            return slice(*(self.of(part) for part in value.parts))
        real = value.real()
        if not isinstance(value, (RealValue, FunctionValue)) or isinstance(value, ObjectValue) or real is MISSING:
            raise GraphBreak("unsupported-argument", f"{value.describe()} is an argument of a tensor operation")
        return real

    def back(self, made: Any) -> Value:
        """The value of an object that torch handed on."""
        known = self._values.get(id(made))
        if known is not None:
            return known
        if type(made) in (list, tuple):
            return self._t.wrapper.sequence([self.back(part) for part in made], type(made))
        if type(made) is dict:
            return self._t.wrapper.new_dict({name: self.back(part) for name, part in made.items()})
        if isinstance(made, torch.Tensor):
            raise GraphBreak("unsupported-call", "a function of torch that hands on a tensor which it made")
        if isinstance(made, types.MethodWrapperType):  # a new object at every look
            return AccessorValue(made, Pinned(made))
        return self._t.wrapper.from_python(made)


def _empty_like(fake: torch.Tensor) -> torch.Tensor:
    """A tensor with no memory of the same dtype and, where they are known, sizes: which call it is may depend on those."""
    sizes = [size if isinstance(size, int) else _UNKNOWN_SIZE for size in fake.shape]
    return torch.empty(sizes, dtype=fake.dtype, device="meta", requires_grad=fake.requires_grad)


def handed_on(
    t: Tracer,
    function: Callable[..., Any],
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    *,
    subclasses: bool,
) -> HandedOn | None:
    """See the module; `subclasses`: whether classes of tensors are asked, or modes alone."""
    stand_ins = _StandIns(t)
    disabled = nullcontext() if subclasses else torch._C.DisableTorchFunctionSubclass()
    enabled = torch.is_grad_enabled()
    with t.graph.unpatched, no_warnings():
        real = [stand_ins.of(value) for value in args]
        named = {name: stand_ins.of(value) for name, value in kwargs.items()}
        try:
            with disabled, _Listener():
                function(*real, **named) if named or kwargs is NO_KEYWORDS else function(*real)
            return None
        except _Noted as noted:
            given = noted.given
        except Exception as error:
            name = getattr(function, "__name__", function)
            raise GraphBreak("operator-error", f"{name} raised {type(error).__name__}: {error}") from None
        finally:
            torch._C._set_grad_enabled(enabled)
    target, classes, *rest = given
    owners = (next(value for value in stand_ins.tensors if value.python_type() is cls) for cls in classes)
    values = (stand_ins.back(target), t.wrapper.from_python(classes), *map(stand_ins.back, rest))
    return HandedOn(values, tuple(owners), getattr(target, "__name__", str(target)))


def read_attribute(name: str) -> Callable[[Any], Any]:
    """The reading of an attribute as a function of the tensor."""
    return lambda tensor: getattr(tensor, name)
