"""Whether a product is computed by a kernel of our own, and in which tile.

In: candidates of ``schedule/gemms.py``, the options. Out: for each a tile, or None for the library. What was measured before for such a product on such a
device decides (``questions.py``); with ``max_autotune`` the best few tiles are measured beside the library where nothing is known. Else a kernel takes the place of
the library only where the model says that it is far faster: where sizes or strides are such that the library has no fast kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import define, field, frozen

from ..codegen.errors import UnsupportedKernel
from ..codegen.triton.rough import ROUGH_COSTS
from ..codegen.triton.templates import product_kernel
from ..codegen.triton.templates.gemv import FEWEST_ROWS
from ..config import Config
from ..devices import device_facts, device_of
from ..expr import hint
from ..ir.graph import Graph
from ..ir.kernel import Computed, GemmTile, KernelBody, Store, Window
from ..ir.layout import Ref
from ..ir.scalar import cost, walk
from ..ops.dtypes import EIGHTHS
from ..schedule import Schedule
from ..schedule.gemms import Candidate, form_gemms
from ..schedule.nest import values
from ..schedule.products import Product
from . import tiles
from .asked import may_look_up, may_measure, who_computes
from .products import is_possible, problem_of, question_of
from .questions import UNKNOWN, Question, answers

#: Convolutions of at most so many channels into at most so many at this many points are kernels of ours without measurement. Measured on an H100 or H200
#: (torch 2.11, 32 images of 224 x 224, three channels to 64, with batch norm and ReLU; the library's convolution and its pointwise kernel): 7 x 7 at every
#: other point 106 for 253 us (bfloat16) and 129 for 270 us (TF32), 3 x 3 77 for 360 us and 263 for 425 us.
_FEW_CHANNELS, _MOST_COLUMNS, _LEAST_POINTS = 4, 128, 1 << 17
#: Up to so many rows a product with a weight of so many bytes and rows of such length takes as long as the weight takes to be read, and a kernel of ours is
#: taken without measurement: alone for the fewest, else with what follows, which the library leaves to another kernel. Measured on an H200 (torch 2.11,
#: bfloat16, SiLU behind it; us of the library and its pointwise kernel, ours): 4,096 x 4,096 of 1 row 19.1, 16.4, of 2 19.2, 16.0, of 8 20.0, 17.5, of 16
#: 20.0, 17.6; 11,008 x 4,096 of 1 36.4, 32.0, of 16 35.6, 33.9; 4,096 x 11,008 of 1 37.4, 32.0, of 16 38.5, 35.1; 1,024 x 4,096 of 1 11.0, 9.4, of 16
#: 11.2, 10.0; 32,000 x 4,096 of 1 78.4, 73.2, of 16 78.5, 74.9. Of 64 rows both take as long.
_WITH_WHAT_FOLLOWS, _ALONE, _LARGE_WEIGHT, _LEAST_SIDE = 16, 2, 8 << 20, 1024
#: Rows up to which kernels that compute an operand are taken without measurement, where the model says that they are far faster. Measured (int8 weights that
#: are converted, as above): 4,096 x 4,096 of 1 row 28.5, 11.6, of 16 28.5, 13.4, of 64 27.9, 19.9; 11,008 x 4,096 of 64 67.2, 43.8.
_COMPUTED_ROWS = 64
#: Rows for each group from which on a grouped product is a kernel of ours without measurement, though the library has one. Measured on an H200 (torch 2.11, bfloat16; us of the
#: library's with its pointwise kernels, ours): 8 groups with 8,192 rows, 14,336 terms, 4,096 columns 1559, 1393; 3,584 terms, 1,024 columns 129, 112; 128 groups with 32,768 rows,
#: 768 terms, 2,048 columns 257, 216. Of gated units 4,096 terms, 2 x 14,336 columns 3449, 2875; 1,024 terms, 2 x 3,584 columns 437, 208; 128 groups, 2,048 terms, 2 x 768 columns 573, 411.
_ROWS_OF_A_GROUP = 256
#: Rows and elements of the weight up to which a product with what follows it is a kernel of ours without measurement. Measured on an H200 (torch 2.11, 16 rows, bias and SiLU, ReLU or sigmoid; us of the
#: device and of the host for the library's convolution and its pointwise kernel, ours): 672 terms, 28 columns 10.1 and 31, 4.8 and 16 (TF32), 11.8 and 33, 3.2 and 12 (bfloat16); 1,152, 48 8.6 and 40, 4.3 and
#: 18, 5.1 and 33, 4.6 and 12; 48, 1,152 4.9 and 30, 2.4 and 12, 4.0 and 35, 1.6 and 11; 8, 32 4.7 and 29, 1.6 and 11, 3.8 and 34, 1.5 and 11.
_TINY_ROWS, _TINY_WEIGHT = 32, 1 << 16
#: A large product stays with the library where a kernel of ours is expected to take more than this part of its time and that of the kernel behind it.
_SOONER = 0.99
#: Tiles that are measured, the best by the model.
_MEASURED = 7


@frozen
class ChooseGemm:
    """The choice for products under ``config``. ``is_tuned``: by what was or is measured."""

    config: Config
    is_tuned: bool = True
    _looks_up: bool = field(init=False)

    @_looks_up.default
    def _decide(self) -> bool:
        return self.is_tuned and self.config.gemm == "auto" and may_look_up(self.config)

    def who(self, product: Product) -> str:
        """``library``, ``generated``, or ``auto`` where both may compute it."""
        return who_computes(self.config, is_convolution=product.is_convolution)

    def considers(self, product: Product) -> bool:
        """Whether the options and the device allow a kernel of our own, and it may have been or may be measured, or the model expects it to be far faster."""
        who = self.who(product)
        if who == "library" or not _is_possible(product, self.config):
            return False
        asks = product.is_library and not product.is_open and (self._looks_up or self.may_measure(product.left.device))
        if who == "generated" or asks:
            return True
        certain = (_is_far_faster, _waits_for_weights, _is_mostly_results, _is_tiny, _is_large)
        return any(is_certain(product) for is_certain in certain)

    def tile(self, candidate: Candidate) -> GemmTile | None:
        """The tile of a candidate that is considered, None for the library."""
        question = self.question(candidate)
        if question is None:
            return None
        tile: GemmTile | None = question.ways[1]
        if self.who(candidate.product) == "generated":
            return tile
        # Programs of sizes that only a call knows cannot be timed.
        unasked = candidate.product.is_open or not candidate.product.is_library
        found: Any = UNKNOWN if unasked else self.answer([question])[0]
        if found is None or (found is not UNKNOWN and is_possible(found, candidate)):
            return found
        return _certain(candidate)

    def question(self, candidate: Candidate) -> Question | None:
        """Who computes a candidate that is considered; None where Triton cannot express it."""
        product = candidate.product
        found = _tiles(product, candidate.body)
        if not found or not _is_expressed(candidate, found[0]):
            return None
        # A number that only a call knows is none that a measurement could give.
        candidate = candidate.alone if candidate.body.scalars else candidate
        most = len(found) if self.config.max_autotune_gemm_search_space == "EXHAUSTIVE" else _MEASURED
        return question_of(candidate, found[:most], self.config, exact=_is_exact(product))

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
        measured = product.is_library and not product.is_open and self.choose.may_measure(product.left.device)
        return measured and self.choose.considers(product)

    def tile(self, candidate: Candidate) -> GemmTile | None:
        """None: the answer is not known yet."""
        question = self.choose.question(candidate)
        if question is not None:
            self.questions.append(question)
        return None


def _certain(candidate: Candidate) -> GemmTile | None:
    """The tile that is taken without measurement, None for the library."""
    product = candidate.product
    if _is_far_faster(product):
        return _tiles(product, certain=True)[0]
    finished = candidate.epilogue is not None and not _stores_result(candidate)
    if finished and (_is_mostly_results(product) or _is_tiny(product)):
        return _tiles(product, candidate.body)[0]
    if finished and _is_large(product):
        return _finished_sooner(candidate)
    rows = product.sizes[1]
    if not _waits_for_weights(product) or (rows > _ALONE and candidate.epilogue is None):
        return None
    return tiles.candidates(problem_of(product), device_facts(product.left.device), exact=rows <= _ALONE)[0]


def _waits_for_weights(product: Product) -> bool:
    """Whether rows are so few, and the weight so large, that reading the weight is all that takes time; its rows run along the terms."""
    if product.is_convolution or product.is_grouped or product.is_open or not isinstance(product.right, Ref):
        return False
    batch, m, n, k = product.sizes
    rows = _ALONE if product.right.dtype.itemsize > 2 else _WITH_WHAT_FOLLOWS
    large = n * k * product.right.dtype.itemsize >= _LARGE_WEIGHT and min(n, k) >= _LEAST_SIDE
    along = int(product.right.strides[1]) == 1
    return batch == 1 and m <= rows and large and along and problem_of(product).is_aligned


def _is_mostly_results(product: Product) -> bool:
    """Whether terms are so few, and results so many, that memory decides how long the product takes: then it is certain what is saved where results
    are finished in registers, and neither stored nor read again."""
    if not _is_modelled(product):
        return False
    problem, device = problem_of(product), device_facts(product.left.device)
    saved = tiles.kept_seconds(problem, device)
    if saved < device.tuning.kept_seconds:
        return False
    library = tiles.library_seconds(problem, device)
    own = min((tiles.seconds(problem, tile, device) for tile in _tiles(product)), default=library + saved)
    return library + saved > device.tuning.product_gain * own


def _is_large(product: Product) -> bool:
    """Whether storing a product's results and reading them again takes so long that a kernel of our own may be worth compiling for what follows."""
    if not _is_modelled(product) or product.is_convolution or product.sizes[0] > 1:
        return False
    device = device_facts(product.left.device)
    return tiles.kept_seconds(problem_of(product), device) >= device.tuning.finished_seconds


