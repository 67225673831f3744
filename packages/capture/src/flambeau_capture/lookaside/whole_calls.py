"""Calls of functions that are one node of the graph, whatever they do inside: what they take is taken apart, what they give is put together.

In: a function and what it is called with, as values: tensors and numbers, constants, modules, functions, and in containers and classes that torch's pytrees know.
Out: `Given`, which makes the call's arguments of the tensors that a node is handed, and `Results`, which remembers how what the call gave is made of tensors.
`nonstrict_trace` is here: its function runs on fakes while tracing, is taken apart by what differentiates the graph, and is called by a backend that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..class_names import name_of, type_name
from ..constant_objects import is_constant_object
from ..graph.nodes import SYMBOLS
from ..interp.wrapping import NotConstant
from ..library import collections, contextlib, threading, weakref
from ..replacements import call_nonstrict, replaces
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.functions import FunctionValue
from ..values.mappings import DictValue
from ..values.sequences import ListValue, TupleValue, is_plain_named
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Make = Callable[["_Making"], Any]

_DICTS = (dict, collections.OrderedDict)
_SWAPS = threading.RLock()
"""Held while modules have other tensors than their own: of two threads, the second would take those of the first for the module's own. What uses a module
without being such a call sees them: so that they are few, compiled code hands on parameters themselves (`leaf_calls.py`)."""


class _Making:
    """Real objects in the making: the tensors that are left, and the modules whose own are replaced meanwhile."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = iter(tensors)
        self.modules: list[tuple[torch.nn.Module, dict[str, torch.Tensor]]] = []


