"""What programs say about functions, dimensions, guards and settings of capture, as torch's documentation has them used."""

from __future__ import annotations

import decimal
import logging
import operator
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
import torch

import flambeau
from flambeau import compiler
from flambeau.compiler import config

from .rows import calls

pytestmark = pytest.mark.usefixtures("own_marks")

X = torch.arange(4.0)


class Counting:
    """A backend that keeps the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward


def counted(function, *calls_made, **arguments) -> int:
    """How many graphs these calls make, each compared with eager."""
    backend = Counting()
    compiled = flambeau.compile(function, backend=backend, **arguments)
    for args in calls_made:
        assert torch.equal(compiled(*args), function(*args))
    return len(backend.graphs)


def double(x):
    return x * 2


def breaking(x):
    y = x + 1
    compiler.graph_break("here")
    return y * 2


SIZES = [(torch.ones(n),) for n in (3, 4, 5)]


# functions


@calls("compiler", "substitute_in_graph")
def test_substitute_in_graph() -> None:
    @compiler.substitute_in_graph(operator.delitem, skip_signature_check=True)
    def delitem(items, index):
        traced.append(index)
        del items[index]

    traced: list[int] = []

    def f(x):
        items = [x, x + 1]
        operator.delitem(items, 0)
        return items[0]

    assert counted(f, (X,), fullgraph=True) == 1
    assert traced == [0]


@calls("compiler", "assume_constant_result")
def test_assume_constant_result() -> None:
    @compiler.assume_constant_result
    def ask() -> int:
        asked.append(1)
        return len(asked)

    asked: list[int] = []
    compiled = flambeau.compile(lambda x: x * ask(), backend=Counting(), fullgraph=True)
    assert compiled(X).equal(compiled(X)) and asked == [1]


@calls("compiler", "allow_in_graph")
def test_allow_in_graph() -> None:
    @compiler.allow_in_graph
    def opaque(x):
        return x * 2 + 1

    backend = Counting()
    flambeau.compile(lambda x: opaque(x), backend=backend)(X)
    assert [node.target for node in backend.graphs[0].graph.nodes if node.op == "call_function"] == [opaque]


@calls("helpers", "disallow_in_graph")
def test_disallow_in_graph() -> None:
    compiler.disallow_in_graph(torch.logaddexp)
    assert counted(lambda x: torch.logaddexp(x + 1, x) + 1, (X,)) == 2
    compiler.allow_in_graph(torch.logaddexp)
    assert counted(lambda x: torch.logaddexp(x + 1, x) + 1, (X,)) == 1


@calls("helpers", "forbid_in_graph")
def test_forbid_in_graph() -> None:
    never = compiler.forbid_in_graph(lambda x: x + 1)
    with pytest.raises(flambeau.FlambeauError, match="forbid_in_graph"):
        flambeau.compile(lambda x: never(x), backend=Counting())(X)


@calls("compiler", "disable")
def test_disable() -> None:
    """A function, a module, a class, a block."""
    alone = compiler.disable(double, reason="as it is")
    assert counted(lambda x: alone(x + 1) + 1, (X,)) == 2
    net = compiler.disable(torch.nn.Linear(4, 4))
    assert counted(lambda x: net(x + 1) + 1, (X,)) == 2
    backend = Counting()
    compiled = flambeau.compile(double, backend=backend)
    with compiler.disable():
        compiled(X)
    assert not backend.graphs
    compiled(X)
    assert len(backend.graphs) == 1


@calls("helpers", "graph_break", "skip_frame", "step_unsupported")
@pytest.mark.falls_back("skip")
def test_what_ends_a_graph() -> None:
    assert counted(breaking, (X,)) == 2

    def skipped(x):
        y = x + 1
        compiler.skip_frame("not this")
        return y

    def stopped(x):
        y = x + 1
        compiler.step_unsupported("no further")
        return y * 2

    assert counted(skipped, (X,)) == 0
    assert counted(stopped, (X,)) == 1


@calls("helpers", "dont_skip_tracing")
def test_dont_skip_tracing() -> None:
    from torch.utils.data import default_convert

    assert counted(compiler.dont_skip_tracing(lambda x: default_convert(x) + 1), (X,), fullgraph=True) == 1
    with pytest.raises(flambeau.FlambeauError):
        counted(lambda x: default_convert(x) + 1, (X,), fullgraph=True)


@calls("helpers", "nonstrict_trace")
def test_nonstrict_trace() -> None:
    """The documented program: a module as an argument, a break inside; with gradients, by each way that the graph can go."""

    def shapes_told(model, pair, scale):
        print(end="")  # ends any graph
        seen.append(scale)
        return {"out": model(pair.first) * scale + pair.second, "twice": 2}, Pair(pair.first + 1, pair.second)

    seen: list[float] = []
    once = compiler.nonstrict_trace(shapes_told)
    net, x, y = torch.nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True), torch.randn(4)

    def run(function, traced, scale=2.0) -> list[torch.Tensor]:
        found = function(traced, x, y, scale)
        return [found, *torch.autograd.grad(found.sum(), [x, *net.parameters()])]

    def f(traced, x, y, scale):
        results, pair = traced(net, Pair(x.sin(), y), scale)
        return results["out"] * results["twice"] + pair.first

    expected = {scale: run(f, shapes_told, scale) for scale in (2.0, 3.0)}
    for backend in ("eager", "aot_eager", "inductor"):
        compiled = flambeau.compile(f, backend=backend, fullgraph=True)
        for scale in (2.0, 2.0) if backend == "inductor" else (2.0, 3.0):
            seen.clear()
            torch.testing.assert_close(run(compiled, once, scale), expected[scale])
    assert not seen  # what runs was made of it


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@calls("helpers", "allow_c_slot")
def test_allow_c_slot() -> None:
    one, two = Fraction(1, 2), decimal.Decimal(2)

    def f(x, a, b):
        return x * {a: 1, b: 2}[b] if a != b and hash(a) == hash(a) else x

    pairs = [(X, decimal.Decimal("1.5"), two), (X, two, two), (X, decimal.Decimal("1.5"), two)]
    with pytest.raises(flambeau.FlambeauError, match="Decimal"):
        counted(f, *pairs, fullgraph=True)
    assert compiler.allow_c_slot(decimal.Decimal) is decimal.Decimal
    assert counted(f, *pairs, fullgraph=True) == 2  # the last one is another object
    assert counted(f, *[pairs[0]] * 2, fullgraph=True) == 1
    with pytest.raises(TypeError, match="class"):
        compiler.allow_c_slot(one)


@calls("helpers", "error_on_graph_break")
def test_error_on_graph_break() -> None:
    def strict(x):
        with compiler.error_on_graph_break(True):
            return breaking(x)

    def mixed(x):
        with compiler.error_on_graph_break(True):
            x = x + 1
            with compiler.error_on_graph_break(False):
                return breaking(x)

    with pytest.raises(flambeau.FlambeauError, match="here"):
        flambeau.compile(strict, backend=Counting())(X)
    assert counted(mixed, (X,)) >= 2


@calls("helpers", "patch_dynamo_config")
def test_patch_dynamo_config() -> None:
    def f(x):
        with compiler.patch_dynamo_config(capture_scalar_outputs=False):
            return x * x.sum().item()

    assert counted(lambda x: x * x.sum().item(), (X,)) == 1
    assert counted(f, (X,)) == 2


@calls("helpers", "set_recursion_limit")
def test_set_recursion_limit() -> None:
    import sys

    limits: list[int] = []

    @compiler.assume_constant_result
    def limit() -> int:
        limits.append(sys.getrecursionlimit())
        return 1

    compiler.set_recursion_limit(33_333)
    try:
        flambeau.compile(lambda x: x * limit(), backend=Counting())(X)
    finally:
        del config.recursion_limit
    assert limits == [33_333]


# dimensions


@calls("helpers", "mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked", "override_optimization_hint")
def test_marks_of_dimensions() -> None:
    def fixes(x):
        return x + 1 if x.shape[0] == 6 else x

    for mark, count in ((compiler.mark_dynamic, 1), (compiler.maybe_mark_dynamic, 1), (compiler.mark_unbacked, 1)):
        x = torch.ones(6)
        mark(x, 0)
        assert counted(double, (x,), (torch.ones(7),)) == count
    x = torch.ones(6)
    compiler.mark_dynamic(x, 0)
    with pytest.raises(flambeau.FlambeauError, match="marked dynamic"):
        flambeau.compile(fixes, backend=Counting())(x)
    x = torch.ones(6)
    compiler.maybe_mark_dynamic(x, 0)
    assert counted(fixes, (x,)) == 1
    x = torch.ones(6)
    compiler.mark_static(x, 0)
    assert counted(double, (x,), (torch.ones(7),), dynamic=True) == 2

    backend = Counting()

    def hinted(x):
        n = x.sum().item()
        compiler.override_optimization_hint(n, 42)
        return torch.zeros(n)

    flambeau.compile(hinted, backend=backend)(torch.tensor([3]))
    values = [node.meta.get("val") for node in backend.graphs[0].graph.nodes]
    env = next(value.node.shape_env for value in values if isinstance(value, torch.SymInt))
    assert list(env.var_to_hint_override.values()) == [42]


# guards


@calls(
    "compiler",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_all_guards_unsafe",
)
def test_guard_filters() -> None:
    """What each drops is seen no more, what it keeps is; torch's own functions of these names do the same."""

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.drop = 2.0, torch.nn.Dropout(0.0)

        def forward(self, x):
            return self.drop(x) * self.factor * SCALE

    def compiles(choose, change) -> int:
        global SCALE
        SCALE = 1.0
        backend, net = Counting(), Own()
        compiled = flambeau.compile(lambda x: net(x), backend=backend, options={"guard_filter_fn": choose})
        compiled(X)
        change(net)
        compiled(X)
        return len(backend.graphs)

    def own(net) -> None:
        net.factor = 3.0

    def inbuilt(net) -> None:
        net.drop.p = 0.5

    def scale(net) -> None:
        global SCALE
        SCALE = 5.0

    for module in (compiler, torch.compiler):
        assert compiles(module.skip_guard_on_inbuilt_nn_modules_unsafe, inbuilt) == 1
        assert compiles(module.skip_guard_on_inbuilt_nn_modules_unsafe, own) == 2
        assert compiles(module.skip_guard_on_all_nn_modules_unsafe, own) == 1
        assert compiles(module.skip_guard_on_all_nn_modules_unsafe, scale) == 2
        assert compiles(module.skip_guard_on_globals_unsafe, scale) == 1
        assert compiles(module.skip_all_guards_unsafe, own) == 1
        for keep in (module.keep_tensor_guards_unsafe, module.keep_portable_guards_unsafe):
            assert compiles(keep, own) == 1
            backend = Counting()
            compiled = flambeau.compile(double, backend=backend, options={"guard_filter_fn": keep})
            assert compiled(torch.ones(3)).equal(torch.ones(3) * 2) and compiled(torch.ones(4)).shape == (4,)
            assert len(backend.graphs) == 2
    assert compiles(None, own) == 2


