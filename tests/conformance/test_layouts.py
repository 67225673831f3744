"""Results lie in memory as eager's do, whatever the layout of the operands, and capture says so while it traces.

In: the steps that random programs are made of x layouts of `x` and `y`: row-major, permuted, with gaps, repeated, empty, with odd strides where
the size is one. Many steps make one graph. A failing case names step, layout, and the strides: eager's, ours, those that capture foretold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from tests.sweeps import tensor_steps
from tests.sweeps.backends import backend_of

pytestmark = pytest.mark.judges_itself

#: Steps whose results have sizes that data decides, that are not tensors, or that break the graph.
LEFT_OUT = (
    "unique",
    "nonzero",
    "item()",
    "x[x > 0]",
    "x[y.to(torch.bool)]",
    "[True]",
    "one_hot(x.to(torch.int64))",
    "checkpoint",
    "out=",
    "* [1]",
    "as_strided((2,), (1,))",  # of memory that the fake's storage does not have: it ends the graph
)
#: Composite functions of torch that take another way for fakes than for real tensors: step -> backends of which the results are eager's all the same.
OTHER_WAYS = {"one_hot": True, "max_pool1d": False}
#: Graphs that no program is made of, with these reasons: eager runs them.
IN_EAGER = (
    "a part of a tensor is replaced of which elements share memory",
    "index_add to no elements looks at no index",
)
STEPS = [
    step
    for table in ("POINTWISE", "ROWS", "VIEWS", "INDICES", "GROUP_VALUES", "RANDOM", "INEXACT")
    for step in getattr(tensor_steps, table)
    if not any(part in step for part in LEFT_OUT)
] + [
    "torch.einsum('i...,i...->...', x, x)", "x.to(torch.float32) * x", "x.mean(-1, keepdim=True)", "x.var(0, keepdim=True)", "x[[0]]", "x[[]]",
    "torch.empty_like(x)", "x.logical_xor(y)", "x.remainder(y)", "x * y[0]", "torch.addcdiv(x, y, y)", "torch.addcmul(y[0], x, x)",
    "torch.rot90(x).tril_()", "torch.rot90(x, -1)", "x.clone().mT.add_(1)", "(x + 0).view(-1).mul_(2).view(x.shape)", "x.copysign(y)",
]  # fmt: skip
SHAPES = [
    (4,), (1,), (3, 4), (1, 4), (4, 1), (1, 1), (0, 4), (4, 0), (0, 1), (2, 3, 4), (2, 1, 3), (1, 3, 1), (3, 1, 1), (1, 1, 2), (2, 0, 3),
    (0, 1, 3), (2, 3, 4, 5), (1, 4, 1, 6), (2, 1, 4, 1),
]  # fmt: skip


#: Types of `x` and `y`: a loop over operands of several types reads copies of some.
TYPES = [
    (torch.complex64, torch.float32), (torch.complex64, torch.complex64), (torch.int32, torch.bool), (torch.bool, torch.int32), (torch.uint8, torch.float16),
    (torch.float32, torch.int64), (torch.bfloat16, torch.float64),
]  # fmt: skip
#: Said of a step that ends the graph: torch's fakes refuse some types that eager's kernels take, of no elements above all.
NOT_CAPTURED = "nothing of program was captured"


def layouts(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Tensors of this shape."""
    rank = len(shape)
    odd = [size == 1 for size in shape]

    def filled(*sizes: int) -> Tensor:
        return torch.arange(1.0, 1.0 + torch.Size(sizes).numel()).remainder(7).add(1).reshape(sizes).to(dtype)

    steps = filled(*shape).stride()
    made = {
        "row-major": filled(*shape),
        "reversed": filled(*shape[::-1]).permute(*range(rank)[::-1]),
        "gaps": filled(*shape[:-1], shape[-1] * 2)[..., ::2],
        "cut": filled(*shape[:-1], shape[-1] + 2)[..., 1:-1],
        "rows": filled(shape[0] * 2, *shape[1:])[::2],
        "repeated": filled(1, *shape[1:]).expand(shape),
        "repeated along rows": filled(*shape[:-1], 1).expand(shape),
        "odd": filled(*shape).as_strided(
            shape, [7 + d if one else step for d, (one, step) in enumerate(zip(odd, steps))]
        ),
        "ones": filled(*shape).as_strided(shape, [1 if one else step for one, step in zip(odd, steps)]),
    }
    if rank > 2:
        made["swapped"] = filled(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
        made["ends swapped"] = filled(shape[-1], *shape[1:-1], shape[0]).transpose(0, -1)
    if rank == 4:
        made["channels last"] = filled(*shape).contiguous(memory_format=torch.channels_last)
    return made


def strides(value: Any) -> Any:
    """Sizes and strides of every tensor in a result."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride()
    return [strides(part) for part in value] if isinstance(value, (list, tuple)) else value


def faults(x: Tensor, y: Tensor, steps: list[str], backend: str, dynamic: bool = False) -> tuple[list[str], int]:
    """What lies otherwise than in eager, and how many steps were compared."""
    names = {"torch": torch, "F": F}
    expected: dict[str, Any] = {}
    for step in steps:
        try:
            expected[step] = strides(eval(step, {**names, "x": x, "y": y}))
        except Exception:  # of any kind: such steps are tested elsewhere
            continue
    return _compare(expected, x, y, backend, dynamic), len(expected)


def _compare(expected: dict[str, Any], x: Tensor, y: Tensor, backend: str, dynamic: bool) -> list[str]:
    """All steps in one graph; where that does not pass, in smaller ones."""
    if not expected:
        return []
    lines = [f"    r{place} = {step}" for place, step in enumerate(expected)]
    results = ", ".join(f"r{place}" for place in range(len(lines)))
    told = ", ".join(f"r{n}.stride() if torch.is_tensor(r{n}) else 0" for n in range(len(lines)))
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec("\n".join(["def program(x, y):", *lines, f"    return [{results}], [{told}]"]), names)
    recorder = Recorder()
    error: Any = None
    try:
        compiled = compile_recorded(
            names["program"], recorder, backend=backend_of(backend, recorder), dynamic=dynamic, fullgraph=True
        )
        found, foretold = compiled(x, y)
    except Exception as raised:  # of any kind: the fault is told, or looked for in the halves
        error = raised
    if error is None and not recorder.eager_graphs:
        return [
            f"{step}: {want}, {backend} {strides(have)}, foretold {says} (x {strides(x)}, y {strides(y)})"
            for (step, want), have, says in zip(expected.items(), found, foretold)
            if (strides(have) != want and not _takes_another_way(step, want, False))
            or (says and says != want[1] and not _takes_another_way(step, want, True))
        ]
    if len(expected) > 1:
        pairs = list(expected.items())
        halves = dict(pairs[: len(pairs) // 2]), dict(pairs[len(pairs) // 2 :])
        return [fault for half in halves for fault in _compare(half, x, y, backend, dynamic)]
    reason = "; ".join(recorder.eager_graphs) or f"{type(error).__name__}: {error}"
    return (
        []
        if any(known in reason for known in IN_EAGER)
        else [f"{next(iter(expected))}: {reason} (x {strides(x)}, y {strides(y)})"]
    )


def _takes_another_way(step: str, want: Any, foretelling: bool) -> bool:
    return any(
        name in step and (foretelling or not results_are_right) for name, results_are_right in OTHER_WAYS.items()
    )


def cases(shape: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
    """`x`, `y` and the steps for them: with `y` like `x` those of one tensor too, in the first and the last dimension."""
    first = [step.replace("D", "0") for step in STEPS]
    for x in layouts(shape).values():
        steps = first + [step.replace("D", "-1") for step in STEPS if "D" in step]
        yield x, x, steps
        for y in (torch.ones(shape), torch.ones(shape[-1:])):
            yield x, y, [step for step in first if re.search(r"\by\b", step)]


def cases_of_types(
    shape: tuple[int, ...], types: tuple[torch.dtype, torch.dtype]
) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
    """`x` and `y` of these types, in each layout beside the next one and beside itself."""
    steps = [step.replace("D", "-1") for step in STEPS]
    firsts, seconds = ([*layouts(shape, dtype).values()] for dtype in types)
    for place, x in enumerate(firsts):
        yield x, seconds[place], steps
        yield x, seconds[place - 1], [step for step in steps if re.search(r"\by\b", step)]


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_a_slice_of_types(types: tuple[torch.dtype, torch.dtype]) -> None:
    """What is made of two operands, in two dimensions."""
    steps = [
        "x + y",
        "x * y",
        "y * x",
        "x > y",
        "torch.where(x > y, x, y)",
        "torch._foreach_mul([x, y], [y, x])[1]",
        "torch.angle(x)",
        "x.abs()",
    ]
    firsts, seconds = (layouts((3, 4), dtype) for dtype in types)
    done = [
        faults(firsts[a], seconds[b], steps, "aot_eager") for a, b in (("reversed", "repeated"), ("gaps", "reversed"))
    ]
    assert [fault for found, _ in done for fault in found] == []
    assert sum(compared for _, compared in done) > 8


@pytest.mark.parametrize(("place", "name"), list(enumerate(layouts((2, 1, 3, 1)))))
def test_a_slice(place: int, name: str) -> None:
    """Every fifth step, on two shapes."""
    steps = [step.replace("D", "0") for step in STEPS[place % 5 :: 5]]
    done = [
        faults(layouts(shape)[name], torch.ones(shape[-1:]), steps, "aot_eager")
        for shape in ((1, 4), (2, 1, 3, 1))
        if name in layouts(shape)
    ]
    assert [fault for found, _ in done for fault in found] == []
    assert sum(compared for _, compared in done) > 20


#: `y` weighs channels.
NORMALISATIONS = [
    "F.batch_norm(x, None, None, y, y, True)",
    "F.batch_norm(x, None, None, y, None, True)",
    "F.batch_norm(x, y, y, y, y)",
    "F.batch_norm(x, y, y)",
    "F.batch_norm(x, None, None, y.repeat(2)[::2], y, True)",
    "F.group_norm(x, 3, y, y)",
    "F.instance_norm(x, None, None, y, y)",
    "F.layer_norm(x, (3,), y, y)",
]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3), (2, 3, 4, 3), (1, 3, 1, 3), (1, 3, 2, 1, 3)], ids=str)
def test_normalisations_with_weights(shape: tuple[int, ...]) -> None:
    """Which dimensions are innermost is asked of what is normalised, not of the weights beside it."""
    done = [faults(x, torch.ones(3), NORMALISATIONS, "aot_eager") for x in layouts(shape).values()]
    assert [fault for found, _ in done for fault in found] == []
    assert sum(compared for _, compared in done) > 20


#: What a kernel stores, then what a library makes of that: its results copy strides, in dimensions of one element too.
STORED = ["x * 2", "x.mT + 1", "x.flip(0)", "x.sum(0, keepdim=True)", "(x + y).unsqueeze(0)", "torch.cat([x, x])"]
CALLS = [
    "v.sort(0)[0]",
    "v.argsort()",
    "v.cummax(-1)[0]",
    "F.pixel_shuffle(v.expand(4, *v.shape), 1)",
    "v.put(torch.tensor([0]), x[0, :1, 0])",
]


@pytest.mark.parametrize("name", ["row-major", "swapped", "ends swapped", "odd"])
def test_library_calls_see_the_strides_of_one_element(name: str) -> None:
    """Kernels lay their results out as eager does, dimensions of one element included."""
    shape = (1, 3, 1)
    x = layouts(shape)[name]
    steps = [call.replace("v", f"({stored})") for stored in STORED for call in CALLS]
    found, compared = faults(x, torch.ones(shape), steps, "inductor")
    assert found == []
    assert compared > 25


@pytest.mark.parametrize("shape", [(4, 0), (2, 0, 3)], ids=str)
def test_no_elements_where_sizes_change(shape: tuple[int, ...]) -> None:
    """A size of zero stays a number beside the symbolic ones; what is row-major counts it as one."""
    steps = [
        "F.hardswish(x)", "x.log_softmax(1)", "x.softmax(0)", "x.index_copy(0, torch.tensor([0]), x[-1:])", "x.sum(0, keepdim=True)", "x + 1",
        "x.tril()", "x.masked_fill(x > 0, 1)", "x.clone()",
    ]  # fmt: skip
    done = [faults(x, x, steps, "lowered", dynamic=True) for x in layouts(shape).values()]
    assert [fault for found, _ in done for fault in found] == []
    assert sum(compared for _, compared in done) > 60


@pytest.mark.parametrize(
    ("step", "x"),
    [
        ("(x ** True, x ** False)", torch.tensor([True, False])),
        ("F.scaled_dot_product_attention(x, x, x)", torch.ones(1, 2, 4, 8, dtype=torch.float64, requires_grad=True)),
    ],
)
def test_types_are_foretold(step: str, x: Tensor, recwarn: pytest.WarningsRecorder) -> None:
    """A library call that returns another type than was foretold is repeated in eager, with a warning."""
    names: dict[str, Any] = {"F": F}
    exec(f"def program(x):\n    return {step}", names)
    torch.testing.assert_close(compile_recorded(names["program"], Recorder())(x), names["program"](x))
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "lowered"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_steps(shape: tuple[int, ...], backend: str) -> None:
    """Every step on every layout."""
    assert [fault for x, y, steps in cases(shape) for fault in faults(x, y, steps, backend)[0]] == []


@pytest.mark.slow
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 4), (4, 3), (0, 3), (2, 1, 3), (2, 3, 4, 5)], ids=str)
def test_all_types(shape: tuple[int, ...], types: tuple[torch.dtype, torch.dtype]) -> None:
    """Every step on operands of other types."""
    done = [faults(x, y, steps, "lowered") for x, y, steps in cases_of_types(shape, types)]
    found = [fault for part, _ in done for fault in part]
    assert [fault for fault in found if NOT_CAPTURED not in fault] == []
    assert 4 * len(found) < sum(compared for _, compared in done)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 1, 3), (2, 3, 4, 5)], ids=str)
def test_symbolic_sizes(shape: tuple[int, ...]) -> None:
    """The same with symbolic sizes."""
    assert [fault for x, y, steps in cases(shape) for fault in faults(x, y, steps, "aot_eager", True)[0]] == []
