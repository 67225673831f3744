"""Rough functions: how far they are from the exact ones, and that kernels use them only where it cannot show."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tracing import traced

from flambeau_inductor import compile_graph
from flambeau_inductor.codegen.cpp import unit
from flambeau_inductor.codegen.cpp.rough import ROUGH
from flambeau_runtime.build import find_toolchain

_EXACT = {"rough_exp": np.exp, "rough_sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rough_tanh": np.tanh}
_KERNEL = """
extern "C" void {name}(const float* x, float* y, int64_t n) {{
  constexpr int W = fb::register_bytes / 4;
  for (int64_t k = 0; k + W <= n; k += W) fb::store(y + k, fb::{name}(fb::load<W>(x + k, fb::Full{{}})), fb::Full{{}});
}}
"""


def functions(machine, folder):
    """The functions on arrays of float32, for the registers of ``machine``."""
    source, library = folder / "rough.cpp", folder / "rough.so"
    kernels = "".join(_KERNEL.format(name=name) for name in _EXACT)
    source.write_text(unit.preamble(("loops", "memory", "arithmetic", "rough")) + kernels)
    toolchain = find_toolchain()
    flags = [flag for flag in toolchain.flags if not flag.startswith("-march")]
    subprocess.run(
        [*toolchain.command, *flags, *unit.FLAGS, f"-march={machine}", str(source), "-o", str(library)], check=True
    )
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("machine", ["native", "haswell"])
def test_error(machine, tmp_path):
    """Below 2**-17 of the result where it is a normal number, and of the distance from 1 and -1; eager's answers at the ends."""
    info = Path("/proc/cpuinfo")
    if machine == "haswell" and not {"avx2", "fma", "f16c"} <= set(info.read_text().split() if info.exists() else ()):
        pytest.skip("this machine cannot run AVX2")
    library = functions(machine, tmp_path)
    grid = np.concatenate(
        [np.linspace(-87.3, 87.3, 200_000), np.logspace(-30, 1, 100_000), -np.logspace(-30, 1, 100_000)]
    )
    ends = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -90.0, 0.0, -0.0] * 2)
    x = np.concatenate([grid, ends]).astype(np.float32)
    x = x[x.size % 16 :].copy()
    for name, exact in _EXACT.items():
        y = np.empty_like(x)
        library[name](x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(x.size))
        with np.errstate(over="ignore"):
            expected = exact(x.astype(np.float64))
        inside = (np.abs(expected) > 1.2e-38) & (np.abs(expected) < 3.4e38)
        own = np.abs(x) * 2.0**-23 if name == "rough_exp" else 0
        assert (np.abs(y - expected) / np.abs(expected) < 2.0**-17 + own)[inside].all(), name
        if name != "rough_exp":
            far = 1 - np.abs(expected)
            assert (np.abs(y - expected) < 2.0**-16 * far + 2.0**-22)[np.abs(expected) > 0.5].all(), name
        answers = y[-8:]
        assert np.isnan(answers[0]) and np.allclose(answers[1:6], expected[-7:-2], rtol=0, atol=1.2e-38), name
        assert (np.signbit(answers[6:]) == np.signbit(expected[-2:])).all(), name


def text_of(function, *inputs):
    """The text of its kernels."""
    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    return artifact.libraries[0].source.partition('extern "C"')[2]


@pytest.mark.parametrize(
    ("function", "rough"),
    [
        (lambda x: F.silu(x), {"rough_exp"}),
        (lambda x: torch.softmax(x, -1), {"rough_exp"}),
        (lambda x: (x.float().sigmoid() * 2).to(x.dtype), {"rough_sigmoid"}),
        (lambda x: (1 - x.float().tanh()).to(x.dtype), {"rough_tanh"}),
        (lambda x: x.exp() - 1, {"rough_exp"}),
        (lambda x: (x.float().exp() - 1).to(x.dtype), set()),
        (lambda x: (1 - x.float().exp()).to(x.dtype), set()),
        (lambda x: (x.float().exp() * 3 - x).to(x.dtype), set()),
        (lambda x: (1 + -x.float().exp()).to(x.dtype), set()),
        (lambda x: (x.float().sigmoid() - 0.5).to(x.dtype), set()),
        (lambda x: torch.log_softmax(x, -1), set()),
        (lambda x: x.float().exp(), set()),
        (lambda x: (x.float().exp().to(x.dtype), x.float().sum()), set()),
    ],
    ids=["silu", "softmax", "sigmoid", "1 - tanh", "rounded, then - 1", "exp - 1", "1 - exp", "a difference later", "1 + -exp", "sigmoid - 0.5",
         "log_softmax", "float32 is stored", "float32 is stored too"],
)  # fmt: skip
def test_where_they_are_used(function, rough):
    """Where a result is rounded before anything is taken from it, and everything that is stored is rounded."""
    text = text_of(function, torch.randn(8, 128).bfloat16())
    assert {name for name in ROUGH.values() if f"fb::{name}(" in text} == rough
