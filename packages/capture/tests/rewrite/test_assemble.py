"""Replacement code from hand-made frame results: sources, values, effects, exits."""

from __future__ import annotations

import collections
import sys
import traceback

import pytest
import torch

from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.captured import (
    Break,
    CallFunction,
    DeleteAttribute,
    DeleteGlobal,
    FrameResult,
    Position,
    ReplaceItems,
    Return,
    SetAttribute,
    SetCell,
    SetGlobal,
)
from flambeau_capture.rewrite.assemble import assemble
from flambeau_capture.rewrite.resume import CannotResume, is_part
from flambeau_capture.sources import source as s
from flambeau_capture.values.base import NULL

from .cutting import with_code
from .values import Cell, Constant, Fresh, Output, Sourced, frame_of, pinned

GLOBAL = {"k": [10, 20]}


class Thing:
    def __init__(self):
        self.x = 5

    def __getattribute__(self, name):
        if name == "__dict__":
            raise RuntimeError("not to be asked")
        return object.__getattribute__(self, name)


def run(function, result, *args, compiled=None):
    return with_code(function, assemble(frame_of(function), result, compiled))(*args)


def returning(value, *effects, graph=None, inputs=(), outputs=()):
    return FrameResult(graph, tuple(inputs), tuple(outputs), tuple(effects), Return(value))


def _kinds(kind):
    for sub in kind.__subclasses__():
        yield sub
        yield from _kinds(sub)


def test_every_source_is_loaded():
    """What each kind of source loads is what resolving it gives."""
    made = []

    def f(a, b, cell):
        made.append(lambda: b)
        return a, b, cell

    table = {"first": 1, "second": [2, 3]}
    cell = made.append.__self__.__class__  # any class will do
    tensor = torch.empty(3, 4)[:, 1:]
    thing = Thing()
    a, b, c = s.Local("a"), s.Local("b"), s.Local("cell")
    sources = [
        a,
        s.Item(b, "second"),
        s.Item(s.Item(b, "second"), 1),
        s.DictKeyAt(b, 1),
        s.Attribute(s.Item(a, 0), "x"),
        s.Item(s.InstanceDict(s.Item(a, 0)), "x"),
        s.TypeOf(s.Item(a, 0)),
        s.TensorSize(s.Item(a, 1), 1),
        s.TensorStride(s.Item(a, 1), 0),
        s.TensorOffset(s.Item(a, 1)),
        s.CallResult(c),
        s.Item(s.Item(s.Global("GLOBAL"), "k"), 0),
        s.Builtin("len"),
        s.Pinned(table),
        s.CellContents(s.Pinned((lambda: table).__closure__[0])),
        s.StoredItem(b, "second"),
        s.Computed(s.Item(s.Item(b, "second"), 0), lambda number: -number, "-b['second'][0]"),
    ]
    assert {type(step) for x in sources for step in s.steps(x)} == set(_kinds(s.Source)) - {s.Step}
    arguments = {"a": (thing, tensor), "b": table, "cell": cell}
    got = run(f, returning(Fresh(*(Sourced(x) for x in sources))), *arguments.values())
    wanted = [s.resolve(x, arguments, globals()) for x in sources]
    assert len(got) == len(wanted)
    for x, y in zip(got, wanted):
        assert x is y or x == y


def test_graph_outputs_and_order():
    """Inputs are loaded before effects; outputs keep their identity."""

    def f(x, items):
        return None

    out = Output()
    x, items = Sourced(s.Local("x")), Sourced(s.Local("items"), list)
    first = Sourced(s.Item(s.Local("items"), 0))
    result = returning(
        Fresh(out, first, out),
        ReplaceItems(items, "list", (out, Constant(2))),
        graph=object(),
        inputs=(x.source, first.source),
        outputs=(out,),
    )
    log, data, token = [], ["old"], object()

    def compiled(*args):
        log.append(args)
        return (token,)

    got = run(f, result, 7, data, compiled=compiled)
    assert log == [(7, "old")]
    assert got[0] is token and got[1] == "old" and got[2] is token
    assert data == [token, 2]

    def boxed(args):
        log.append(list(args))
        args.clear()
        return (token,)

    boxed._boxed_call = True
    assert run(f, result, 8, ["new"], compiled=boxed)[0] is token
    assert log[-1] == [8, "new"]


