"""What the program lets go of after a break is gone at once: neither the frame before the break nor a call holds it on."""

import gc
import weakref

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

ALIVE = []


def note(reference):
    """A break; notes whether the object is still there."""
    ALIVE.append(reference() is not None)


note = torch.compiler.disable(note)


def deleted(x):
    b = x + 1
    reference = weakref.ref(b)
    note(reference)
    c = b * 2
    del b
    note(reference)
    return c


def rebound(x):
    b = x + 1
    reference = weakref.ref(b)
    note(reference)
    b = b.sin()
    b = b * 2
    note(reference)
    return b


def kept_to_the_end(x):
    b = x + 1
    reference = weakref.ref(b)
    note(reference)
    c = b * 2
    note(reference)
    return c, b.sum()


def two_breaks_later(x):
    b = x + 1
    reference = weakref.ref(b)
    note(reference)
    c = b * 2
    note(reference)
    c = c + b
    note(reference)
    del b
    note(reference)
    return c


def in_a_loop(x):
    b = x + 1
    reference = weakref.ref(b)
    for _ in range(2):
        c = b * 2
        note(reference)
    del b
    note(reference)
    return c


def on_the_stack(x):
    def product(reference):
        note(reference)
        return 2

    b = x + 1
    reference = weakref.ref(b)
    c = [b, product(reference)]
    b = c[0] * c[1]
    c = None
    note(reference)
    return b


def in_a_handler(x):
    b = x + 1
    reference = weakref.ref(b)
    try:
        note(reference)
        raise KeyError("b")
    except KeyError:
        c = b * 2
        del b
        note(reference)
    return c


@pytest.mark.parametrize(
    "function",
    [deleted, rebound, kept_to_the_end, two_breaks_later, in_a_loop, on_the_stack, in_a_handler],
    ids=lambda f: f.__name__,
)
def test_as_in_plain_python(function):
    """While it is compiled, and afterwards."""
    seen = []
    region = make_region(function, eager, suppress_errors=False)
    for run in (function, region, region):
        ALIVE.clear()
        gc.disable()
        try:
            run(torch.ones(3))
        finally:
            gc.enable()
        seen.append(list(ALIVE))
    assert seen[1:] == seen[:1] * 2
    assert True in seen[0]


def test_many_arguments():
    """More than are kept beside the call."""
    names = [f"v{i}" for i in range(40)]
    lines = [f"    {name} = x + {i}" for i, name in enumerate(names)]
    source = "\n".join([
        "def f(x):", *lines, "    r = weakref.ref(v39)", "    note(r)", "    del v39", "    note(r)",
        f"    return {' + '.join(names[:-1])}",
    ])  # fmt: skip
    space = {"weakref": weakref, "note": note}
    exec(source, space)
    region = make_region(space["f"], eager, suppress_errors=False)
    for _ in range(2):
        ALIVE.clear()
        assert torch.equal(region(torch.ones(2)), space["f"](torch.ones(2)))
        assert ALIVE == [True, False] * 2
