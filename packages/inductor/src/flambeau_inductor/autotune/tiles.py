"""The tiles that a product may be computed in, and about how long each takes.

In: a product's operands, a GPU's facts. Out: candidates, best first by the model. The model counts rounds of tiles over the multiprocessors, what a tile
of its shape reaches of the arithmetic that the library reaches, and the bytes that have to move.
"""

from __future__ import annotations

import math

import torch
from attrs import evolve, frozen

from ..codegen.triton.templates.gemm import Side, left_over, left_side, resident, shared_bytes
from ..codegen.triton.templates.gemv import FEWEST_ROWS, VECTOR, takes
from ..codegen.triton.templates.windows import ALIGNMENT, WindowSide
from ..devices import H200, Facts
from ..devices.facts import LAUNCH_SECONDS
from ..expr import hint
from ..ir.kernel import Computed, GemmTile, Window
from ..ir.layout import Ref
from ..schedule.split_terms import can_split

#: Rows, columns and warps of the tiles, with the part of the library's arithmetic that a large product reaches in them. Measured on an H200
#: (bfloat16, 8,192 x 8,192 x 8,192 and 4,096 x 11,008 x 4,096); columns of 256 do not fit the registers of two programs.
_SHAPES = (
    (128, 256, 8, 0.99),
    (256, 128, 8, 0.95),
    (128, 128, 4, 0.86),
    (128, 128, 8, 0.85),
    (64, 256, 4, 0.88),
    (64, 128, 4, 0.70),
    (256, 64, 8, 0.60),
    (128, 64, 4, 0.60),
    (64, 64, 4, 0.50),
    (32, 128, 4, 0.40),
    (64, 32, 4, 0.30),
    (32, 64, 4, 0.30),
    (32, 32, 4, 0.20),
    (16, 128, 4, 0.22),
    (16, 64, 4, 0.20),
    (16, 32, 4, 0.12),
    (16, 16, 2, 0.06),
)
_STAGES = (4, 3, 2)
#: Tiles of few columns or rows load more terms in a step, and more steps ahead: what is on its way hides how long memory takes to answer.
_NARROW, _NARROW_STAGES = 64, (5, 4, 3, 2)
#: What has to be on its way to a multiprocessor for memory to be busy: 4.3 TB/s over 132 of them, for about a microsecond.
_ON_ITS_WAY = 32 << 10
#: Columns of programs that multiply without units for matrices, by the rows that these may have, the best first.
_FEW_ROWS = {1: (4, 8, 16), 2: (4, 8), 4: (8, 4)}
#: Instructions for an element of the right operand there: for itself, more where it is computed, and for each row. Fitted to an H200 (4,096 x 4,096 and
#: 11,008 x 4,096, bfloat16 and int8, of one, two and four rows): 37.4 and 39.5 us for four rows of the larger one where memory takes 32 and 22.8.
_ELEMENT, _COMPUTED, _ROW = 4, 4, 4
#: Simple instructions a second of a multiprocessor: 128 lanes at 1.7 GHz.
_INSTRUCTIONS = 128 * 1.7e9
#: Instructions in which a result is finished: rounded, combined with what it needs, stored.
_FINISHED = 12
#: Into how many parts terms may be cut, and how many steps a part has at least.
_PARTS, _LEAST_STEPS = (2, 4, 8, 16), 4
#: The knobs of a tile with the least and the most of each, and the results that a warp keeps in registers at most.
_KNOBS = (
    ("rows", 16, 256),
    ("columns", 16, 256),
    ("terms", 16, 256),
    ("num_warps", 2, 8),
    ("num_stages", 2, 6),
    ("parts", 1, 16),
)
_MOST_RESULTS = 4096
#: Bytes of terms that one step loads of each row.
_STEP_BYTES = 128
#: The fewest that an instruction takes (of 16 bits; of 8 bits twice as many), and those of a window whose taps have fewer: each of them is looked up by itself.
_FEWEST_TERMS, _TERMS_OF_SEVERAL_TAPS = 16, 32
#: What is left of that where operands come by address (0.6), where their strides are odd as well, and where float32 operands lie across the terms,
#: which Hopper's instruction does not take: 59 to 77 TFLOP/s of 390.
_BY_ADDRESS, _ODD, _ACROSS = 0.6, 0.35, 0.17
#: The same where both operands are rounded to TF32 on their way to the units: 193 TFLOP/s of the library's 404 on an H200 (`python -m benchmarks.gemms --device cuda --tuned
#: --part tf32`, 4,096 x 4,096 x 4,096).
_ROUNDED = 0.48
#: What the library reaches where memory is not aligned as its fast kernels need it: 94 to 144 TFLOP/s, of 16-bit numbers and of TF32 alike.
UNALIGNED_LIBRARY = 1.2e14

