"""Tensors of subclasses: attributes, what they are made of behind the graph, what of them an entry assumes."""

from __future__ import annotations

import pytest
import torch
from both_ways import recorded
from torch import Tensor, nn


class Named(Tensor):
    label = "none"

    @property
    def doubled(self):
        return self * 2

    @doubled.setter
    def doubled(self, value):
        self.halved = value / 2

    def area(self):
        return self.sum() * len(self.label)


class Asks(Tensor):
    def __getattr__(self, name):
        return f"no {name}"


def _named(*values, cls=Named, **attributes):
    made = torch.tensor(values or (1.0, 2.0, 3.0)).as_subclass(cls)
    vars(made).update(attributes)
    return made


def _told(value):
    """A result, with classes and attributes of the tensors in it."""
    if isinstance(value, Tensor):
        return type(value), value.as_subclass(Tensor).tolist(), {k: _told(v) for k, v in sorted(vars(value).items())}
    if isinstance(value, (tuple, list)):
        return type(value), [_told(item) for item in value]
    return value


def _agree(program, *makers):
    """One graph, and what plain Python does, for each maker of arguments twice; the graphs."""
    graphs = []
    region = recorded(program, graphs, fullgraph=True)
    for make in makers:
        for _ in range(2):
            ours, theirs = make(), make()
            assert _told(region(*ours)) == _told(program(*theirs))
            assert _told(ours) == _told(theirs)
    return graphs


def test_operations_keep_the_class_and_the_graph_gets_plain_tensors():
    graphs = _agree(lambda x: (x.sin() + 1, x, torch.stack([x, x])), lambda: (_named(),))
    (graph,) = graphs
    assert [type(node.meta["val"]).__name__ for node in graph.graph.nodes if node.op == "placeholder"] == ["FakeTensor"]
    assert "as_subclass" not in graph.code


def test_attributes_are_found_by_the_rules_of_python():
    def program(x):
        return x.label, x.area(), x.doubled, x.scale, getattr(x, "absent", 0), x.shape, x.T, x.dtype

    _agree(program, lambda: (_named(scale=2),), lambda: (_named(scale=[3]),), lambda: (_named(scale=2, label="own"),))
    _agree(lambda x: (x + 1, x.anything), lambda: (_named(cls=Asks),))


def test_what_is_read_is_guarded():
    def program(x):
        return (x * x.scale, getattr(x, "absent", 0))

    graphs = _agree(
        program,
        lambda: (_named(scale=2.0),),
        lambda: (_named(scale=3.0),),
        lambda: (_named(scale=torch.ones(3)),),
        lambda: (_named(scale=2.0, absent=5),),
        lambda: (_named(scale=2.0),),
    )
    assert len(graphs) > 1


def test_attributes_that_the_program_stores_are_stored():
    def program(x):
        x.note = [x.sin()]
        x.doubled = x
        made = x + 1
        made.origin = x
        return made, made.origin is x, x.note

    _agree(program, lambda: (_named(),))


def test_an_attribute_that_the_program_deletes_is_gone():
    def program(x):
        del x.note
        return x + 1, hasattr(x, "note")

    _agree(program, lambda: (_named(note=1),))


def test_the_class_is_guarded():
    class Other(Named):
        pass

    graphs = _agree(
        lambda x: (x + 1, type(x), isinstance(x, Other)),
        lambda: (_named(),),
        lambda: (_named(cls=Other),),
        lambda: (torch.ones(3),),
        lambda: (_named(),),
    )
    assert len(graphs) == 3


def test_what_a_class_has_may_be_replaced():
    class Changing(Named):
        pass

    region, x = recorded(lambda x: (x + 1, x.area(), x.label), [], fullgraph=True), _named(cls=Changing)
    assert region(x)[1:] == (torch.tensor(24.0), "none")
    Changing.area, Changing.label = lambda self: 7, "new"
    assert region(x)[1:] == (7, "new")
    Changing.__torch_function__ = classmethod(lambda cls, *given: "answered")
    assert region(x)[0] == "answered"
    del Changing.__torch_function__, Changing.area
    assert type(region(x)[0]) is Changing


