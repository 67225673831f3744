"""`guard_filter_fn`: the user's choice of the guards that an entry keeps, under the names that torch.compile gives them; and the choices that
`torch.compiler` has ready, under the same names.

In: the specs of a traced frame, the frame, the user's callable. Out: the specs to check at every call.

What is dropped is not looked at any more: an entry then runs where it was not compiled for, and may return what eager would not. It does
not read or write memory that is not its own. The executor looks at each tensor that goes into a program all the same (dtype, kind
of device, number of dimensions, sizes and strides that were constants, plain memory) and refuses what the kernels were not written
for. What it cannot see is how sizes relate to each other, so `ShapeExpression`s are not up for choice: they always stay. Other
backends are run by torch's own operators, which check their arguments, or answer for themselves. One thing is left to the user: where
a guard on the type of a container is dropped, no container may come whose own `__getitem__` takes other arguments apart while
the guards are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import frozen

from .class_names import class_module
from .errors import CaptureError
from .frame import FrameInfo
from .guards import spec as gs
from .guards.paths import module_above, sources_of
from .sources.source import Global, Local, Source, SourceError, resolve, root_of

#: Names that programs written for torch.compile know, by the kind of guard here.
_KNOWN_AS: Mapping[type[gs.GuardSpec], tuple[str, ...]] = MappingProxyType(
    {
        gs.TypeIs: ("TYPE_MATCH",),
        gs.NumberIs: ("TYPE_MATCH",),
        gs.IdentityIs: ("ID_MATCH",),
        gs.ConstantIs: ("CONSTANT_MATCH", "EQUALS_MATCH"),
        gs.TensorMatch: ("TENSOR_MATCH",),
        gs.SequenceLength: ("SEQUENCE_LENGTH",),
        gs.DictKeys: ("DICT_KEYS_MATCH",),
        gs.Contains: ("DICT_CONTAINS",),
        gs.SetEquals: ("SET_CONTAINS",),
        gs.HasAttribute: ("HASATTR",),
        gs.FunctionIs: ("CLOSURE_MATCH",),
        gs.ClassMembers: ("TYPE_MATCH", "HASATTR"),
        gs.AliasOf: ("DUPLICATE_INPUT",),
        gs.NoAlias: ("NO_TENSOR_ALIASING",),
        gs.DistinctStorage: ("STORAGE_OVERLAPPING",),
        gs.GlobalState: ("GLOBAL_STATE",),
    }
)


@frozen(eq=False)
class GuardEntry:
    """One guard as a filter sees it.

    Attributes:
        name: what it is about, as text (`x.weight`, `G['scale']`); empty for a guard about several things or about torch's state.
        guard_type: torch.compile's name for guards of this kind (`"TENSOR_MATCH"`).
        has_value: whether `value` is what the name stands for now.
        value: that object, else None.
        is_global: whether what it is about is reached through a global.
        derived_guard_types: every name that torch.compile has for what it checks (`("CONSTANT_MATCH", "EQUALS_MATCH")`).
        orig_guard: the spec itself, of a class in `flambeau_capture.guards.spec`.
        is_nn_module: whether it is about what a module holds.
        is_inbuilt_nn_module: whether that module's class is torch's own.
    """

    name: str
    guard_type: str
    has_value: bool
    value: Any
    is_global: bool
    derived_guard_types: tuple[str, ...]
    orig_guard: gs.GuardSpec
    is_nn_module: bool = False
    is_inbuilt_nn_module: bool = False


GuardFilter = Callable[[Sequence[GuardEntry]], Sequence[bool]]


def filter_guards(specs: Sequence[gs.GuardSpec], choose: GuardFilter, info: FrameInfo) -> tuple[gs.GuardSpec, ...]:
    """The guards that `choose` keeps, in order, and those that it is not asked about.

    Args:
        specs: the guards of a traced frame.
        choose: gets a list of `GuardEntry` and returns as many bools; False drops the guard.
        info: the frame, for the entries' values.

    Raises:
        CaptureError: when `choose` raises, or what it returns is not one bool for each entry.
    """
    offered = [spec for spec in specs if not isinstance(spec, gs.ShapeExpression)]
    choose = _READY.get(getattr(choose, "__name__", ""), choose) if _is_torchs(choose) else choose
    try:
        answers = choose([_entry(spec, info) for spec in offered])
    except Exception as error:
        raise CaptureError(
            f"guard_filter_fn raised {type(error).__name__} for the guards of {info.code.co_qualname}: {error}",
            hint="it gets a list of entries and returns a list with True for each guard to keep, False for each to drop",
        ) from error
    wrong = _wrong(answers, len(offered))
    if wrong:
        raise CaptureError(
            f"guard_filter_fn was asked about {len(offered)} guards of {info.code.co_qualname} and returned {wrong}",
            hint="return one bool for each entry, in order: True keeps the guard, False drops it",
        )
    dropped = {id(spec) for spec, keep in zip(offered, answers, strict=True) if not keep}
    return tuple(spec for spec in specs if id(spec) not in dropped)


def _wrong(answers: Any, count: int) -> str:
    """What is wrong with the answers of a filter, empty when nothing is."""
    if not isinstance(answers, Sequence):
        return type(answers).__name__
    if len(answers) != count:
        return f"{len(answers)} answers"
    return next((f"{answer!r} among its answers" for answer in answers if type(answer) is not bool), "")


def _entry(spec: gs.GuardSpec, info: FrameInfo) -> GuardEntry:
    source = spec.source if isinstance(spec, gs.SourceGuard) else None
    has_value, value = False, None
    if source is not None:
        try:
            value = resolve(source, info.locals, info.globals, info.builtins)
            has_value = True
        except SourceError:
            pass  # the guard is about something that is not there
    names = _KNOWN_AS.get(type(spec), (type(spec).__name__,))
    module = None if source is None else module_above(source, info.locals, info.globals, info.builtins)
    return GuardEntry(
        "" if source is None else _name(source),
        names[0],
        has_value,
        value,
        any(isinstance(root_of(found), Global) for found in sources_of(spec)),
        names,
        spec,
        module is not None,
        module is not None and class_module(type(module)).startswith(_INBUILT),
    )


def _name(source: Source) -> str:
    """The source's text; a local goes by its own name, as in the program."""
    root = root_of(source)
    return source.name.replace(root.name, root.variable, 1) if isinstance(root, Local) else source.name


