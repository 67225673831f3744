"""What every drawn program finds in its globals beside the modules it may use: makers of inputs.

In: sizes, a dtype, a seed, a layout. Out: tensors of small whole numbers, the same in every run, so that sums and products stay exact.
"""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
import string
import struct
import textwrap
import threading
import types
import typing
import warnings
import weakref
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def whole(shape: Sequence[int], dtype: torch.dtype = torch.float64, seed: int = 0, layout: str = "") -> Tensor:
    """Small whole numbers. `layout`: in order, `t` transposed, `gaps` every second element of a larger memory, `expand` one row for all,
    `late` behind an offset, `last` channels last."""
    generator = torch.Generator().manual_seed(seed)
    low, high = (0, 2) if dtype is torch.bool else (0, 6) if dtype is torch.uint8 else (-3, 5)
    values = torch.randint(low, high, tuple(shape), generator=generator).to(dtype)
    if dtype.is_complex:
        values = torch.complex(
            values.real, torch.randint(-2, 3, tuple(shape), generator=generator).to(values.real.dtype)
        )
    # Torch loses the gradient of a leaf that is a view: of a window on it nothing is known any more once it was written without grad.
    return laid_out(values, layout).detach()


def laid_out(values: Tensor, layout: str) -> Tensor:
    """The same values in another layout, where they have the dimensions for it."""
    if layout == "t" and values.dim() > 1:
        return values.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "gaps" and values.dim() > 0:
        return torch.stack([values, values], -1)[..., 0]
    if layout == "expand" and values.dim() > 0 and values.shape[0] > 0:
        return values[:1].expand(values.shape)
    if layout == "late" and values.dim() > 0:
        return torch.cat([values[:1], values])[values[:1].shape[0] :]
    if layout == "last" and values.dim() == 4:
        return values.contiguous(memory_format=torch.channels_last)
    return values


def parameter(shape: Sequence[int], dtype: torch.dtype, seed: int) -> nn.Parameter:
    """A parameter of small whole numbers."""
    return nn.Parameter(whole(shape, dtype, seed))


NAMES: dict[str, Any] = {
    **{m.__name__: m for m in (bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, itertools, math, operator, random)},
    **{m.__name__: m for m in (string, threading, types, typing, warnings, weakref, torch)},
    **{m.__name__: m for m in (abc, datetime, decimal, fractions, io, json, re, struct, textwrap)},
    "mock": mock, "F": F, "nn": nn, "whole": whole, "parameter": parameter, "laid_out": laid_out,
}  # fmt: skip
