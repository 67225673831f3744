"""The native guard tree and its Python twin agree, on constants, containers, tensors and state."""

from __future__ import annotations

import collections
import itertools
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flambeau_capture import override_cudagraphs
from flambeau_capture.guards import check as twin
from flambeau_capture.guards import spec as gs
from flambeau_capture.guards.build import build
from flambeau_capture.guards.explain import describe, explain
from flambeau_capture.guards.state import current_state
from flambeau_capture.native import _C
from flambeau_capture.sources import source as src

from .agreement import X, Y, agree

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf]),
    st.floats(),
    st.complex_numbers(max_magnitude=4),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.sampled_from(
        [torch.float32, torch.strided, torch.device("cpu"), int, ..., range(3), range(0, 3, 2), slice(1, None)]
    ),
)
constants = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(st.one_of(st.integers(-2, 2), st.booleans(), st.text(max_size=1), st.floats(-1, 1)), max_size=3),
    ),
    max_leaves=5,
)
values = st.one_of(
    constants,
    st.lists(scalars, max_size=3),
    st.dictionaries(st.one_of(st.integers(-2, 2), st.text(max_size=1)), scalars, max_size=3),
    st.sets(st.integers(-2, 2), max_size=3),
)


@given(constants, constants)
def test_constants(left, right):
    assert _C.same_constant(left, right) == twin.same_constant(left, right)
    agree([gs.ConstantIs(X, left)], {"x": right})
    agree([gs.NotConstant(X, left)], {"x": right})
    assert agree([gs.ConstantIs(X, left)], {"x": left})


@pytest.mark.parametrize(
    "left, right, same",
    [
        (1, True, False),
        (0.0, -0.0, False),
        (math.nan, float("nan"), True),
        ((1, (2, 3.0)), (1, (2, 3.0)), True),
        ((1,), (True,), False),
        (frozenset({1}), frozenset({True}), False),
        (torch.Size([2, 3]), (2, 3), False),
        (torch.device("cpu"), torch.device("cpu"), True),
        (10**40, 10**40, True),
        (range(0, 3, 2), range(0, 4, 2), False),
    ],
)
def test_constants_are_compared_exactly(left, right, same):
    assert _C.same_constant(left, right) is same
    assert twin.same_constant(left, right) is same


NUMBERS = (
    0, 1, -1, True, 2**48, 2**48 + 1, -(2**48), -(2**48) - 1, 2**62, 2**63 - 1, 2**63, -(2**63), 10**400, 0.0, -0.0, 1e308, -1e308, 1e-320,
    math.inf, -math.inf, math.nan, "1", None,
)  # fmt: skip


@pytest.mark.parametrize("cls, limit", [(int, 2**48), (int, 2**62), (float, sys.float_info.max)])
def test_numbers_are_held_to_their_limit(cls, limit):
    for number in NUMBERS:
        expected = type(number) is cls and abs(number) <= limit
        assert agree([gs.NumberIs(X, cls, limit)], {"x": number}) is expected


@given(values, values, st.integers(0, 3))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_containers(seen, now, number):
    specs = [
        [gs.TypeIs(X, type(seen))],
        [gs.SequenceLength(X, number)],
        [gs.DictKeys(X, tuple(seen) if isinstance(seen, dict) else ())],
        [gs.Contains(X, number, True)],
        [gs.Contains(X, number, False)],
        [gs.SetEquals(X, frozenset(seen) if isinstance(seen, (set, frozenset)) else frozenset())],
        [gs.HasAttribute(X, "append", True)],
        [gs.ConstantIs(src.Item(X, number), now)],
        [gs.ConstantIs(src.Item(X, -1), now)],
        [gs.ConstantIs(src.DictKeyAt(X, number), number)],
        [gs.IdentityIs(X, seen)],
        [gs.IdentityIs(src.TypeOf(X), type(seen))],
        [gs.AliasOf(X, Y)],
        [gs.NoAlias((X, Y))],
    ]
    for one in specs:
        agree(one, {"x": now, "y": seen})
        agree(one, {"x": seen, "y": seen})


