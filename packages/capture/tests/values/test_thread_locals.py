"""A `threading.local`: read, written, and another one in each thread."""

from __future__ import annotations

import threading

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def _read(x, local):
    return x * getattr(local, "scale", 1.0)


def _count(x, local):
    local.calls = getattr(local, "calls", 0) + 1
    return x * local.calls, hasattr(local, "scale")


def _missing(x, local):
    return x * local.scale


def _asked_for_itself(x, local):
    return x + 1, type(local), isinstance(local, threading.local), local.__class__, bool(local), local is not None


@pytest.mark.parametrize("program", [_read, _count, _missing, _asked_for_itself], ids=lambda p: p.__name__)
def test_attributes_come_and_go(program):
    """Guarded where they were found; a name that was missing is looked for again."""
    region = make_region(program, eager)
    sides = []
    for function in (region, program):
        local, found = threading.local(), []
        for change in (None, None, ("scale", 2.0), ("scale", 3.0), "delete", None):
            if change == "delete":
                del local.scale
            elif change is not None:
                setattr(local, *change)
            found.append((outcome(function, torch.ones(2), local), sorted(local.__dict__.items())))
        sides.append(found)
    assert_equal(*sides)


def test_one_graph_reads_and_writes(check):
    """A tensor and a module among what it holds."""
    local = threading.local()
    local.layer = torch.nn.Linear(4, 4)
    local.scale = 2

    def program(x):
        local.last = local.layer(x) * local.scale
        return local.last

    check(program)
    assert local.last.shape == (3, 4)


def test_each_thread_has_its_own():
    """The entry of one thread serves another as far as its attributes are alike."""
    local = threading.local()
    local.scale = 3.0
    region = make_region(_read, eager)
    found = []

    def work():
        found.append(region(torch.ones(1), local).item())
        local.scale = 9.0
        found.append(region(torch.ones(1), local).item())

    found.append(region(torch.ones(1), local).item())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    found.append(region(torch.ones(1), local).item())
    assert found == [3.0, 1.0, 9.0, 3.0]


def test_what_is_not_followed_breaks(broken):
    """The whole of it; a class derived from it may run code in each thread."""
    assert broken(lambda x, local: (x + 1, local.__dict__), torch.ones(2), threading.local()) == {
        "unsupported-attribute"
    }

    class Derived(threading.local):
        a = 1

    assert broken(lambda x, local: (x + 1, local.a), torch.ones(2), Derived()) == {"unsupported-argument"}
