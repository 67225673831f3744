"""Operators, truth, identity, iteration, folding: Python's generic operations on values.

In: values. Out: values; constants are computed for real, tensors and symbols become graph nodes, user classes answer through their
special methods.
"""

from __future__ import annotations

import enum
from operator import neg as negative
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import objects_have
from ..constant_objects import MADE_ANEW, ONE_OF_EACH, is_nan
from ..library import collections, operator
from ..numpy_classes import SCALARS
from ..signals import GraphBreak, TracedRaise
from ..values.base import MISSING, Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import MethodValue
from ..values.keys import assume_members
from ..values.mappings import DictValue, DictView
from ..values.ndarrays import operated
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, SequenceValue, SliceValue, TupleValue
from ..values.sets import SetValue, set_of
from ..values.subclasses import SubclassValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from . import enum_members, native_slots
from .comparisons import compares_natively, family
from .conversions import as_truth
from .folding import fits_an_index
from .known_numbers import compared
from .part import Part
from .subclass_operators import operate
from .wrapping import NotConstant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv, "%": operator.imod,
    "**": operator.ipow, "@": operator.imatmul, "&": operator.iand, "|": operator.ior, "^": operator.ixor, "<<": operator.ilshift, ">>": operator.irshift,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
_SPECIAL = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul", "&": "and", "|": "or",
    "^": "xor", "<<": "lshift", ">>": "rshift", "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
_REFLECTED = {symbol: _SPECIAL[turned] for symbol, turned in _TURNED.items()}
_UNARY_SPECIAL = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
_SET_METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
_NUMBERS = (int, float, complex)
_TAKEN: dict[type, tuple[type, ...]] = {
    int: (int,), float: (int, float), complex: _NUMBERS, set: (set, frozenset), frozenset: (set, frozenset), str: (str,), bytes: (bytes,),
    list: (list,), tuple: (tuple,), dict: (dict,),
}  # fmt: skip
"""What these take as operands: objects of such classes have no say themselves, unless theirs is the subclass."""
_OF_NUMBERS, _OF_INTEGERS = ("+", "-", "*", "/", "//", "%", "**"), ("&", "|", "^", "<<", ">>")
_SYMBOLIC = (TensorValue, SymbolicValue)
_TOLD_APART = (tuple, torch.Size, frozenset, slice, range, enum.Enum)
"""Classes of constants of which Python makes another object each time, or whose `__eq__` may be the program's."""

_SMALL = ((">=", ONE_OF_EACH.start), ("<=", ONE_OF_EACH[-1]))
"""Between which integers CPython has one object of each."""


def _class_of(symbol: str, *operands: Any) -> type:
    """`tuple` or `torch.Size`: what Python makes of operands of these classes, which depends on torch's version."""
    empty = [
        (torch.Size() if part.cls is torch.Size else ()) if isinstance(part, TupleValue) else part for part in operands
    ]
    return type(BINARY[symbol](*empty))


def _methods(symbol: str, *, inplace: bool = False) -> tuple[str, str, str | None]:
    """The special methods of an operator: of the left operand, of the right one, and the one in place."""
    name = _SPECIAL[symbol]
    reflected = f"__{_REFLECTED[symbol]}__" if symbol in _REFLECTED else f"__r{name}__"
    return f"__{name}__", reflected, f"__i{name}__" if inplace else None


def _may_decide(value: Value) -> bool:
    """Whether the class of an operand may have special methods that a program wrote."""
    return isinstance(value, ObjectValue) or enum_members.is_member(value)


def _takes_natively(symbol: str, owner: Value, other: Value) -> bool:
    """Whether the native method that an operand's class has computes with any object of the other's class."""
    if enum_members.is_member(owner):
        return False
    kind, other_kind = owner.python_type(), other.python_type()
    if isinstance(owner, TensorValue):
        return issubclass(other_kind, _NUMBERS)
    base = next((known for known in _TAKEN if issubclass(kind, known)), None)
    if symbol == "%" and base in (str, bytes):
        return True
    if base is None or not issubclass(other_kind, _TAKEN[base]):
        return False
    if symbol in _TURNED:
        return symbol in ("==", "!=") or base not in (complex, dict)
    if base in _NUMBERS:
        return symbol in _OF_NUMBERS or (base is int and symbol in _OF_INTEGERS)
    return symbol in _SET_METHODS if base in (set, frozenset) else base is dict and symbol == "|"


