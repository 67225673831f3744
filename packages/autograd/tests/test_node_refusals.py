"""What the native node refuses: descriptions that contradict themselves, and what compiled code may not return."""

from __future__ import annotations

import pytest
import torch

from flambeau_autograd.wrappers.native import joint_type

_IDENTITY = {
    "forward": lambda x: (x * 2,), "backward": lambda grad: (grad * 2,), "results": 1, "extras": 0, "differentiable": (0,),
    "tangent_orders": ((0,),), "grad_inputs": (0,), "reached_by": ((0,),), "led_by": ((0,),), "saved": (), "watched": (), "frees": ((),),
    "bumped": (), "double": None, "flagged": (),
}  # fmt: skip


@pytest.mark.parametrize(
    "change, error, words",
    [
        ({"saved": (("elsewhere", 0, True, -1, True),)}, ValueError, "unknown place of a saved value: elsewhere"),
        ({"saved": ((7, 0, True, -1, True),)}, TypeError, "bad argument type"),
        ({"saved": (("extra", 0, True, -1, True),)}, ValueError, "a saved value is not among the results"),
        ({"saved": (("output", -1, True, -1, True),)}, ValueError, "a saved value is not among the results"),
        ({"saved": (("output", 0, True, 1, True),)}, ValueError, "a saved value shares memory with no result"),
        ({"saved": (("written", 0, True, -1, True),)}, ValueError, "a saved value is an input, a result or an extra"),
        ({"saved": (("input", -1, True, -1, True),)}, ValueError, "the index of an input is negative"),
        ({"saved": ((),)}, TypeError, "argument"),
        ({"watched": (("extra", 0, (0,), False),)}, ValueError, "a watched value is neither an input nor a result"),
        ({"watched": (("output", 1, (0,), False),)}, ValueError, "a watched value is neither an input nor a result"),
        ({"watched": ((),)}, TypeError, "argument"),
        ({"differentiable": (1,)}, ValueError, "a differentiable result does not exist"),
        ({"grad_inputs": (-1,)}, ValueError, "the index of an input is negative"),
        ({"reached_by": ()}, ValueError, "what decides each gradient is not known"),
        ({"reached_by": ((1,),)}, ValueError, "a gradient is decided by a result that does not exist"),
        ({"led_by": ()}, ValueError, "what leads to each input is not known"),
        ({"frees": ()}, ValueError, "what each backward frees is not known"),
        ({"tangent_orders": ()}, ValueError, "one tangent order is needed for each differentiable result"),
        ({"flagged": ((),)}, ValueError, "a flag is of no result"),
        ({"bumped": ("x",)}, TypeError, "int"),
        ({"bumped": 3}, TypeError, "a tuple of integers is expected"),
        ({"frees": 3}, TypeError, "a tuple of tuples is expected"),
        ({"results": None}, TypeError, "int"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(change, error, words):
    """By the native function when it is made, whatever of it was read already; the one that is right computes gradients."""
    made = joint_type(native=True)(**_IDENTITY)
    x = torch.randn(3, requires_grad=True)
    made(x)[0].sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
    with pytest.raises(error, match=words):
        joint_type(native=True)(**_IDENTITY | change)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"forward": lambda x: 3}, "object of type 'int' has no len"),
        ({"forward": lambda x: (3,)}, "result 0 of the compiled forward is a int, not a tensor"),
        ({"forward": lambda x: (x, x)}, "2"),
        (
            {"forward": lambda x: (x * 2, 3), "extras": 1, "saved": (("extra", 0, True, -1, True),)},
            "the compiled forward saved a int as a tensor",
        ),
    ],
)
def test_what_a_compiled_forward_may_not_return(change, words):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=words):
        joint_type(native=True)(**_IDENTITY | change)(torch.randn(3, requires_grad=True))