SCALE = 1.0


# settings


@calls("settings", "assume_static_by_default", "automatic_dynamic_shapes")
def test_when_sizes_become_symbolic() -> None:
    assert counted(double, *SIZES) == 2
    with config.patch(assume_static_by_default=False):
        assert counted(double, *SIZES) == 1
    with config.patch(automatic_dynamic_shapes=False):
        assert counted(double, *SIZES) == 3


@calls("settings", "dynamic_sources", "dynamic_values", "unbacked_sources")
@calls("environment", "DYNAMIC_SOURCES", "DYNAMIC_VALUES", "UNBACKED_SOURCES")
def test_sizes_by_name(monkeypatch) -> None:
    for name, text in (("dynamic_sources", "L['x']:0"), ("dynamic_values", "3"), ("unbacked_sources", r"L\['x'\]")):
        with config.patch({name: text}):
            assert counted(double, *SIZES) == 1
        with monkeypatch.context() as patched:
            patched.setenv(f"FLAMBEAU_{name.upper()}", text)
            assert counted(double, *SIZES) == 1
    assert counted(double, *SIZES) == 2


@calls(
    "settings", "recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit", "error_on_recompile"
)
@pytest.mark.falls_back("limit")
def test_limits() -> None:
    def f(x, n):
        return x * n

    made = [(X, n) for n in (2, 3, 4, 5)]
    with config.patch(specialize_int=True, dynamic=False):
        assert counted(f, *made) == 4
        with config.patch(recompile_limit=2):
            assert counted(f, *made) == 2
        with config.patch(accumulated_recompile_limit=2):
            assert counted(f, *made) == 2
        with config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True), pytest.raises(flambeau.FlambeauError):
            counted(f, *made)
        with config.patch(error_on_recompile=True), pytest.raises(flambeau.FlambeauError):
            counted(f, *made)