def test_values_keep_aliases_and_cycles():
    def f():
        return None

    loop = Fresh()
    loop.items = [loop, Constant(1)]
    got = run(f, returning(Fresh(loop, loop)))
    assert got[0] is got[1] and got[0][0] is got[0] and got[0][1] == 1


def test_effects():
    """Each kind of effect does its work, in order."""

    class Plain:
        def __setattr__(self, name, value):
            log.append(name)
            object.__setattr__(self, name, value)

    def f():
        return None

    log = []
    thing, namespace = Plain(), {"gone": 1}
    items, queue, members, table, ordered = (
        [1, 2],
        collections.deque([1]),
        {1},
        {1: 2, 3: 4},
        collections.OrderedDict(a=1),
    )
    closed = (lambda: log).__closure__[0]
    other = type(closed)(0)
    effects = [
        SetAttribute(pinned(thing), "quiet", Constant(1)),
        SetAttribute(pinned(thing), "loud", Constant(2), plain=False),
        SetAttribute(pinned(thing), "gone", Constant(3)),
        DeleteAttribute(pinned(thing), "gone"),
        SetAttribute(pinned(Plain), "shared", Constant(4)),
        SetGlobal(namespace, "made", Constant(5)),
        DeleteGlobal(namespace, "gone"),
        SetGlobal(None, "_TEST_GLOBAL", Constant(6)),
        SetGlobal(None, "_TEST_GONE", Constant(7)),
        DeleteGlobal(None, "_TEST_GONE"),
        SetCell(pinned(other), Constant(8)),
        ReplaceItems(pinned(items), "list", (Constant(3),)),
        ReplaceItems(pinned(queue), "deque", (Constant(3), Constant(4))),
        ReplaceItems(pinned(members), "set", (Constant(3), Constant(4))),
        ReplaceItems(pinned(table), "dict", (Constant(3), Constant(9), Constant(1), Constant(2))),
        ReplaceItems(pinned(ordered), "dict", (Constant("b"), Constant(1), Constant("a"), Constant(2))),
        CallFunction(pinned(log.append), (Constant("called"),)),
    ]
    assert run(f, returning(Constant("end"), *effects)) == "end"
    assert log == ["loud", "called"]
    assert vars(thing) == {"quiet": 1, "loud": 2} and Plain.shared == 4
    assert namespace == {"made": 5} and globals().pop("_TEST_GLOBAL") == 6 and "_TEST_GONE" not in globals()
    assert other.cell_contents == 8
    assert items == [3] and list(queue) == [3, 4] and members == {3, 4}
    assert list(table.items()) == [(3, 9), (1, 2)] and list(ordered.items()) == [("b", 1), ("a", 2)]


def break_at(function, name, stack, locals_, handled=(), nth=0):
    instructions = decode_normalised(function.__code__)
    index = [at for at, i in enumerate(instructions) if i.name == name][nth]
    position = Position(function.__code__.co_filename, 1, function.__name__)
    return Break(index, tuple(stack), locals_, "test", position, tuple(handled))


def after(function, exit_, *effects):
    return FrameResult(None, (), (), tuple(effects), exit_)


def test_branch_resumes_in_both_arms():
    def f(x, y):
        if x:
            return y + 1
        return y - 1

    name = next(i.name for i in decode_normalised(f.__code__) if i.name.startswith("POP_JUMP"))
    exit_ = break_at(f, name, [Sourced(s.Local("x"))], {"x": Sourced(s.Local("x")), "y": Constant(40)})
    assert run(f, after(f, exit_), True, 1) == 41
    assert run(f, after(f, exit_), False, 1) == 39


