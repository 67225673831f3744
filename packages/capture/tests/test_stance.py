"""Stances: what calls of regions do that is not the default, and that nothing of it stays."""

from __future__ import annotations

import pytest
import torch

from flambeau_capture import CompileRefusedError, Stance, agree_by, graph_break, make_region, set_stance


class Counting:
    """A backend that counts the graphs that it is given, with the sizes of their inputs."""

    def __init__(self):
        self.sizes = []

    def __call__(self, graph, inputs):
        self.sizes.append([tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor)])
        return graph.forward


@pytest.fixture
def taken():
    """Takes a stance for one test."""

    def take(name="default", **more):
        set_stance(Stance(name, **more))

    yield take
    set_stance(Stance())
    agree_by(None)


def _double(x):
    return x * 2


def _broken(x):
    y = x + 1
    graph_break()
    return y * 2


def test_force_eager_runs_nothing_that_is_compiled(taken):
    ran = []

    def noting(graph, inputs):
        def run(*given):
            ran.append(1)
            return graph.forward(*given)

        return run

    region = make_region(_double, noting)
    region(torch.ones(2))
    taken("force_eager")
    assert region(torch.ones(2)).tolist() == [2, 2]
    assert region(torch.ones(3)).tolist() == [2, 2, 2]
    taken()
    region(torch.ones(2))
    assert len(ran) == 2


def test_a_region_made_under_a_stance_has_it(taken):
    taken("force_eager")
    backend = Counting()
    region = make_region(_double, backend)
    region(torch.ones(2))
    assert not backend.sizes
    taken()
    region(torch.ones(2))
    assert len(backend.sizes) == 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_eager_on_recompile_runs_what_fits_and_compiles_nothing(taken, fullgraph):
    backend = Counting()
    region = make_region(_double, backend, fullgraph=fullgraph)
    region(torch.ones(2))
    taken("eager_on_recompile")
    assert region(torch.ones(2)).tolist() == [2, 2]
    assert region(torch.ones(3)).tolist() == [2, 2, 2]
    assert len(backend.sizes) == 1


def test_eager_on_recompile_runs_what_is_compiled_behind_a_break(taken):
    ran = []

    def noting(graph, inputs):
        def run(*given):
            ran.append(len(graph.graph.nodes))
            return graph.forward(*given)

        return run

    region = make_region(_broken, noting)
    region(torch.ones(2))
    ran.clear()
    taken("eager_on_recompile")
    assert region(torch.ones(2)).tolist() == [4, 4]
    assert len(ran) == 2


def test_fail_on_recompile_says_what_failed(taken):
    region = make_region(_double, Counting())
    taken("fail_on_recompile")
    with pytest.raises(CompileRefusedError, match="never was before"):
        region(torch.ones(2))
    taken()
    region(torch.ones(2))
    taken("fail_on_recompile")
    assert region(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(CompileRefusedError, match="size 0: expected 2, actual 3"):
        region(torch.ones(3))


def test_fail_on_recompile_lets_pass_what_was_never_compiled(taken):
    def raises_at_times(x, fail):
        if fail:
            raise ValueError("of the program")
        return x + 1

    region = make_region(raises_at_times, Counting())
    for fail in (True, False):
        try:
            region(torch.ones(2), fail)
        except ValueError:
            pass
    taken("fail_on_recompile")
    assert region(torch.ones(2), False).tolist() == [2, 2]
    without = make_region(lambda n: n + 1, Counting())
    assert without(3) == 4


@pytest.mark.parametrize("name", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_second_call_compiles_with_what_changed(taken, name):
    backend, first = Counting(), Counting()
    region = make_region(_double, backend)
    taken(name, first=first if name.startswith("aot") else None)
    assert region(torch.ones(3)).tolist() == [2, 2, 2]
    assert not backend.sizes
    assert len(first.sizes) == name.startswith("aot")
    for size in (5, 9, 4):
        assert region(torch.ones(size)).tolist() == [2] * size
    assert len(backend.sizes) == 1
    assert len(first.sizes) == name.startswith("aot")


def test_another_backend_has_entries_of_its_own(taken):
    own, other = Counting(), Counting()
    region = make_region(_double, own)
    region(torch.ones(2))
    taken(backend=other)
    region(torch.ones(2))
    region(torch.ones(2))
    assert (len(own.sizes), len(other.sizes)) == (1, 1)
    taken()
    region(torch.ones(2))
    taken(backend=other)
    region(torch.ones(2))
    assert (len(own.sizes), len(other.sizes)) == (1, 1)


def test_only_guards_that_differ_are_looked_at(taken):
    backend = Counting()
    region = make_region(lambda x, k: x * k, backend, dynamic=False)
    x = torch.ones(2)
    region(x, 2)
    taken(differing_only=True)
    assert region(x, 3).tolist() == [2, 2]  # one entry: nothing is looked at
    taken()
    region(x, 3)
    taken(differing_only=True)
    assert region(x, 2).tolist() == [2, 2]
    assert region(x, 3).tolist() == [3, 3]
    assert region(torch.ones(3), 3).tolist() == [3, 3, 3]  # sizes were never different
    assert len(backend.sizes) == 2
    assert region(x, 4).tolist() == [4, 4]
    assert len(backend.sizes) == 3


def test_a_stance_is_not_taken_inside_a_region():
    def takes(x):
        set_stance(Stance("force_eager"))
        return x + 1

    with pytest.raises(RuntimeError, match="cannot be changed while a compiled function runs"):
        make_region(takes, Counting())(torch.ones(2))


def test_who_is_asked_makes_a_hit_a_miss(taken):
    backend, asked = Counting(), []
    region = make_region(_double, backend)
    region(torch.ones(2))

    def refuse(found):
        asked.append(found)
        return False

    agree_by(refuse)
    assert region(torch.ones(2)).tolist() == [2, 2]
    assert asked == [True]
    assert len(backend.sizes) == 2
    agree_by(lambda found: asked.append(found) or found)
    region(torch.ones(2))
    region(torch.ones(4))
    assert asked == [True, True, False]
    assert len(backend.sizes) == 3


def test_an_error_of_who_is_asked_is_the_calls(taken):
    region = make_region(_double, Counting())
    region(torch.ones(2))

    def fails(found):
        raise ValueError("no answer")

    agree_by(fails)
    with pytest.raises(ValueError, match="no answer"):
        region(torch.ones(2))