def _ways_to_add(thing):
    """Each leaves `thing` with an attribute `key`."""
    yield lambda: setattr(thing, "key", 1)
    yield lambda: object.__setattr__(thing, "key", 1)
    yield lambda: vars(thing).__setitem__("key", 1)
    yield lambda: vars(thing).setdefault("key", 1)
    yield lambda: vars(thing).update(key=1)
    yield lambda: vars(thing).__ior__({"key": 1})
    yield lambda: setattr(thing, "__dict__", {"key": 1})


def _ways_to_drop(thing):
    """Each leaves it without."""
    yield lambda: delattr(thing, "key")
    yield lambda: vars(thing).pop("key")
    yield lambda: vars(thing).__delitem__("key")
    yield lambda: vars(thing).popitem()
    yield lambda: vars(thing).clear()
    yield lambda: setattr(thing, "__dict__", {})


def test_a_key_is_looked_up_again_after_every_kind_of_write():
    """One tree is asked over and over: what it remembers of a dict ends with the next write."""

    class Thing:
        pass

    thing = Thing()
    there, gone = (build([gs.Contains(src.InstanceDict(X), "key", present)])[0] for present in (True, False))
    for number, (add, drop) in enumerate(itertools.product(_ways_to_add(thing), _ways_to_drop(thing))):
        for write, held, failing in ((add, there, gone), (drop, gone, there)):
            write()
            for _ in range(3):
                assert held.check({"x": thing}, {}) == -1, number
                assert failing.check({"x": thing}, {}) == 0, number


def test_dict_keys_follow_order_even_in_an_ordered_dict():
    table = collections.OrderedDict(a=1, b=2)
    guard = [gs.DictKeys(X, ("a", "b")), gs.ConstantIs(src.DictKeyAt(X, 0), "a")]
    assert agree(guard, {"x": table})
    table.move_to_end("a")
    assert not agree(guard, {"x": table})
    assert not agree(guard, {"x": {"b": 1, "a": 2}})
    assert not agree(guard, {"x": 3})


def test_module_paths_do_not_call_the_users_getattr():
    class Touchy(torch.nn.Module):
        def __getattr__(self, name):
            raise AssertionError(name)

    module = Touchy()
    module._parameters["w"] = torch.nn.Parameter(torch.ones(2))
    attributes = src.InstanceDict(X)
    weight = src.Item(src.Item(attributes, "_parameters"), "w")
    specs = [
        gs.ConstantIs(src.Item(attributes, "training"), True),
        gs.SequenceLength(src.Item(attributes, "_forward_hooks"), 0),
        gs.TensorMatch.of(weight, module._parameters["w"]),
    ]
    assert agree(specs, {"x": module})
    handle = module.register_forward_hook(lambda *a: None)
    assert not agree(specs, {"x": module})
    handle.remove()
    assert agree(specs, {"x": module})
    module.eval()
    assert not agree(specs, {"x": module})
    module.train()
    module._parameters["w"] = torch.nn.Parameter(torch.ones(3))
    assert not agree(specs, {"x": module})


def test_attributes_globals_cells_and_calls():
    class Thing:
        kind = 3

        @property
        def made(self):
            return 4

    thing = Thing()
    thing.own = 5

    def closure():
        return thing

    cell = src.CellContents(src.Item(src.Attribute(X, "__closure__"), 0))
    specs = [
        gs.ConstantIs(src.Attribute(Y, "kind"), 3),
        gs.ConstantIs(src.Attribute(Y, "made"), 4),
        gs.ConstantIs(src.Attribute(Y, "own"), 5),
        gs.IdentityIs(src.Attribute(src.Attribute(src.Global("torch"), "nn"), "functional"), torch.nn.functional),
        gs.IdentityIs(src.Builtin("len"), len),
        gs.IdentityIs(cell, thing),
        gs.IdentityIs(src.CallResult(X), thing),
        gs.FunctionIs(X, closure.__code__, closure.__globals__),
        gs.HasAttribute(Y, "missing", False),
        gs.ConstantIs(src.Pinned(7), 7),
        gs.PythonCheck(Y, lambda value: value.own == 5, "own is five"),
    ]
    frame = {"x": closure, "y": thing}
    assert agree(specs, frame, {"torch": torch})
    assert not agree(specs, frame, {"torch": math})
    assert not agree(specs, {"x": closure}, {"torch": torch})
    thing.own = 6
    assert not agree(specs, frame, {"torch": torch})
    del thing.own
    assert not agree(specs, frame, {"torch": torch})