#: Of a large product with what follows it: seconds that both begin and end in, of ours and of the library's; by the tile (rows, columns, warps) what it reaches of the library's
#: arithmetic, and the instructions for a result beside what follows; instructions for a byte that what follows reads; the part of a round that tiles take which are done in halves; by how
#: much the library is faster than its average, and the part of the time to store results and read them again that it takes itself, and with the kernel behind it. Fitted to an
#: H200 (torch 2.11, Triton 3.6, bfloat16 and float16, 42 sizes of 320 to 8,192 terms, SiLU, GELU and residuals), to 3 % for most sizes.
_BEGUN, _LIBRARY_BEGUN = 7.5e-6, 7e-6
_LARGE = {(128, 256, 8): (1.076, 10), (128, 128, 4): (1.023, 7)}
_READ, _HALF_ROUND = 5, 0.57
_LIBRARY_LARGE, _LIBRARY_STORES, _FOLLOWED = 1.05, 0.36, 1.1


@frozen
class Problem:
    """A product: (batch, m, k) times (batch, k, n) into results of one stride of one element, ``step`` elements between rows. ``groups``: so many right matrices lie apart.
    ``stored``: the bytes of the largest type that its kernel stores."""

    left: Ref | Window
    right: Ref | Computed
    step: int
    groups: int = 1
    stored: int = 4

    @property
    def dtype(self) -> torch.dtype:
        """The operands'."""
        return self.left.dtype

    @property
    def source(self) -> Ref:
        """The right operand, or what it is computed from."""
        return self.right.source if isinstance(self.right, Computed) else self.right

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """batch, m, n, k."""
        batch, m, k = (hint(size) for size in self.left.sizes)
        return batch, m, int(self.right.sizes[2]), k

    @property
    def matrices(self) -> int:
        """How many right matrices there are: one for each batch, or for each group of rows."""
        return hint(self.right.sizes[0]) * self.groups

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        batch, m, n, k = self.sizes
        return 2.0 * batch * m * n * k

    @property
    def bytes(self) -> int:
        """Of operands and results."""
        batch, m, n, k = self.sizes
        left = int(self.left.image.layout().numel) if isinstance(self.left, Window) else batch * m * k
        return (left + batch * m * n) * self.dtype.itemsize + self.matrices * k * n * self.source.dtype.itemsize

    def sides(self, tile: GemmTile) -> tuple[Side | WindowSide, Side]:
        """Both operands in blocks, which the hardware fetches where it can."""
        left = left_side(self.left, evolve(tile, fetched=True))
        return left, Side("right", self.source, 2, (tile.columns, tile.terms))

    @property
    def is_aligned(self) -> bool:
        """Whether the library has its fast kernels: starts and strides are multiples of 16 bytes, and so are rows along which terms are summed."""
        sides = self.sides(GemmTile(64, 64, 64, 4, 2))
        lengths = [side.sizes[2] for side in sides if side.by_terms]
        each = self.dtype.itemsize
        return all(side.is_fetched for side in sides) and not any(n * each % ALIGNMENT for n in (*lengths, self.step))


