"""What functions of torch that are written in Python call by their names.

In: a function that becomes a node as it is. Out: `callees`, the functions and methods of torch that it may call, and those that what it calls may: where a
program puts its own there, plain Python calls that, and a graph does not. More is named than is called: an attribute of any
object counts as a method of tensors where those have one of that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch.overrides
from attrs import frozen

from ..bytecode.normalise import UnsupportedCodeError, decode_normalised
from ..class_names import module_name
from ..guards.spec import ClassMember
from ..patches import base_of, known_code

_SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "@": "matmul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "<<": "lshift", ">>": "rshift",
    "&": "and", "|": "or", "^": "xor", "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip
_INSTRUCTIONS = {
    "UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert", "UNARY_NOT": "bool", "POP_JUMP_IF_TRUE": "bool",
    "POP_JUMP_IF_FALSE": "bool", "BINARY_SUBSCR": "getitem", "STORE_SUBSCR": "setitem", "GET_ITER": "iter", "UNPACK_SEQUENCE": "iter",
    "CONTAINS_OP": "contains",
}  # fmt: skip
_BUILTINS = ("len", "abs", "int", "float", "bool", "complex", "round", "divmod", "reversed", "iter", "format")
"""Functions of Python that call a method of their argument, by the name of that."""
_OVERRIDES = ("torch.overrides", "torch._jit_internal")
"""Modules whose functions ask whether an argument's class has functions of its own, which those of a node have not."""


@frozen(eq=False)
class Callees:
    """What a function may call: (module or class, name); and the guards that nothing of it is replaced, as a collector keeps them."""

    names: frozenset[tuple[Any, str]]
    members: dict[tuple[str, type | None], ClassMember]
    bindings: tuple[tuple[ModuleType, dict[str, tuple[Any, ...]]], ...]


_NOTHING = Callees(frozenset(), {}, ())


def callees(function: FunctionType) -> Callees:
    """What a function of torch may call by name. Of others that is not known, and they are not kept."""
    return _callees(function) if _is_looked_into(function) else _NOTHING


@lru_cache(maxsize=1024)
def _callees(function: FunctionType) -> Callees:
    found: dict[tuple[Any, str], Any] = {}
    seen: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one in seen or not _is_looked_into(one):
            continue
        seen.add(one)
        named = _named(one)
        found.update(named)
        waiting += [value for value in (*named.values(), *_held(one)) if type(value) is FunctionType]
    members: dict[tuple[str, type | None], ClassMember] = {
        (name, None): ClassMember(name, None, base_of(owner, name), value)
        for (owner, name), value in found.items()
        if isinstance(owner, type)
    }
    modules: dict[ModuleType, dict[str, tuple[Any, ...]]] = {}
    for (owner, name), value in found.items():
        if isinstance(owner, ModuleType):
            modules.setdefault(owner, {})[name] = (name, value)
    return Callees(frozenset(found), members, tuple(modules.items()))


def _is_looked_into(function: FunctionType) -> bool:
    module = module_name(function)
    return isinstance(module, str) and module.partition(".")[0] == "torch" and module not in _OVERRIDES


def _named(function: FunctionType) -> dict[tuple[Any, str], Any]:
    """What stands for the names and operators in a function's code in the modules of torch that it names, its own, and the class of tensors."""
    names, special = set[str](), set[str]()
    for code in _codes(function.__code__):
        names.update(code.co_names)
        special.update(_special_methods(code))
    space = function.__globals__
    modules = {value for value in map(space.get, names) if isinstance(value, ModuleType)}
    modules |= {value for module in modules for value in map(vars(module).get, names) if isinstance(value, ModuleType)}
    return {
        (owner, name): code[name]
        for owner, code in known_code().items()
        if owner is torch.Tensor or owner in modules or vars(owner) is space
        for name in names | special
        if name in code and vars(torch.overrides).get(name) is not code[name]
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _special_methods(code: CodeType) -> Iterator[str]:
    yield from (f"__{name}__" for name in _BUILTINS if name in code.co_names)
    try:
        instructions = decode_normalised(code)
    except UnsupportedCodeError:
        return
    for instruction in instructions:
        if instruction.name in ("BINARY_OP", "COMPARE_OP"):
            symbol = instruction.value
            name = _SYMBOLS[symbol if symbol in _SYMBOLS else symbol.removesuffix("=")]
            yield from (f"__{name}__", f"__r{name}__", f"__i{name}__")
        elif instruction.name in _INSTRUCTIONS:
            yield f"__{_INSTRUCTIONS[instruction.name]}__"


def _held(function: FunctionType) -> Iterator[Any]:
    """Functions that a function closes over, as those do that choose between two."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue
