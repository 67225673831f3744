"""A `for` loop whose rounds are calls of a function.

In: a code object and the index of the FOR_ITER that begins the loop. Out: `separate_rounds`, code with the same arguments that does the
same, but whose loop is

    for item in iterator:
        changed variables = round(item, variables)

The loop itself then runs in plain Python while `round` is a frame like any other: it is captured, cut where it breaks, and compiled once
for all rounds that are alike. What follows the loop becomes a resume function, so that it is captured too.

A round is a function only where it begins and ends at the same place: no `break` and no `return` out of the loop, no `yield`. What it
reads must be bound whenever a round begins, and what it changes must be bound whenever one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import CodeType

from attrs import evolve, frozen

from ..bytecode.binding import bound_locals
from ..bytecode.encode import argument_names, spec_of
from ..bytecode.flow import falls_through, reachable
from ..bytecode.liveness import live_locals
from ..bytecode.model import Handler, Instruction, Label, Position, Protect
from ..bytecode.normalise import decode_normalised
from ..bytecode.stack_depth import UnknownInstructionError, effect, stack_depths
from ..native import _C
from ..sources.arguments import FIRST, ITEM
from .emitter import Emitter
from .resume import CannotResume, resume_code, sees_locals, spec_of_part

_NEVER = frozenset({"RETURN_VALUE", "MAKE_CELL", "LOAD_FAST_AND_CLEAR"})
"""What a round may not have: a return, and comprehensions in the function's own frame, which may put back an unbound variable."""

_COMPUTES = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_OP", "BINARY_SUBSCR"})
"""What makes the rest of a function worth a frame."""


@frozen(eq=False)
class Round:
    """One round of the loop at `head`, as a function to be.

    Attributes:
        head: the index of FOR_ITER.
        body: the indices of the round's instructions.
        depth: of the stack below the item, the iterator included.
        reads: variables that are passed in.
        changes: variables that are handed back.
        stores: variables that it binds or unbinds.
    """

    head: int
    body: tuple[int, ...]
    depth: int
    reads: tuple[str, ...]
    changes: tuple[str, ...]
    stores: frozenset[str]


@lru_cache(maxsize=512)
def separate_rounds(code: CodeType, head: int) -> CodeType:
    """`code` with the rounds of the loop at instruction `head` of `decode_normalised(code)` as calls.

    Raises CannotResume, with the reason, where they cannot be.
    """
    if sees_locals(code):
        raise CannotResume("the function may look at its own variables")
    instructions = decode_normalised(code)
    if instructions[head].name != "FOR_ITER":
        raise CannotResume("not a for loop")
    found = _find_round(code, instructions, head)
    return _caller(code, instructions, found, _round_code(code, instructions, found))


# what a round is


def _find_round(code: CodeType, instructions: Sequence[Instruction], head: int) -> Round:
    outer = instructions[head].handler
    try:
        depth = stack_depths(instructions).get(head)
    except UnknownInstructionError as error:
        raise CannotResume(f"{error.args[0]} suspends the frame") from None
    if depth is None:
        raise CannotResume("control never comes to the loop")
    # Exceptions that a round does not handle leave it: the call of the round has the loop's handler.
    own = [evolve(i, handler=None) if outer is not None and i.handler == outer else i for i in instructions]
    body = _body(own, head, depth)
    inside = [own[index] for index in body]
    if "__class__" in code.co_freevars and any(i.name == "LOAD_GLOBAL" and i.value == "super" for i in inside):
        raise CannotResume("super() needs the function's own first argument")
    live = live_locals(instructions)
    stores = frozenset(i.value for i in inside if i.name in ("STORE_FAST", "DELETE_FAST"))
    if outer is not None and stores & live[outer.target]:
        raise CannotResume("a handler outside of the loop reads what a round changes")
    changes = stores & live[head]
    alone = [evolve(i, name="RETURN_VALUE", target=None) if at == head else i for at, i in enumerate(own)]
    reads = live_locals(alone)[head + 1]
    reads |= changes - _bound_after(own, head, reads)
    bound = bound_locals(instructions, _parameters(code))[head + 1]
    if not reads <= bound:
        raise CannotResume(f"a round may find {', '.join(sorted(reads - bound))} unbound")
    if not changes <= _bound_after(own, head, reads):
        raise CannotResume("a round may leave a variable unbound")
    order = code.co_varnames
    return Round(
        head,
        body,
        depth,
        tuple(name for name in order if name in reads),
        tuple(name for name in order if name in changes),
        stores,
    )


def _body(own: Sequence[Instruction], head: int, depth: int) -> tuple[int, ...]:
    """The indices of a round. Raises CannotResume where control leaves it elsewhere than at `head`, or comes in elsewhere."""
    depths = stack_depths(own, head + 1, depth + 1, head)
    if depths.pop(head, depth) != depth:
        raise CannotResume("a round leaves something on the stack")
    for index, before in depths.items():
        i = own[index]
        if i.name in _NEVER:
            raise CannotResume(f"a round has {i.name}")
        if before - effect(i).pops < depth or (i.handler is not None and i.handler.depth < depth):
            raise CannotResume("a round reaches below its own part of the stack")
    for index in reachable(own, 0):
        i = own[index]
        ways = (i.target, i.handler.target if i.handler is not None else None)
        # A resume function may begin with the round that an item is there for.
        jumps = any(way in depths and way != head + 1 for way in ways)
        falls = falls_through(i) and index + 1 in depths and index != head
        if index not in depths and (jumps or falls):
            raise CannotResume("control comes into the middle of a round")
    return tuple(sorted(depths))


