"""Options of the default backend."""

from __future__ import annotations

import torch
from tests.documented.facts import documented, largest_difference


@documented(
    "`torch._inductor.list_options()` lists the options, those of the documentation of `torch.compile` among them",
    judges_itself="nothing is compiled",
)
def listed_options() -> None:
    names = torch._inductor.list_options()
    documented_ones = ["epilogue_fusion", "max_autotune", "fallback_random", "triton.cudagraphs"]
    assert not {*documented_ones, "trace.enabled", "trace.graph_diagram"} - set(names)


@documented("`fallback_random`: the same seed draws the numbers that eager draws")
def eager_random_numbers() -> None:
    def dropped(x):
        return torch.nn.functional.dropout(x, 0.5)

    x = torch.ones(64)
    compiled = torch.compile(dropped, options={"fallback_random": True})
    torch.manual_seed(3)
    expected = dropped(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), expected)


@documented("options are given as a dict and reach the compiler: a program compiled under them gives the same results")
def a_dict_of_options() -> None:
    def formula(x):
        return (x * 2).relu().sum(-1)

    x = torch.randn(4, 8)
    compiled = torch.compile(
        formula, options={"epilogue_fusion": True, "shape_padding": True, "triton.cudagraphs": False}
    )
    assert largest_difference(compiled(x), formula(x)) < 1e-5


@documented(
    "an unknown option, and one of a wrong type, are errors at the compile call that name it",
    judges_itself="nothing is compiled",
)
def wrong_options() -> None:
    for options in ({"max_autotuned": True}, {"max_autotune": "very"}):
        try:
            torch.compile(torch.sin, options=options)
        except Exception as error:
            assert next(iter(options)) in str(error)
        else:
            raise AssertionError(options)


@documented("`torch._inductor.config.patch` sets options for a while", judges_itself="nothing is compiled")
def patched_configuration() -> None:
    before = torch._inductor.config.max_autotune
    with torch._inductor.config.patch(max_autotune=not before):
        assert torch._inductor.config.max_autotune is not before
    assert torch._inductor.config.max_autotune is before