def candidates(problem: Problem, device: Facts, *, exact: bool = False) -> list[GemmTile]:
    """Tiles that fit the device, the one that takes least time by the model first. ``exact``: operands must not be rounded, as units for matrices do."""
    found = _of_few_rows(problem)
    if not exact:
        whole = [tile for shape in _SHAPES for tile in _in_shape(problem, shape[:3], device)]
        found += whole + [part for tile in whole for part in _in_parts(problem, tile, device)]
    return sorted(found, key=lambda tile: seconds(problem, tile, device))


def _in_shape(problem: Problem, shape: tuple[int, int, int], device: Facts) -> list[GemmTile]:
    """The tile of a shape with as many stages as fit, and with fewer where two programs fit beside each other then; none where it would be idle in large part."""
    _, m, n, _ = problem.sizes
    rows, columns, warps = shape
    narrow = min(rows, columns) < _NARROW
    if (rows > 16 and rows >= 2 * m) or (columns > 16 and columns >= 2 * n) or (narrow and min(m, n) > _NARROW):
        return []
    narrow = narrow and not isinstance(problem.left, Window)
    # So do tiles of all rows whose right operand is computed, from fewer bytes. Measured on an H200 (64 rows, 14,336 x 4,096 of int8, us): 48.0 with 64 terms, 45.0 with 128.
    few = isinstance(problem.right, Computed) and m <= rows <= _NARROW
    terms = _terms(problem, _STEP_BYTES * (2 if narrow or few else 1))
    stages = _NARROW_STAGES if narrow else _STAGES
    tiles = [GemmTile(rows, columns, terms, warps, number, fetched=not narrow) for number in stages]
    tiles = [tile for tile in tiles if _shared(problem, tile) <= device.shared]
    # The first tile for each number of programs beside each other; of two stages nothing is on its way while the other is read.
    found = {
        resident(tile, problem.dtype, device): tile
        for tile in reversed(tiles)
        if tile.num_stages > 2 or tile is tiles[0]
    }
    return sorted(found.values(), key=lambda tile: -tile.num_stages)


def _shared(problem: Problem, tile: GemmTile) -> int:
    """The shared memory of a program: of an operand that is computed the sources of each stage, and the block of one."""
    whole = shared_bytes(tile, problem.dtype, max(2, problem.stored))
    if isinstance(problem.right, Computed):
        block, each = tile.columns * tile.terms, problem.dtype.itemsize
        whole += block * (each + max(0, problem.source.dtype.itemsize - each) * tile.num_stages)
    return whole


