"""Compare a compiled callable with eager: outputs, gradients of every parameter and input, mutations.

In: two results of the same structure. Out: nothing, or an assertion that names the first leaf that differs; or the relative
errors, for those who judge themselves (the benchmarks, the demo, tests of reduced precision).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree


def assert_same(
    actual: Any,
    expected: Any,
    *,
    inputs: tuple[Any, Any] | None = None,
    strides: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """The same structure and Python types; tensors of the same class, dtype, device, shape, strides, `requires_grad` and close values;
    and the same sharing: which leaves are one object, and which have their memory in common.

    Args:
        inputs: what each side was called with: compared too, and part of the sharing (a result that is an argument, or a view of one).
        strides: False where eager itself promises neither strides nor sharing (gradients that autograd hands out).
    """
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    _assert_same_order(actual, expected)
    if inputs is not None:
        given_leaves = [pytree.tree_leaves(side) for side in inputs]
        assert len(given_leaves[0]) == len(given_leaves[1])
        actual_leaves, expected_leaves = actual_leaves + given_leaves[0], expected_leaves + given_leaves[1]
    for number, (ours, theirs) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        assert type(ours) is type(theirs), f"leaf {number}: {type(ours)} instead of {type(theirs)}"
        if isinstance(theirs, Tensor):
            _assert_same_kind(number, ours, theirs, strides)
            _assert_close(number, ours, theirs, rtol, atol)
        else:
            assert _equal(ours, theirs), f"leaf {number}: {ours!r} != {theirs!r}"
    assert not strides or sharing(actual_leaves) == sharing(expected_leaves), (
        "other leaves are one object, or share memory, than in eager"
    )


def sharing(leaves: Sequence[Any]) -> list[tuple[int, int]]:
    """For each tensor of a list, the place of the first that is the same object and of the first in the same memory."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    return [(objects.setdefault(id(t), place), memory.setdefault(_memory(t), place)) for place, t in enumerate(tensors)]


def _memory(tensor: Tensor) -> int:
    """What tells one tensor's memory from another's; a tensor without memory shares with none."""
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return id(tensor)
    return storage._cdata if storage.nbytes() else id(tensor)


