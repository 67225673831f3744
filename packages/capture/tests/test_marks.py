"""What programs say about functions: each mark has its effect where it is met while tracing, and none in plain Python."""

from __future__ import annotations

import ctypes
import decimal
import operator

import pytest
import torch
from both_ways import eager, recorded

from flambeau_capture import (
    allow_c_slot,
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    forbid_in_graph,
    make_region,
    skip_frame,
    step_unsupported,
    substitute_in_graph,
)
from flambeau_capture.errors import ForbiddenCallError, GraphBreakError

pytestmark = pytest.mark.usefixtures("own_marks")

X = torch.arange(4.0)
native_abs = ctypes.pythonapi.PyNumber_Absolute


def records_of(function, *args, **options):
    """What was compiled in two calls, compared with plain Python."""
    records: list = []
    region = make_region(function, eager, observer=records.append, **options)
    for _ in range(2):
        assert torch.equal(region(*args), function(*args))
    return records


def codes(records):
    return {found.code for record in records for found in record.breaks}


# substitute_in_graph


def test_a_substitute_is_traced_and_the_original_runs_in_plain_python():
    index = torch._C._log_api_usage_once  # written in C, with an effect

    @substitute_in_graph(index, skip_signature_check=True)
    def stand_in(text):
        seen.append(text)

    seen: list[str] = []
    make_region(lambda x: (index("flambeau.test"), x + 1)[1], eager, fullgraph=True)(X)
    assert seen == ["flambeau.test"]
    stand_in("flambeau.test")
    assert seen == ["flambeau.test"]
    with pytest.raises(ValueError, match="already"):
        substitute_in_graph(index, skip_signature_check=True)(lambda text: None)


def test_the_documented_example():
    @substitute_in_graph(operator.indexOf)
    def index_of(a, b, /):
        traced.append(1)
        for i, item in enumerate(a):
            if item is b or item == b:
                return i
        raise ValueError("sequence.index(x): x not in sequence")

    traced: list[int] = []
    region = make_region(lambda x: x + operator.indexOf([1, 2, 3, 4, 5], 3), eager, fullgraph=True)
    assert region(X).equal(X + 2)
    assert traced == [1]
    assert index_of([5, 6], 6) == 1
    assert traced == [1]


def test_a_pure_one_is_called_while_tracing():
    calls: list[str] = []

    @substitute_in_graph(operator.countOf, can_constant_fold_through=True)
    def count_of(a, b, /):
        calls.append("traced")
        return sum(1 for item in a if item == b)

    assert make_region(lambda x: x + operator.countOf((1, 2, 1), 1), eager, fullgraph=True)(X).equal(X + 2)
    assert calls == []
    n = torch.tensor(2)
    assert make_region(lambda x: x + operator.countOf((x.shape[0], 4), 4), eager, fullgraph=True)(X).equal(X + 2)
    assert n == 2


def test_what_no_substitute_can_be_made_of():
    with pytest.raises(TypeError, match="takes a function"):
        substitute_in_graph(int)
    with pytest.raises(TypeError, match="Python function"):
        substitute_in_graph(operator.concat)(3)
    with pytest.raises(TypeError, match="takes"):
        substitute_in_graph(operator.concat)(lambda a, b, c: a)


# disallow, forbid, allow


def test_a_disallowed_function_breaks_the_graph():
    def f(x):
        x = torch.add(x, 1)
        x = torch.hypot(x, x)
        return torch.add(x, 1)

    assert len(records_of(f, X)) == 1
    assert disallow_in_graph(torch.hypot) is torch.hypot
    records = records_of(f, X)
    assert codes(records) == {"disallowed-function"}
    assert [record.operations for record in records] == [1, 1]
    allow_in_graph(torch.hypot)
    assert len(records_of(f, X)) == 1
    with pytest.raises(RuntimeError, match="use disable"):
        disallow_in_graph(records_of)
    with pytest.raises(TypeError):
        disallow_in_graph(3)


def test_a_forbidden_function_is_an_error():
    @forbid_in_graph
    def never(x):
        return x + 1

    with pytest.raises(ForbiddenCallError, match="never is called"):
        make_region(lambda x: never(x), eager)(X)
    assert never(X).equal(X + 1)
    assert forbid_in_graph([never]) == [never]


def test_classes_and_builtins_are_allowed():
    class Doubled:
        def __new__(cls, x):
            return x * 2 if x.sum() > 0 else x

    allow_in_graph(Doubled)
    (record,) = records_of(lambda x: x.new_zeros(()) + torch.sum(x) * 2, X)

    def through(x):
        return Doubled(x) + 1

    region = make_region(through, lambda graph, inputs: graph.forward, fullgraph=True)
    with pytest.raises(GraphBreakError):
        region(X)  # its branch reads values of fakes: the class is called on them as it is
    assert record.operations


# disable


def test_disable_with_a_reason():
    f = disable(lambda x: x + 1, reason="it talks to a server")
    records = records_of(lambda x: f(x) * 2, X)
    assert codes(records) == {"disabled-function"}
    assert "it talks to a server" in records[0].breaks[0].reason