def _in_parts(problem: Problem, tile: GemmTile, device: Facts) -> list[GemmTile]:
    """The tile with terms in parts, where whole ones leave multiprocessors idle: in as many as give all work, and twice as many."""
    batch, m, n, k = problem.sizes
    tiles = batch * -(-m // tile.rows) * -(-n // tile.columns)
    most = -(-device.multiprocessors // tiles)
    possible = [
        parts
        for parts in _PARTS
        if can_split(problem.left, parts) and k >= parts * _LEAST_STEPS * tile.terms and parts < 2 * most
    ]
    aligned = [parts for parts in possible if k // parts * problem.dtype.itemsize % ALIGNMENT == 0]
    return [evolve(tile, parts=parts) for parts in (aligned or possible)[-2:]] if tiles < device.multiprocessors else []


def _of_few_rows(problem: Problem) -> list[GemmTile]:
    """Tiles of programs that have all rows and multiply without units for matrices."""
    _, m, _, k = problem.sizes
    rows = 1 << (m - 1).bit_length()
    if rows not in _FEW_ROWS or not takes(problem.left, problem.right):
        return []
    # A row of terms that all threads of the program read together.
    each = 32 * VECTOR // problem.source.dtype.itemsize
    warps = max(1, min(4, k // each))
    terms = min(each * warps, 1 << (k - 1).bit_length())
    # More bytes of a row at once are more registers: fewer columns.
    fewer = max(1, VECTOR // problem.source.dtype.itemsize // 8)
    return [GemmTile(rows, columns // fewer, terms, warps, 1) for columns in _FEW_ROWS[rows]]


def _terms(problem: Problem, row: int) -> int:
    """Terms of a step that loads ``row`` bytes of each row: of a window those that are of one tap, where that are not too few."""
    each = problem.dtype.itemsize
    fewest = _FEWEST_TERMS * 2 if each == 1 else _FEWEST_TERMS
    terms = max(fewest, min(row // each, 1 << (problem.sizes[3] - 1).bit_length()))
    if isinstance(problem.left, Window):
        of_one_tap = math.gcd(problem.left.channels, terms)
        return of_one_tap if of_one_tap >= _FEWEST_TERMS else min(terms, _TERMS_OF_SEVERAL_TAPS)
    return terms


def neighbours(problem: Problem, tile: GemmTile, device: Facts) -> list[GemmTile]:
    """Tiles that differ in one thing and fit: twice or half as much of it, a stage more or less."""
    if tile.rows < FEWEST_ROWS:
        return []
    found = []
    for name, least, most in _KNOBS:
        value = getattr(tile, name)
        steps = (value - 1, value + 1) if name == "num_stages" else (value // 2, value * 2)
        found += [evolve(tile, **{name: other}) for other in steps if least <= other <= most]
    return [other for other in found if fits(problem, other, device)]


def fits(problem: Problem, tile: GemmTile, device: Facts) -> bool:
    """Whether a tile that was found for another product like this one can be this one's."""
    _, m, _, k = problem.sizes
    if tile.rows < FEWEST_ROWS:
        return tile.rows == 1 << (m - 1).bit_length() and takes(problem.left, problem.right)
    if tile.parts > 1 and not (can_split(problem.left, tile.parts) and k >= tile.parts * _LEAST_STEPS * tile.terms):
        return False
    held = tile.rows * tile.columns <= _MOST_RESULTS * tile.num_warps
    return held and _shared(problem, tile) <= device.shared


def seconds(problem: Problem, tile: GemmTile, device: Facts) -> float:
    """About how long the product takes in this tile."""
    batch, m, n, k = problem.sizes
    tiles = batch * tile.parts * -(-m // tile.rows) * -(-n // tile.columns)
    rows = tile.rows if tile.rows >= FEWEST_ROWS else 0
    operands = (tile.columns * problem.source.dtype.itemsize + rows * problem.dtype.itemsize) * tile.terms
    if tile.rows < FEWEST_ROWS:
        # What one program has read is in its registers: about eight run at once.
        places = 8 * device.multiprocessors
        each = _ELEMENT + _ROW * tile.rows + (_COMPUTED if isinstance(problem.right, Computed) else 0)
        computed = batch * n * k * each / (device.multiprocessors * _INSTRUCTIONS)
    else:
        beside = resident(tile, problem.dtype, device)
        places = device.multiprocessors * beside
        alone = _reached(problem, tile) * _rate(problem.dtype, device) / device.multiprocessors
        products = 2.0 * tile.rows * tile.columns * (k / tile.parts) / alone
        # While one program finishes its results, those beside it multiply.
        finished = tile.rows * tile.columns * _FINISHED / _INSTRUCTIONS
        # A few narrow ones wait for memory, of which a multiprocessor has no more than its part.
        narrow = min(tile.rows, tile.columns) < _NARROW
        rounds: float = -(-tiles // places) * beside if narrow else _rounds(tile, tiles, places, device)
        computed = rounds * products + (rounds if beside == 1 else -(-rounds // beside)) * finished
    ahead = min(tiles, places) * operands * max(1, tile.num_stages - 1) / device.multiprocessors
    # Sums of parts are written and read once more, by one more kernel.
    moved = problem.bytes + (8 * tile.parts * m * n if tile.parts > 1 else 0)
    memory = moved / (device.bandwidth * min(1.0, ahead / _ON_ITS_WAY))
    return max(computed, memory) + (LAUNCH_SECONDS if tile.parts > 1 else 0.0)


def library_seconds(problem: Problem, device: Facts) -> float:
    """The same for the library, after the kernel that makes its right operand where there is one."""
    rate = _rate(problem.dtype, device)
    if not problem.is_aligned:
        rate *= UNALIGNED_LIBRARY / _rate(problem.dtype, H200)
    batch, m, n, k = problem.sizes
    each, made = problem.dtype.itemsize, 0.0
    if isinstance(problem.right, Computed):
        made = LAUNCH_SECONDS + batch * k * n * (problem.source.dtype.itemsize + each) / device.bandwidth
    elements = batch * (m * k + m * n) + problem.matrices * k * n
    return made + max(problem.flops / rate, elements * each / device.bandwidth)


def kept_seconds(problem: Problem, device: Facts) -> float:
    """What it takes to store the results and read them again."""
    batch, m, n, _ = problem.sizes
    return 2 * batch * m * n * problem.dtype.itemsize / device.bandwidth


def finished_seconds(problem: Problem, tile: GemmTile, instructions: float, read: float, device: Facts) -> float:
    """How long a large product takes with what follows it, in one kernel; infinity where no such tile was measured. ``instructions`` and ``read``: those of what follows for each result,
    and the bytes that it reads beside that."""
    batch, m, n, k = problem.sizes
    known = _LARGE.get((tile.rows, tile.columns, tile.num_warps))
    if known is None or tile.parts > 1:
        return math.inf
    reached, own = known
    tiles = batch * -(-m // tile.rows) * -(-n // tile.columns)
    places = device.multiprocessors * resident(tile, problem.dtype, device)
    rounds = _rounds(tile, tiles, places, device)
    results = tile.rows * tile.columns
    products = 2.0 * results * k / (reached * _rate(problem.dtype, device) / device.multiprocessors)
    finished = results * (own + instructions + _READ * read) / _INSTRUCTIONS
    return _BEGUN + rounds * (products + finished)


def followed_seconds(problem: Problem, read: float, device: Facts) -> float:
    """How long the library's product takes, large as well, and the kernel behind it."""
    batch, m, n, _ = problem.sizes
    products = problem.flops / (_LIBRARY_LARGE * _rate(problem.dtype, device))
    moved = (_LIBRARY_STORES + _FOLLOWED) * kept_seconds(problem, device)
    return _LIBRARY_BEGUN + products + moved + _FOLLOWED * batch * m * n * read / device.bandwidth


def _rounds(tile: GemmTile, tiles: int, places: int, device: Facts) -> float:
    """How many of the tiles a multiprocessor does in turn, of which halves may be the last."""
    rest = left_over(tile, tiles, places)
    return (tiles - rest) // device.multiprocessors + _HALF_ROUND if rest else -(-tiles // device.multiprocessors)


def _rate(dtype: torch.dtype, device: Facts) -> float:
    rates = {1: device.eighth_products, 2: device.half_products}
    return rates.get(dtype.itemsize, device.tf32_products)


def _reached(problem: Problem, tile: GemmTile) -> float:
    (part,) = (
        part
        for rows, columns, warps, part in _SHAPES
        if (rows, columns, warps) == (tile.rows, tile.columns, tile.num_warps)
    )
    sides = problem.sides(tile)
    if problem.dtype is torch.float32 and all(side.by_terms for side in sides):
        part *= _ROUNDED
    for side in sides:
        if problem.dtype is torch.float32 and not side.by_terms:
            part *= _ACROSS
        elif not side.is_fetched or (side.name == "right" and isinstance(problem.right, Computed)):
            odd = any(step * problem.dtype.itemsize % 4 for step in side.steps if step != 1)
            part *= _ODD if odd else _BY_ADDRESS
    return part
