"""Code that must not run on a thread for a while: calls of it raise before anything of it has run."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from flambeau_capture.native import _C

RAN: list[object] = []


class TrippedError(Exception):
    pass


def trip():
    raise TrippedError


def watched(x, *rest, key=None):
    RAN.append(x)
    return x


def generator(x):
    RAN.append(x)
    yield x


class Object:
    def method(self):
        RAN.append(self)

    @property
    def told(self):
        RAN.append(self)

    def __getitem__(self, key):
        RAN.append(key)

    def __add__(self, other):
        RAN.append(other)


CALLS = {
    "function": (watched, lambda: watched(1)),
    "keywords": (watched, lambda: watched(*(1, 2), key=3)),
    "of C": (watched, lambda: list(map(watched, [1]))),
    "generator": (generator, lambda: list(generator(1))),
    "method": (Object.method, lambda: Object().method()),
    "property": (Object.told.fget, lambda: Object().told),
    "subscript": (Object.__getitem__, lambda: Object()[1]),
    "operator": (Object.__add__, lambda: Object() + 1),
}


@pytest.fixture(autouse=True)
def _nothing_is_watched():
    RAN.clear()
    yield
    _C.set_tripwires(None)
    assert not _C.hook_installed()


@pytest.mark.parametrize("name", CALLS)
def test_calls_raise(name):
    function, call = CALLS[name]
    for _ in range(20):  # CPython specialises what runs often
        call()
    RAN.clear()
    assert _C.set_tripwires({function.__code__: trip}) is None and _C.hook_installed()
    for _ in range(20):
        with pytest.raises(TrippedError):
            call()
    assert not RAN
    assert list(_C.set_tripwires(None)) == [function.__code__]
    call()


def test_arguments_are_let_go():
    _C.set_tripwires({watched.__code__: trip})
    given = Object()
    alive = weakref.ref(given)
    with pytest.raises(TrippedError):
        watched(given, [given], key=given)
    _C.set_tripwires(None)
    del given
    gc.collect()
    assert alive() is None


def test_what_stands_for_a_call_may_let_it_run():
    _C.set_tripwires({watched.__code__: lambda: RAN.append("asked")})
    assert watched(1) == 1 and RAN == ["asked", 1]


def test_other_threads_run_it():
    _C.set_tripwires({watched.__code__: trip})
    thread = threading.Thread(target=watched, args=(1,))
    thread.start()
    thread.join()
    assert RAN == [1]


def test_equal_code_of_another_function():
    def one():
        return 1

    other = type(one)(one.__code__.replace(), {})
    assert one.__code__ == other.__code__
    _C.set_tripwires({one.__code__: trip})
    assert other() == 1
    with pytest.raises(TrippedError):
        one()


@pytest.mark.parametrize("wires", [1, {1: trip}])
def test_what_is_no_table(wires):
    with pytest.raises(TypeError):
        _C.set_tripwires(wires)
