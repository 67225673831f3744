"""Generators inlined into the trace; coroutines break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...signals import GraphBreak, TracedRaise
from ...values.base import Value
from ...values.constants import ConstantValue
from ...values.generators import GeneratorValue
from ..registry import Outcome, handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("YIELD_VALUE")
def yield_value(f: Frame, i: Instruction) -> Outcome:
    if f.caller is None:
        raise GraphBreak("generator-function", "a generator's own frame")
    f.yielded = f.pop()
    return Outcome.YIELDED


@handles("GET_YIELD_FROM_ITER")
def get_yield_from_iter(f: Frame, i: Instruction) -> None:
    f.push(f.pop().realise(f.tracer).iterate(f.tracer))


@handles("SEND")
def send(f: Frame, i: Instruction) -> None:
    """`iterator value -> iterator yielded`, or at the end `iterator result` and a jump (the iterator is dropped by END_SEND)."""
    value = f.pop()
    iterator = f.stack[-1]
    found: Value | None
    if isinstance(iterator, GeneratorValue):
        found = iterator.send(f.tracer, value)
        result = iterator.frame.returned
    else:
        found = iterator.next(f.tracer)
        result = ConstantValue(None)
    if found is not None:
        f.push(found)
        return
    assert i.target is not None
    if f.instructions[i.target].name != "END_SEND":
        f.pop()
    f.push(result)
    f.jump(i)


@handles("CALL_INTRINSIC_1")
def intrinsic(f: Frame, i: Instruction) -> None:
    """Around a generator's body: a StopIteration that it raises is a RuntimeError, any other exception goes on."""
    error = f.stack[-1]
    if f.instructions[f.next_index].name != "RERAISE" or issubclass(error.python_type(), StopIteration):
        raise GraphBreak("unsupported-instruction", "instruction CALL_INTRINSIC_1")


@handles("END_SEND")
def end_send(f: Frame, i: Instruction) -> None:
    del f.stack[-2]


@handles("CLEANUP_THROW")
def cleanup_throw(f: Frame, i: Instruction) -> None:
    raised = f.pop()
    raise TracedRaise(raised)


@handles("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "END_ASYNC_FOR", "BEFORE_ASYNC_WITH", "ASYNC_GEN_WRAP")
def coroutine(f: Frame, i: Instruction) -> None:
    raise GraphBreak("generator-function", "a coroutine")