def _finished_sooner(candidate: Candidate) -> GemmTile | None:
    """The tile in which a large product takes less time together with what follows than the library's and the kernel behind it, by the model."""
    product, body = candidate.product, candidate.body
    problem, device = problem_of(product, body), device_facts(body.device)
    work, read = _work(candidate)
    times = {tile: tiles.finished_seconds(problem, tile, work, read, device) for tile in _tiles(product, body)}
    best = min(times, key=lambda tile: times[tile], default=None)
    library = tiles.followed_seconds(problem, read, device)
    return best if best is not None and times[best] < _SOONER * library else None


def _work(candidate: Candidate) -> tuple[int, float]:
    """The instructions of what follows a product for each result, and the bytes that it reads for each beside that."""
    product, body = candidate.product, candidate.body
    nodes = list(walk(*(value for statement in body.statements for value in values(statement))))
    batch, m, n, _ = product.sizes
    stored = {statement.buffer for statement in body.statements if isinstance(statement, Store)}
    read = sum(
        hint(buffer.layout.numel) * buffer.layout.dtype.itemsize for buffer in body.buffers if buffer.name not in stored
    )
    return sum(ROUGH_COSTS.get(node.op, cost(node, "cuda")) for node in nodes), read / (batch * m * n)


def _is_modelled(product: Product) -> bool:
    """Whether the model knows how long a product takes in the library, where what it computes is stored and read again, and in a kernel of ours."""
    if (
        not product.is_library
        or product.is_open
        or not isinstance(product.left, Ref)
        or not isinstance(product.right, Ref)
    ):
        return False
    # What rounding to TF32 takes beside what follows is not measured.
    return product.left.dtype.itemsize == 2 and not _is_exact(product) and problem_of(product).is_aligned


