"""Matrix products that a kernel of our own computes, together with what is done to their results.

In: a ``Schedule`` in which products are library calls, and a choice for each. Out: the same, where chosen products are ``Gemm`` steps: the first kernel over
points that reads the result of a product there, and nothing that comes later, becomes its epilogue.

The result itself is stored only where something else reads it, rounded as the library rounds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from attrs import define, evolve, field, frozen

from .. import expr as ex
from ..expr import ONE, ZERO, Expr, Int, Symbol
from ..ir.graph import Graph
from ..ir.kernel import SECOND_SUM, SUM, GemmTile, KernelBody, Statement, Store, operand_reads
from ..ir.layout import Buffer, Ref
from ..ir.loops import Axis
from ..ir.scalar import Scalar, constant, load, loads, op, reduced, transform
from .nest import rename, values
from .plan import Schedule, arguments, name_of, stacks_of
from .products import Product, read_product
from .prologues import computed
from .split_terms import in_parts
from .steps import Step, step_defines, step_reads, step_writes

#: Rows up to which a product computes its right operand itself: for each block of rows anew.
MOST_ROWS = 256


@frozen
class Candidate:
    """A product, and the step that would be its epilogue (None where there is none). ``body`` is what the ``Gemm`` would compute at each point,
    ``buffers`` are those of the schedule. ``makers`` are the kernels that make operands which the product computes itself."""

    product: Product
    epilogue: KernelBody | None
    body: KernelBody
    buffers: Mapping[str, Buffer] = field(eq=False, repr=False)
    makers: tuple[KernelBody, ...] = ()

    @property
    def alone(self) -> Candidate:
        """The product without what follows it."""
        whole = self.product if self.product.second is None else read_product(self.product.call)
        assert whole is not None, "what was read once"
        return evolve(self, product=whole, epilogue=None, body=_alone(whole, self.buffers))

    def steps(self, tile: GemmTile, graph: Graph, names: set[str]) -> tuple[list[Step], Mapping[str, Buffer]]:
        """The kernels that compute it in a tile, named beside ``names``, and the buffers between them."""
        body = self.body
        body = evolve(body, name=name_of(body.origins, names, graph.ops), stacks=stacks_of(body.origins, graph))
        gemm = self.product.gemm(body, tile)
        return ([gemm], {}) if tile.parts == 1 else in_parts(gemm, self.product.out, self.buffers, graph, names)


class Choice(Protocol):
    """Who computes a product."""

    def considers(self, product: Product) -> bool:
        """Whether anything but the library may compute it: asked first, as most stay with the library."""

    def tile(self, candidate: Candidate) -> GemmTile | None:
        """The tile that a candidate gets; None where the library computes it."""


def form_gemms(plan: Schedule, graph: Graph, choose: Choice, names: set[str], *, prologues: bool = True) -> Schedule:
    """``plan`` of ``graph`` with the products that ``choose`` gives a tile; ``names`` are those that kernels have. ``prologues``: whether a product may
    compute an operand."""
    return _Former(plan, graph, choose, names, prologues).run()


@define
class _Former:
    """The steps in the making: at each position of the plan those that run there now."""

    plan: Schedule
    graph: Graph
    choose: Choice
    names: set[str]
    prologues: bool = True
    steps: list[list[Step]] = field(init=False)
    buffers: dict[str, Buffer] = field(init=False)
    readers: dict[str, list[int]] = field(factory=dict)
    #: Where each buffer is filled.
    filled: dict[str, int] = field(factory=dict)
    #: Where kernels are computed now that became epilogues, by where they were.
    moved: dict[int, int] = field(factory=dict)
    #: Where numbers are read that are known at run time only.
    defined: dict[Expr | str, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.steps, self.buffers = [[step] for step in self.plan.steps], dict(self.plan.buffers)
        for position, step in enumerate(self.plan.steps):
            for name in step_reads(step):
                self.readers.setdefault(name, []).append(position)
            self.filled |= dict.fromkeys(step_writes(step), position)
            self.defined |= dict.fromkeys(step_defines(step), position)

    def run(self) -> Schedule:
        """Look at each product in turn."""
        for position, step in enumerate(self.plan.steps):
            product = read_product(step)
            if product is None:
                continue
            made = self._with_prologue(product, position)
            if self.choose.considers(made[0]):
                self._try(*made, position)
        return Schedule(tuple(step for steps in self.steps for step in steps), self.buffers)

    def _with_prologue(self, product: Product, position: int) -> tuple[Product, int | None]:
        """The product that computes its right operand, and where the kernel is that makes it now (None where it stays)."""
        ref, rows = product.right, product.sizes[1]
        if (
            not self.prologues
            or not isinstance(ref, Ref)
            or product.is_convolution
            or product.is_grouped
            or rows > MOST_ROWS
            or self.readers.get(ref.buffer) != [position]
        ):
            return product, None
        at = self.filled.get(ref.buffer)
        maker = self.plan.steps[at] if at is not None else None
        if at is None or not isinstance(maker, KernelBody) or maker not in self.steps[at]:
            return product, None
        stays = any(isinstance(out, Ref) and out.buffer == ref.buffer for out in self.graph.outputs)
        shared = any(buffer.storage == ref.buffer and buffer.in_place for buffer in self.plan.buffers.values())
        right = None if stays or shared else computed(ref, maker, self.plan.buffers)
        if right is None or self._is_overwritten(evolve(product, right=right), at, position):
            return product, None
        return evolve(product, right=right), at

    def _try(self, product: Product, made: int | None, position: int) -> None:
        user, at, candidate = self._candidate(product, made, position)
        tile = self.choose.tile(candidate)
        if tile is None:
            return
        place = self.steps[position].index(product.call)
        self.steps[position].remove(product.call)
        if made is not None:
            for maker in candidate.makers:
                self.steps[made].remove(maker)
        if candidate.epilogue is not None:
            self.steps[user].remove(candidate.epilogue)
            self.moved[user] = at
        steps, buffers = candidate.steps(tile, self.graph, self.names)
        self.buffers |= buffers
        # Alone it is where the call was: what has come to this position since may read it. What follows it may read what has come.
        place = place if candidate.epilogue is None else len(self.steps[at])
        self.steps[at][place:place] = steps
        for step in steps:
            self.filled |= dict.fromkeys(step_writes(step), at)

    def _candidate(self, product: Product, made: int | None, position: int) -> tuple[int, int, Candidate]:
        """Where the product's epilogue is and where the product would be computed, and as what."""
        first = position if made is None else made
        maker = self.plan.steps[first]
        makers = (maker,) if made is not None and isinstance(maker, KernelBody) else ()
        buffers, users = self.plan.buffers, self.readers.get(product.out.name, [])
        leaves = any(isinstance(out, Ref) and out.buffer == product.out.name for out in self.graph.outputs)
        for user in users:
            epilogue = self.plan.steps[user]
            if not isinstance(epilogue, KernelBody) or epilogue not in self.steps[user]:
                continue
            # As early as what it reads is there, so that whatever else reads the result comes after it.
            needed = [self.filled.get(name, -1) for name in step_reads(epilogue) - {product.out.name}]
            needed += [self.defined.get(scalar, -1) for scalar in epilogue.scalars]
            at = max([position, *needed])
            others = [other for other in users if other != user]
            if any(self.moved.get(other, other) <= at for other in others) or self._is_overwritten(product, first, at):
                continue
            stays = leaves or bool(others)
            body = _with_epilogue(product, epilogue, buffers, stays)
            if body is not None:
                return user, at, Candidate(product, epilogue, body, buffers, makers)
            halves = None if stays else _in_halves(product)
            body = None if halves is None else _with_epilogue(halves, epilogue, buffers, stays)
            if halves is not None and body is not None:
                return user, at, Candidate(halves, epilogue, body, buffers, makers)
        return position, position, Candidate(product, None, _alone(product, buffers), buffers, makers)

    def _is_overwritten(self, product: Product, first: int, last: int) -> bool:
        """Whether a step between two positions writes over memory that the product reads."""
        read = {_root(name, self.plan.buffers) for ref in product.operands for name in operand_reads(ref)}
        between = (step for steps in self.steps[first : last + 1] for step in steps if step is not product.call)
        written = {_root(name, self.plan.buffers) for step in between for name in step_writes(step)}
        return not read.isdisjoint(written)