class Operators(Part):
    """Python's generic operations."""

    def index_or_slice(self, key: Value) -> Any:
        """The real index of a Python sequence."""
        if isinstance(key, SliceValue):
            return slice(*(self.t.folder.concrete(part) for part in key.parts))
        if isinstance(key, ObjectValue) and key.special(self.t, "__index__") is not None:
            return self.t.folder.integer(key)
        found = self.t.folder.concrete(key)
        return fits_an_index(found) if isinstance(found, int) else found

    def make_slice(self, parts: Sequence[Value]) -> Value:
        """`slice(...)`."""
        none = ConstantValue(None)
        start, stop, step = (*parts, none)[:3] if len(parts) > 1 else (none, *parts, none)
        full = (start, stop, step)
        if all(part.is_constant() for part in full):
            return ConstantValue(slice(*(part.constant() for part in full)))
        return SliceValue(full)

    # truth and identity

    def negate(self, value: Value) -> Value:
        """`not value`."""
        truth = as_truth(self.t, value)
        if truth is not None:
            return self.t.arithmetic.symbolic(torch.sym_not, [truth])
        return ConstantValue(not value.truth(self.t))

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`."""
        if left is right:
            return True
        left, right = self.t.recorder.decided(left), self.t.recorder.decided(right)
        if isinstance(left, SymbolicValue) or isinstance(right, SymbolicValue):
            return self._one_number(left, right)
        if left.is_constant() and right.is_constant():
            a, b = left.constant(), right.constant()
            if type(a) in MADE_ANEW and left.source is not None and right.source is not None:
                # What they are is guarded; which of them are one object is another matter.
                (self.t.guards.alias if a is b else self.t.guards.distinct)(left.source, right.source)
                return a is b
            if type(a) is not type(b) or isinstance(a, _TOLD_APART) or type(a) in SCALARS or a != b:
                return a is b
            return type(a) not in (int, float, complex) or self._one_number(left, right)
        one = self.t.wrapper.numbers.one_tuple(left, right)
        if one is not None:
            return one
        real = left.real()
        same = real is not MISSING and real is right.real()
        if not same and left.source is not None and right.source is not None:
            self.t.guards.distinct(left.source, right.source)
        return same

    def _one_number(self, left: Value, right: Value) -> bool:
        """`left is right` of numbers of which one is symbolic, or that are equal constants. Python has one object of each small integer; others
        are as many as were made, which a guard on their value does not tell."""
        kind = left.python_type()
        if kind is not right.python_type() or not self.compare("==", left, right).truth(self.t):
            return False
        if kind is bool:
            return True
        if kind is int and all(self.compare(sign, left, ConstantValue(end)).truth(self.t) for sign, end in _SMALL):
            return True
        if left.is_constant() and right.is_constant() and left.source is right.source:
            return left.source is not None or left.constant() is right.constant()
        raise GraphBreak("unsupported-operation", "whether two equal numbers are one object")

    def same_or_equal(self, left: Value, right: Value) -> bool:
        """What containers compare with: `left is right or left == right`."""
        left, right = left.realise(self.t), right.realise(self.t)
        if isinstance(left, SymbolicValue) or isinstance(right, SymbolicValue):
            one = left is right
        elif left.is_constant() and right.is_constant():
            constant = left.constant()
            one = self.identical(left, right) if is_nan(constant) else constant is right.constant()
        else:
            one = self.identical(left, right)
        return one or self.compare("==", left, right).truth(self.t)

    # operators

    def unary(self, symbol: str, value: Value) -> Value:
        """`-value`, `+value`, `~value`."""
        if isinstance(value, SubclassValue) and value.special(self.t, _UNARY_SPECIAL[symbol]) is not None:
            return value.do(self.t, _UNARY_SPECIAL[symbol])
        if isinstance(value, (TensorValue, SubclassValue)):
            return self.t.recorder.record("call_function", UNARY[symbol], [value], {})
        if (found := operated(self.t, symbol, [value])) is not None:
            return found
        if isinstance(value, SymbolicValue):
            if symbol == "~" and value.python_type() is int:
                return self.binary("-", self.t.arithmetic.symbolic(negative, [value]), ConstantValue(1))
            return self.t.arithmetic.symbolic(UNARY[symbol], [value])
        special = self._special(value, _UNARY_SPECIAL[symbol])
        if special is not None:
            return self.t.caller.call(special, [], {})
        return self.t.folder.fold(UNARY[symbol], [value], {})

    def binary(self, symbol: str, left: Value, right: Value) -> Value:
        """`left symbol right`; `symbol` may be an in-place one."""
        inplace = symbol.endswith("=")
        plain = symbol[:-1] if inplace else symbol
        function = INPLACE[plain] if inplace else BINARY[plain]
        if isinstance(left, SubclassValue) or isinstance(right, SubclassValue):
            return operate(self.t, function, _methods(plain, inplace=inplace), left, right)
        if _may_decide(left) or _may_decide(right):
            found = self._special_binary(plain, left, right, inplace=inplace)
            if found is not None:
                return found
        self._refuse_class(symbol, left, right)
        if (found := operated(self.t, symbol, [left, right])) is not None:
            return found
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            if not inplace or not isinstance(left, TensorValue) or plain == "@":
                function = BINARY[plain]  # no tensor has a `@=` of its own
            return self.t.recorder.record("call_function", function, [left, right], {})
        given = (left, right)
        for value in given if symbol == "|" else ():
            if isinstance(value, ObjectValue):
                value.refuse_remaking()
        left, right = self._storage(left), self._storage(right)
        whole_left, whole_right = given[0] is left, given[1] is right
        asks = plain == "%" and not (whole_left and (whole_right or left.python_type() not in (str, bytes)))
        if asks or (symbol == "*=" and not whole_left and not isinstance(left, SequenceValue)):
            raise GraphBreak("unsupported-operation", f"{given[0].describe()} {symbol} {given[1].describe()}")
        try:
            takes = (isinstance(left, ListValue) and inplace) or isinstance(left, (DictValue, DictView))
            # These ask the other operand for its contents, by the methods of its class.
            whole = given[1] if plain in "+|&-^" and takes else right
            found = self._plain_binary(plain, left, right, inplace=inplace, whole=whole)
            for value in given:  # an operator in place gives the object, not what it holds
                found = value.as_outside(found) if isinstance(value, ObjectValue) else found
            return found
        except TracedRaise as error:
            if given != (left, right) and issubclass(error.value.python_type(), TypeError):
                # The words name the classes of the operands, and these are those of what they hold.
                raise GraphBreak(
                    "unsupported-operation", f"{given[0].describe()} {symbol} {given[1].describe()}"
                ) from None
            raise

    def _plain_binary(self, plain: str, left: Value, right: Value, *, inplace: bool, whole: Value) -> Value:
        """An operator on containers, symbols and constants; `whole` is the object that may hold the right one."""
        if isinstance(left, (SequenceValue, SetValue, DictValue, DictView)) or (
            isinstance(right, SequenceValue) and plain == "*"
        ):
            return self._container_binary(plain, left, right, inplace=inplace, whole=whole)
        if isinstance(left, SymbolicValue) or isinstance(right, SymbolicValue):
            if plain == "%" and left.is_constant() and isinstance(left.constant(), str):
                return self.t.folder.fold(
                    BINARY[plain], [left, self.t.wrapper.from_python(self.t.folder.concrete(right))], {}
                )
            if any(issubclass(value.python_type(), enum.Flag) for value in (left, right)):
                # What it makes of a number is a member again.
                return self.t.folder.fold(
                    BINARY[plain],
                    [self.t.wrapper.from_python(self.t.folder.concrete(value)) for value in (left, right)],
                    {},
                )
            return self.t.arithmetic.symbolic(BINARY[plain], [left, right])
        if (
            plain == "%"
            and left.is_constant()
            and isinstance(left.constant(), str)
            and not self.t.wrapper.is_foldable(right)
        ):
            raise GraphBreak("unsupported-operation", "a string is formatted with values that are not constants")
        if isinstance(right, TupleValue) and left.is_constant() and isinstance(left.constant(), tuple):
            return self._container_binary(
                plain,
                self.t.wrapper.sequence([self.t.wrapper.from_python(i) for i in left.constant()], left.python_type()),
                right,
                inplace=inplace,
                whole=whole,
            )
        return self.t.folder.fold((INPLACE if inplace else BINARY)[plain], [left, right], {})

    def _refuse_class(self, symbol: str, left: Value, right: Value) -> None:
        """What a class does as an operand beside a tensor or a symbol, its metaclass decides."""
        for value, other in ((left, right), (right, left)):
            if not isinstance(value, ClassValue) or type(value.object) is type:
                continue
            if isinstance(other, TensorValue | SymbolicValue):
                raise GraphBreak("unsupported-operation", f"{left.describe()} {symbol} {right.describe()}")

    def _storage(self, value: Value) -> Value:
        if isinstance(value, ObjectValue) and value.storage is not None:
            return value.storage
        return value

    def _special(self, value: Value, name: str) -> Value | None:
        """The special method that a program wrote for an object or for a member of an enum, bound to it."""
        if isinstance(value, ObjectValue):
            return value.special(self.t, name)
        return enum_members.special(self.t, value, name) if enum_members.is_member(value) else None

    def _special_binary(self, symbol: str, left: Value, right: Value, *, inplace: bool) -> Value | None:
        forward, reflected, in_place = _methods(symbol, inplace=inplace)
        tries: list[tuple[Value, str, Value]] = []
        if in_place is not None:
            tries.append((left, in_place, right))
        pair = [(left, forward, right), (right, reflected, left)]
        kind, other_kind = left.python_type(), right.python_type()
        if kind is other_kind and symbol not in _REFLECTED:
            pair.pop()  # what one class cannot do it is not asked twice
        elif kind is not other_kind and issubclass(other_kind, kind):
            # A subclass is asked first: about comparisons always, about numbers where it has a method of its own.
            own, inherited = (self.t.members.class_member(cls, reflected)[0] for cls in (other_kind, kind))
            if symbol in _REFLECTED or (own is not MISSING and own is not inherited):
                pair.reverse()
        declined = False
        for owner, method, other in tries + pair:
            bound = self._special(owner, method)
            # `object.__ne__` asks for `__eq__`.
            turned = (
                bound is None
                and method == "__ne__"
                and self.t.members.class_member(owner.python_type(), method)[1] is object
            )
            bound = self._special(owner, "__eq__") if turned else bound
            if bound is None:
                if objects_have(owner.python_type(), method) and _takes_natively(symbol, owner, other):
                    break
                continue
            result = self.t.caller.call(bound, [other], {})
            if not (result.is_constant() and result.constant() is NotImplemented):
                return self.negate(result) if turned else result
            declined = True
        if declined and any(self._storage(value) is not value for value in (left, right)):
            # What is left to do is the native method's that the declining one stands for, or nothing.
            raise GraphBreak("unsupported-operation", f"{left.describe()} {symbol} {right.describe()}, which declined")
        return None

    def _container_binary(self, symbol: str, left: Value, right: Value, *, inplace: bool, whole: Value) -> Value:
        found = None
        if symbol == "*":
            found = self._repeated(left, right, inplace=inplace)
        elif symbol == "+" and isinstance(left, ListValue):
            if inplace:
                left.m_extend(self.t, whole)
                return left
            if isinstance(right, ListValue) and left.cls is right.cls:
                found = left.with_items(left.items + right.items)
        elif symbol == "+" and isinstance(left, TupleValue) and issubclass(right.python_type(), tuple):
            items = list(self.iterate_all(right))
            cls = _class_of(symbol, left, TupleValue(items, right.python_type()))
            alone = left if not items else right
            if not (left.items and items) and alone.python_type() is cls is tuple:
                return alone
            found = TupleValue(left.items + items, cls)
        elif symbol == "|" and isinstance(left, DictValue):
            if (inplace and not left.is_proxy()) or (
                isinstance(right, DictValue) and left.cls is right.cls and not left.is_proxy()
            ):
                target = left if inplace else left.m_copy(self.t)
                assert isinstance(target, DictValue)
                target.m_update(self.t, whole)
                return target
        elif symbol in _SET_METHODS:
            found = self._set_binary(symbol, left, whole, inplace=inplace)
        return (
            self.t.folder.fold((INPLACE if inplace else BINARY)[symbol], [left, right], {}) if found is None else found
        )

    def _repeated(self, left: Value, right: Value, *, inplace: bool) -> Value | None:
        """`sequence * count`, None where it is something else."""
        sequence, count = (left, right) if isinstance(left, SequenceValue) else (right, left)
        if not isinstance(sequence, SequenceValue) or isinstance(count, SequenceValue):
            return None
        if not issubclass(count.python_type(), int):
            return None
        times = int(self.t.folder.concrete(count))
        if len(sequence.items) * times > self.t.config.unroll_limit:
            raise GraphBreak("too-long", "a sequence longer than the unroll limit")
        if inplace and left is sequence and isinstance(sequence, ListValue):
            sequence.changed(self.t)
            sequence.items *= times
            sequence.trim()
            return sequence
        if isinstance(sequence, ListValue):
            return sequence.with_items(sequence.items * times)
        assert isinstance(sequence, TupleValue)
        cls = _class_of("*", sequence, times)
        return sequence if times == 1 and sequence.cls is cls is tuple else TupleValue(sequence.items * times, cls)

    def _set_binary(self, symbol: str, left: Value, right: Value, *, inplace: bool) -> Value | None:
        """`left | right` and the like of sets and of views, None where it is something else."""
        is_view = isinstance(left, DictView) and left.kind != "values"
        if not is_view and not (isinstance(left, SetValue) and issubclass(right.python_type(), (set, frozenset))):
            return None
        if inplace and isinstance(left, SetValue) and left.cls is set:
            name = "update" if symbol == "|" else f"{_SET_METHODS[symbol]}_update"
            left.call_method(self.t, name, [right], {})
            return left
        if is_view and symbol != "&":  # as CPython: a set of the view is made, and changed
            return self._set_binary(symbol, set_of(self.t, left), right, inplace=True)
        first = left if isinstance(left, SetValue) else set_of(self.t, left)
        return first.call_method(self.t, _SET_METHODS[symbol], [right], {})

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        """`left symbol right`."""
        if isinstance(left, SubclassValue) or isinstance(right, SubclassValue):
            return operate(self.t, COMPARE[symbol], _methods(symbol), left, right)
        if _may_decide(left) or _may_decide(right):
            found = self._special_binary(symbol, left, right, inplace=False)
            if found is not None:
                return found
        self._refuse_class(symbol, left, right)
        if (found := operated(self.t, symbol, [left, right])) is not None:
            return found
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            other = self._storage(right if isinstance(left, TensorValue) else left)
            if (
                symbol in ("==", "!=")
                and not isinstance(other, _SYMBOLIC)
                and not (other.is_constant() and isinstance(other.constant(), (*_NUMBERS, *SCALARS)))
            ):
                if compares_natively(other):
                    raise GraphBreak(
                        "unsupported-operation", f"comparing {left.describe()} {symbol} {right.describe()}"
                    )
                return ConstantValue(symbol == "!=")
            if issubclass(right.python_type(), left.python_type()) and right.python_type() is not left.python_type():
                # Python asks an operand of a subclass first, and strides of the result come of the first operand.
                symbol, left, right = _TURNED[symbol], right, left
            return compared(self.t, COMPARE[symbol], left, right)
        given = (left, right)
        left, right = self._storage(left), self._storage(right)
        if isinstance(left, SymbolicValue) or isinstance(right, SymbolicValue):
            other = right if isinstance(left, SymbolicValue) else left
            if other.is_constant() and isinstance(other.constant(), complex):
                return self.t.folder.fold(
                    COMPARE[symbol],
                    [self.t.wrapper.from_python(self.t.folder.concrete(part)) for part in (left, right)],
                    {},
                )
            if not isinstance(other, SymbolicValue) and not (
                other.is_constant() and isinstance(other.constant(), (int, float, bool))
            ):
                if symbol in ("==", "!=") and not compares_natively(other):
                    return ConstantValue(symbol == "!=")
                raise GraphBreak("unsupported-operation", f"comparing {left.describe()} {symbol} {right.describe()}")
            return self.t.arithmetic.symbolic(COMPARE[symbol], [left, right])
        try:
            if self.t.wrapper.is_foldable(left) and self.t.wrapper.is_foldable(right):
                return self.t.folder.fold(COMPARE[symbol], [left, right], {})
            return self._compare_containers(symbol, left, right)
        except TracedRaise:
            if given == (left, right):
                raise
            # The words name the classes of the operands, and these are those of what they hold.
            raise GraphBreak("unsupported-operation", f"{given[0].describe()} {symbol} {given[1].describe()}") from None

    def _compare_containers(self, symbol: str, left: Value, right: Value) -> Value:
        if (told := native_slots.compared(self.t, COMPARE[symbol], _methods(symbol), left, right)) is not None:
            return told
        if left.python_type() is slice and right.python_type() is slice:
            left, right = (self.t.wrapper.sequence(self._bounds(value), tuple) for value in (left, right))
        if any(isinstance(value, DictView) for value in (left, right)):
            left, right = (self._view_as_set(value) for value in (left, right))
        a, b = (self._as_sequence(left), self._as_sequence(right))
        if a is not None and b is not None and family(left) is family(right):
            for x, y in zip(a, b, strict=False):
                if not self.same_or_equal(x, y):
                    return ConstantValue(symbol == "!=") if symbol in ("==", "!=") else self.compare(symbol, x, y)
            return ConstantValue(COMPARE[symbol](len(a), len(b)))
        if isinstance(left, SetValue) and isinstance(right, SetValue):
            assume_members(self.t, left.items, right.items)
            return ConstantValue(COMPARE[symbol](left.items.keys(), right.items.keys()))
        if symbol in ("==", "!="):
            if isinstance(left, DictValue) and isinstance(right, DictValue):
                left.guard_all(self.t)
                right.guard_all(self.t)
                keys = ({hashed: key for hashed, (key, _) in value.items.items()} for value in (left, right))
                assume_members(self.t, *keys)
                equal = left.items.keys() == right.items.keys() and all(
                    self.same_or_equal(left.items[k][1], right.items[k][1]) for k in left.items
                )
                if issubclass(left.cls, collections.OrderedDict) and issubclass(right.cls, collections.OrderedDict):
                    equal = equal and list(left.items) == list(right.items)
            elif isinstance(left, SequenceValue) and isinstance(right, SequenceValue):
                equal = False
            elif isinstance(left, MethodValue) and isinstance(right, MethodValue):
                equal = self.identical(left.function, right.function) and self.identical(
                    left.owner.realise(self.t), right.owner.realise(self.t)
                )
            elif compares_natively(left) or compares_natively(right):
                raise GraphBreak("unsupported-operation", f"comparing {left.describe()} {symbol} {right.describe()}")
            else:
                equal = self.identical(left, right)
            return ConstantValue(equal == (symbol == "=="))
        raise GraphBreak("unsupported-operation", f"comparing {left.describe()} {symbol} {right.describe()}")

    def _view_as_set(self, value: Value) -> Value:
        """The keys of a dict compare as a set; its items need no hash for that, so they are left to Python."""
        if not isinstance(value, DictView) or value.kind == "values":
            return value
        if value.kind == "items":
            raise GraphBreak("unsupported-operation", f"comparing {value.describe()}")
        return set_of(self.t, value)

    def _bounds(self, value: Value) -> list[Value]:
        return [self.t.attributes.get_attribute(value, part).realise(self.t) for part in ("start", "stop", "step")]

    def _as_sequence(self, value: Value) -> list[Value] | None:
        if isinstance(value, SequenceValue):
            return [item.realise(self.t) for item in value.items]
        if isinstance(value, ConstantValue) and isinstance(value.value, tuple):
            return value.parts(self.t)
        return None

    def iterate_all(self, value: Value, limit: int | None = None) -> Iterator[Value]:
        """Every element, none lazy; at most `limit`."""
        return self._drain(value.realise(self.t).iterate(self.t), limit)

    def iterate_for_a_list(self, value: Value) -> Iterator[Value]:
        """Every element for a list or a tuple: how many there are is asked first."""
        iterator = value.realise(self.t).iterate(self.t)
        try:
            value.realise(self.t).how_many(self.t)
        except TracedRaise as error:
            if not issubclass(error.value.python_type(), TypeError):
                raise
        yield from self._drain(iterator, None)

    def collect(self, value: Value) -> list[Value]:
        """The elements for a list or a tuple that is made."""
        return list(self.iterate_for_a_list(value))

    def _drain(self, iterator: Value, limit: int | None) -> Iterator[Value]:
        count = 0
        while limit is None or count < limit:
            item = iterator.next(self.t)
            if item is None:
                return
            yield item.realise(self.t)
            count += 1
            if count > self.t.config.unroll_limit:
                raise GraphBreak("too-long", "an iterator longer than the unroll limit")

    def mapping_items(self, mapping: Value) -> Iterator[tuple[Value, Value]]:
        """Keys and values of a mapping or of an iterable of pairs, each asked for when it is wanted."""
        mapping = mapping.realise(self.t)
        if (
            isinstance(mapping, ObjectValue)
            and isinstance(mapping.storage, DictValue)
            and mapping.special(self.t, "keys" if mapping.storage.cls is collections.OrderedDict else "__iter__")
            is None
        ):
            mapping = mapping.storage
        if isinstance(mapping, DictValue):
            yield from zip(mapping.keys(self.t), mapping.values(self.t), strict=True)
            return
        if isinstance(mapping, ObjectValue) and objects_have(mapping.cls, "keys"):
            for key in self.iterate_all(self.t.caller.call(self.t.attributes.get_attribute(mapping, "keys"), [], {})):
                yield key, mapping.get_item(self.t, key)
            return
        for pair in self.iterate_all(mapping):
            parts = list(self.iterate_all(pair)) if objects_have(pair.python_type(), "__iter__") else []
            if len(parts) != 2:
                raise GraphBreak("unsupported-operation", "a dict is made of something else than pairs")
            yield parts[0], parts[1]

    def sort(self, items: Sequence[Value], key: Value | None, reverse: bool) -> list[Value]:
        """`sorted`, by constant keys."""
        if key is not None and not (key.is_constant() and key.constant() is None):
            keys = [self.t.caller.call(key, [item], {}) for item in items]
        else:
            keys = list(items)
        try:
            real = [self.t.wrapper.to_python(k) for k in keys]
            enum_members.hold_methods(self.t, operator.lt, real)
            order = sorted(range(len(items)), key=real.__getitem__, reverse=reverse)
        except NotConstant as error:
            raise GraphBreak("unsupported-operation", f"sorting by {error}") from None
        except TypeError as error:
            raise self.t.exceptions.raised(error) from None
        return [items[i] for i in order]
