"""Sources are unique, print as Python and resolve to the object they name."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch

from flambeau_capture.sources.source import (
    Attribute,
    Builtin,
    CallResult,
    CellContents,
    DictKeyAt,
    Global,
    InstanceDict,
    Item,
    Local,
    Pinned,
    SourceError,
    TensorOffset,
    TensorSize,
    TensorStride,
    TypeOf,
    resolve,
    root_of,
    steps,
)


def test_equal_paths_are_one_object():
    assert Item(Attribute(Local("a"), "b"), 1) is Item(Attribute(Local("a"), "b"), 1)
    assert Local("a") is not Global("a")
    different = [Item(Local("a"), key) for key in [1, True, 1.0, "1", b"1", (1,), (True,), 0.0, -0.0]]
    assert len(set(different)) == 9
    source = Item(InstanceDict(Local("self")), "_parameters")
    assert copy.deepcopy(source) is source
    assert copy.copy(source) is source
    assert pickle.loads(pickle.dumps(source)) is source


def test_pinned_objects_are_told_apart_by_identity_and_released():
    first, second = [1], [1]
    assert Pinned(first) is Pinned(first)
    assert Pinned(first) is not Pinned(second)

    class Marker:
        pass

    import weakref

    marker = Marker()
    gone = weakref.ref(marker)
    Item(Pinned(marker), 3)
    del marker
    gc.collect()
    assert gone() is None


def test_every_step_prints_and_resolves():
    cell = (lambda value: lambda: value)(5).__closure__[0]
    tensor = torch.arange(12.0).view(3, 4)[1:]

    class Thing:
        def __init__(self):
            self.k = 1

    thing = Thing()
    frame = {"t": tensor, "o": thing, "c": cell, "d": {"a": 1, "b": 2}, "f": lambda: 9}
    expected = {
        Item(Local("d"), "b"): ("L['d']['b']", 2),
        DictKeyAt(Local("d"), 1): ("list(L['d'])[1]", "b"),
        Attribute(Local("o"), "k"): ("L['o'].k", 1),
        InstanceDict(Local("o")): ("L['o'].__dict__", thing.__dict__),
        TypeOf(Local("o")): ("type(L['o'])", Thing),
        CellContents(Local("c")): ("L['c'].cell_contents", 5),
        TensorSize(Local("t"), 1): ("L['t'].size()[1]", 4),
        TensorStride(Local("t"), 0): ("L['t'].stride()[0]", 4),
        TensorOffset(Local("t")): ("L['t'].storage_offset()", 4),
        CallResult(Local("f")): ("L['f']()", 9),
        Global("g"): ("G['g']", 7),
        Builtin("len"): ("B['len']", len),
        Pinned(frame): (Pinned(frame).name, frame),
    }
    for source, (name, value) in expected.items():
        assert source.name == str(source) == name
        assert resolve(source, frame, {"g": 7}) == value
    for source in (
        Local("nope"),
        Global("nope"),
        Item(Local("d"), "z"),
        Attribute(Local("o"), "z"),
        TensorSize(Local("t"), 9),
    ):
        with pytest.raises(SourceError):
            resolve(source, frame, {})


def test_paths_run_from_root_to_leaf():
    source = Item(Attribute(Local("a"), "b"), 1)
    assert [type(step).__name__ for step in steps(source)] == ["Local", "Attribute", "Item"]
    assert root_of(source) is Local("a")
