"""What a guard assumes, as a sentence for people who do not know what guards are.

In: a spec. Out: one plain sentence, with names as the program writes them (`model.linear.weight`, not the way by which a guard reaches it).
`guards/explain.py` has the same as an expression, and the words for one that failed.
"""

from __future__ import annotations

import re
from typing import Any

from ..class_names import class_name
from ..sources.source import Source
from . import spec as gs
from .explain import describe

_OWN_TABLES = re.compile(r"(\.__dict__)?\['_(?:modules|parameters|buffers)'\]\['(\w+)'\]")
_OWN_ATTRIBUTE = re.compile(r"\.__dict__\['(\w+)'\]")
_ROOT = re.compile(r"^[LG]\['([^']+)'\]")
_PINNED = re.compile(r"pinned<(\w+) 0x[0-9a-f]+>")
_HOOKS = re.compile(r"_?(?:global_)?(?:forward|backward)(?:_pre)?_hooks")


def plain_name(source: Source | str) -> str:
    """A source as the program would write it."""
    text = _PINNED.sub(r"a \1 of torch or of a library", _ROOT.sub(r"\1", str(source)))
    text = _OWN_TABLES.sub(r".\2", text)
    return _OWN_ATTRIBUTE.sub(r".\1", text)


def sentence(spec: gs.GuardSpec) -> str:
    """The assumption in words."""
    match spec:
        case gs.TensorMatch():
            return _tensor(spec)
        case gs.ShapeExpression(expression=expression, symbols=symbols):
            where = ", ".join(f"{name} is {plain_name(source)}" for name, source in symbols)
            return f"The sizes satisfy {expression}" + (f" ({where})." if where else ".")
        case gs.GlobalState():
            grad = "on" if spec.grad_enabled else "off"
            return f"Torch's settings are the same: gradients {grad}, default dtype {_dtype(spec.default_dtype)}, autocast, modes."
        case gs.NoAlias(sources=sources):
            return f"No two of the {len(sources)} tensors are the same object."
        case gs.DistinctStorage(written=written):
            return f"No other tensor shares the memory of {_listed([plain_name(s) for s in written])}, which the graph writes to."
        case gs.ModuleBindings(namespace=namespace, bound=bound):
            return f"{_listed([str(pair[0]) for pair in bound])} of {namespace.get('__name__')} is what it was."
        case gs.SourceGuard(source=source):
            return _about(spec, plain_name(source))
    return f"It holds that {describe(spec)}."


def _about(spec: gs.SourceGuard, name: str) -> str:
    """Of guards on one object that is no tensor."""
    match spec:
        case gs.TypeIs(cls=cls):
            return f"{name} is a {class_name(cls)}, not of another class."
        case gs.NumberIs(cls=cls):
            return f"{name} is {'a finite float' if cls is float else 'an int of 64 bits'}; its value may change."
        case gs.IdentityIs():
            return f"{name} is the same object as before."
        case gs.ConstantIs(value=value):
            return f"{name} is {_short(value)}; its value is part of the compiled code."
        case gs.NotConstant(value=value):
            return f"{name} is not {_short(value)}."
        case gs.SequenceLength(length=0) if _HOOKS.search(name):
            return f"{name} is empty: no hook was added."
        case gs.SequenceLength(length=length):
            return f"{name} has {length} element{'' if length == 1 else 's'}."
        case gs.DictKeys(keys=keys):
            return f"{name} has the keys {_listed([_short(key) for key in keys]) or 'of an empty one'}, in this order."
        case gs.Contains(key=key, present=present):
            return f"{name.removesuffix('.__dict__')} has {'' if present else 'no '}entry {_short(key)} of its own."
        case gs.SetEquals(members=members):
            return f"{name} has the members {_listed(sorted(map(_short, members))) or 'of an empty set'}."
        case gs.HasAttribute(attribute=attribute, present=present):
            return f"{name} has {'an' if present else 'no'} attribute {attribute}."
        case gs.FunctionIs(code=code):
            return f"{name} is still the function {code.co_qualname} of line {code.co_firstlineno}."
        case gs.ClassMembers(members=members):
            return f"The class {name} still has the same {_listed(sorted({member.name for member in members}))}."
        case gs.AliasOf(other=other):
            return f"{name} and {plain_name(other)} are the same object."
        case gs.PythonCheck(description=description):
            return f"For {name} it holds: {description}."
    return f"It holds that {describe(spec)}."


def _tensor(spec: gs.TensorMatch) -> str:
    sizes = " x ".join("any" if size is None else str(size) for size in spec.sizes)
    grad = ", requires grad" if spec.requires_grad else ""
    free = sum(size is None for size in spec.sizes)
    kind = "a tensor" if class_name(spec.cls) == "Tensor" else f"a {class_name(spec.cls)}"
    sized = f"of sizes {sizes}" if spec.sizes else "with one element and no dimensions"
    moving = f"; {free} of its sizes may change" if free else ""
    return f"{plain_name(spec.source)} is {kind} of {_dtype(spec.dtype)} {sized} on {spec.device}{grad}{moving}."


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: list[str]) -> str:
    most = 6
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _short(value: Any) -> str:
    text = (
        repr(value)
        if isinstance(value, str | int | float | complex | bool | bytes | type(None) | tuple)
        else str(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