def _assert_same_order(actual: Any, expected: Any) -> None:
    """Dicts are equal in any order to pytree, not to a program that iterates over them."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        assert list(actual) == list(expected), f"keys in the order {list(actual)} instead of {list(expected)}"
        for key in expected:
            _assert_same_order(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        for ours, theirs in zip(actual, expected, strict=True):
            _assert_same_order(ours, theirs)


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, float):
        return (ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs)) or (
            ours != ours and theirs != theirs
        )
    return bool(ours == theirs) or bool(ours != ours and theirs != theirs)


def _assert_same_kind(number: int, ours: Tensor, theirs: Tensor, strides: bool) -> None:
    for name in ("requires_grad", "is_leaf", "dtype", "device", "layout", "shape"):
        mine, wanted = getattr(ours, name), getattr(theirs, name)
        assert mine == wanted, f"leaf {number}: {name} is {mine} instead of {wanted}"
    assert ours.is_inference() == theirs.is_inference(), f"leaf {number}: only one is an inference tensor"
    if strides and theirs.layout is torch.strided:
        mine, wanted = meaningful_strides(ours), meaningful_strides(theirs)
        assert mine == wanted, f"leaf {number}: strides {mine} instead of {wanted} of shape {tuple(theirs.shape)}"


def meaningful_strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides by which two elements are told apart: those of sizes above one, none of a tensor without elements."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)


def _assert_close(number: int, ours: Tensor, theirs: Tensor, rtol: float, atol: float) -> None:
    if theirs.is_floating_point() and theirs.itemsize == 1:
        ours, theirs = ours.float(), theirs.float()  # torch compares numbers of eight bits by their bits alone
    torch.testing.assert_close(
        ours, theirs, rtol=rtol, atol=atol, equal_nan=True, msg=lambda message: f"leaf {number}: {message}"
    )


def assert_same_gradients(
    actual: Mapping[str, Tensor | None],
    expected: Mapping[str, Tensor | None],
    exact: Callable[[], Mapping[str, Tensor | None]] | None = None,
    *,
    rtol: float = 1e-4,
) -> None:
    """Each gradient is close relative to its own largest entry; where rounding outweighs that (the true gradient is zero or a small
    difference of large numbers), ours is as near to the exact one as eager's is, up to a factor: eager's distance is one draw of its noise.

    Args:
        exact: makes the same gradients in float64; asked only if a gradient needs it. None: no gradient may.
    """
    assert list(actual) == list(expected)
    truth: Mapping[str, Tensor | None] | None = None
    wrong = []
    for name, theirs in expected.items():
        ours = actual[name]
        assert (ours is None) == (theirs is None), f"{name}: only one side has a gradient"
        if ours is None or theirs is None:
            continue
        assert (ours.dtype, ours.shape, ours.device) == (theirs.dtype, theirs.shape, theirs.device), name
        error = relative_error(ours, theirs)
        if error <= rtol:
            continue
        truth = exact() if truth is None and exact is not None else truth
        if truth is None:
            wrong.append(f"{name}: {error:.2e} of its own size")
            continue
        mine, allowed = _distance(ours, _of(truth, name)), 8 * _distance(theirs, _of(truth, name))
        if not mine <= allowed:
            wrong.append(f"{name}: {error:.2e} of its own size; {mine:.2e} from the exact one, {allowed:.2e} allowed")
    assert not wrong, f"{len(wrong)} of {len(expected)} gradients: " + "; ".join(wrong[:8])


def _distance(actual: Tensor, exact: Tensor) -> float:
    """The root of the mean squared difference."""
    distance = float((actual.detach().double() - exact.detach().double()).square().mean().sqrt())
    return math.inf if math.isnan(distance) else distance


def outcome(function: Callable[..., Any], inputs: Sequence[Tensor], kind: str) -> tuple[Any, list[Tensor]]:
    """What a function of tensors does, as two parts: what is equal or not (layouts, whose memory and which object each tensor is, or an
    error), and tensors: results and inputs, before and after the results are written, and gradients.

    It is called with copies of `inputs` in their strides; `kind` says what those that can have gradients are: `"plain"` (none),
    `"leaf"`, or `"inner"`, results of leaves.
    """
    leaves = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) for t in inputs]
    wanted = [t.requires_grad_() for t in leaves if kind != "plain" and t.is_floating_point()]
    given = [t * 1 if t.requires_grad else t for t in leaves] if kind == "inner" else leaves
    try:
        results = function(*given)
    except (RuntimeError, IndexError, ValueError) as error:
        return (type(error), str(error)), []
    results = results if isinstance(results, tuple) else (results,)
    everything = [*results, *given]
    layouts = [(t.shape, t.stride(), t.requires_grad) for t in results]
    owners = [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in everything] for a in everything]
    objects = [[a is b for b in everything] for a in everything]
    tensors = [t.detach().clone() for t in everything]
    loss = sum((t * torch.linspace(0.1, 1, t.numel()).view(t.shape)).sum() for t in results if t.requires_grad)
    refused: type[Exception] | None = None
    if isinstance(loss, Tensor):
        try:
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
        except RuntimeError as error:
            refused, found = type(error), ()
        # An input that one graph uses for another result has a gradient of zeros; in eager it has none.
        tensors += [torch.zeros_like(t) if grad is None else grad for t, grad in zip(wanted, found)]
    with torch.no_grad():
        for result in results:
            if result.is_contiguous() and result.dtype is not torch.bool:
                result.add_(1)
    return (layouts, owners, objects, refused), tensors + [t.detach().clone() for t in everything]


def run_as_it_is(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend for `flambeau_capture.make_region` that compiles nothing."""
    return graph.forward


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    """Name -> gradient (None where there is none) of every parameter."""
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def exact_gradients(
    model: nn.Module, call: Callable[[nn.Module, Callable[[Any], Any]], Tensor], seed: int
) -> dict[str, Tensor | None]:
    """The gradients of a float64 copy of `model` under the same random numbers.

    Args:
        call: the copy, and what makes an input's floats as wide -> the loss.
    """
    twin = twin_of(model).double()
    torch.manual_seed(seed)
    call(
        twin, lambda value: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
    ).backward()
    return gradients(twin)


def largest(tensors: Iterable[Tensor | None]) -> float:
    """The largest magnitude in any of the tensors; 0.0 for none."""
    return max((float(t.detach().abs().max()) for t in tensors if t is not None and t.numel()), default=0.0)


