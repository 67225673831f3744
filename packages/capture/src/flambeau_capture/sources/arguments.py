"""Names of the arguments that code made by the compiler takes, and what an argument's name tells about its value.

__first       the function's own first argument, for `super()`
__stack_<i>   stack slot i of the frame that a resume function goes on with
__open_<i>    the same, for what an operator gave whose result shape depends on data: its first size changes from call to call
__item        what a `for` loop gave for a round: a number in it changes from call to call
"""

from __future__ import annotations

from .source import Local, Source, root_of

FIRST = "__first"
ITEM = "__item"
_STACK, _OPEN = "__stack_", "__open_"


def stack_argument(index: int, *, is_open: bool = False) -> str:
    """The name of the argument that holds stack slot `index`."""
    return f"{_OPEN if is_open else _STACK}{index}"


def is_stack_argument(name: str) -> bool:
    """Whether the argument of this name holds a stack slot."""
    return name.startswith((_STACK, _OPEN))


def is_open(source: Source) -> bool:
    """Whether a tensor from here has a first size that depends on data."""
    root = root_of(source)
    return isinstance(root, Local) and root.variable.startswith(_OPEN)


def is_item(source: Source) -> bool:
    """Whether this comes from what a loop iterates over."""
    root = root_of(source)
    return isinstance(root, Local) and root.variable == ITEM