class Given:
    """The arguments of a call. `leaves` are the tensors and numbers among them, in order; symbolic numbers of other types than `numbers` are constants."""

    def __init__(
        self,
        t: Tracer,
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
        numbers: tuple[type, ...] = (int, float, bool),
    ) -> None:
        self.leaves: list[Value] = []
        self._numbers = numbers
        self._t = t
        args_made = [self._take(value) for value in args]
        kwargs_made = {name: self._take(value) for name, value in kwargs.items()}
        del self._t  # what follows runs with the graph, and long after the trace
        self._args, self._kwargs = args_made, kwargs_made

    @contextlib.contextmanager
    def made(self, tensors: Sequence[Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """Real arguments around these tensors; within it modules have them in the place of their own, for all threads.

        Raises:
            RuntimeError: where a module was given others meanwhile, which captured code would not know.
        """
        making = _Making(tensors)
        args = [make(making) for make in self._args]
        kwargs = {name: make(making) for name, make in self._kwargs.items()}
        if not making.modules:
            yield args, kwargs
            return
        with contextlib.ExitStack() as stack:
            with _SWAPS:
                if not all(_has(module, own) for module, own in making.modules):
                    stack.enter_context(_SWAPS)  # until the end; else threads need not wait for each other
                for module, own in making.modules:
                    stack.enter_context(_having(module, own))
            yield args, kwargs

    def _take(self, value: Value) -> Make:
        value = value.realise(self._t)
        if isinstance(value, SymbolicValue) and value.python_type() not in self._numbers:
            number = value.concrete(self._t)
            return lambda making: number
        if isinstance(value, (TensorValue, SymbolicValue)):
            self.leaves.append(value)
            return _next_tensor
        if value.is_constant():
            constant = value.constant()
            return lambda making: constant
        cls = value.python_type()
        if cls in (tuple, list) or is_plain_named(cls):
            return _sequence(cls, [self._take(item) for item in self._t.operators.iterate_all(value)])
        if cls in _DICTS:
            pairs = [(self._real(key), self._take(item)) for key, item in self._t.operators.mapping_items(value)]
            return lambda making: cls((key, make(making)) for key, make in pairs)
        if issubclass(cls, torch.nn.Module):
            return self._module(value)
        if cls in pytree.SUPPORTED_NODES and not pytree.is_constant_class(cls):
            return self._registered(cls, value)
        return _same(self._real(value))

    def _registered(self, cls: type, value: Value) -> Make:
        """An object of a class that the program has registered as a pytree: its own function takes it apart."""
        how = pytree.SUPPORTED_NODES[cls]
        pair = self._t.caller.call(self._t.wrapper.wrap_pinned(how.flatten_fn), [value], {})
        children, context = self._t.operators.iterate_all(pair)
        parts = [self._take(part) for part in self._t.operators.iterate_all(children.realise(self._t))]
        known = self._real(context)
        return lambda making: how.unflatten_fn([make(making) for make in parts], known)

    def _module(self, value: Value) -> Make:
        """A module that existed before the frame: its parameters and buffers are tensors of the call, its modes are guarded."""
        module = value.real()
        if module is MISSING:
            raise GraphBreak("unsupported-argument", "a module that is made in compiled code")
        self._t.guards.identity(value.source, module)
        states, modes = self._t.operators.iterate_all(
            self._t.caller.call(self._t.wrapper.wrap_pinned(_states), [value], {})
        )
        for mode in self._t.operators.iterate_all(modes.realise(self._t)):
            mode.realise(self._t).constant()
        pairs = list(self._t.operators.mapping_items(states.realise(self._t)))
        names = [self._real(name) for name, _ in pairs]
        for _, state in pairs:
            self._take(state)
        held = weakref.ref(module)

        def make(making: _Making) -> Any:
            found = held()
            making.modules.append((found, {name: next(making.tensors) for name in names}))
            return found

        return make

    def _real(self, value: Value) -> Any:
        """An object that the call is given as it is."""
        value = value.realise(self._t)
        try:
            if value.is_constant() or isinstance(value, FunctionValue) or value.real() is MISSING:
                return self._t.wrapper.to_python(value)
        except NotConstant as error:
            raise GraphBreak("unsupported-argument", f"{error}, of which torch's pytrees do not know") from None
        if not pytree.is_constant_class(value.python_type()):
            raise GraphBreak(
                "unsupported-argument", f"{value.describe()}, whose class is not registered with torch's pytrees"
            )
        self._t.guards.identity(value.source, value.real())
        return value.real()


def _next_tensor(making: _Making) -> Any:
    return next(making.tensors)


def _same(obj: Any) -> Make:
    return lambda making: obj


def _sequence(cls: Any, parts: list[Make]) -> Make:
    if cls in (tuple, list):
        return lambda making: cls(make(making) for make in parts)
    return lambda making: cls(*(make(making) for make in parts))


def _states(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], list[bool]]:
    """Traced, so that it is guarded what a module has."""
    states = dict(module.named_parameters(remove_duplicate=False))
    states.update(module.named_buffers(remove_duplicate=False))
    return states, [part.training for part in module.modules()]


def _table_of(module: torch.nn.Module, path: str) -> tuple[dict[str, Any], str]:
    """Where a module has a parameter or buffer, and under which key."""
    prefix, _, name = path.rpartition(".")
    part: Any = module.get_submodule(prefix)
    return (part._parameters if name in part._parameters else part._buffers), name


def _has(module: torch.nn.Module, tensors: Mapping[str, Any]) -> bool:
    return all(table[name] is tensors[path] for path in tensors for table, name in (_table_of(module, path),))


@contextlib.contextmanager
def _having(module: torch.nn.Module, tensors: Mapping[str, Any]) -> Iterator[None]:
    """Within it a module has these tensors, by the names of its own, in the place of its own. Raises as `Given.made`."""
    tables = [table for part in module.modules() for table in (part._parameters, part._buffers, part._modules)]
    own: list[dict[str, Any]] = [dict(table) for table in tables]
    assigned: set[str] = set()
    try:
        for path, tensor in tensors.items():
            table, name = _table_of(module, path)
            table[name] = tensor
        given: list[dict[str, Any]] = [dict(table) for table in tables]
        yield
        with _SWAPS:
            for table, had in zip(tables, given, strict=True):
                assigned.update(_changes(table, had))
    finally:
        with _SWAPS:
            for table, had in zip(tables, own, strict=True):
                for name in _changes(table, had):
                    if name in had:
                        table[name] = had[name]
                    else:
                        del table[name]
    if assigned:
        raise RuntimeError(
            f"a call that is captured whole assigns {', '.join(sorted(assigned))} of a {type_name(type(module))} that it is given: "
            "write to tensors in place, or return what is assigned"
        )


def _changes(table: Mapping[str, Any], had: Mapping[str, Any]) -> list[str]:
    """The names of what a table has now and had not, or otherwise."""
    changed = [name for name, value in had.items() if table.get(name, MISSING) is not value]
    return [*changed, *(name for name in table if name not in had)]


@frozen
class _Dynamic:
    """What differs from call to call: a tensor, or a number that was symbolic when the call was captured."""

    cls: type

    def __repr__(self) -> str:
        return "'tensor'" if self.cls is torch.Tensor else self.cls.__name__


class Results:
    """What a call gives, as its tensors and numbers and the rest, which is the same each time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known: tuple[pytree.TreeSpec, list[Any]] | None = None

    def flat(self, result: Any) -> tuple[Any, ...]:
        """The tensors and numbers in a result. Raises RuntimeError where the rest is not what it was the first time."""
        return self.picked(*pytree.tree_flatten(result))

    def picked(self, leaves: Sequence[Any], spec: pytree.TreeSpec) -> tuple[Any, ...]:
        """`flat` of what was taken apart."""
        if self._known is None:
            self._known = (spec, [self._first(leaf) for leaf in leaves])
        expected, known = self._known
        if spec != expected or not all(map(_fits, known, leaves)):
            raise RuntimeError(
                f"{self.name} returns {_shown(spec, leaves)}, and returned {_shown(expected, known)} when it was compiled: "
                "what it returns beside tensors must be the same for the same arguments"
            )
        return tuple(leaf for leaf, one in zip(leaves, known, strict=True) if isinstance(one, _Dynamic))

    def _first(self, leaf: Any) -> Any:
        if isinstance(leaf, (torch.Tensor, *SYMBOLS)):
            return _Dynamic(_class(leaf))
        if not is_constant_object(leaf):
            kind = type_name(type(leaf))
            raise RuntimeError(f"{self.name} returns an object of {kind}, of which torch's pytrees do not know")
        return leaf

    def value(self, t: Tracer, tensors: Sequence[Value]) -> Value:
        """The result around the values of its tensors and numbers."""
        assert self._known is not None
        spec, known = self._known
        found = iter(tensors)
        leaves = iter([next(found) if isinstance(leaf, _Dynamic) else t.wrapper.from_python(leaf) for leaf in known])
        return _filled(t, spec, leaves)


_CLASSES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def _class(leaf: Any) -> type:
    """A leaf's class for the program. A number is symbolic or plain as the trace is: with the graph the function runs on plain ones."""
    return torch.Tensor if isinstance(leaf, torch.Tensor) else _CLASSES.get(type(leaf), type(leaf))


def _fits(known: Any, leaf: Any) -> bool:
    """Whether a leaf is what its place had the first time."""
    if isinstance(known, _Dynamic):
        return _class(leaf) is known.cls
    return leaf is known or (_class(leaf) is type(known) and bool(leaf == known))


def _shown(spec: pytree.TreeSpec, leaves: Sequence[Any]) -> str:
    shown = [_Dynamic(torch.Tensor) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return repr(pytree.tree_unflatten(shown, spec))


def _filled(t: Tracer, spec: pytree.TreeSpec, leaves: Iterator[Value]) -> Value:
    if spec.type is None:
        return next(leaves)
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    parts = [_filled(t, child, leaves) for child in children]
    if spec.type is list:
        return ListValue(parts)
    if spec.type in _DICTS:
        keys = [(key, t.wrapper.from_python(key)) for key in spec.context]
        return DictValue({key: (known, part) for (key, known), part in zip(keys, parts, strict=True)}, spec.type)
    if spec.type is tuple or spec.type is collections.namedtuple:
        return TupleValue(parts, tuple if spec.type is tuple else spec.context)
    made = t.wrapper.wrap_pinned(pytree.SUPPORTED_NODES[spec.type].unflatten_fn)
    return t.caller.call(made, [ListValue(parts), t.wrapper.from_python(spec.context)], {})


@contextlib.contextmanager
def _constants_allowed(tensors: Sequence[Any], name: str) -> Iterator[None]:
    """On fakes: real tensors that a function closes over are constants, but for those that want gradients, which would not get any."""
    mode = detect_fake_mode(tensors)
    if mode is None:
        yield
        return
    before, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with _WithoutOwnGradients(name):
            yield
    finally:
        mode.allow_non_fake_inputs = before


class _WithoutOwnGradients(TorchFunctionMode):
    """Refuses tensors that are no fakes and require grad."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in pytree.tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and value.requires_grad:
                raise RuntimeError(f"{self.name} uses a tensor that requires grad and is not among its arguments")
        return func(*args, **(kwargs or {}))


@replaces(call_nonstrict, as_given=True)
def nonstrict(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """A call of what `nonstrict_trace` decorates."""
    try:
        function = t.wrapper.to_python(args[0])
    except NotConstant:
        raise GraphBreak("unsupported-call", "nonstrict_trace of a function that is made in compiled code") from None
    given, results = Given(t, args[1:], kwargs), Results(name_of(function))

    def call(*tensors: Any) -> tuple[Any, ...]:
        with given.made(tensors) as (args, kwargs), _constants_allowed(tensors, results.name):
            return results.flat(function(*args, **kwargs))

    call.__name__ = f"{name_of(function)}_nonstrict"
    found = t.recorder.record("call_function", call, given.leaves, {})
    return results.value(t, list(t.operators.iterate_all(found)))