def _is_tiny(product: Product) -> bool:
    """Whether launching kernels is all that takes time: one takes less of it than two, and than a call of the library."""
    known = product.is_library and not product.is_open and not product.is_grouped and isinstance(product.left, Ref)
    if not known or device_of(product.left.device).is_host:
        return False
    batch, m, n, k = product.sizes
    return batch == 1 and m <= _TINY_ROWS and n * k <= _TINY_WEIGHT and isinstance(product.right, Ref)


def _stores_result(candidate: Candidate) -> bool:
    """Whether something but the epilogue reads the product's result."""
    stores = (statement for statement in candidate.body.statements if isinstance(statement, Store))
    return any(store.buffer == candidate.product.out.name for store in stores)


def _is_far_faster(product: Product) -> bool:
    """Whether the model expects a kernel of our own to be so much faster that it need not be measured."""
    if product.is_convolution:
        # The library has dozens of kernels for them, of which no model says how fast they are.
        return isinstance(product.left, Window) and _is_of_colours(product.left, product.sizes[2])
    if product.is_grouped and (not _is_grouped_by_library(product) or _has_full_tiles(product)):
        return bool(_tiles(product, certain=True))
    problem, device = problem_of(product), device_facts(product.left.device)
    library = tiles.library_seconds(problem, device)
    tuning = device.tuning
    saved = tuning.unstored_seconds if isinstance(product.right, Computed) else tuning.product_seconds
    own = min((tiles.seconds(problem, tile, device) for tile in _tiles(product, certain=True)), default=library)
    return library > tuning.product_gain * own and library - own > saved


