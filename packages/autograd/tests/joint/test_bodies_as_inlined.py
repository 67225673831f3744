"""Calls of a body are, for autograd, the operations that are in it.

Random bodies with several results, called several times: which inputs have a gradient, what the gradients are where eager has none of some results,
which writes between forward and backward are errors, and through what a second backward may come.
"""

from __future__ import annotations

import random

import pytest
import torch
from lifting import fakes
from nested_graphs import lifted

from flambeau_autograd import assemble, prepare

#: At 0 the gradients of some are infinite, so that zeros in the place of no gradient would make nan of them.
UNARY = (
    torch.sin,
    torch.exp,
    torch.sqrt,
    torch.log1p,
    torch.relu,
    torch.floor,
    torch.square,
    torch.log,
    lambda x: x.detach() * 2,
)
BINARY = (torch.add, torch.mul, torch.sub, torch.div, torch.maximum)


def body_of(draw, operands):
    """A function of tensors of one shape, and the number of its results."""
    steps = []
    for count in range(operands, operands + draw.randint(3, 7)):
        if draw.random() < 0.5:
            steps.append((draw.choice(UNARY), (draw.randrange(count),)))
        else:
            steps.append((draw.choice(BINARY), (draw.randrange(count), draw.randrange(count))))
    made = range(operands, operands + len(steps))
    results = draw.sample(made, draw.randint(1, min(3, len(made))))

    def body(*values):
        values = list(values)
        for function, places in steps:
            values.append(function(*(values[place] for place in places)))
        return tuple(values[place] for place in results)

    return body, len(results)


def program(seed):
    """A function of `call(body, *operands)` and three inputs."""
    draw = random.Random(seed)
    bodies = [body_of(draw, 2) for _ in range(draw.randint(1, 2))]
    calls = [(draw.randrange(len(bodies)), draw.random(), draw.random()) for _ in range(draw.randint(2, 3))]
    kept = draw.random()

    def run(call, *inputs):
        values = list(inputs)
        shown = []
        for which, first, second in calls:
            body, count = bodies[which]
            operands = [values[int(place * len(values))] for place in (first, second)]
            found = call(body, count, *operands)
            values += found
            shown += found if kept < 0.5 else found[-1:]
        return (*shown, values[-1] * values[0])

    return run


def compiled(run, inputs):
    """What is run again in eager has the operations themselves."""
    bodies = {}

    def function(hop, *values):
        def call(body, count, *operands):
            name = f"body_{len(bodies)}"
            graph, name = bodies.setdefault(body, (lifted(len(operands), lambda _, *given: body(*given)), name))
            result = hop("invoke_subgraph", graph, name, *operands)
            return [result[place] for place in range(count)]

        return run(call, *values)

    plain = lifted(len(inputs), lambda hop, *values: eager(run)(*values))
    made = prepare(lifted(len(inputs), function), fakes(inputs, dynamic=False), plain=plain)
    return assemble(made.signature, made.forward.forward, made.backward and made.backward.forward, replay=plain)


def eager(run):
    return lambda *inputs: run(lambda body, count, *operands: list(body(*operands)), *inputs)


def tensors():
    return [torch.tensor([0.0, 0.5, 2.0]), torch.tensor([1.0, 0.0, -1.5]), torch.tensor([0.0, -2.0, 0.25])]


def wanting(wanted):
    return [tensor.requires_grad_(place in wanted) for place, tensor in enumerate(tensors())]


def outcome(function):
    """What a call gives, or that it is an error: a write, or a second backward."""
    try:
        return function()
    except RuntimeError as error:
        assert "inplace" in str(error) or "second time" in str(error)
        return "error"


def same(ours, theirs):
    assert (ours == "error") == (theirs == "error")
    if theirs == "error":
        return
    assert [grad is None for grad in ours] == [grad is None for grad in theirs]
    for one, other in zip(ours, theirs):
        if other is not None:
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("seed", range(60))
def test_gradients_and_errors_are_those_of_the_operations(seed):
    run, draw = program(seed), random.Random(seed + 1000)
    wanted = set(draw.sample(range(3), draw.randint(1, 3)))
    versions = (compiled(run, wanting(wanted)), eager(run))
    ends = [place for place, out in enumerate(versions[1](*wanting(wanted))) if out.requires_grad]
    for _ in range(4 if ends else 0):
        first, second = (draw.sample(ends, draw.randint(1, len(ends))) for _ in range(2))
        written, keep = draw.choice(["no", "no", "input", "output"]), draw.random() < 0.5
        target = draw.random()
        found = []
        for function in versions:
            inputs = wanting(wanted)
            outputs = function(*inputs)
            leaves = [tensor for tensor in inputs if tensor.requires_grad]
            if written != "no":
                among = inputs if written == "input" else [out for out in outputs if out._base is None]
                with torch.no_grad():
                    among[int(target * len(among))].mul_(1)

            def gradients(places, outputs=outputs, leaves=leaves, keep=keep):
                given = [outputs[place] for place in places]
                seeds = [torch.full_like(out, 1 + place) for place, out in zip(places, given)]
                return torch.autograd.grad(given, leaves, seeds, allow_unused=True, retain_graph=keep)

            found.append((outputs, outcome(lambda: gradients(first)), outcome(lambda: gradients(second))))
        (ours, *our_grads), (theirs, *their_grads) = found
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        assert [out.requires_grad for out in ours] == [out.requires_grad for out in theirs]
        same(our_grads[0], their_grads[0])
        # What eager frees on its way to an error is lost there alone.
        if keep or their_grads[0] != "error":
            same(our_grads[1], their_grads[1])
