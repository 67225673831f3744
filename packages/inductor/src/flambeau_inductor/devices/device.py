"""What the compiler asks of a device: one frozen record, made of four that each answer for one matter.

In: nothing. Out: ``Device`` records, found by ``registry.device_of``. A stage asks for the property that it means (does a scatter run in order,
what does a library call cost), never for the device's name. The defaults are what holds for a processor that is queued work, runs a
kernel's points in any order and computes half types in float32: as a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from attrs import field, frozen

from ..config import Config
from ..ops.costs import Target
from ..ops.dtypes import LOOP_TYPES
from .facts import H200, Facts
from .language import Language


def _never(dtype: torch.dtype) -> bool:
    return False


def _no() -> bool:
    return False


def _one_by_one(device: torch.device, dtype: torch.dtype) -> bool:
    return False


def _not_at_once(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    return False


@frozen
class Reduced:
    """A reduction as far as it decides about splitting: ``results``, elements for each (``work``), whether neighbours in memory belong to
    different results (``along_results``), bytes that are read. Numbers are the hints of symbolic sizes."""

    results: int
    work: int
    along_results: bool
    bytes_read: int


def _whole(device: torch.device, reduced: Reduced) -> int:
    return 1


def _full(device: torch.device) -> int:
    return 0


def _unknown(device: torch.device) -> Facts:
    return H200


@frozen(kw_only=True)
class Kernels:
    """How generated kernels run on a device.

    ``in_order``: the points of a kernel that touch the same row run one after another, so that an element may be overwritten by whatever comes
    after its last read; else only by what is computed from it. ``scatters_in_order``: colliding writes of a scatter come in the order of its
    points. ``scans_one_by_one``: along a row a running sum goes element by element, and what could go in vectors should not be computed in
    it. ``adds_halves``: half types are added up in memory as the library's kernels do. ``draws``: kernels draw from the generator (Philox) what
    the library's kernels would.
    """

    in_order: bool = False
    scatters_in_order: bool = False
    scans_one_by_one: bool = False
    adds_halves: bool = False
    draws: bool = False


@frozen(kw_only=True)
class Eager:
    """How torch's own kernels of a device compute, where those of devices differ: what a generated kernel must give, too.

    ``divisors_are_checked``: a whole number divided by zero raises. ``accumulates_in_double``: ranges and running sums of float32 are added up in
    float64. ``rounds_numbers``: a number beside a tensor of a half type is rounded to that type. ``reads_second_as_number``: a second factor
    or divisor without dimensions counts as a number, which is not rounded. ``rounds_logit``: each step of ``logit`` is rounded to the tensor's
    type. ``roots_of_halves``: float16 to the power of a half is a square root. ``bends_below_zero``: ``elu`` leaves zero to its straight part.
    ``steps_in_vectors``: ``linspace`` steps from vector to vector, so that its rounding depends on their width.
    """

    divisors_are_checked: bool = False
    accumulates_in_double: bool = False
    rounds_numbers: bool = False
    reads_second_as_number: bool = False
    rounds_logit: bool = False
    roots_of_halves: bool = True
    bends_below_zero: bool = False
    steps_in_vectors: bool = False


@frozen(kw_only=True)
class LastShares:
    """The time of a convolution channels-last as a share of its time row-major, by its kind; ``narrow`` is one of few channels."""

    dense: float = 0.8
    grouped: float = 1.36
    depthwise: float = 1.0
    narrow: float = 1.0


@frozen(kw_only=True)
class Libraries:
    """What library calls on a device are good at; none is assumed of a device that says nothing.

    ``call_bytes``: what memory moves while a call starts, on a fast device of its kind; None where no figure is known. ``channels_last``:
    whether the channels-last convolutions of a dtype are the fast ones, under the flags in force; ``last_shares`` how much faster. ``weights_are_reordered``: a convolution
    copies its weights into a layout of its own at each call. ``bias_is_a_kernel``: the bias of a convolution is a kernel after it.
    ``bias_is_written_first``: a product with a row bias writes that over its whole result, and adds to it.
    ``bias_slows_products``: float32 products with a row bias have slower kernels than those without. ``takes_activations``: a product with a row
    bias also does an activation. ``leaves_narrow_idle``: products with few results leave most multiprocessors idle.
    ``attends``: whether cuDNN's attention, forward and backward, takes heads of a dtype and width, under the flags in force.
    ``attention_reads_strides``: attention takes operands in any aligned strides. ``small_attention``: multiplications up to which attention is left to the
    library, for a kernel would save less than compiling it takes. ``products_want_rows_aligned``: products whose rows are no multiples of 16
    bytes have no fast kernels. ``packs_weights``: products and convolutions have faster calls for weights in a form of their own.
    ``slow_products``: whether ATen's products of float32 leave a part of the processor idle that oneDNN's use.
    ``multiplies_groups``: whether grouped products of a dtype are one kernel; else they are one product after the other, and the host waits for their sizes.
    ``depthwise_is_slow``: convolutions of a channel a group take much longer than memory.
    ``starts_slowly``: whether starting a product takes longer than loops of ours take for a small one.
    ``rounded_want_terms_in_rows``: products that round to TF32 are slow where the terms of both operands lie in columns.
    ``rounds_products``, ``rounds_convolutions``: whether those of float32 may round their operands to TF32, under the flags in force.
    """

    call_bytes: int | None = None
    channels_last: Callable[[torch.dtype], bool] = _never
    last_shares: LastShares = LastShares()
    weights_are_reordered: bool = False
    bias_is_a_kernel: bool = False
    bias_is_written_first: bool = False
    bias_slows_products: bool = False
    takes_activations: bool = False
    leaves_narrow_idle: bool = False
    attends: Callable[[torch.device, torch.dtype, int], bool] = _not_at_once
    attention_reads_strides: bool = False
    small_attention: float = 0.0
    products_want_rows_aligned: bool = False
    packs_weights: bool = False
    slow_products: Callable[[], bool] = _no
    multiplies_groups: Callable[[torch.device, torch.dtype], bool] = _one_by_one
    depthwise_is_slow: bool = False
    starts_slowly: bool = False
    rounded_want_terms_in_rows: bool = False
    rounds_products: Callable[[], bool] = _no
    rounds_convolutions: Callable[[], bool] = _no


@frozen(kw_only=True)
class Device:
    """A kind of device: ``type`` is that of a ``torch.device``.

    ``is_host``: its memory is the host's, which reads a number there without a copy; such a number without dimensions may meet tensors of any
    device. ``queues``: work runs behind the host's back; reading a number waits for it, and nobody knows what was written when a
    program raises. ``language`` is what its kernels are written in, by the options; ``enabled`` whether there shall be any. ``dtypes`` are
    those that its kernels compute with. ``facts`` are what models of cost know of one device. ``parts`` is in how many partial
    results each result of a reduction is split (1: none). ``costs`` names the column of the table of scalar costs (``ops/costs.py``) that holds here, and
    ``storing`` is what an element costs in its terms that is kept for one more reader. ``can_measure``: whether kernels can be timed on one now,
    ``free_bytes`` how much of its memory nobody has.
    """

    type: str
    language: Callable[[Config], Language]
    enabled: Callable[[Config], bool]
    is_host: bool = False
    queues: bool = True
    dtypes: frozenset[torch.dtype] = LOOP_TYPES
    facts: Callable[[torch.device], Facts] = _unknown
    parts: Callable[[torch.device, Reduced], int] = _whole
    #: An H200 does 62 instructions (132 multiprocessors, 128 lanes, 1.98 GHz) while it writes four bytes and reads them again at 4.3 TB/s.
    costs: Target = "cuda"
    storing: int = 64
    can_measure: Callable[[], bool] = _no
    free_bytes: Callable[[torch.device], int] = _full
    kernels: Kernels = field(factory=Kernels)
    eager: Eager = field(factory=Eager)
    libraries: Libraries = field(factory=Libraries)