@calls("settings", "capture_scalar_outputs", "capture_dynamic_output_shape_ops")
@calls("environment", "CAPTURE_SCALAR_OUTPUTS")
def test_values_out_of_tensors(monkeypatch) -> None:
    def number(x):
        return x * x.sum().item()

    def places(x):
        return (x + 1).nonzero() + 1

    assert (counted(number, (X,)), counted(places, (X,))) == (1, 1)
    with config.patch(capture_scalar_outputs=False):
        assert counted(number, (X,)) == 2
    with config.patch(capture_dynamic_output_shape_ops=False):
        assert counted(places, (X,)) == 2
    monkeypatch.setenv("FLAMBEAU_CAPTURE_SCALAR_OUTPUTS", "0")
    assert counted(number, (X,)) == 2
    assert counted(number, (X,), fullgraph=True) == 1


@calls(
    "settings", "specialize_int", "specialize_float", "allow_unspec_int_on_nn_module", "force_parameter_static_shapes"
)
def test_which_numbers_are_constants() -> None:
    class Net(torch.nn.Module):
        def __init__(self, factor, size) -> None:
            super().__init__()
            self.factor, self.weight = factor, torch.nn.Parameter(torch.ones(size))

        def forward(self, x):
            return x * self.factor + self.weight.sum()

    for setting, numbers in (("specialize_int", (4, 5, 6)), ("specialize_float", (0.5, 1.5, 2.5))):
        made = [(X, n) for n in numbers]
        assert counted(lambda x, n: x * n, *made) == 2
        with config.patch({setting: True}):
            assert counted(lambda x, n: x * n, *made) == 3
    net = Net(2, 3)

    def run(module, x, factor, size):
        return module(x)

    def changed(**factors) -> int:
        backend = Counting()
        compiled = flambeau.compile(lambda module, x: module(x), backend=backend)
        for n in (4, 5, 6):
            net.factor = n if "factor" in factors else 2
            net.weight = torch.nn.Parameter(torch.ones(n if "size" in factors else 3))
            assert compiled(net, X).equal(net(X))
        return len(backend.graphs)

    assert changed(factor=True) == 2
    with config.patch(allow_unspec_int_on_nn_module=False):
        assert changed(factor=True) == 3
    assert changed(size=True) == 3
    with config.patch(force_parameter_static_shapes=False):
        assert changed(size=True) == 2


