"""What may be measured, and whether what was measured before counts.

In: the options, devices. Out: yes or no; and the process that times, started where it will be needed. Apart from ``choice.py``, which needs the generator
of products: a program without any does not load that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from flambeau_runtime.timing import start

from ..config import Config
from ..devices import device_of
from .questions import anything_stored


def may_measure(device: torch.device, asked: bool) -> bool:
    """Whether kernels are timed on ``device``, if that is ``asked`` for."""
    if not asked or torch.are_deterministic_algorithms_enabled():
        return False
    return device_of(device).can_measure()


def is_asked_to_measure(config: Config) -> bool:
    """Whether anything is to be measured."""
    return config.max_autotune or config.max_autotune_gemm or config.max_autotune_pointwise


def who_computes(config: Config, *, is_convolution: bool) -> str:
    """``library``, ``generated`` or ``auto``, of products or convolutions: as the option ``gemm`` says, or who may compete in a measurement."""
    asked = config.max_autotune or config.max_autotune_gemm
    if config.gemm != "auto" or not asked:
        return config.gemm
    given = config.max_autotune_conv_backends if is_convolution else config.max_autotune_gemm_backends
    words = {word.strip().upper() for word in given.split(",")}
    if not words & {"TRITON", "CPP"}:
        return "library"
    return "auto" if "ATEN" in words else "generated"


def start_measuring(inputs: Iterable[Any], config: Config) -> None:
    """Start the process that times, where it will be needed: it is ready when the graph is lowered."""
    if is_asked_to_measure(config):
        places = {value.device for value in inputs if isinstance(value, torch.Tensor)}
        for device in places:
            if may_measure(device, True):
                start(device)


def may_look_up(config: Config) -> bool:
    """Whether answers of earlier measurements count, and there are any."""
    return config.autotune_local_cache and not torch.are_deterministic_algorithms_enabled() and anything_stored()
