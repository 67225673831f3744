"""Whether a product is computed by a kernel of our own, and in which tile.

In: candidates of ``schedule/gemms.py``, the options. Out: for each a tile, or None for the library. What was measured before for such a product on such a
device decides (``questions.py``); with ``max_autotune`` the best few tiles are measured beside the library where nothing is known. Else a kernel takes the place of
the library only where the model says that it is far faster: where sizes or strides are such that the library has no fast kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from attrs import define, field, frozen

from flambeau_runtime.timing import start

from ..codegen.triton.errors import UnsupportedKernel
from ..codegen.triton.templates import product_kernel
from ..config import Config
from ..devices import device_facts, device_of
from ..ir.graph import Graph
from ..ir.kernel import Computed, Gemm, GemmTile, Window
from ..schedule import Schedule
from ..schedule.gemms import Candidate, form_gemms
from ..schedule.products import Product
from . import tiles
from .products import is_possible, problem_of, question_of
from .questions import UNKNOWN, Question, answers, anything_stored

#: Convolutions of at most so many channels into at most so many at this many points are kernels of ours without measurement. Measured on an H200 (torch
#: 2.11, 32 images of 224 x 224, three channels to 64, with batch norm and ReLU; the library's convolution and its pointwise kernel): 7 x 7 at every
#: other point 106 for 253 us (bfloat16) and 129 for 270 us (TF32), 3 x 3 77 for 360 us and 263 for 425 us.
_FEW_CHANNELS, _MOST_COLUMNS, _LEAST_POINTS = 4, 128, 1 << 17
#: Tiles that are measured, the best by the model.
_MEASURED = 5


def may_measure(device: torch.device, asked: bool) -> bool:
    """Whether kernels are timed on ``device``, if that is ``asked`` for."""
    if not asked or torch.are_deterministic_algorithms_enabled():
        return False
    return device_of(device).can_measure()


def is_asked_to_measure(config: Config) -> bool:
    """Whether anything is to be measured."""
    return config.max_autotune or config.max_autotune_gemm or config.max_autotune_pointwise


def start_measuring(inputs: Iterable[Any], config: Config) -> None:
    """Start the process that times, where it will be needed: it is ready when the graph is lowered."""
    if is_asked_to_measure(config):
        places = {value.device for value in inputs if isinstance(value, torch.Tensor)}
        for device in places:
            if may_measure(device, True):
                start(device)


def may_look_up(config: Config) -> bool:
    """Whether answers of earlier measurements count, and there are any."""
    return config.stored_choices and not torch.are_deterministic_algorithms_enabled() and anything_stored()


@frozen
class ChooseGemm:
    """The choice for products under ``config``. ``is_tuned``: by what was or is measured."""

    config: Config
    is_tuned: bool = True
    _looks_up: bool = field(init=False)

    @_looks_up.default
    def _decide(self) -> bool:
        return self.is_tuned and self.config.gemm == "auto" and may_look_up(self.config)

    def considers(self, product: Product) -> bool:
        """Whether the options and the device allow a kernel of our own, and it may have been or may be measured, or the model expects it to be far faster."""
        if self.config.gemm == "library" or not _is_possible(product, self.config):
            return False
        asks = not product.is_open and (self._looks_up or self.may_measure(product.left.device))
        if self.config.gemm == "generated" or asks:
            return True
        return _is_far_faster(product)

    def tile(self, candidate: Candidate) -> GemmTile | None:
        """The tile of a candidate that is considered, None for the library."""
        question = self.question(candidate)
        if question is None:
            return None
        tile: GemmTile | None = question.ways[1]
        if self.config.gemm == "generated":
            return tile
        # Programs of sizes that only a call knows cannot be timed.
        found: Any = UNKNOWN if candidate.product.is_open else self.answer([question])[0]
        if found is None or (found is not UNKNOWN and is_possible(found, candidate.product)):
            return found
        return _tiles(candidate.product, certain=True)[0] if _is_far_faster(candidate.product) else None

    def question(self, candidate: Candidate) -> Question | None:
        """Who computes a candidate that is considered; None where Triton cannot express it."""
        product = candidate.product
        found = _tiles(product)
        if not found or not _is_expressed(candidate, found[0]):
            return None
        # A number that only a call knows is none that a measurement could give.
        candidate = candidate.alone if candidate.body.scalars else candidate
        return question_of(candidate, found[:_MEASURED], self.config, exact=_is_exact(product))

    def answer(self, questions: Sequence[Question]) -> list[Any]:
        """The answers: a tile, None for the library, UNKNOWN; measured where that is asked for and possible."""
        measures = bool(questions) and self.may_measure(questions[0].device)
        if not measures and not self._looks_up:
            return [UNKNOWN] * len(questions)
        return answers(questions, self.config, measure=measures, subject="products")

    def may_measure(self, device: torch.device) -> bool:
        """Whether products on ``device`` are timed."""
        asked = self.config.max_autotune or self.config.max_autotune_gemm
        return self.is_tuned and self.config.gemm == "auto" and may_measure(device, asked)

    def prepare(self, plans: Sequence[Schedule], parts: Sequence[Graph]) -> None:
        """Measure what will be asked about the products of all plans at once."""
        collect = _Collect(self)
        for plan, part in zip(plans, parts, strict=True):
            form_gemms(plan, part, collect, set())
        if collect.questions:
            self.answer(collect.questions)


@define
class _Collect:
    """Leaves every product to the library, and remembers what was to be asked."""

    choose: ChooseGemm
    questions: list[Question] = field(factory=list)

    def considers(self, product: Product) -> bool:
        """Whether a product is measured."""
        measured = not product.is_open and self.choose.may_measure(product.left.device)
        return measured and self.choose.considers(product)

    def tile(self, candidate: Candidate) -> GemmTile | None:
        """None: the answer is not known yet."""
        question = self.choose.question(candidate)
        if question is not None:
            self.questions.append(question)
        return None


def _is_far_faster(product: Product) -> bool:
    """Whether the model expects a kernel of our own to be so much faster that it need not be measured."""
    if product.is_convolution:
        # The library has dozens of kernels for them, of which no model says how fast they are.
        return isinstance(product.left, Window) and _is_of_colours(product.left, product.sizes[2])
    problem, device = problem_of(product), device_facts(product.left.device)
    library = tiles.library_seconds(problem, device)
    tuning = device.tuning
    saved = tuning.unstored_seconds if isinstance(product.right, Computed) else tuning.product_seconds
    own = min((tiles.seconds(problem, tile, device) for tile in _tiles(product, certain=True)), default=library)
    return library > tuning.product_gain * own and library - own > saved


def _is_of_colours(window: Window, columns: int) -> bool:
    """Whether a convolution is like the first of a network: many points of few channels, for which the library's kernels read more channels than there are."""
    points = int(window.sizes[1])
    return window.channels <= _FEW_CHANNELS and columns <= _MOST_COLUMNS and points >= _LEAST_POINTS


def _is_possible(product: Product, config: Config) -> bool:
    device = device_of(product.left.device)
    return device.language(config).gemms and device.enabled(config)


def _tiles(product: Product, *, certain: bool = False) -> list[GemmTile]:
    """The tiles that a product may be computed in, best first. ``certain``: of kernels that compute an operand only those whose time is that of memory."""
    exact = _is_exact(product) or (certain and isinstance(product.right, Computed))
    return tiles.candidates(problem_of(product), device_facts(product.left.device), exact=exact)


def _is_exact(product: Product) -> bool:
    """Whether operands must not be rounded, as units for matrices do."""
    device = device_of(product.left.device)
    libraries = device.libraries
    rounds = libraries.rounds_convolutions if product.is_convolution else libraries.rounds_products
    # What a host multiplies to try kernels out is exact.
    return product.left.dtype is torch.float32 and not device.is_host and not rounds()


def _is_expressed(candidate: Candidate, tile: GemmTile) -> bool:
    """Whether Triton can express the epilogue."""
    product = candidate.product
    try:
        product_kernel(Gemm(product.left, product.right, candidate.body, tile))
    except UnsupportedKernel:
        return False
    return True