#: A gradient whose largest entry is below this share of the model's largest is taken for the noise of one that is truly zero.
NOISE_SHARE = 1e-3

#: The same share for roots of mean squares in reduced precision, where the noise of a zero is a thousand times as large.
ROUNDING_SHARE = 1e-2


def relative_error(actual: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """The largest difference, relative to the largest expected magnitude, which counts as `floor` at least.

    nan and infinity equal themselves; anywhere else they make the error infinite.
    """
    ours, theirs = actual.detach().double(), expected.detach().double()
    if ours.shape != theirs.shape:
        return math.inf
    if ours.numel() == 0:
        return 0.0
    difference = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, (ours - theirs).abs())
    error = float(difference.nan_to_num(nan=math.inf, posinf=math.inf).max())
    finite = theirs[theirs.isfinite()]
    scale = max(float(finite.abs().max()) if finite.numel() else 0.0, floor, 1e-30)
    return error / scale


def gradient_errors(actual: Mapping[str, Tensor | None], expected: Mapping[str, Tensor | None]) -> dict[str, float]:
    """Name -> `relative_error` of each gradient, with the model's largest gradient as the measure of what is noise.

    The true gradient of some parameters is zero (the key bias of an attention: softmax does not see it), so that what any
    engine computes for them is rounding noise. Their differences are held against `NOISE_SHARE` of the largest gradient of the
    whole model. A gradient that only one side has is an infinite error.
    """
    floor = NOISE_SHARE * largest(expected.values())
    errors = {}
    for name in {**actual, **expected}:
        ours, theirs = actual.get(name), expected.get(name)
        if ours is None or theirs is None:
            errors[name] = 0.0 if ours is theirs else math.inf
        else:
            errors[name] = relative_error(ours, theirs, floor)
    return errors


def rms_error(actual: Tensor, exact: Tensor, floor: float = 0.0) -> float:
    """Root of the mean squared difference, relative to that of the exact values, which counts as `floor` at least."""
    if actual.shape != exact.shape:
        return math.inf
    if actual.numel() == 0:
        return 0.0
    ours, theirs = actual.detach().double(), exact.detach().double()
    difference = float((ours - theirs).square().mean().sqrt())
    scale = max(float(theirs.square().mean().sqrt()), floor, 1e-30)
    return math.inf if math.isnan(difference) else difference / scale


def assert_as_exact(
    actual: Mapping[str, Tensor | None],
    eager: Mapping[str, Tensor | None],
    exact: Mapping[str, Tensor | None],
    *,
    tiny: float,
) -> None:
    """Ours is as near to the exact values as eager's, for each tensor of a group (the outputs, or the gradients, of one model).

    Both are held against the same computation in a wider format: where two roundings of the same quality differ from one
    another says nothing. A tensor of few elements can be right by luck in one of them; so the error allowed is twice eager's
    own or twice eager's mean over the group, whichever is larger, and `tiny`. Tensors whose true value is zero are measured by
    the group's scale, much as in `gradient_errors`.
    """
    names = [name for name, tensor in exact.items() if tensor is not None]
    assert [name for name in actual if actual[name] is not None] == [n for n in eager if eager[n] is not None]
    largest_rms = max((float(_of(exact, name).double().square().mean().sqrt()) for name in names), default=0.0)
    floor = ROUNDING_SHARE * largest_rms
    theirs = {name: rms_error(_of(eager, name), _of(exact, name), floor) for name in names}
    usual = sum(theirs.values()) / max(len(theirs), 1)
    wrong = []
    for name in names:
        ours, allowed = rms_error(_of(actual, name), _of(exact, name), floor), 2 * max(theirs[name], usual) + tiny
        if not ours <= allowed:
            wrong.append(f"{name}: error {ours:.2e}, eager's {theirs[name]:.2e}, allowed {allowed:.2e}")
    assert not wrong, f"{len(wrong)} of {len(names)} tensors: " + "; ".join(wrong[:8])


def _of(tensors: Mapping[str, Tensor | None], name: str) -> Tensor:
    tensor = tensors.get(name)
    assert tensor is not None, f"{name} is missing"
    return tensor


def twin_of(model: nn.Module) -> nn.Module:
    """A deep copy with gradients cleared."""
    twin = copy.deepcopy(model)
    twin.zero_grad(set_to_none=True)
    return twin
