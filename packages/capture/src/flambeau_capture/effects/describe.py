"""Effects in words, for the log of side effects.

In: the effects of a frame and the outputs of its graph. Out: one line of Python-like text for each effect, in the order of their replay.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import CodeType

from ..captured import (
    CallFunction,
    DeleteAttribute,
    DeleteGlobal,
    Effect,
    FrameResult,
    ReplaceItems,
    SetAttribute,
    SetCell,
    SetGlobal,
)
from ..config import Config
from ..errors import SideEffectError
from ..sources.source import Pinned
from ..values.base import Value
from ..values.lazy import LazyValue


def effects_text(effects: Sequence[Effect], outputs: Sequence[Value]) -> str:
    """Every effect, one a line; `outputs` are the values that the graph returns."""
    results = {id(value): index for index, value in enumerate(outputs)}
    return "\n".join(_effect(effect, results) for effect in effects)


def tell_of_changes(result: FrameResult, config: Config, code: CodeType) -> None:
    """Warn of changes to objects outside of a frame, or raise `SideEffectError`, as `side_effect_replay_policy` says."""
    policy = config.side_effect_replay_policy
    changes = [effect for effect in result.effects if not isinstance(effect, CallFunction)]
    if not changes or policy not in ("warn", "error"):
        return
    text = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) changes objects outside of it:\n"
    text += effects_text(changes, result.outputs)
    if policy == "error":
        raise SideEffectError(text)
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _effect(effect: Effect, results: dict[int, int]) -> str:
    def text(value: Value) -> str:
        return _value(value, results)

    match effect:
        case SetAttribute(target=target, name=name, value=value):
            return f"{text(target)}.{name} = {text(value)}"
        case DeleteAttribute(target=target, name=name):
            return f"del {text(target)}.{name}"
        case SetGlobal(name=name, value=value):
            return f"global {name} = {text(value)}"
        case DeleteGlobal(name=name):
            return f"del global {name}"
        case SetCell(cell=cell, value=value):
            return f"{text(cell)}.cell_contents = {text(value)}"
        case ReplaceItems(target=target, kind="dict", items=items):
            pairs = zip(items[::2], items[1::2], strict=True)
            return (
                f"{text(target)} gets the items {{{', '.join(f'{text(key)}: {text(value)}' for key, value in pairs)}}}"
            )
        case ReplaceItems(target=target, kind=kind, items=items):
            return f"{text(target)} gets the items {kind}({', '.join(map(text, items))})"
        case CallFunction(function=function, args=args):
            return f"{function.describe()}({', '.join(map(text, args))})"
    return type(effect).__name__


def _value(value: Value, results: dict[int, int]) -> str:
    """A source, the graph's result of that number, or what kind of object is made."""
    while isinstance(value, LazyValue) and value.realised is not None:
        value = value.realised
    if id(value) in results:
        return f"<result {results[id(value)]} of the graph>"
    if value.source is not None and not isinstance(value.source, Pinned):
        return value.source.name
    return value.describe() if value.is_constant() else f"<{value.describe()}>"
