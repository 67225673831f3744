"""Numbers and sizes that depend on values, through the whole stack: results, gradients and errors as in eager, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import flambeau
from tests.comparison import assert_same

X = torch.arange(12.0).view(4, 3) / 3
POSITION = [torch.tensor(n) for n in (2, 0, -1, 3)]


def _pool(x: Tensor, n: Tensor) -> Tensor:
    batch = (x[:, 0] > n).long()
    return torch.zeros(int(batch.max()) + 1, 3).index_add(0, batch, x)


def _experts(x: Tensor, n: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for expert in range(3):
        (chosen,) = torch.where((x[:, 0] * 3).long() % 3 == expert)
        out[chosen] += x[chosen] * (expert + n.item())
    return out


def _checked(x: Tensor, n: Tensor) -> Tensor:
    k = n.sum().item()
    torch._check(k >= 0, lambda: f"{k} is negative")
    if k >= 3:
        raise OverflowError(f"{k} is too large")
    return x[k] * 2, torch.ones(k)


def _floats(x: Tensor, n: Tensor) -> Any:
    total = x.sum().item()
    torch._check_value(total > 0.0)
    return x * total, {"total": total, "of": n.item(), "positive": bool((x > 0).any())}


def _of_constants(x: Tensor, n: Tensor) -> Any:
    """Numbers that nothing but constants decides: they are known while the graph is traced."""
    scale = 2 ** float(torch.tensor(0.1667).log2().round())
    if torch.tensor(2).mul(3).item() > 4 and not torch.tensor(0.0).cos().lt(0.5).item():
        x = x + 1
    return x * scale, int(torch.tensor(7).add(1))


def _written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    y[y > n] *= 2
    y[n.item()] = 7.0
    return y


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "mask": lambda x, n: x[x > n].log().sum(),
    "rows": lambda x, n: (x[x[:, 1] > n] @ x.t()).softmax(-1),
    "sum of masks": lambda x, n: x[x > 1] * x[x < n],
    "nonzero": lambda x, n: x[(x - n).nonzero(as_tuple=True)] ** 2,
    "padded": lambda x, n: torch.nn.functional.pad(x[x > n], (1, 2)).flip(0),
    "window": lambda x, n: (x[n.item() :].sin(), x[: n.item()], x[n.item()]),
    "repeated": lambda x, n: x.repeat_interleave((x[:, 0] + n.clamp(0)).long(), 0) * 2,
    "unique": lambda x, n: (x * 2, torch.unique((x.detach() > n), dim=1, return_counts=True)),
    "split": lambda x, n: [part.sin() for part in x.split([n.abs().item(), 4 - n.abs().item()])],
    "pool": _pool,
    "experts": _experts,
    "checked": _checked,
    "floats": _floats,
    "written": _written,
    "of constants": _of_constants,
}


def _run(function: Callable[..., Any], x: Tensor, n: Tensor) -> Any:
    x = x.clone().requires_grad_()
    try:
        found = function(x, n.clone())
    except Exception as error:
        return type(error), str(error)
    wanted = [part for part in pytree.tree_leaves(found) if isinstance(part, Tensor) and part.requires_grad]
    if wanted:
        torch.autograd.backward([(part * part).sum() for part in wanted])
    return found, x.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = flambeau.compile(program, backend=backend, fullgraph=True)
    for x in (X, -X, X + 1):
        for n in POSITION:
            (found, gradient), (wanted, expected) = _run(compiled, x, n), _run(program, x, n)
            assert_same(found, wanted)
            assert_same(gradient, expected, strides=False)


def test_inputs_are_written_once() -> None:
    """Where what was assumed does not hold, the frame begins again with the inputs as they were."""

    def write(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y[y > 1] += 1
        return x[x > 3] * y[y > 3]

    compiled = flambeau.compile(write, fullgraph=True)
    for factor in (1, 0, -1, 2):
        given = [[X.clone(), X * factor] for _ in range(2)]
        outcomes = []
        for function, arguments in zip((write, compiled), given, strict=True):
            try:
                outcomes.append(function(*arguments))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert_same(outcomes[1], outcomes[0], inputs=(given[1], given[0]))


def test_where_no_program_can_be_made_the_graph_ends_before_them() -> None:
    """The formula for a gradient asks how many elements there are: the frame breaks where it did without such sizes, and both parts are compiled."""
    found = flambeau.explain(lambda x: (x * 2)[x > 1].cumsum(0))(X.clone().requires_grad_())
    assert [b.code for b in found.breaks] == ["dynamic-output-shape"]
    assert [program.kind for program in found.programs].count("forward") == 2