@calls("settings", "guard_nn_modules", "skip_nnmodule_hook_guards")
def test_what_modules_hold() -> None:
    for name, value, change in (
        ("guard_nn_modules", False, lambda net: setattr(net, "negative_slope", 0.5)),
        ("skip_nnmodule_hook_guards", True, lambda net: net.register_forward_hook(lambda module, args, out: out + 1)),
    ):
        for changes, seen in (({}, True), ({name: value}, False)):
            with config.patch(changes):
                net = torch.nn.LeakyReLU()
                compiled = flambeau.compile(lambda x, net=net: net(x), backend=Counting())
                before = compiled(-X)
                change(net)
                assert compiled(-X).equal(net(-X) if seen else before)


@calls("settings", "side_effect_replay_policy", "run_gc_after_compile", "trace_numpy")
def test_effects_and_what_is_captured(monkeypatch) -> None:
    import numpy

    from flambeau_capture import regions

    seen: list[int] = []

    def stores(x):
        seen.append(len(x))
        return x + 1

    with config.patch(side_effect_replay_policy="warn"), pytest.warns(RuntimeWarning, match="outside"):
        flambeau.compile(stores, backend=Counting())(X)
    with config.patch(side_effect_replay_policy="error"), pytest.raises(flambeau.FlambeauError):
        flambeau.compile(stores, backend=Counting())(X)

    def arrays(x):
        return torch.from_numpy(numpy.sin(x.numpy())) + 1

    assert counted(arrays, (X,), fullgraph=True) == 1
    with config.patch(trace_numpy=False), pytest.raises(flambeau.FlambeauError):
        counted(arrays, (X,), fullgraph=True)
    runs: list[int] = []
    monkeypatch.setattr(regions.gc, "collect", lambda: runs.append(1))
    with config.patch(run_gc_after_compile=True):
        counted(double, (X,))
    assert runs == [1]


