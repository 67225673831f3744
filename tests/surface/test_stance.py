"""`set_stance` and guard collectives, as torch's documentation has them used."""

from __future__ import annotations

import pytest
import torch

import flambeau
from flambeau.compiler import set_stance
from tests.groups import run_ranks

from .rows import calls


class Counting:
    """A backend that counts the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


@calls("compiler", "set_stance")
def test_a_stance_as_context_manager_decorator_and_function() -> None:
    """Each of the three ways takes it, and the first two put it back."""
    backend = Counting()
    function = flambeau.compile(lambda x: x * 2, backend=backend)

    @set_stance("force_eager")
    def decorated():
        return function(torch.ones(2))

    assert decorated().tolist() == [2, 2]
    with set_stance("force_eager"):
        function(torch.ones(2))
    set_stance("force_eager")
    function(torch.ones(2))
    assert backend.graphs == 0
    set_stance("default")
    function(torch.ones(2))
    assert backend.graphs == 1


@calls("compiler", "set_stance")
@pytest.mark.parametrize(
    ("stance", "graphs"), [("eager_on_recompile", 1), ("eager_then_compile", 2), ("aot_eager_then_compile", 2)]
)
def test_stances_that_run_in_eager_at_times(stance, graphs) -> None:
    """A call of new sizes compiles nothing where nothing may be compiled; a function that was compiled before compiles again at once."""
    backend = Counting()
    function = flambeau.compile(lambda x: x.sin(), backend=backend)
    function(torch.ones(2))
    with set_stance(stance):
        assert torch.equal(function(torch.ones(2)), torch.ones(2).sin())
        assert torch.equal(function(torch.ones(3)), torch.ones(3).sin())
    assert backend.graphs == graphs


@calls("compiler", "set_stance")
@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_two_calls_teach_which_sizes_change(stance) -> None:
    """One graph for all sizes, where compiling at the first call would have made two."""
    backend = Counting()
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    function = flambeau.compile(module, backend=backend)
    with set_stance(stance):
        for size in (3, 5, 7):
            given = torch.ones(size, 4)
            assert torch.allclose(function(given), module(given))
    assert backend.graphs == 1


@calls("compiler", "set_stance")
def test_an_error_where_something_would_be_compiled() -> None:
    """It says which guard failed."""
    function = flambeau.compile(lambda x: x + 1)
    function(torch.ones(2))
    with set_stance("fail_on_recompile"):
        function(torch.ones(2))
        with pytest.raises(RuntimeError, match=r"fail_on_recompile.*\n.*expected 2, actual 3"):
            function(torch.ones(3))
    function(torch.ones(3))


@calls("compiler", "set_stance")
def test_a_backend_by_force_and_guards_skipped() -> None:
    """The named backend compiles; with one entry no guard is looked at."""
    own, other = Counting(), Counting()
    function = flambeau.compile(lambda x, factor: x * factor, backend=own)
    with set_stance(force_backend=other):
        function(torch.ones(2), 2)
    assert (own.graphs, other.graphs) == (0, 1)
    function(torch.ones(2), 2)
    with set_stance(skip_guard_eval_unsafe=True):
        assert function(torch.ones(2), 3).tolist() == [2, 2]
    assert function(torch.ones(2), 3).tolist() == [3, 3]


def test_wrong_stances_are_told() -> None:
    """A misspelt stance, and a backend under a stance that compiles otherwise."""
    with pytest.raises(ValueError, match="force_eager"):
        set_stance("force-eager")
    with pytest.raises(TypeError, match="force_backend"):
        set_stance("force_eager", force_backend="eager")


def test_no_stance_is_taken_inside_a_compiled_function() -> None:
    """As torch documents, it is an error there."""

    def takes_a_stance(x):
        y = x * 2
        with set_stance("force_eager"):
            return y + 1

    with pytest.raises(RuntimeError, match="while a compiled function runs"):
        flambeau.compile(takes_a_stance, backend="eager")(torch.ones(2))
    assert flambeau.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]


_RANK = """
import torch, flambeau
graphs = []
def backend(graph, inputs):
    graphs.append(1)
    return graph.forward
function = flambeau.compile(lambda x: x * 2, backend=backend, dynamic=False)
assert flambeau.compiler.set_enable_guard_collectives(True) is False
function(torch.ones(2))
assert len(graphs) == 1
function(torch.ones(2))
assert len(graphs) == 1, "both have found an entry"
function(torch.ones(2 + rank))
assert len(graphs) == 2, "rank 1 compiles, and so does rank 0"
assert flambeau.compiler.set_enable_guard_collectives(False) is True
function(torch.ones(5 if rank else 2))
assert len(graphs) == 2 + rank, "each for itself"
"""


@calls("compiler", "set_enable_guard_collectives")
def test_ranks_compile_together(tmp_path) -> None:
    """Where one rank must compile, the other does too."""
    run_ranks(_RANK, tmp_path)
