"""What removing a call would change: every op of torch's registry, by schema and tags, and by running what there are samples of."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.fx import Graph
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from flambeau_autograd.functional.ops import Kind, is_impure, is_random, kind_of, raises, writes
from flambeau_autograd.passes.facts import draws


def registry() -> Iterator[OpOverload]:
    """Every overload that the dispatcher knows and Python can name."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        try:
            yield getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        except (AttributeError, RuntimeError):
            continue


def test_the_registry_is_large() -> None:
    assert sum(1 for _ in registry()) > 3000


def test_an_op_that_writes_or_returns_nothing_is_never_pure() -> None:
    for op in registry():
        schema = op._schema
        if schema.is_mutable or not schema.returns:
            assert is_impure(op), op
        if schema.is_mutable:
            assert writes(op), op
            assert kind_of(op) not in (Kind.PURE, Kind.VIEW, Kind.COMPOSITE), op


def test_an_op_that_takes_a_generator_is_random() -> None:
    for op in registry():
        if op.namespace == "aten" and any("Generator" in str(a.type) for a in op._schema.arguments):
            assert is_random(op), op


def test_a_gradient_that_computes_its_mask_again_draws_nothing() -> None:
    """Torch tags what has a dropout rate, though the states of the generator are among its arguments."""
    found = []
    for op in filter(is_random, registry()):
        if op._schema.name.endswith("_backward"):
            node = Graph().call_function(op, tuple(0.5 for _ in op._schema.arguments))
            assert not draws(node), op
            found.append(op)
    assert torch.ops.aten._scaled_dot_product_efficient_attention_backward.default in found
    assert draws(Graph().call_function(torch.ops.aten.native_dropout.default, (0, 0.5, True)))


def test_an_op_whose_values_do_not_matter_is_no_check() -> None:
    """What nobody reads is dropped: few ops look at the values that they get."""
    aten = torch.ops.aten
    for op in (
        aten.mul.Tensor,
        aten.mm.default,
        aten.sum.dim_IntList,
        aten._softmax.default,
        aten.where.self,
        aten.view.default,
    ):
        assert not raises(op, False) and not raises(op, True), op
    assert raises(aten.div.Tensor_mode, True) and not raises(aten.div.Tensor_mode, False)
    assert raises(aten.embedding.default, False)


def test_ops_that_torch_knows_nothing_about_stay() -> None:
    for op in registry():
        if op.namespace in ("_c10d_functional", "c10d", "symm_mem", "profiler"):
            assert is_impure(op), op


def test_a_library_s_own_op_stays() -> None:
    counted = []

    @torch.library.custom_op("flambeau_effects::count", mutates_args=())
    def count(x: torch.Tensor) -> torch.Tensor:
        counted.append(1)
        return x.clone()

    assert is_impure(torch.ops.flambeau_effects.count.default)


class _Watch(TorchDispatchMode):
    """Every call's arguments and the generator before and after, against what the op is said to do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()
        self.faults: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        plain = [t for t in tensors if t.layout is torch.strided and not t.is_quantized]
        before = [t.detach().clone() for t in plain]
        shapes = [(t.shape, t.stride()) for t in plain]
        state = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        self.seen.add(func)
        if not is_random(func) and not torch.equal(state, torch.get_rng_state()):
            self.faults.append(f"{func} draws")
        if not writes(func):
            for old, new, shape in zip(before, plain, shapes, strict=True):
                if shape != (new.shape, new.stride()) or not _identical(old, new):
                    self.faults.append(f"{func} writes")
        return result


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_complex():
        a, b = (torch.view_as_real(t.resolve_conj()) for t in (a, b))
    return torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _run(chosen: list[Any], samples: int) -> _Watch:
    watch = _Watch()
    for op in chosen:
        for sample in islice(op.sample_inputs("cpu", torch.float32, requires_grad=False), samples):
            if not isinstance(sample.input, torch.Tensor) and sample.input is None:
                continue
            try:
                with watch:
                    op(sample.input, *sample.args, **sample.kwargs)
            except NotImplementedError:
                continue
    return watch


#: Uninitialised memory may hold anything; jiterator needs a GPU.
_LEFT_OUT = ("empty", "new_empty", "sparse", "jiterator")


def _runnable() -> list[Any]:
    return [op for op in op_db if torch.float32 in op.dtypes and not op.name.startswith(_LEFT_OUT)]


def test_ops_do_to_their_arguments_and_the_generator_what_they_are_said_to() -> None:
    watch = _run(sorted(random.Random(5).sample(_runnable(), 60), key=lambda op: op.name), 2)
    assert len(watch.seen) > 70
    assert not watch.faults


@pytest.mark.slow
def test_all_ops_do_to_their_arguments_and_the_generator_what_they_are_said_to() -> None:
    watch = _run(_runnable(), 4)
    assert len(watch.seen) > 400
    assert not sorted(set(watch.faults))


class _Refusals(TorchDispatchMode):
    """The innermost ops that raised."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: set[OpOverload] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except (RuntimeError, IndexError, ValueError):
            self.raised.add(func)
            raise


#: Values that an op may not like, in place of its operands' own.
_SPOILT: dict[str, Any] = {
    "large": lambda t: torch.full_like(t, 100 if not t.is_floating_point() else 1e30),
    "negative": lambda t: torch.full_like(t, -1.5 if t.is_floating_point() else -100),
    "zero": torch.zeros_like,
    "nan": lambda t: torch.full_like(t, float("nan")) if t.is_floating_point() else t,
}


def _spoilt(value: Any, how: str) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype in (torch.bool, torch.uint8) or value.is_complex():
        return value
    return _SPOILT[how](value)


def _refused_for_values(op: Any, dtype: torch.dtype, samples: int) -> set[OpOverload]:
    watch = _Refusals()
    for sample in islice(op.sample_inputs("cpu", dtype), samples):
        given = ((sample.input, *sample.args), sample.kwargs)
        for how in (None, *_SPOILT):
            args, kwargs = given if how is None else pytree.tree_map(lambda t, how=how: _spoilt(t, how), given)
            try:
                with watch if how is not None else contextlib.nullcontext():
                    op(*args, **kwargs)
            except (RuntimeError, IndexError, ValueError, NotImplementedError):
                if how is None:
                    break
    return watch.raised


def _check_refusals(chosen: list[Any], samples: int) -> int:
    dtypes = (torch.float32, torch.int64)
    found = {op for info in chosen for d in dtypes if d in info.dtypes for op in _refused_for_values(info, d, samples)}
    known = {op for op in found if is_impure(op) or is_random(op) or raises(op, on_integers=True)}
    assert {op for op in found - known if op.namespace == "aten"} == set()
    return len(found)


_QUICK_REFUSALS = (
    "div",
    "index_select",
    "gather",
    "take",
    "nn.functional.embedding",
    "linalg.eigh",
    "bincount",
    "scatter_add",
)


def test_ops_that_refuse_values_are_told() -> None:
    """What raises for the values of its operands is a check where nobody reads its result: by running each with odd ones."""
    assert _check_refusals([op for op in op_db if op.name in _QUICK_REFUSALS], 2) >= 8


@pytest.mark.slow
def test_every_op_that_refuses_values_is_told() -> None:
    # What stands in for an operand has less memory than a window may reach into.
    assert _check_refusals([op for op in _runnable() if not op.name.startswith("as_strided")], 6) > 30
