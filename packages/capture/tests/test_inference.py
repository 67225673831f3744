"""Inference mode entered inside of a function: results are inference tensors where eager's are, and are refused where eager's are."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

LAYER = torch.nn.Linear(3, 3)
OUTSIDE = torch.inference_mode()


def _all_inside(x):
    with torch.inference_mode():
        return x.sin() + 1


@torch.inference_mode()
def _decorated(x):
    return LAYER(x).relu(), [x + 1]


def _copied_outside(x):
    with torch.inference_mode():
        y = x.sin() + 1
    return y.clone()


def _both(x):
    with torch.inference_mode():
        y = x.sin() + 1
    return y, x * 2


def _view(x):
    with torch.inference_mode():
        y = x[0]
    return y, y * 2


def _added(x):
    with torch.inference_mode():
        y = x * 2
    return LAYER(x) + y


def _off(x):
    with torch.no_grad(), torch.inference_mode(False):
        y = LAYER(x)
    return y, torch.is_grad_enabled()


def _off_inside(x):
    with torch.inference_mode():
        a = x * 2
        with torch.inference_mode(False):
            b = LAYER(x)
    return b, a.shape


def _gradients_inside(x):
    with torch.inference_mode():
        with torch.enable_grad():
            y = LAYER(x)
        inside = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return y + 1, inside, torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def _written(x):
    with torch.inference_mode():
        x.add_(1)
    return x * 2


def _from_outside(x):
    with OUTSIDE:
        return x * 2, OUTSIDE.mode


def _by_hand(x):
    context = torch.inference_mode()
    context.__enter__()
    y = x * 2
    context.__exit__(None, None, None)
    return y


def _checked(x):
    with torch.inference_mode():
        y = LAYER(x)
        assert (y == y).all()
        return y


def _saved(x):
    with torch.inference_mode():
        y = x * 2
    return LAYER(x) * y


def _written_outside(x):
    with torch.inference_mode():
        y = x * 2
    return y.add_(1)


def _broken_inside(x):
    with torch.inference_mode():
        print(end="")
        return x * 2


ONE_GRAPH = [
    _all_inside, _decorated, _copied_outside, _both, _view, _added, _off, _off_inside, _gradients_inside, _written, _from_outside, _by_hand, _checked,
]  # fmt: skip
OTHERS = [_saved, _written_outside, _broken_inside]


def _facts(value):
    if isinstance(value, torch.Tensor):
        return value.is_inference(), value.requires_grad, value.dtype
    return [_facts(part) for part in value] if isinstance(value, (list, tuple)) else value


def _observed(function, x):
    kind, found = outcome(function, x)
    facts = _facts(found) if kind == "returned" else None
    return kind, found, facts, x, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def _compare(program, **options):
    for around in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        region = make_region(program, eager, **options)
        for requires_grad in (False, False, True) if program is not _written else (False, False):
            sides = []
            for function in (region, program):
                x = torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_(requires_grad)
                with around():
                    sides.append(_observed(function, x))
            assert_equal(*sides)


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_one_graph_gives_what_eager_gives(program):
    """In every mode around it, with and without gradients."""
    _compare(program, fullgraph=True)


@pytest.mark.parametrize("program", OTHERS, ids=lambda program: program.__name__)
def test_what_eager_refuses_or_a_break_is_left_to_python(program):
    """An inference tensor is saved for no backward and written nowhere else; a frame is not cut inside of the mode."""
    _compare(program)


def _kinds(program):
    graphs = []

    def backend(graph, inputs):
        graphs.append((graph, torch.is_inference_mode_enabled()))
        return graph.forward

    make_region(program, backend, fullgraph=True)(torch.ones(3, 3))
    ((graph, compiled_in_it),) = graphs
    targets = {str(getattr(node.target, "__name__", node.target)) for node in graph.graph.nodes}
    return compiled_in_it, "_enter_inference_mode" in targets, "_set_grad_enabled" in targets


def test_what_a_backend_sees():
    """No mode where all of the graph is in it; gradients switched off where no result shows it; the mode itself else."""
    assert _kinds(_all_inside) == (True, False, False)
    assert _kinds(_copied_outside) == (False, False, True)
    assert _kinds(_both) == (False, True, False)


def test_a_graph_that_raises_leaves_the_mode():
    """Where the operation is inside of it."""

    def program(x):
        with torch.inference_mode():
            y = x.index_select(0, torch.tensor([7]))
        return y, x * 2

    _compare(program)


def test_an_error_that_is_kept_keeps_no_mode():
    """It holds the frame of the graph, where the mode was entered."""

    def program(x):
        y = x + 1
        with torch.inference_mode():
            try:
                with torch.inference_mode():
                    y = y * 2
                    y = y + x.index_select(0, torch.tensor([7])).sum()
            except IndexError as error:
                kept.append(error)
                y = y + 1
        return y, x * 2

    kept = []
    _compare(program)