def test_cells_made_by_the_trace_are_shared_with_the_rest():
    """Closures made before the break and the resume function see one cell."""

    def f(n):
        def get():
            return n

        print(get)
        n += 1
        return n, get()

    closed = Cell(Constant(10))

    class Closure(Fresh):
        def rebuild(self, e):
            e.value(closed)
            e.build("tuple", 1)
            e.const(next(c for c in f.__code__.co_consts if hasattr(c, "co_code")))
            e.op("MAKE_FUNCTION", 8)

        def fill(self, e):
            pass

    get = Closure()
    printer = pinned(lambda g: None)
    operands = [printer, NULL, get] if not sys.version_info < (3, 13) else [NULL, printer, get]
    index = [at for at, i in enumerate(decode_normalised(f.__code__)) if i.name == "CALL"][0]
    exit_ = Break(index, tuple(operands), {"n": closed, "get": get}, "test", Position("f", 1, "f"))
    assert run(f, after(f, exit_), 1) == (11, 11)


def test_resume_functions_are_named_and_cached():
    """The same cut gives the same code object, named after the line; tracebacks show the user's function and line."""

    def f(g):
        x = g()
        return x / 0

    failing = pinned(lambda: 3)
    operands = [failing, NULL] if not sys.version_info < (3, 13) else [NULL, failing]
    exit_ = break_at(f, "CALL", operands, {})
    codes = [assemble(frame_of(f), after(f, exit_), None) for _ in range(2)]
    resumes = [[c for c in code.co_consts if hasattr(c, "co_code")] for code in codes]
    assert len(resumes[0]) == 1 and resumes[0][0] is resumes[1][0]
    line = f.__code__.co_firstlineno + 1
    assert resumes[0][0].co_qualname.endswith(f".f.resume_at_{line}")
    with pytest.raises(ZeroDivisionError) as caught:
        with_code(f, codes[0])(None)
    frames = [(frame.name, frame.lineno) for frame in traceback.extract_tb(caught.tb)][1:]
    assert frames == [("f", line), ("f", line + 1)]


def test_generators_are_refused():
    def f():
        yield 1

    with pytest.raises(CannotResume, match="generators"):
        assemble(frame_of(f), returning(Constant(1)), None)


def test_a_stack_that_its_handler_does_not_expect_is_refused():
    """The handler goes on with the iterator of the loop, which a frame at the break has not got."""

    def f(items):
        for _ in items:
            try:
                print()
            except ValueError:
                pass

    exit_ = break_at(f, "LOAD_GLOBAL", [], {})
    with pytest.raises(CannotResume, match="what the handler expects"):
        assemble(frame_of(f), after(f, exit_), None)


def test_code_objects_stay_hashable():
    """Tools that keep code objects in dicts must not trip over pinned objects."""

    def f():
        return None

    hash(assemble(frame_of(f), returning(pinned([1, 2])), None))


def test_nothing_leaks():
    """Objects the code pins die with it, and calls leave reference counts as they were."""

    def f(x):
        return print(x)

    log = []
    token = object()
    printer = pinned(log.append)
    operands = [printer, NULL] if not sys.version_info < (3, 13) else [NULL, printer]
    value = Fresh(Sourced(s.Local("x")))
    code = assemble(frame_of(f), after(f, break_at(f, "CALL", [*operands, value], {"x": value})), None)
    function = with_code(f, code)
    function(token)
    log.clear()
    before = sys.getrefcount(token)
    for _ in range(1000):
        function(token)
        log.clear()
    assert sys.getrefcount(token) == before


def test_parts_are_told_by_their_names():
    """Of functions and of methods; a function that only says so in the middle of its name is none."""
    code = (lambda: None).__code__
    names = {
        "f.resume_at_51": True,
        "C.m.round_at_7": True,
        "f": False,
        "f.resume_at_51.g": False,
        "resume_at_x": False,
    }
    assert {name: is_part(code.replace(co_qualname=name)) for name in names} == names