def tensors():
    base = torch.arange(24.0)
    yield from (
        base,
        base.view(4, 6),
        base.view(4, 6).t(),
        base.view(2, 3, 4),
        base.double(),
        base.clone().requires_grad_(),
        torch.nn.Parameter(base.clone()),
        torch.complex(base, base).conj(),
        base.view(4, 6)[1:],
        torch.ones(()),
        torch.ones(0, 3),
        torch.ones(4, 6, device="meta"),
        torch.eye(3).to_sparse(),
    )
    with torch.inference_mode():
        yield torch.arange(24.0)


def test_tensors():
    made = list(tensors())
    for seen in made:
        exact = gs.TensorMatch.of(X, seen)
        free = gs.TensorMatch.of(X, seen, dynamic_sizes=range(seen.dim()), dynamic_strides=range(seen.dim()))
        for now in made:
            same = agree([exact], {"x": now})
            assert same == (now is seen)
            agree([free], {"x": now})
        assert agree([free], {"x": seen})
        assert not agree([exact], {"x": 3})
    assert agree([gs.TensorMatch.of(X, torch.ones(2, 3), dynamic_sizes=[0])], {"x": torch.ones(7, 3)})
    assert not agree([gs.TensorMatch.of(X, torch.ones(2, 3), dynamic_sizes=[0])], {"x": torch.ones(2, 4)})


def test_free_strides_that_are_products():
    """Rows that lie one behind the other, whatever their length; not rows with gaps, nor one row for all."""
    dense = gs.TensorMatch.of(X, torch.ones(4, 5), dynamic_sizes=[0, 1], dynamic_strides=[0], behind={0: 1, 1: 7})
    assert dense.behind == ((0, 1),)
    assert agree([dense], {"x": torch.ones(7, 3)})
    for other in (torch.ones(7, 6)[:, :3], torch.ones(1, 3).expand(7, 3)):
        assert not agree([dense], {"x": other})
        assert "stride 0: expected 3 (dimension 1 lies in front of it)" in explain(dense, {"x": other}, {})


def test_a_failing_tensor_guard_says_which_size():
    guard = gs.TensorMatch.of(X, torch.ones(4, 2), position=("model.py", 12, "forward"))
    words = explain(guard, {"x": torch.ones(5, 2)}, {})
    assert words == "tensor L['x'] size 0: expected 4, actual 5 (assumed at model.py:12 in forward)"
    assert "dtype: expected torch.float32" in explain(guard, {"x": torch.ones(4, 2).int()}, {})
    assert "dimensions: expected 2, actual 1" in explain(guard, {"x": torch.ones(4)}, {})
    assert "does not exist any more" in explain(guard, {}, {})


STATES = [
    lambda: override_cudagraphs(fwd=True),
    lambda: override_cudagraphs(bwd=False),
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    lambda: torch.autocast("cpu", dtype=torch.float16),
    lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    lambda: torch.device("meta"),
    lambda: torch.device("cpu"),
    torch._C.DisableTorchFunction,
    lambda: Toggle(torch.use_deterministic_algorithms, False, True),
    lambda: Toggle(torch.set_default_dtype, torch.float32, torch.float64),
    lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION),
    torch.autograd.forward_ad.dual_level,
]


class Toggle:
    def __init__(self, function, before, inside):
        self.function, self.before, self.inside = function, before, inside

    def __enter__(self):
        self.function(self.inside)

    def __exit__(self, *_):
        self.function(self.before)


@pytest.mark.parametrize("make", STATES)
def test_global_state(make):
    outside = current_state()
    assert agree([outside], {})
    with make():
        inside = current_state()
        assert agree([inside], {})
        assert not agree([outside], {})
    assert agree([outside], {})
    assert not agree([inside], {})


@pytest.mark.parametrize("on", [True, False])
def test_precision_of_products_where_a_gpu_is_used(on, monkeypatch):
    before = torch.backends.cuda.matmul.fp32_precision
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: on)
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    try:
        outside = current_state()
        assert agree([outside], {})
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert agree([outside], {}) is not on
        assert agree([current_state()], {})
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