def _root(name: str, buffers: Mapping[str, Buffer]) -> str:
    while name in buffers and buffers[name].storage != name:
        name = buffers[name].storage
    return name


# -- the kernel over points ----------------------------------------------------------------------------------------------


def _axes(product: Product) -> tuple[Axis, Axis]:
    """The rows of all batches, and the columns."""
    rows, columns = product.rows, Int(product.sizes[2])
    return Axis(Symbol("yi", bound=rows), rows), Axis(Symbol("xi", bound=columns), columns)


def _place(product: Product, axes: tuple[Axis, Axis], ref: Ref) -> Expr:
    """The element of ``ref``, whose sizes expand to the result's, that belongs to a point."""
    batch, m, *_ = product.sizes
    row, column = (axis.symbol for axis in axes)
    at = (ex.floor_div(row, Int(m)), ex.mod(row, Int(m)), column) if batch > 1 else (ZERO, row, column)
    place = ref.offset
    for point, size, stride in zip(reversed(at), reversed(ref.sizes), reversed(ref.strides), strict=False):
        place = place + (ZERO if size is ONE else point * stride)
    return place


def _in_halves(product: Product) -> Product | None:
    """A grouped product whose columns are two halves that are computed side by side: what follows combines an element of each, as gated units do."""
    right, (*_, n, _) = product.right, product.sizes
    if not product.is_grouped or n % 2 or not isinstance(right, Ref) or right.strides[1] is not ONE:
        return None
    first, *further = (evolve(ref, sizes=(*ref.sizes[:2], Int(n // 2))) for ref in (right, *product.further))
    second = evolve(first, offset=right.offset + right.strides[2] * (n // 2))
    return evolve(product, right=first, second=second, further=tuple(further))


def _sums(product: Product, own: Expr) -> dict[Expr, str]:
    """The sums that belong to a point, by where the result has them; ``own`` is the point's place."""
    if product.second is None:
        return {own: SUM}
    return {own: SUM, own + product.result.strides[2] * product.sizes[2]: SECOND_SUM}


def _result(product: Product, axes: tuple[Axis, Axis], sums: str = SUM) -> Scalar:
    """What the library would have stored at a point."""
    value = reduced(sums, torch.float32)
    if product.alpha != 1:
        value = op("mul", value, constant(product.alpha, torch.float32))
    for scale in product.scales:
        value = op("mul", value, load(scale.buffer, _place(product, axes, scale), torch.float32))
    if product.bias is not None and product.beta != 0:
        bias = load(product.bias.buffer, _place(product, axes, product.bias), product.bias.dtype)
        term = op("to_dtype", bias, dtype=torch.float32) if bias.dtype is not torch.float32 else bias
        if product.beta != 1:
            term = op("mul", term, constant(product.beta, torch.float32))
        value = op("add", value, term)
    dtype = product.out.layout.dtype
    return value if dtype is torch.float32 else op("to_dtype", value, dtype=dtype)


def _kept(product: Product, axes: tuple[Axis, Axis]) -> Store:
    """The result in memory."""
    return Store(product.out.name, _place(product, axes, product.result), _result(product, axes))


def _alone(product: Product, buffers: Mapping[str, Buffer]) -> KernelBody:
    axes = _axes(product)
    return _body(product, axes, (_kept(product, axes),), buffers, product.call.origins)


def _with_epilogue(
    product: Product, epilogue: KernelBody, buffers: Mapping[str, Buffer], stays: bool
) -> KernelBody | None:
    """The epilogue over rows and columns, with the sums in the place of its loads of the result; None where it cannot be that."""
    if epilogue.inner or epilogue.serial:
        return None
    for statement in epilogue.statements:
        if not isinstance(statement, Store) or statement.mode != "set" or buffers[statement.buffer].in_place:
            return None
    axes = _axes(product)
    points = _points(product, epilogue, axes)
    if points is None:
        return None
    known = _sums(product, _place(product, axes, product.result))
    results = {place: _result(product, axes, sums) for place, sums in known.items()}

    def replace(node: Scalar) -> Scalar | None:
        return results.get(node.index) if node.kind == "load" and node.buffer == product.out.name else None

    statements: list[Statement] = [_kept(product, axes)] if stays else []
    for moved in rename(epilogue.statements, points):
        assert isinstance(moved, Store)
        moved = evolve(moved, value=transform(moved.value, replace))
        if any(node.buffer == product.out.name for node in loads(*values(moved))):
            # It looks at the result of another point.
            return None
        statements.append(moved)
    origins = tuple(dict.fromkeys((*product.call.origins, *epilogue.origins)))
    return _body(product, axes, tuple(statements), buffers, origins)


def _points(product: Product, epilogue: KernelBody, axes: tuple[Axis, Axis]) -> dict[Expr, Expr | int] | None:
    """The epilogue's axes as expressions of row and column, where it goes over each element of the result once."""
    n = product.sizes[2]
    lines = _lines(product, axes)
    found = {
        node.index
        for statement in epilogue.statements
        for node in loads(*values(statement))
        if node.buffer == product.out.name
    }
    index = min(found, key=lambda index: index.lo, default=None)
    if index is None or lines is None or found != set(_sums(product, index)):
        return None
    steps: dict[Axis, int] = {}
    for axis in epilogue.outer:
        step = ex.coefficient(index, axis.symbol)
        if step is None or not step.is_int or int(step) <= 0:
            return None
        steps[axis] = int(step)
    ordered = sorted(epilogue.outer, key=steps.__getitem__)
    # Row-major: each axis steps over all of those behind it, and together they are all.
    total: Expr = ONE
    whole: Expr = ZERO
    line = n if product.second is None else 2 * n
    for axis in ordered:
        # A line of two halves is gone along for half of its length.
        total = Int(line) if total is Int(n) else total
        if total is not Int(steps[axis]):
            return None
        total = total * axis.size
        whole = whole + axis.symbol * steps[axis]
    total = Int(line) if total is Int(n) else total
    if total is not product.rows * line or index is not whole:
        return None
    return {axis.symbol: _digit(*lines, steps[axis], axis.size, axis is ordered[-1]) for axis in ordered}


def _lines(product: Product, axes: tuple[Axis, Axis]) -> tuple[Expr, Expr, int] | None:
    """The memory of a result as lines of one length, without gaps: the line of a point and its place there. None where it lies otherwise."""
    batch, m, n, _ = product.sizes
    row, column = (axis.symbol for axis in axes)
    steps = [
        int(stride) if size is not ONE else None for size, stride in zip(product.result.sizes, product.result.strides)
    ]
    if product.second is not None:
        n = 2 * n
    for strides, lines in (
        ((m * n, n, 1), (row, column, n)),
        # Groups of a convolution: each fills a part of every line.
        ((n, batch * n, 1), (ex.mod(row, Int(m)), ex.floor_div(row, Int(m)) * n + column, batch * n)),
    ):
        if all(have is None or have == want for have, want in zip(steps, strides, strict=True)):
            return lines
    return None


def _digit(row: Expr, column: Expr, n: int, step: int, size: Expr, is_first: bool) -> Expr:
    """``(row * n + column) // step % size``, of row or column alone where it is that; the first digit is all that is left."""
    if is_first and not size.is_int:
        return ex.floor_div(row, Int(step // n)) if step % n == 0 else ex.floor_div(row * n + column, Int(step))
    if step % n == 0:
        return ex.mod(ex.floor_div(row, Int(step // n)), size)
    if size.is_int and n % (step * int(size)) == 0:
        return ex.mod(ex.floor_div(column, Int(step)), size)
    return ex.mod(ex.floor_div(row * n + column, Int(step)), size)


def _body(
    product: Product,
    axes: tuple[Axis, Axis],
    statements: tuple[Statement, ...],
    buffers: Mapping[str, Buffer],
    origins: tuple[str, ...],
) -> KernelBody:
    touched, scalars = arguments(axes, statements)
    device = product.out.layout.device
    used = tuple(buffers[buffer] for buffer in touched)
    return KernelBody("gemm", axes, (), statements, used, scalars, device, False, origins)
