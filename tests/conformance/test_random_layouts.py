"""Random ops on tensors laid out in every way draw what eager draws, element by element, and leave the generator where it does.

In: torch's random functions and fills x layouts, on the CPU. A failing case names both.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

pytestmark = pytest.mark.judges_itself

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t.clone(),
    "transposed": lambda t: t.transpose(0, -1),
    "permuted": lambda t: t.permute(2, 0, 1, 3),
    "sliced": lambda t: t[..., ::2],
    "sliced rows": lambda t: t[::2],
    "sliced, transposed": lambda t: t[:, :, ::2].transpose(1, 3),
    "rot90": lambda t: t.rot90(),
    "tiled": lambda t: t.tile(1, 2, 1, 1),
    "expanded": lambda t: t[:1].expand(5, -1, -1, -1),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "flipped": lambda t: t.flip(1),
    "size one": lambda t: t[:, :1].permute(1, 2, 0, 3),
    "one element": lambda t: t[:1, :1, :1, :1].transpose(0, 1),
    "empty": lambda t: t[:0].transpose(0, 2),
}
FILLS = ("bernoulli_", "normal_", "uniform_", "random_", "exponential_", "cauchy_", "log_normal_")
OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda t: F.dropout(t, 0.3),
    "dropout in place": lambda t: F.dropout(t + 0, 0.3, inplace=True),
    "alpha_dropout": lambda t: F.alpha_dropout(t, 0.3, True),
    "dropout1d": lambda t: F.dropout1d(t.flatten(0, 1), 0.3, True),
    "dropout2d": lambda t: F.dropout2d(t, 0.3, True),
    "feature_alpha_dropout": lambda t: F.feature_alpha_dropout(t, 0.3, True),
    "rrelu": lambda t: F.rrelu(t - 0.5, training=True),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda t: torch.randint_like(t, 9),
    "bernoulli": torch.bernoulli,
    "bernoulli(p)": lambda t: torch.bernoulli(t, 0.3),
    "bernoulli_(tensor)": lambda t: torch.zeros_like(t).bernoulli_(t),
    "poisson": torch.poisson,
    "normal(mean)": lambda t: torch.normal(t, 1.0),
    "normal(mean, std)": lambda t: torch.normal(t, t + 1),
    "normal(std)": lambda t: torch.normal(0.0, t + 1),
    "binomial": lambda t: torch.binomial(t * 0 + 10.0, t),
    "gamma": torch._standard_gamma,
    "dirichlet": lambda t: torch._sample_dirichlet(t + 0.1),
    "multinomial": lambda t: torch.multinomial(t.flatten(0, 2), 2),
    "geometric_": lambda t: torch.empty_like(t).geometric_(0.3),
    "randperm": lambda t: torch.randperm(t.numel()),
    **{name: lambda t, name=name: getattr(torch.empty_like(t), name)() for name in FILLS},  # type: ignore[misc]
    **{f"{name} of a view": lambda t, name=name: getattr(t, name)() for name in FILLS},  # type: ignore[misc]
}
#: What no functional op draws: these run in eager, with this reason.
IN_EAGER = {"normal_ of a view": "normal_ fills memory with gaps"}


@pytest.mark.parametrize("name", OPS)
def test_draws_are_those_of_eager(name: str) -> None:
    _check(name, "aot_eager", torch.float32, list(LAYOUTS))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_all_draws_of_generated_code_are_those_of_eager(name: str) -> None:
    _check(name, "inductor", torch.float32, list(LAYOUTS))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OPS)
def test_draws_of_other_types_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    _check(name, "aot_eager", dtype, list(LAYOUTS))


@pytest.mark.parametrize("name", ["dropout", "bernoulli_", "normal_", "rrelu", "poisson"])
def test_draws_of_generated_code_are_those_of_eager(name: str) -> None:
    _check(name, "inductor", torch.float32, ["transposed", "sliced", "channels last"])


def _check(name: str, backend: str, dtype: torch.dtype, layouts: list[str]) -> None:
    base = torch.rand(4, 3, 6, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    for layout in layouts:
        arrange, draw = LAYOUTS[layout], OPS[name]

        def program(
            x: Tensor, arrange: Callable[..., Tensor] = arrange, draw: Callable[..., Tensor] = draw
        ) -> tuple[Tensor, Tensor]:
            return draw(arrange(x)), x * 1

        recorder = Recorder()
        compiled = compile_recorded(program, recorder, backend=backend, dynamic=False)
        expected = _drawn(program, base)
        found = _drawn(compiled, base)
        if isinstance(expected, type):
            assert found is expected, layout
            continue
        assert not isinstance(found, type), layout
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), layout
        assert _strides(found[0]) == _strides(expected[0]), layout
        assert all(IN_EAGER.get(name, "none") in reason for reason in recorder.eager_graphs), layout
        assert len(recorder.graphs) == 1, layout


def _strides(t: Tensor) -> list[int]:
    """Of the dimensions along which there is more than one element."""
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1] if t.numel() else []


def _drawn(function: Callable[..., tuple[Tensor, Tensor]], base: Tensor) -> tuple[Tensor, ...] | type[Exception]:
    torch.manual_seed(0)
    try:
        return (*function(base.clone()), torch.get_rng_state())
    except (RuntimeError, NotImplementedError) as error:
        return type(error)