class Traced(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Below(Traced):
    pass


def test_modes_of_the_program_are_known_by_their_class():
    with Traced():
        one = current_state()
    with Traced(), Below():
        two = current_state()
    for modes, wanted in (
        ((), []),
        ((Traced,), [one]),
        ((Below,), []),
        ((Traced, Below), [two]),
        ((Below, Traced), []),
    ):
        entered = [mode() for mode in modes]
        for mode in entered:
            mode.__enter__()
        try:
            assert [state for state in (one, two) if agree([state], {})] == wanted
        finally:
            for mode in reversed(entered):
                mode.__exit__(None, None, None)


def test_function_transforms_are_part_of_the_state():
    outside = current_state()
    verdicts = []
    torch.func.vmap(lambda x: verdicts.append(build([outside])[0].check({}, {})) or x)(torch.ones(2))
    assert verdicts == [0]


def test_aliasing_among_many_objects():
    objects = [object() for _ in range(700)]
    sources = tuple(src.Item(X, i) for i in range(700))
    guard = [gs.NoAlias(sources)]
    assert agree(guard, {"x": objects})
    objects[699] = objects[3]
    assert not agree(guard, {"x": objects})
    assert "L['x'][3] and L['x'][699]" in explain(guard[0], {"x": objects}, {})
    assert agree([gs.AliasOf(sources[3], sources[699])], {"x": objects})


def test_tensors_that_share_memory():
    base = torch.arange(6.0)
    every = [gs.DistinctStorage((X, Y, src.Local("z")), ())]
    assert agree(every, {"x": base, "y": base.clone(), "z": torch.eye(2).to_sparse()})
    assert not agree(every, {"x": base, "y": base.view(2, 3), "z": 3})
    assert not agree(every, {"x": base.detach(), "y": 3, "z": base[4:]})


def test_memory_that_several_storages_have():
    array = np.arange(12, dtype=np.float32)
    whole, begin, end = (torch.from_numpy(part) for part in (array, array[:4], array[2:]))
    first = [gs.DistinctStorage((X,), (Y, src.Local("z")))]
    assert not agree(first, {"x": whole, "y": torch.from_dlpack(whole), "z": 3})
    assert not agree(first, {"x": whole, "y": torch.ones(2), "z": torch.from_numpy(array[5:6])})
    assert not agree(first, {"x": begin, "y": torch.ones(2), "z": end})
    assert agree(first, {"x": begin, "y": torch.from_numpy(array[4:]), "z": torch.ones(2)})
    assert agree(first, {"x": torch.ones(2), "y": begin, "z": end})
    owned = torch.ones(3)
    assert not agree(first, {"x": owned, "y": torch.from_numpy(owned.numpy()[1:]), "z": 3})


def test_only_written_tensors_need_memory_of_their_own():
    base = torch.arange(6.0)
    first = [gs.DistinctStorage((X,), (Y, src.Local("z")))]
    assert agree(first, {"x": torch.ones(2), "y": base, "z": base[4:]})
    assert not agree(first, {"x": base[:2], "y": torch.ones(2), "z": base[4:]})
    assert "1 written tensor is no other's" in describe(first[0])


def test_identities_are_weak_and_a_dead_object_never_matches():
    class Model:
        pass

    model = Model()
    tree, _ = build([gs.IdentityIs(X, model)])
    assert tree.check({"x": model}, {}) == -1
    assert tree.alive()
    del model
    assert not tree.alive()
    assert tree.check({"x": Model()}, {}) == 0


def test_errors_inside_guards_mean_that_they_do_not_hold():
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __len__(self):
            raise OSError

        def __getitem__(self, key):
            raise ValueError(key)

    def raising(value):
        raise KeyError(value)

    frame = {"x": Hostile()}
    for guard in [
        gs.ConstantIs(src.Attribute(X, "a"), 1),
        gs.ConstantIs(src.Item(X, 0), 1),
        gs.ConstantIs(src.Item(X, "k"), 1),
        gs.SequenceLength(X, 0),
        gs.PythonCheck(X, raising, "raises"),
    ]:
        assert build([guard])[0].check(frame, {}) == 0
    assert twin.check([guard], frame, {}) == 0
