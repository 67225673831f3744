"""The table of callables that are not traced into, and what is decided about torch's own.

In: `@replaces(callable, ...)` on a function `(tracer, args, kwargs) -> Value`; marks that users put on functions. Out: `find`,
`torch_decision`, `refuse_marked`.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from attrs import frozen

from .class_names import module_name, name_of
from .errors import ForbiddenCallError, InternalError
from .signals import GraphBreak
from .signatures import fit, signature_of
from .torch_policy import Decision, classify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .values.base import Value

    Replacement = Callable[[Any, Sequence[Value], Mapping[str, Value]], Value]
    WrapperReplacement = Callable[[Any, Value, Sequence[Value], Mapping[str, Value]], Value]

DISABLE_MARK = "_flambeau_disable"
"""Attribute of a function that is never traced: calling it breaks the graph; the value is the user's reason or True."""
ALLOW_MARK = "_flambeau_allow_in_graph"
"""Attribute of a function that becomes one node."""
FORBID_MARK = "_dynamo_forbidden"
"""Attribute of a function that may not be called in compiled code, as torch's `forbid_in_graph` gives it to one."""
CONSTANT_MARK = "_dynamo_marked_constant"
"""Attribute that `torch.compiler.assume_constant_result` gives to a function; libraries set it themselves, so as not to import torch."""

#: Kinds of functions, in Python and in C, that may have a substitute.
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@frozen(eq=False)
class Substitute:
    """`function` is traced where `original` is called; with `folds`, `original` is called where all arguments are known."""

    original: Any
    function: types.FunctionType
    folds: bool


_BY_ID: dict[int, tuple[Any, Replacement]] = {}
_BY_CLASS: dict[tuple[type, str], Replacement] = {}
_AS_GIVEN: set[int] = set()
_WRAPPERS: dict[types.CodeType, WrapperReplacement] = {}
_ALLOWED: dict[int, Any] = {}
_DISABLED: dict[int, tuple[Any, str]] = {}
_DISALLOWED: dict[int, Any] = {}
_SUBSTITUTES: dict[int, tuple[Any, Substitute]] = {}
_IMPURE: dict[int, Any] = {}
_SLOTS: dict[int, Any] = {}
_LATER: dict[str, Callable[[], None]] = {}


def replaces(*targets: Any, as_given: bool = False) -> Callable[[Replacement], Replacement]:
    """Register a replacement; a target has one. It sees arguments as `signatures.fit` leaves them: positional where both is possible.
    With `as_given`, as the program gave them: the replacement itself sees to the signature."""

    def register(replacement: Replacement) -> Replacement:
        for target in targets:
            if id(target) in _BY_ID:
                raise ValueError(f"two replacements for {target!r}")
            if as_given:
                _AS_GIVEN.add(id(target))
            fitted = replacement if as_given else _fitted(target, replacement)
            _BY_ID[id(target)] = (target, fitted)
            if (key := _class_method(target)) is not None:
                _BY_CLASS[key] = fitted
        return replacement

    return register


