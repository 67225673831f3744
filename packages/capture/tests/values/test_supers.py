"""`super` objects: one that is made while tracing, one that a frame is given, one on the stack where a graph ended."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region


class Base:
    """Half of everything."""

    scale = 2

    def __init__(self, x=None):
        self.begun = True
        self.x = x

    def half(self, x):
        return x / self.scale

    @classmethod
    def named(cls, x):
        return cls.__name__, x + 1

    @property
    def third(self):
        return 3 if self.x is None else self.x / 3


class Derived(Base):
    """Whose methods say otherwise."""

    scale = 4

    def half(self, x):
        return x

    @property
    def third(self):
        return "no"


class Wrapper(torch.Tensor):
    """A tensor that capture does not trace: its own `__init__` ends a graph at `super()`, and again at what that finds."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))


def _methods(found, x):
    return found.half(x), found.named(x), found.third, found.scale, x * 2


def _constructor(found, x):
    found.__init__(x)
    return found.third + 1


@pytest.mark.parametrize("program", [_methods, _constructor])
def test_one_that_a_frame_is_given(check, program):
    """Attributes are those that come after its class, also `__init__`, which `super` itself has."""
    check(program, super(Derived, Derived()), torch.ones(3))


def test_one_of_a_class(check):
    check(lambda found, x: (found.named(x), found.scale), super(Derived, Derived), torch.ones(3))


def test_another_class_or_instance_is_another_program():
    """Its class is guarded, and what is read of its instance."""

    class Third(Derived):
        """Above `Base` there is `Derived` now."""

    region = make_region(lambda found, x: (found.half(x), found.scale), backend=eager)
    x = torch.ones(3)
    owner = Third()
    assert torch.equal(region(super(Derived, owner), x)[0], x / 4)
    assert torch.equal(region(super(Third, owner), x)[0], x)
    assert torch.equal(region(super(Derived, owner), x * 3)[0], x * 3 / 4)


def test_one_on_the_stack_where_a_graph_ended():
    """`super().__init__()` of an object that is not traced."""

    def program(x):
        return Wrapper(x) * 2 + Wrapper(x + 1)

    region = make_region(program, backend=eager)
    assert torch.equal(region(torch.ones(3)), torch.full((3,), 4.0))


def test_one_without_an_instance_is_left_to_python(broken):
    assert broken(lambda found, x: (found.__self__, x + 1), super(Derived), torch.ones(3))
