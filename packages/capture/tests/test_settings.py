"""Settings that decide what is symbolic, guarded, refused or told: each has its effect, and programs give what plain Python gives."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager, recorded

from flambeau_capture import make_region
from flambeau_capture.errors import (
    DynamicShapeError,
    ForbiddenCallError,
    GraphBreakError,
    RecompileLimitError,
    SideEffectError,
)
from flambeau_capture.graph.dimension_marks import (
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
    named,
    override_optimization_hint,
)


def double(x):
    return x * 2


def graphs_of(function, calls, **options):
    """The graphs that these calls make, whose results are those of plain Python."""
    graphs: list = []
    region = recorded(function, graphs, **options)
    for args in calls:
        assert torch.equal(region(*args), function(*args))
    return graphs


SIZES = [(torch.ones(n),) for n in (3, 4, 5)]


# what is symbolic


def test_when_sizes_become_symbolic():
    assert len(graphs_of(double, SIZES)) == 2
    assert len(graphs_of(double, SIZES, assume_static_by_default=False)) == 1
    assert len(graphs_of(double, SIZES, automatic_dynamic_shapes=False)) == 3
    assert len(graphs_of(double, SIZES, automatic_dynamic_shapes=False, dynamic=True)) == 1
    assert len(graphs_of(double, SIZES, assume_static_by_default=False, dynamic=False)) == 3


def test_inputs_that_the_settings_name():
    square = [(torch.ones(n, n),) for n in (3, 4, 5)]
    wide = [(torch.ones(3, n),) for n in (3, 4, 5)]
    for text, calls, count in (
        ("L['x']", SIZES, 1),
        ("L['y']", SIZES, 2),
        (r"L\['[a-z]'\]", square, 1),
        ("L['x']:1", wide, 1),
        ("L['x']:0", wide, 2),
        ("L['x']:0, L['x']:1", square, 1),
    ):
        assert len(graphs_of(double, calls, dynamic_sources=text)) == count, text
    assert len(graphs_of(double, SIZES, dynamic_sources="L['x']", dynamic=False)) == 1
    (graph,) = graphs_of(double, SIZES, unbacked_sources="L['x']")
    size = next(node for node in graph.graph.nodes if node.op == "placeholder").meta["val"].shape[0]
    assert not size.node.has_hint()
    numbers = [(torch.ones(2), n) for n in (7, 8, 9)]
    assert len(graphs_of(lambda x, n: x * n, numbers, dynamic_sources="L['n']")) == 1
    assert len(graphs_of(lambda x, n: x * n, numbers)) == 2


def test_values_that_the_settings_name():
    assert len(graphs_of(double, SIZES, dynamic_values="3")) == 1
    assert len(graphs_of(double, SIZES, dynamic_values="4,5")) == 2
    assert len(graphs_of(lambda x, n: x * n, [(torch.ones(2), n) for n in (7, 8, 9)], dynamic_values="7")) == 1


def test_names_of_what_modules_hold():
    said = named("L['self'].linear.weight:0", "", "")
    name = "L['self'].__dict__['_modules']['linear'].__dict__['_parameters']['weight']"
    assert set(said.marks(name, (3, 4))) == {0}
    assert named("", "", "") is None
    with pytest.raises(ValueError):
        named("", "", "seven")


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.factor + self.weight.sum()


def test_ints_of_modules():
    def counted(cls, **options):
        graphs: list = []
        module = cls(5)
        region = recorded(lambda m, x: m(x), graphs, **options)
        for factor in (5, 6, 7):
            module.factor = factor
            assert region(module, torch.ones(2)).equal(module(torch.ones(2)))
        return len(graphs)

    assert counted(Scale) == 2
    assert counted(Scale, allow_unspec_int_on_nn_module=False) == 3

    @mark_static
    class Fixed(Scale):
        pass

    assert counted(Fixed) == 3


def test_sizes_of_parameters():
    def counted(**options):
        graphs: list = []
        module = Scale(2.0)
        region = recorded(lambda m, x: m(x), graphs, **options)
        for n in (2, 3, 4):
            module.weight = torch.nn.Parameter(torch.ones(n))
            assert region(module, torch.ones(2)).equal(module(torch.ones(2)))
        return len(graphs)

    assert counted() == 3
    assert counted(force_parameter_static_shapes=False) == 2


# marks


def test_ranges_hints_and_conditions():
    x = torch.ones(6)
    mark_dynamic(x, 0, min=2, max=8, hint_override=7)
    (graph,) = graphs_of(double, [(x,), (torch.ones(8),), (torch.ones(2),)])
    size = next(node for node in graph.graph.nodes if node.op == "placeholder").meta["val"].shape[0]
    assert size.node.shape_env.var_to_hint_override[size.node.expr] == 7

    x, eight = torch.ones(6), torch.ones(8)
    for tensor in (x, eight):
        mark_dynamic(tensor, 0, specialize_on=[lambda n: n == 8])
    graphs = graphs_of(double, [(x,), (eight,), (x,), (torch.ones(5),), (torch.ones(8),)])
    assert len(graphs) == 2
    shapes = [next(iter(graph.graph.nodes)).meta["val"].shape[0] for graph in graphs]
    assert isinstance(shapes[0], torch.SymInt) and shapes[1] == 8


def test_a_dimension_that_the_program_makes_a_constant_of():
    def fixes(x):
        return x * 2 if x.shape[0] == 6 else x

    x = torch.ones(6)
    mark_dynamic(x, 0)
    with pytest.raises(DynamicShapeError, match="marked dynamic"):
        make_region(fixes, eager)(x)
    x = torch.ones(6)
    maybe_mark_dynamic(x, 0)
    assert make_region(fixes, eager)(x).equal(x * 2)
    x = torch.ones(6)
    mark_dynamic(x, 0)
    mark_static(x, 0)
    with pytest.raises(DynamicShapeError):
        make_region(fixes, eager)(x)


def test_dimensions_of_one_name():
    def add(x, y):
        return x + y

    x, y = torch.ones(4), torch.ones(4)
    mark_unbacked(x, 0, shape_id="batch")
    mark_unbacked(y, 0, shape_id="batch")
    assert len(graphs_of(add, [(x, y), (torch.ones(7), torch.ones(7))])) == 1


def test_marks_are_set_before_a_call():
    def f(x):
        mark_dynamic(x, 0)
        return x + 1

    with pytest.raises(ForbiddenCallError, match="mark_dynamic"):
        make_region(f, eager)(torch.ones(3))

    def g(x):
        mark_static(x, 0)
        return x + 1

    assert len(graphs_of(g, SIZES, dynamic=True)) == 3


def test_marks_of_torch_are_honoured():
    """As functions of `torch._dynamo` leave them on a tensor."""
    x = torch.ones(3)
    x._dynamo_dynamic_indices = {0}
    assert len(graphs_of(double, [(x,), (torch.ones(4),)])) == 1
    x = torch.ones(3)
    x._dynamo_weak_dynamic_indices = {0}
    assert len(graphs_of(double, [(x,), (torch.ones(4),)])) == 1
    x = torch.ones(3)
    x._dynamo_unbacked_indices = {0}
    x._dynamo_unbacked_bounds = {0: (2, 5)}
    assert len(graphs_of(double, [(x,), (torch.ones(4),)])) == 1
    x = torch.ones(3)
    x._dynamo_static_indices = {0}
    assert len(graphs_of(double, [(x,)], dynamic=True)) == 1
    assert isinstance(
        graphs_of(double, [(x,)], dynamic=True)[0].graph.nodes.__iter__().__next__().meta["val"].shape[0], int
    )


def test_hints_of_numbers_that_come_out_of_tensors():
    def f(x):
        n = x.sum().item()
        override_optimization_hint(n, 42)
        torch._check(n >= 0)
        return torch.zeros(n) + 1

    graphs = graphs_of(f, [(torch.tensor([3, 1]),)])
    env = next(
        node.meta["val"].node.shape_env
        for node in graphs[0].graph.nodes
        if isinstance(node.meta.get("val"), torch.SymInt)
    )
    assert list(env.var_to_hint_override.values()) == [42]
    override_optimization_hint(3, 4)
    with pytest.raises(TypeError):
        override_optimization_hint(3, "4")


# limits, guards, effects


def test_all_regions_together_have_a_limit():
    def f(x, n):
        return x * n

    options = {"dynamic": False, "accumulated_recompile_limit": 2, "specialize_int": True}
    graphs: list = []
    first, second = recorded(f, graphs, **options), recorded(f, graphs, **options)
    for n, region in ((2, first), (3, second), (4, first), (5, second)):
        assert region(torch.ones(2), n).equal(torch.ones(2) * n)
    assert len(graphs) == 2
    with pytest.raises(RecompileLimitError, match="limit of 2"):
        make_region(f, eager, fullgraph=True, **options)(torch.ones(2), 9)


def test_what_modules_hold_is_not_guarded():
    module = Scale(2.0)
    region = make_region(lambda m, x: m(x), eager, guard_nn_modules=False)
    before = region(module, torch.ones(2))
    module.factor = 3.0
    assert region(module, torch.ones(2)).equal(before)
    region = make_region(lambda m, x: m(x), eager)
    region(module, torch.ones(2))
    module.factor = 4.0
    assert region(module, torch.ones(2)).equal(module(torch.ones(2)))


def test_hooks_that_are_not_guarded():
    for skip in (False, True):
        module = torch.nn.Linear(2, 2)
        region = make_region(lambda x, module=module: module(x), eager, skip_nnmodule_hook_guards=skip)
        x = torch.ones(2)
        before = region(x)
        module.register_forward_hook(lambda module, args, out: out + 1)
        assert region(x).equal(before if skip else before + 1)


def test_changes_outside_are_told():
    seen: list = []

    def f(x):
        seen.append(x.shape[0])
        return x + 1

    with pytest.warns(RuntimeWarning, match="changes objects outside"):
        assert make_region(f, eager, side_effect_replay_policy="warn")(torch.ones(3)).equal(torch.ones(3) + 1)
    assert seen == [3]
    with pytest.raises(SideEffectError, match="changes objects outside"):
        make_region(f, eager, side_effect_replay_policy="error")(torch.ones(3))
    assert make_region(double, eager, side_effect_replay_policy="error")(torch.ones(3)).equal(torch.ones(3) * 2)


def test_numpy_is_left_to_plain_python():
    numpy = pytest.importorskip("numpy")

    def f(x):
        return torch.from_numpy(numpy.sin(x.numpy())) + 1

    assert len(graphs_of(f, [(torch.ones(2),)], fullgraph=True)) == 1
    with pytest.raises(GraphBreakError, match="trace_numpy"):
        make_region(f, eager, fullgraph=True, trace_numpy=False)(torch.ones(2))


def test_the_collector_runs_after_a_compile(monkeypatch):
    from flambeau_capture import regions

    runs: list = []
    monkeypatch.setattr(regions.gc, "collect", lambda: runs.append(1))
    make_region(double, eager, run_gc_after_compile=True)(torch.ones(2))
    assert runs == [1]
    make_region(double, eager)(torch.ones(2))
    assert runs == [1]


def test_fullgraph_keeps_numbers_in_the_graph():
    def f(x):
        return x * x.sum().item()

    assert len(graphs_of(f, [(torch.ones(3),)], fullgraph=True, capture_scalar_outputs=False)) == 1
    assert len(graphs_of(f, [(torch.ones(3),)], capture_scalar_outputs=False)) == 2