def test_disable_as_decorator_with_arguments():
    ran: list[str] = []

    def inner(x):
        ran.append("inner")
        return x * 2

    @disable(recursive=False)
    def outer(x):
        return inner(x) + 1

    records: list = []
    region = make_region(lambda x: outer(x), eager, observer=records.append)
    assert region(X).equal(X * 2 + 1)
    assert {record.code.co_name for record in records} == {"<lambda>", "inner"}


def test_disabled_classes_and_modules():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, x):
            return x * self.factor

    assert disable(Scale) is Scale
    scale = Scale(3)
    records = records_of(lambda x: scale(x) + 1, X)
    assert codes(records) == {"disabled-function"}

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    quiet = disable(net)
    assert (
        isinstance(quiet, torch.nn.Sequential)
        and quiet[0] is net[0]
        and list(quiet.state_dict()) == list(net.state_dict())
    )
    assert codes(records_of(lambda x: quiet(x) + 1, X)) == {"disabled-function"}
    assert len(records_of(lambda x: net(x) + 1, X)) == 1

    @disable
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) + 1

    own = Net()
    assert codes(records_of(lambda x: own(x) + 1, X)) == {"disabled-function"}


def test_a_block_in_which_nothing_is_captured():
    ran: list[str] = []

    def inner(x):
        return x * 2

    def f(x):
        with disable(reason="as it is"):
            x = inner(x)
        return x + 1

    records = records_of(f, X)
    assert codes(records) == {"disabled-function"}
    assert [record.code.co_name for record in records] == ["f"]
    region = make_region(inner, eager, observer=lambda record: ran.append(record.code.co_name))
    with disable():
        assert region(X).equal(X * 2)
    assert ran == []
    region(X)
    assert ran == ["inner"]


# what ends a graph


def test_a_frame_that_asks_for_it_is_skipped():
    def inner(x):
        return x * 2

    def f(x):
        y = inner(x) + 1
        skip_frame("not this one")
        return y

    records = records_of(f, X)
    assert codes(records) == {"skipped-frame"}
    assert [record.code.co_name for record in records if record.graph is not None] == ["inner"]
    with pytest.raises(GraphBreakError, match="not this one"):
        make_region(f, eager, fullgraph=True)(X)


def test_the_rest_of_a_frame_is_left_to_plain_python():
    graphs: list = []

    def f(x):
        y = x + 1
        y = y * 2
        step_unsupported("no further")
        return y - 3 + x

    region = recorded(f, graphs)
    for _ in range(2):
        assert region(X).equal(f(X))
    assert len(graphs) == 1


# assume_constant_result


def test_a_constant_result_is_asked_once():
    asked: list[int] = []

    @assume_constant_result
    def factor():
        asked.append(1)
        return len(asked)

    region = make_region(lambda x: x * factor(), eager, fullgraph=True)
    assert [region(X).tolist(), region(X).tolist()] == [X.tolist(), X.tolist()]
    assert asked == [1]


def test_what_has_a_substitute_is_kept():
    """Another function may get the identity of one that is gone."""
    import weakref

    stand_in = weakref.ref(substitute_in_graph(operator.length_hint, skip_signature_check=True)(lambda items: 3))
    assert stand_in() is not None


# slots in C


def test_hashes_and_comparisons_in_c():
    """Each is what it is in plain Python, for the objects of the call."""
    one, two, third = decimal.Decimal("1.5"), decimal.Decimal(2), decimal.Decimal("1.5")
    programs = [
        lambda x, a, b: x + (a == b), lambda x, a, b: x + (a != b), lambda x, a, b: x + (a < b), lambda x, a, b: x + (2 >= b),
        lambda x, a, b: x + hash(a) % 3, lambda x, a, b: x + {a: 1, b: 5}[a], lambda x, a, b: x + (a in {b}),
        lambda x, a, b: x + (a in (b, 3)), lambda x, a, b: x + (max(a, b) == a),
    ]  # fmt: skip
    for program in programs:
        with pytest.raises(GraphBreakError, match=r"Decimal|hash\(\)"):
            make_region(program, eager, fullgraph=True)(X, one, two)
    allow_c_slot(decimal.Decimal, tp_hash=False)
    make_region(programs[0], eager, fullgraph=True)(X, one, two)
    for program in programs[4:7]:
        with pytest.raises(GraphBreakError, match=r"Decimal|hash\(\)"):
            make_region(program, eager, fullgraph=True)(X, one, two)
    allow_c_slot(decimal.Decimal)
    for program in programs:
        region = make_region(program, eager, fullgraph=True)
        for a, b in ((one, two), (two, one), (third, one), (one, one)):
            assert region(X, a, b).equal(program(X, a, b))
    raising = make_region(lambda x, a, b: x + (a < b), eager, fullgraph=True)
    with pytest.raises(TypeError, match="not supported between"):
        raising(X, one, "text")
