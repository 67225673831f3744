"""What every test of the tree is held to, in the packages and in tests/: it leaves torch's settings of the process as they were, says nothing for
good of functions that all programs share, and its garbage is its own.

What a test leaves behind decides what later tests compile, and only in the order of a run of the whole suite.
`--update-golden` writes the texts of golden tests anew.
"""

from __future__ import annotations

import gc
import importlib
import sys
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
#: Capture's tables of what programs say of functions; in the first ones a program alone writes.
SAID = ("_SUBSTITUTES", "_SLOTS", "_DISALLOWED")
MARKS = (*SAID, "_ALLOWED", "_DISABLED")
CAPTURE = "flambeau_capture.replacements"
PRECISIONS = [("generic", "all"), *((b, o) for b in ("cuda", "mkldnn") for o in ("all", "conv", "rnn", "matmul"))]


def settings() -> dict[str, Any]:
    """torch's settings that are one for the whole process or thread, by name, and how many functions have marks."""
    capture = sys.modules.get(CAPTURE)
    return {
        **{f"functions in {name}": len(getattr(capture, name, ())) for name in SAID},
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


@pytest.fixture(autouse=True, scope="session")
def thawed_heap() -> Iterator[None]:
    """What `young_heap` has kept out of collections ends with the process as it does without: libraries written in C report what is left."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def young_heap() -> None:
    """What earlier files left is kept out of collections: a process that has run thousands of tests holds millions of objects, and each collection
    that a test, a measurement or a recording asks for would visit them all."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_marks(torch_settings: None) -> Iterator[None]:
    """What the test says of functions (`substitute_in_graph`, `allow_c_slot` and the like) holds for it alone."""
    capture = importlib.import_module(CAPTURE)
    with pytest.MonkeyPatch.context() as patch:
        for name in MARKS:
            patch.setattr(capture, name, dict(getattr(capture, name)))
        yield


@pytest.fixture
def own_tracer() -> Iterator[None]:
    """Whoever traces the run, a measure of coverage or a debugger, goes on once the test is over, which has a trace function of its own."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """Fails a test that leaves a setting changed."""
    before = settings()
    yield
    after = settings()
    assert after == before, {name: f"{before[name]} -> {after[name]}" for name in before if before[name] != after[name]}