def _is_grouped_by_library(product: Product) -> bool:
    """Whether the library has one kernel for a grouped product."""
    device = product.left.device
    return product.is_library and device_of(device).libraries.multiplies_groups(device, product.left.dtype)


def _has_full_tiles(product: Product) -> bool:
    """Whether a grouped product has as many rows for a group as were measured, and matrices that the hardware fetches."""
    problem = problem_of(product)
    return problem.is_aligned and product.sizes[1] >= _ROWS_OF_A_GROUP * problem.matrices


def _is_of_colours(window: Window, columns: int) -> bool:
    """Whether a convolution is like the first of a network: many points of few channels, for which the library's kernels read more channels than there are."""
    points = int(window.sizes[1])
    few = window.groups == 1 and window.channels <= _FEW_CHANNELS
    return few and columns <= _MOST_COLUMNS and points >= _LEAST_POINTS


def _is_possible(product: Product, config: Config) -> bool:
    device = device_of(product.left.device)
    # Its units for matrices may not take operands of 8 bits.
    taken = product.left.dtype not in EIGHTHS or device_facts(product.left.device).eighth_products > 0
    # A tile of one column would be idle but for that one: convolutions of a channel a group are the library's, or loops.
    depthwise = isinstance(product.left, Window) and product.left.groups > 1 and product.sizes[2] == 1
    return device.language(config).gemms and device.enabled(config) and taken and not depthwise


def _tiles(product: Product, body: KernelBody | None = None, *, certain: bool = False) -> list[GemmTile]:
    """The tiles that a product may be computed in with ``body`` behind it, best first. ``certain``: of kernels of many rows none that compute an operand."""
    many = product.sizes[1] > _COMPUTED_ROWS
    exact = _is_exact(product) or (certain and many and isinstance(product.right, Computed))
    found = tiles.candidates(problem_of(product, body), device_facts(product.left.device), exact=exact)
    return [tile for tile in found if tile.parts == 1 and tile.rows >= FEWEST_ROWS] if product.is_grouped else found


def _is_exact(product: Product) -> bool:
    """Whether operands must not be rounded, as units for matrices do."""
    device = device_of(product.left.device)
    libraries = device.libraries
    rounds = libraries.rounds_convolutions if product.is_convolution else libraries.rounds_products
    # What a host multiplies to try kernels out is exact.
    return product.left.dtype is torch.float32 and not device.is_host and not rounds()


def _is_expressed(candidate: Candidate, tile: GemmTile) -> bool:
    """Whether Triton can express the epilogue."""
    try:
        product_kernel(candidate.product.gemm(candidate.body, tile))
    except UnsupportedKernel:
        return False
    return True