def test_one_object_twice_is_one_object():
    def program(a, b):
        a.note = 1
        return a is b, getattr(b, "note", 0), a + b, {a: 1}.get(b)

    def same():
        return (_named(),) * 2

    _agree(program, lambda: (_named(), _named()), same, lambda: (_named(), _named()))
    _agree(program, same, lambda: (_named(), _named()))


def test_writes_reach_the_tensor():
    def program(x):
        x.add_(1)
        x[0] = 5.0
        x *= 2
        return x.mul_(3) is x

    _agree(program, lambda: (_named(),))


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_and_what_autograd_says(grad):
    def program(x):
        return (x * x).sum(), x.requires_grad, x.is_leaf, (x + 1).requires_grad, (x + 1).is_leaf

    region, found = recorded(program, [], fullgraph=True), []
    for call in (program, region):
        leaf = _named().requires_grad_()
        for x in (leaf, leaf * 1):
            with torch.set_grad_enabled(grad):
                result, *facts = call(x)
            if grad:
                result.backward()
            found.append(
                (type(result), result.requires_grad, facts, type(leaf.grad), leaf.grad is None or leaf.grad.tolist())
            )
    assert found[:2] == found[2:]


def test_parameters_of_a_subclass():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(_named())

        def forward(self, x):
            return x * self.weight, isinstance(self.weight, nn.Parameter), isinstance(x, nn.Parameter)

    module = Scaled()
    region = recorded(module, [], fullgraph=True)
    result, *told = region(torch.ones(3))
    assert type(result) is Named and told == [True, False]
    result.sum().backward()
    assert module.weight.grad.tolist() == [1.0, 1.0, 1.0]


def test_reads_are_handed_on_as_accessors():
    class Reads(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func == Tensor.shape.__get__:
                return (7, 7)
            if func in {Tensor.dtype.__get__} or func in TABLE:
                return TABLE.get(func, "a set's")
            return super().__torch_function__(func, types, args, kwargs)

    def program(x):
        return (x.shape, x.dtype, x.ndim, x.layout, torch.relu(x), len(x))

    _agree(program, lambda: (_named(cls=Reads),))


TABLE = {Tensor.layout.__get__: "layout", torch.relu: "relu", Tensor.__len__: 11}


class Dispatches(Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class LooksUp(Tensor):
    def __getattribute__(self, name):
        return super().__getattribute__(name)


@pytest.mark.parametrize("cls", [Dispatches, LooksUp])
def test_classes_that_are_more_than_that_break(cls, broken):
    x = torch.ones(3).as_subclass(cls)
    assert "unsupported-tensor" in broken(lambda y: y + len(x.shape))


@pytest.mark.parametrize("program", [lambda x: x.mul_(3).sum(), lambda x: _written_without_gradients(x)])
def test_gradients_of_what_is_written(program):
    found = []
    for call in (program, recorded(program, [])):
        leaf = _named().requires_grad_()
        x = leaf if "_written" in program.__code__.co_names else leaf * 2
        call(x).sum().backward()
        found.append((leaf.grad.tolist(), x.tolist()))
    assert found[0] == found[1]


def _written_without_gradients(x):
    with torch.no_grad():
        x.add_(1)
    return x * x


def test_inference_mode_around_the_call():
    def program(x):
        return x * 2, x.requires_grad, (x + 1).requires_grad, x.is_leaf

    region = recorded(program, [], fullgraph=True)
    for x in (_named().requires_grad_(), _named()):
        with torch.inference_mode():
            (ours, *told), (theirs, *wanted) = region(x), program(x)
        assert told == wanted and ours.is_inference() == theirs.is_inference() and type(ours) is Named


def test_a_module_that_gets_a_parameter_registers_it():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(_named())
            self.register_buffer("total", _named())

        def forward(self, x):
            self.total = self.total + x
            self.again, self.other = self.weight, self.weight * 2
            return self.total.sum()

    found = []
    for wrap in (lambda module: module, lambda module: recorded(module, [])):
        module = Keeps()
        results = [wrap(module)(torch.ones(3)).tolist() for _ in range(2)]
        found.append(
            (results, sorted(module._parameters), sorted(module._buffers), type(module.total), type(module.other))
        )
    assert found[0] == found[1]


def test_a_method_in_python_is_called_by_the_name_that_finds_it():
    (graph,) = _agree(lambda x: (x**2, 2 / x), lambda: (_named(),))
    assert "_tensor." not in graph.code