def replaces_later(module: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Call what registers the replacements of a module's callables when the first of these is met: importing the module for them would cost too much."""

    def register(function: Callable[[], None]) -> Callable[[], None]:
        _LATER[module] = function
        return function

    return register


def _fitted(target: Any, replacement: Replacement) -> Replacement:
    """The replacement behind a look at the signature. Of what torch has in C nobody tells the signature: torch checks the call itself."""
    if is_torchs(target):
        return replacement

    def fitted(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        signature = signature_of(target)
        if signature is None:
            raise InternalError(f"nothing tells the signature of {target!r}: write it down in signatures.py")
        arguments = fit(signature, args, kwargs, t.wrapper.from_python)
        if arguments is None:
            raise GraphBreak("unsupported-call", f"{name_of(target)}() does not take these arguments")
        return replacement(t, *arguments)

    return fitted


def is_torchs(target: Any) -> bool:
    """Whether a function, method or class belongs to torch."""
    if isinstance(target, types.BuiltinFunctionType) and getattr(torch.Tensor, target.__name__, None) is target:
        return True  # a static method, which tells neither module nor class
    owner = getattr(target, "__objclass__", None) or getattr(target, "__self__", None)
    modules = (
        module_name(target),
        module_name(owner),
        None if isinstance(owner, type) else getattr(owner, "__name__", None),
    )
    return any(isinstance(name, str) and name.partition(".")[0] == "torch" for name in modules)


def replaced() -> list[Any]:
    """Everything that is called by its signature and has a replacement; a test goes through all of it."""
    return [target for target, _ in _BY_ID.values() if id(target) not in _AS_GIVEN]


def find(function: Any) -> Replacement | None:
    """The replacement of a callable, or None."""
    found = _BY_ID.get(id(function))
    if found is None and _LATER and (register := _LATER.pop(str(module_name(function)), None)) is not None:
        register()
        found = _BY_ID.get(id(function))
    if found is not None:
        return found[1]
    return _BY_CLASS.get(key) if (key := _class_method(function)) is not None else None


def _class_method(function: Any) -> tuple[type, str] | None:
    """Class and name of a native class method (`dict.fromkeys`), which is a new object each time it is read."""
    owner = getattr(function, "__self__", None) if isinstance(function, types.BuiltinMethodType) else None
    return (owner, function.__name__) if isinstance(owner, type) else None


def replaces_wrapper(code: types.CodeType) -> Callable[[WrapperReplacement], WrapperReplacement]:
    """Register a replacement for every function a decorator makes, known by their code; it gets the function's value first."""

    def register(replacement: WrapperReplacement) -> WrapperReplacement:
        if code in _WRAPPERS:
            raise ValueError(f"two replacements for {code!r}")
        _WRAPPERS[code] = replacement
        return replacement

    return register


def find_wrapper(code: types.CodeType) -> WrapperReplacement | None:
    """The replacement of the functions with this code, or None."""
    return _WRAPPERS.get(code)


def impure(*targets: Any) -> None:
    """Native callables that must not be computed while tracing."""
    for target in targets:
        _IMPURE[id(target)] = target


def is_impure(function: Any) -> bool:
    """Whether a native callable must not be computed while tracing."""
    return id(function) in _IMPURE


def allow_in_graph(function: Any) -> Any:
    """Make calls of `function` one node in the graph."""
    _DISALLOWED.pop(id(function), None)
    _ALLOWED[id(function)] = function
    return function


def disallow_in_graph(function: Any) -> Any:
    """Make calls of `function` break the graph, which would be nodes of it."""
    _ALLOWED.pop(id(function), None)
    _DISALLOWED[id(function)] = function
    return function


def disable(function: Any, reason: str = "") -> Any:
    """Make calls of `function` break the graph."""
    _DISABLED[id(function)] = function, reason
    return function


def substitute(original: Any, substitute: Substitute, *others: Any) -> None:
    """Trace another function where `original`, or one of the `others`, is called. Raises ValueError where it has one already."""
    if id(original) in _SUBSTITUTES:
        raise ValueError(f"{original!r} has a substitute already: {_SUBSTITUTES[id(original)][1].function!r}")
    for one in (original, *others):
        _SUBSTITUTES[id(one)] = one, substitute  # kept: another function may get the identity of one that is gone


def substitute_of(function: Any) -> Substitute | None:
    """What is traced in the place of a function, as the program says."""
    if _SUBSTITUTES and (found := _SUBSTITUTES.get(id(function))) is not None:
        return found[1]
    handlers = sys.modules.get("torch._dynamo.variables.functions")  # of a program that told torch's own compiler
    if handlers is None or not isinstance(function, FUNCTIONS):
        return None
    wrapped = handlers.PolyfilledFunctionVariable._get_polyfill_handlers().get(function)
    traced = getattr(wrapped, "__torch_dynamo_polyfill__", None)
    if traced is None or _is_in_torch(traced):
        return None  # what torch has registered for itself
    return Substitute(wrapped.__torch_dynamo_original__, traced, wrapped.__torch_dynamo_can_constant_fold_through__)


def _is_in_torch(function: Any) -> bool:
    return str(module_name(function)).partition(".")[0] == "torch"


def is_the_peers_bookkeeping(function: Any) -> bool:
    """Whether torch's own compiler, once used, calls this for every module that is made, to find it again while it traces."""
    return function.__module__ == "torch._dynamo.mutation_guard" and function.__name__ == "tag"


def behind_the_peers_mark(function: Any) -> Any:
    """The method of an optimizer that torch's own compiler, once used, keeps from itself; None for any other function.

    What a user marked with that compiler's `disable` breaks the graph as ours does.
    """
    if not getattr(function, "_torchdynamo_disable", False):
        return None
    original = getattr(function, "_torchdynamo_orig_callable", None)
    module = module_name(original) or ""
    if module.partition(".")[0] == "torch":
        return original if module.startswith("torch.optim.") else None
    refuse_disabled(original or function, getattr(function, "_torchdynamo_disable_msg", None) or "")


def refuse_marked(function: Any) -> None:
    """Break the graph at a function that a user marked, or raise `ForbiddenCallError`."""
    found = _DISABLED.get(id(function))
    if found is not None:
        refuse_disabled(*found)
    if getattr(function, DISABLE_MARK, False):
        refuse_disabled(function, "")
    if id(function) in _DISALLOWED or _is_told_peer("_disallowed_callable_ids", function):
        raise GraphBreak("disallowed-function", f"{name_of(function)} is marked with disallow_in_graph")
    if getattr(function, FORBID_MARK, False):
        raise ForbiddenCallError(f"{name_of(function)} is called, which is marked with forbid_in_graph")


def refuse_disabled(function: Any, reason: str) -> NoReturn:
    """Break the graph at a function that is marked with `disable`."""
    text = f"{getattr(function, '__qualname__', function)} is marked with disable"
    raise GraphBreak("disabled-function", f"{text}: {reason}" if reason else text)


def _is_told_peer(table: str, function: Any) -> bool:
    """Whether the program told torch's own compiler something about a function of its own, or of torch's operators."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    return rules is not None and id(function) in getattr(rules, table, ())


def allow_slots(cls: type, names: Iterable[str]) -> None:
    """Let these methods of a class, written in C, run while tracing."""
    for name in names:
        function = getattr(cls, name, None)
        if function is not None and function is not getattr(object, name):
            _SLOTS[id(function)] = function


def is_allowed_slot(cls: type, function: Any) -> bool:
    """Whether the program says that a special method, which `cls` has, may run while tracing. What torch says of the standard library is not the program's word."""
    if id(function) in _SLOTS:
        return True
    handlers = sys.modules.get("torch._dynamo.variables.user_defined")
    told = getattr(handlers, "_SAFE_C_SLOTS", None) or ()
    return function in told and module_name(cls) not in ("datetime", "decimal", "re")


def call_nonstrict(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call of what `nonstrict_trace` decorates: one node where it is captured."""
    return function(*args, **kwargs)


def nonstrict_of_peer(function: Any) -> Any:
    """The function that the program gave to `nonstrict_trace` of torch's own compiler, where this is what came of it; else None."""
    told = _is_told_peer("_nonstrict_trace_callable_ids", function)
    return getattr(function, "__wrapped__", None) if told else None


def call_leaf(leaf: Any, fake: Any, hook: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of what `leaf_function` decorates: one node where it is captured."""
    return leaf.plainly(fake, hook, args, kwargs)


def is_leaf_of_peer(function: Any) -> bool:
    """Whether the program made this with `leaf_function` of torch's own compiler."""
    return _is_told_peer("_leaf_function_ids", function)


def is_allowed(function: Any) -> bool:
    """Whether the program has calls of something be one node of the graph."""
    return (
        id(function) in _ALLOWED
        or getattr(function, ALLOW_MARK, False) is True
        or _is_told_peer("_allowed_callable_ids", function)
    )


def torch_decision(function: Any) -> Decision:
    """What to do with a callable that has no replacement."""
    return Decision.ALWAYS_RECORD if is_allowed(function) else classify(function)