def _bound_after(own: Sequence[Instruction], head: int, before: frozenset[str]) -> frozenset[str]:
    """What is bound at the end of a round that begins with `before`."""
    return bound_locals(own, before, head + 1, head).get(head, frozenset())


def _parameters(code: CodeType) -> frozenset[str]:
    """The arguments that are plain variables."""
    return frozenset(argument_names(code)) - {*code.co_cellvars, *code.co_freevars}


# the round


def _round_code(code: CodeType, instructions: Sequence[Instruction], found: Round) -> CodeType:
    """A function of the item and what a round reads; it returns what changed: one object, or a tuple of several, or None."""
    parameters = (ITEM, *found.reads)
    head = instructions[found.head]
    spec = spec_of_part(code, "round", head, parameters, found.stores - set(parameters))
    e = Emitter(spec, head.position)
    labels = {index: Label(str(index)) for index in (*found.body, found.head)}
    e.op("LOAD_FAST", value=ITEM)
    e.op("DELETE_FAST", value=ITEM)
    e.jump(labels[found.head + 1])
    _copy(e, instructions, found.body, labels, head.handler, found.depth)
    e.protect = None
    e.place(labels[found.head])
    for name in found.changes:
        e.local(name)
    if not found.changes:
        e.const(None)
    elif len(found.changes) > 1:
        e.build("tuple", len(found.changes))
    e.ret()
    return e.finish()


def _copy(
    e: Emitter,
    instructions: Sequence[Instruction],
    indices: Sequence[int],
    labels: dict[int, Label],
    outer: Handler | None = None,
    depth: int = 0,
) -> None:
    """Emit instructions again, their targets as labels, without handler `outer`, on a stack that lacks the lowest `depth` slots."""
    for index in indices:
        i = instructions[index]
        e.place(labels[index])
        e.position = i.position
        e.protect = None
        if i.handler is not None and (outer is None or i.handler != outer):
            e.protect = Protect(labels[i.handler.target], i.handler.depth - depth, i.handler.lasti)
        e.op(i.name, i.arg, i.value, None if i.target is None else labels[i.target])


# the function around it


def _caller(code: CodeType, instructions: Sequence[Instruction], found: Round, round_code: CodeType) -> CodeType:
    """The function with a call in place of the body."""
    spec = evolve(spec_of(code), names=(), constants=code.co_consts[:1])
    e = Emitter(spec, Position(code.co_firstlineno, code.co_firstlineno, 0, 0))
    head = instructions[found.head]
    end = head.target
    assert end is not None
    rest = _rest(code, instructions, found, end)
    inside = frozenset(found.body)
    blocked = [evolve(i, name="JUMP", target=found.head) if at in inside else i for at, i in enumerate(instructions)]
    if rest is not None:
        blocked[found.head] = evolve(head, target=None)
    kept = [index for index in reachable(blocked, 0) if index not in inside]
    labels = {index: Label(str(index)) for index in (*kept, found.head, found.head + 1, end)}
    after = Label("after")
    _copy(e, instructions, [index for index in kept if index < found.head], labels)
    e.place(labels[found.head])
    e.position = head.position
    e.protect = (
        None if head.handler is None else Protect(labels[head.handler.target], head.handler.depth, head.handler.lasti)
    )
    e.op(head.name, head.arg, head.value, labels[end] if rest is None else after)
    e.place(labels[found.head + 1])
    _call_round(e, found, round_code)
    e.jump(labels[found.head])
    _copy(e, instructions, [index for index in kept if index > found.head], labels)
    if rest is not None:
        e.protect = None
        e.position = instructions[end].position
        e.place(after)
        _run_rest(e, code, end, rest)
    return e.finish()


def _call_round(e: Emitter, found: Round, round_code: CodeType) -> None:
    """item -> . What a round changes is let go of before the call: nothing lives longer for its sake."""
    item = e.temp()
    e.store_local(item)
    e.pinned(_C.hand_over)
    e.function(round_code, round_code.co_freevars)
    for name in (item, *found.reads):
        e.op("LOAD_FAST", value=name)
        if name == item or name in found.stores:
            e.op("DELETE_FAST", value=name)
    e.call(2 + len(found.reads))
    if not found.changes:
        e.pop()
    elif len(found.changes) > 1:
        e.unpack(len(found.changes))
    for name in found.changes:
        e.op("STORE_FAST", value=name)


def _rest(code: CodeType, instructions: Sequence[Instruction], found: Round, end: int) -> tuple[str, ...] | None:
    """The variables that what follows the loop reads, where that can be a function of its own: all bound, and nothing on the stack."""
    handler = instructions[end].handler
    computes = any(instructions[index].name in _COMPUTES for index in reachable(instructions, end))
    if found.depth != 1 or handler is not None or instructions[found.head].handler is not None or not computes:
        return None
    read = live_locals(instructions)[end]
    if not read <= bound_locals(instructions, _parameters(code)).get(end, frozenset()):
        return None
    return tuple(name for name in code.co_varnames if name in read)


def _run_rest(e: Emitter, code: CodeType, end: int, variables: tuple[str, ...]) -> None:
    made = resume_code(code, end, (), variables)
    if made.lets_go:
        e.pinned(_C.hand_over)
    e.function(made.code, made.free)
    for parameter in made.parameters:
        if parameter == FIRST:
            e.op("LOAD_DEREF", value=code.co_varnames[0])
        else:
            e.op("LOAD_FAST", value=parameter)
            e.op("DELETE_FAST", value=parameter)
    e.call(len(made.parameters) + made.lets_go)
    e.ret()