@calls("settings", "reorderable_logging_functions")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_reorderable_logging_functions(backend, capsys, caplog) -> None:
    """Calls in the middle of a graph run after it, in their order, and show tensors as they were: also those that are written later."""
    seen: list[Any] = []

    def note(*given) -> None:
        seen.append(repr(given))

    logger = logging.getLogger("flambeau.test.reordered")

    def f(x, n):
        y = x * 2
        print("y", y, n, sep="|")
        note(x, 1)
        note(y, n)
        x.add_(1)
        y.mul_(2)
        note(y, "after", x)
        logger.info("%s of %s", n, x)
        note(x.shape[0])
        return y + 1

    def run(function, n) -> tuple[Any, ...]:
        seen.clear()
        caplog.clear()
        x = torch.arange(3.0)
        with caplog.at_level(logging.INFO, logger.name):
            found = function(x, n)
        return (
            found.tolist(),
            x.tolist(),
            list(seen),
            capsys.readouterr().out,
            [record.getMessage() for record in caplog.records],
        )

    given = {print, note, logger.info}
    with config.patch(reorderable_logging_functions=given):
        compiled = flambeau.compile(f, backend=backend, fullgraph=True)
        for n in (2, 3, 4):
            assert run(compiled, n) == run(f, n)
    with config.patch(reorderable_logging_functions={note}), pytest.raises(flambeau.FlambeauError, match="print"):
        flambeau.compile(f, backend=backend, fullgraph=True)(X, 2)
    with (
        config.patch(reorderable_logging_functions={note}),
        pytest.raises(flambeau.FlambeauError, match="would be moved"),
    ):
        flambeau.compile(lambda x: note([x]), backend=backend, fullgraph=True)(X)
    with (
        pytest.raises(flambeau.FlambeauError, match="a set of functions"),
        config.patch(reorderable_logging_functions=3),
    ):
        pass


@calls("compiler", "wrap_numpy")
def test_wrap_numpy() -> None:
    import numpy

    assert counted(compiler.wrap_numpy(lambda a: numpy.sin(a) + 1), (X,), fullgraph=True) == 1
