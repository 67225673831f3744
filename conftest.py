"""What every test of the tree is held to, in the packages and in tests/: it leaves torch's settings of the process as they were, and its garbage is its own.

A setting that a test leaves behind decides what later tests compile, and only in the order of a run of the whole suite.
`--update-golden` writes the texts of golden tests anew.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

#: The switches among torch's private getters that take no argument.
SWITCHES = [
    name
    for name in dir(torch._C)
    if name.startswith(("_get_cublas", "_get_cudnn", "_get_deterministic", "_get_mkldnn", "_get_nnpack", "_get_warn"))
    or (name.startswith("_get_") and name.endswith("_sdp_enabled"))
    # The older of two ways to say it: torch raises where it can't tell what the newer one (below) says.
    if not name.endswith(("allow_tf32", "reserve_space_size"))
]
PRECISIONS = [("generic", "all"), *((b, o) for b in ("cuda", "mkldnn") for o in ("all", "conv", "rnn", "matmul"))]


def settings() -> dict[str, Any]:
    """torch's settings that are one for the whole process or thread, by name."""
    return {
        **{name: getattr(torch._C, name)() for name in SWITCHES},
        **{f"precision of {b} {o}": torch._C._get_fp32_precision_getter(b, o) for b, o in PRECISIONS},
        "threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")],
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line."""
    told = "write the texts that golden tests compare with anew"
    parser.addoption("--update-golden", action="store_true", default=False, help=told)


@pytest.fixture(autouse=True, scope="module")
def young_heap() -> None:
    """What earlier files left is kept out of collections: a process that has run thousands of tests holds millions of objects, and each collection
    that a test, a measurement or a recording asks for would visit them all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """Fails a test that leaves a setting changed."""
    before = settings()
    yield
    after = settings()
    assert after == before, {name: f"{before[name]} -> {after[name]}" for name in before if before[name] != after[name]}