# the choices that are ready

_INBUILT = ("torch.nn.", "torch.ao.nn.")


def keep_portable_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep guards of torch's state and of tensors that are not reached through globals: what can be checked without Python."""
    return [
        entry.guard_type == "GLOBAL_STATE" or (entry.guard_type == "TENSOR_MATCH" and not entry.is_global)
        for entry in guard_entries
    ]


def keep_tensor_guards_unsafe(guard_entries: Sequence[GuardEntry], keep_parameters: bool = False) -> list[bool]:
    """Keep guards of tensors alone, of parameters only with `keep_parameters`."""
    return [
        entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(entry.value, torch.nn.Parameter))
        for entry in guard_entries
    ]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drop guards of what modules of torch's own classes hold."""
    return [not entry.is_inbuilt_nn_module for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drop guards of what modules hold."""
    return [not entry.is_nn_module for entry in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drop guards of what is reached through globals."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Drop every guard that may be dropped."""
    return [False for _ in guard_entries]


_READY: Mapping[str, GuardFilter] = MappingProxyType(
    {
        choose.__name__: choose
        for choose in (
            keep_portable_guards_unsafe,
            keep_tensor_guards_unsafe,
            skip_guard_on_inbuilt_nn_modules_unsafe,
            skip_guard_on_all_nn_modules_unsafe,
            skip_guard_on_globals_unsafe,
            skip_all_guards_unsafe,
        )
    }
)


def _is_torchs(choose: GuardFilter) -> bool:
    """Whether this is one of `torch.compiler`'s choices, which ask guards of torch's own classes."""
    return getattr(choose, "__module__", None) == "torch.compiler"
