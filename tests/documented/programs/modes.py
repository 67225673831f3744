"""Named sets of options."""

from __future__ import annotations

import torch
from tests.documented.facts import documented, largest_difference


@documented(
    "`default`, `reduce-overhead`, `max-autotune` and `max-autotune-no-cudagraphs` are modes, with the same results"
)
def every_mode() -> None:
    def formula(x):
        return torch.sin(x) + torch.cos(x)

    x = torch.randn(64)
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        assert largest_difference(torch.compile(formula, mode=mode)(x), formula(x)) < 1e-6, mode


@documented("`torch._inductor.list_mode_options()` says what each mode sets", judges_itself="nothing is compiled")
def what_a_mode_sets() -> None:
    modes = torch._inductor.list_mode_options()
    assert modes["reduce-overhead"]["triton.cudagraphs"] is True
    assert modes["max-autotune"]["max_autotune"] is True and modes["max-autotune"]["triton.cudagraphs"] is True
    assert modes["max-autotune-no-cudagraphs"]["max_autotune"] is True
    assert "triton.cudagraphs" not in modes["max-autotune-no-cudagraphs"]
    assert torch._inductor.list_mode_options("max-autotune-no-cudagraphs") == modes["max-autotune-no-cudagraphs"]


@documented(
    "a mode that does not exist, and a mode beside `options`, are errors at the compile call",
    judges_itself="nothing is compiled",
)
def wrong_modes() -> None:
    for arguments in ({"mode": "fastest"}, {"mode": "default", "options": {"max_autotune": True}}):
        try:
            torch.compile(torch.sin, **arguments)
        except Exception as error:
            assert "mode" in str(error)
        else:
            raise AssertionError(arguments)
