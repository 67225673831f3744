"""A loop over experts becomes one program for all of them: rows in the order of their experts, grouped products, a sum for each token.

In: a functional graph in which each of E rounds looks for the places of its number among the k choices of each token (``nonzero(chosen == e)``), takes the tokens' rows,
computes something of each row (products with the round's own matrices, pointwise operations), and adds that to the tokens' rows of a result (``index_add``). Out: the same
for all rounds at once. The number of a round's rows is known at run time only, and the host waits for it; that of all rounds is tokens times k.

What is proven before anything is changed: ``chosen`` is what ``topk`` gives along E values, so that a token's choices differ and are all somebody's; rounds are
alike but for their number and their matrices; what a round computes of a row depends on no other row, and nothing else reads it. Each token's results are added to its row in
the order of the rounds, as the loop adds them, and each sum is rounded as the loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import define, field, frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from ..devices import device_facts, device_of
from ..ops.aten import aten_op
from ..ops.grouped import GROUPED, MOST_MATRICES
from .fakes import fake_mode_of, hint_of, insert_call, quietly, same_layout, same_size, values_of

aten = torch.ops.aten

#: The fewest rounds that are worth it.
_FEWEST = 2
#: What a round takes beside its products, and the part of the library's time for products that ours may take longer. Measured on an H200 (torch 2.11, bfloat16, 8 experts of 4,096 x
#: 14,336, 4,096 tokens, eager): 5,970 us, of which products take 4,064 us.
_ROUND_SECONDS, _LOST = 100e-6, 0.07
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
#: What takes pieces along one dimension, which is the argument at the place.
_PIECES = {aten.slice.Tensor: 1, aten.split.Tensor: 2, aten.split_with_sizes.default: 2, aten.unsqueeze.default: 1}
_CASTS = (aten._to_copy.default, aten.clone.default)


def experts(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every loop over experts of the graph; whether there was one."""
    mode = fake_mode_of(gm.graph)
    changed = False
    if mode is None:
        return changed
    for node in list(gm.graph.find_nodes(op="call_function", target=aten.index_add.default)):
        continues = any(user.target is aten.index_add.default and user.args[0] is node for user in node.users)
        if not continues and (found := _loop(node)) is not None:
            changed |= any(_Merge(found, gm.graph, mode, library).run() for library in _multipliers(found, context))
    return changed


# -- what a loop is ------------------------------------------------------------------------------------------------------


@frozen
class _Round:
    """``add`` puts the rows into the result. ``search`` finds where its number is, ``positions`` are that as "token" and "rank". ``inside``: all that follows from these
    and comes before ``add``."""

    add: fx.Node
    number: int
    chosen: fx.Node
    search: tuple[fx.Node, fx.Node]
    positions: Mapping[fx.Node, str]
    inside: frozenset[fx.Node]


@frozen
class _Loop:
    rounds: tuple[_Round, ...]
    chosen: fx.Node

    @property
    def start(self) -> fx.Node:
        """What is added to."""
        return self.rounds[0].add.args[0]


def _loop(last: fx.Node) -> _Loop | None:
    """The rounds that end with ``last``, if they are those of all numbers in order, of the choices of a ``topk``."""
    found: list[_Round] = []
    node: Any = last
    while isinstance(node, fx.Node) and node.target is aten.index_add.default:
        if node is not last and len(node.users) != 1:
            break
        each = _round(node)
        if each is None:
            break
        found.append(each)
        node = node.args[0]
    rounds = tuple(reversed(found))
    if len(rounds) < _FEWEST or any(
        r.number != place or r.chosen is not rounds[0].chosen for place, r in enumerate(rounds)
    ):
        return None
    chosen = rounds[0].chosen
    if _choices_among(chosen) != len(rounds):
        return None
    (tokens, ranks), result = chosen.meta["val"].shape, rounds[0].add.meta["val"]
    known = type(ranks) is int and result.dim() == 2 and type(result.shape[1]) is int
    return _Loop(rounds, chosen) if known and same_size(result.shape[0], tokens) and hint_of(tokens) else None


def _round(add: fx.Node) -> _Round | None:
    if len(add.args) != 4 or add.kwargs.get("alpha", 1) != 1 or add.args[1] != 0:
        return None
    token: Any = add.args[2]
    column = token.args[0] if isinstance(token, fx.Node) and token.target is getitem else None
    table = column.args[0] if isinstance(column, fx.Node) and column.target is aten.unbind.int else None
    if column is None or table is None or table.target is not aten.nonzero.default or column.args[1:] != (1,):
        return None
    mask = _mask(table.args[0])
    if mask is None:
        return None
    chosen, number, order = mask
    positions = {user: order[user.args[1]] for user in column.users if user.target is getitem}
    if len(positions) != len(column.users) or len(table.users) != 1 or positions.get(token) != "token":
        return None
    return _Round(add, number, chosen, (table, column), positions, _following(positions, add))


def _mask(mask: Any) -> tuple[fx.Node, int, tuple[str, str]] | None:
    """Where ``mask`` (of whole numbers or truth values) is not 0, ``chosen`` (tokens, ranks) has a number: these two, and what dimensions of the mask are."""
    if not isinstance(mask, fx.Node):
        return None
    if mask.target is aten.eq.Scalar:
        chosen, number = mask.args
        return (chosen, number, ("token", "rank")) if _is_table(chosen) and type(number) is int else None
    if mask.target is not aten.select.int:
        return None
    table, dim, number = mask.args
    order = ["token", "rank", "number"]
    if isinstance(table, fx.Node) and table.target is aten.permute.default:
        order = [order[place % 3] for place in table.args[1]] if len(table.args[1]) == 3 else []
        table = table.args[0]
    while isinstance(table, fx.Node) and table.target is aten._to_copy.default:
        table = table.args[0]
    chosen = _one_hot(table)
    if chosen is None or not order or type(number) is not int or type(dim) is not int or order[dim] != "number":
        return None
    first, second = (name for name in order if name != "number")
    return chosen, number, (first, second)


def _one_hot(node: Any) -> Any:
    """What ``node`` says the number of: ``chosen[:, :, None] == arange``; None for anything else."""
    if not isinstance(node, fx.Node) or node.target is not aten.eq.Tensor:
        return None
    spread, numbers = node.args
    if not isinstance(spread, fx.Node) or spread.target is not aten.unsqueeze.default or spread.args[1] not in (-1, 2):
        return None
    known = isinstance(numbers, fx.Node) and numbers.target is aten.arange.default and len(numbers.args) == 1
    return spread.args[0] if known and _is_table(spread.args[0]) else None


def _is_table(node: Any) -> bool:
    val = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(val, torch.Tensor) and val.dim() == 2 and val.dtype is torch.int64


def _choices_among(chosen: fx.Node) -> int | None:
    """Of how many numbers each row of ``chosen`` has some, all of them different; None where that is not known."""
    source: Any = chosen.args[0] if chosen.target is getitem and chosen.args[1] == 1 else None
    if not isinstance(source, fx.Node) or source.target is not aten.topk.default:
        return None
    values: Any = source.args[0]
    dim = source.args[2] if len(source.args) > 2 else -1
    shape = values.meta["val"].shape
    return int(shape[1]) if len(shape) == 2 and dim in (-1, 1) and isinstance(shape[1], int) else None


def _following(positions: Iterable[fx.Node], add: fx.Node) -> frozenset[fx.Node]:
    """All that follows from ``positions``, but for what follows from ``add`` alone."""
    found: set[fx.Node] = set()
    pending = [*positions]
    while pending:
        node = pending.pop()
        if node not in found and node is not add:
            found.add(node)
            pending.extend(node.users)
    return frozenset(found)


def _multipliers(loop: _Loop, context: CompileContext) -> tuple[bool, ...]:
    """Who may do grouped products of the type that rounds multiply, the first choice first: kernels of ours (False), the library (True)."""
    val = loop.rounds[0].add.meta["val"]
    device, config = device_of(val.device), context.config
    if not device.enabled(config) or val.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return ()
    exact = val.dtype is torch.float32 and not device.libraries.rounds_products()
    own = config.gemm != "library" and device.language(config).gemms and not exact and len(loop.rounds) <= MOST_MATRICES
    library = device.is_host or device.libraries.multiplies_groups(val.device, val.dtype)
    return (*((False,) if own else ()), *((True,) if library else ()))


# -- all rounds at once --------------------------------------------------------------------------------------------------


class _DifferError(Exception):
    """Rounds are not what could be done at once."""


@frozen
class _Each:
    """What does not follow from a round's rows, and differs from round to round."""

    nodes: tuple[fx.Node, ...]


@define
class _Merge:
    """Writes what the rounds of a loop compute, in front of the last one."""

    loop: _Loop
    graph: fx.Graph
    mode: FakeTensorMode
    #: Whether the library multiplies, and not kernels of ours.
    library: bool
    made: list[fx.Node] = field(factory=list)
    known: dict[tuple[fx.Node, ...], Any] = field(factory=dict)
    #: What has a row for each choice, of what was made.
    rows: set[fx.Node] = field(factory=set)
    #: Of these, what has a dimension of one element in front in each round.
    fronted: set[fx.Node] = field(factory=set)
    names: Mapping[str, fx.Node] = field(factory=dict)
    #: Multiplications and additions of the products.
    flops: int = 0

    def run(self) -> bool:
        """Put it into the place of the last round's result, and take the rounds away; False, and nothing is changed, where that cannot be done."""
        adds = [each.add for each in self.loop.rounds]
        try:
            self.names = self._order()
            results = self._value(tuple(add.args[3] for add in adds))
            if results not in self.rows or self._left_out():
                raise _DifferError
            # Each token looks for its rows: what they are made of is wider.
            results.meta["stored"] = True
            total = self._sum(results)
            if not same_layout(total.meta["val"], adds[-1].meta["val"]) or not self._is_worth_it():
                raise _DifferError
        except _DifferError:
            for node in reversed(self.made):
                self.graph.erase_node(node)
            return False
        adds[-1].replace_all_uses_with(total)
        gone = {*adds, *(node for each in self.loop.rounds for node in (*each.inside, *each.search))}
        for node in reversed(list(self.graph.nodes)):
            if node in gone:
                self.graph.erase_node(node)
        return True

    def _left_out(self) -> bool:
        """Whether a round computes what its rows of the result are not made of, or what another round reads."""
        return any(
            not each.inside <= {nodes[number] for nodes in self.known} | set(each.positions)
            for number, each in enumerate(self.loop.rounds)
        )

    def _is_worth_it(self) -> bool:
        """Whether products lose less in kernels of ours than rounds take that nobody waits for."""
        add = self.loop.rounds[0].add.meta["val"]
        if self.library or device_of(add.device).is_host:
            return True
        facts = device_facts(add.device)
        rate = facts.half_products if add.dtype.itemsize == 2 else facts.tf32_products
        return self.flops / rate * _LOST < len(self.loop.rounds) * _ROUND_SECONDS

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new call, with its fake result."""
        with quietly(self.mode):
            val = target(*values_of(args, {}), **kwargs)
        return self._insert(target, args, val, **kwargs)

    def _insert(self, target: Any, args: tuple[Any, ...], val: Any, **kwargs: Any) -> fx.Node:
        node = insert_call(self.graph, self.loop.rounds[-1].add, target, args, val, **kwargs)
        self.made.append(node)
        return node

    # -- order -----------------------------------------------------------------------------------------------------------

    def _order(self) -> dict[str, fx.Node]:
        """Where each choice's row is (``place``, tokens by ranks), where groups end, and of each row the token, the rank and the number."""
        chosen = self.loop.chosen
        tokens, ranks = chosen.meta["val"].shape
        device = chosen.meta["val"].device
        flat = self.call(aten.view.default, chosen, [-1])
        # A size that only a call knows is a number of the graph.
        count = tokens * ranks if type(tokens) is int else self.call(aten.sym_size.int, flat, 0)

        def numbers(end: Any, dtype: torch.dtype = torch.int64) -> fx.Node:
            return self.call(aten.arange.default, end, dtype=dtype, device=device, pin_memory=False)

        spread = self.call(aten.unsqueeze.default, flat, 1)
        hits = self.call(aten.eq.Tensor, spread, numbers(len(self.loop.rounds)))
        ones = self.call(aten._to_copy.default, hits, dtype=torch.int32)
        running = self.call(aten.cumsum.default, ones, 0, dtype=torch.int32)
        counts = self.call(aten.select.int, running, 0, -1)
        ends = self.call(aten.cumsum.default, counts, 0, dtype=torch.int32)
        # Behind the groups before it and the same number's choices of earlier tokens.
        before = self.call(aten.sub.Tensor, ends, counts)
        behind = self.call(aten.sub.Scalar, self.call(aten.add.Tensor, running, before), 1)
        place = self.call(aten.sum.dim_IntList, self.call(aten.mul.Tensor, behind, ones), [1], dtype=torch.int64)
        nothing = self.call(aten.zeros.default, [count], dtype=torch.int64, device=device, pin_memory=False)

        def sorted_by_place(of: Callable[[], fx.Node]) -> fx.Node:
            return self._keep(self.call(aten._unsafe_index_put.default, nothing, [place], of()))

        choices = numbers(count)
        return {
            "ends": ends,
            "place": self.call(aten.view.default, place, [-1, ranks]),
            "token": sorted_by_place(lambda: self.call(aten.floor_divide.Scalar, choices, ranks)),
            "rank": sorted_by_place(lambda: self.call(aten.remainder.Scalar, choices, ranks)),
            "number": sorted_by_place(lambda: flat),
        }

    def _sum(self, rows: fx.Node) -> fx.Node:
        """Each token's rows added up in the order of their numbers, as rounds do it."""
        ranks = self.loop.chosen.meta["val"].shape[1]
        total = self.loop.start
        for at in self._places_of_two() if ranks == 2 else self._places_of_all(ranks):
            total = self.call(aten.add.Tensor, total, self.call(aten._unsafe_index.Tensor, rows, [at]))
        return total

    def _places_of_two(self) -> list[fx.Node]:
        """Where each token's row of its lesser number is, and that of the greater."""
        chosen, place = self.loop.chosen, self.names["place"]
        (one, other), (here, there) = ([self.call(aten.select.int, of, 1, n) for n in (0, 1)] for of in (chosen, place))
        in_order = self.call(aten.lt.Tensor, one, other)
        return [self.call(aten.where.self, in_order, *pair) for pair in ((here, there), (there, here))]

    def _places_of_all(self, ranks: int) -> list[fx.Node]:
        """Where each token's rows are, in the order of their numbers."""
        chosen, place = self.loop.chosen, self.names["place"]
        less = self.call(aten.lt.Tensor, *(self.call(aten.unsqueeze.default, chosen, dim) for dim in (1, 2)))
        turn = self.call(aten.sum.dim_IntList, less, [2], dtype=torch.int64)
        found = []
        for number in range(ranks):
            here = self.call(aten._to_copy.default, self.call(aten.eq.Scalar, turn, number), dtype=torch.int64)
            found.append(
                self.call(aten.sum.dim_IntList, self.call(aten.mul.Tensor, place, here), [1], dtype=torch.int64)
            )
        return found

    # -- what rounds compute ---------------------------------------------------------------------------------------------

    def _value(self, nodes: tuple[Any, ...]) -> Any:
        """The value that is ``nodes`` in the rounds: of all rows, or the same for all, or ``_Each``."""
        first = nodes[0]
        if not isinstance(first, fx.Node):
            if any(type(other) is not type(first) for other in nodes):
                raise _DifferError
            if isinstance(first, list | tuple):
                if len({len(other) for other in nodes}) > 1:
                    raise _DifferError
                return [self._value(parts) for parts in zip(*nodes, strict=True)]
            if any(other != first for other in nodes):
                raise _DifferError
            return first
        if not all(isinstance(other, fx.Node) for other in nodes):
            raise _DifferError
        if nodes not in self.known:
            self.known[nodes] = self._made_of(nodes)
        return self.known[nodes]

    def _made_of(self, nodes: tuple[fx.Node, ...]) -> Any:
        within = [node in each.inside for node, each in zip(nodes, self.loop.rounds, strict=True)]
        if not any(within):
            return nodes[0] if all(_is_same(nodes[0], node) for node in nodes) else _Each(nodes)
        if not all(within):
            raise _DifferError
        kinds = {each.positions.get(node) for node, each in zip(nodes, self.loop.rounds, strict=True)}
        if kinds != {None}:
            (kind,) = kinds if len(kinds) == 1 else (None,)
            if kind is None:
                raise _DifferError
            return self.names[kind]
        if len({(node.op, node.target, len(node.args)) for node in nodes}) > 1 or nodes[0].op != "call_function":
            raise _DifferError
        if any(node.kwargs != nodes[0].kwargs for node in nodes) or any(_nodes_in(node.kwargs) for node in nodes):
            raise _DifferError
        return self._call(nodes)

    def _call(self, nodes: tuple[fx.Node, ...]) -> fx.Node:
        """One call for all rounds."""
        node, target = nodes[0], nodes[0].target
        args = [self._value(parts) for parts in zip(*(each.args for each in nodes), strict=True)]
        if target is aten.index.Tensor:
            return self._gathered(node, *args)
        if target in _VIEWS:
            return self._same_rows(node, args[0])
        if any(isinstance(arg, fx.Node) and arg in self.fronted for arg in args):
            raise _DifferError
        if target is getitem:
            return self._keep(self.call(target, *args))
        if target in (aten.mm.default, aten.addmm.default):
            return self._product(node, args)
        if target in _PIECES:
            return self._pieces(node, args)
        if target in _CASTS or _is_pointwise(target):
            return self._pointwise(node, args)
        raise _DifferError

    def _keep(self, node: fx.Node) -> fx.Node:
        self.rows.add(node)
        return node

    def _gathered(self, node: fx.Node, source: Any, indices: Any) -> fx.Node:
        """Rows of the same table for all rounds, by token, or by token and rank."""
        tokens, ranks = self.loop.chosen.meta["val"].shape
        if not isinstance(source, fx.Node) or source in self.rows:
            raise _DifferError
        shape = tuple(source.meta["val"].shape)
        by_name = [
            None if index is None else next((n for n in ("token", "rank") if self.names[n] is index), "")
            for index in indices
        ]
        if by_name == [None, "token"] and len(shape) > 1 and same_size(shape[0], 1) and same_size(shape[1], tokens):
            source, indices = self.call(aten.select.int, source, 0, 0), indices[1:]
            found = self._keep(self.call(aten._unsafe_index.Tensor, source, indices))
            self.fronted.add(found)
            return found
        wanted = (tokens, ranks)[: len(by_name)]
        if by_name != ["token", "rank"][: len(by_name)] or not by_name or not all(map(same_size, shape, wanted)):
            raise _DifferError
        found = self.call(aten._unsafe_index.Tensor, source, list(indices))
        if all(same_size(size, 1) for size in found.meta["val"].shape[1:]):
            # A number for each row, which every element of the row asks for.
            found.meta["stored"] = True
        return self._keep(found)

    def _same_rows(self, node: fx.Node, source: Any) -> fx.Node:
        """A view that leaves rows as they are."""
        before, after = tuple(node.args[0].meta["val"].shape), tuple(node.meta["val"].shape)
        before = before[1:] if source in self.fronted else before
        known = all(type(size) is int for size in (*before[1:], *after[1:]))
        if source not in self.rows or not known or before[1:] != after[1:] or len(before) != len(after):
            raise _DifferError
        if source not in self.fronted:
            return source
        return self._keep(self.call(aten.view.default, source, [-1, *after[1:]]))

    def _pieces(self, node: fx.Node, args: list[Any]) -> fx.Node:
        """Pieces along another dimension than that of the rows."""
        place = _PIECES[node.target]
        dims = node.meta["val"].dim() if node.target is aten.unsqueeze.default else node.args[0].meta["val"].dim()
        dim = args[place] if len(args) > place else 0
        if args[0] not in self.rows or type(dim) is not int or dim % dims == 0:
            raise _DifferError
        return self._keep(self.call(node.target, *args, **node.kwargs))

    def _pointwise(self, node: fx.Node, args: list[Any]) -> fx.Node:
        """An operation on each element of rows."""
        dims = node.meta["val"].dim()
        given: list[Any] = []
        for arg in args:
            if isinstance(arg, _Each):
                given.append(self._per_row(arg, dims))
                continue
            if isinstance(arg, fx.Node):
                val = arg.meta["val"]
                if not isinstance(val, torch.Tensor):
                    raise _DifferError
                one = arg not in self.rows and (val.dim() < dims or same_size(val.shape[0], 1))
                if not one and (arg not in self.rows or val.dim() != dims):
                    raise _DifferError
            elif _nodes_in(arg):
                raise _DifferError
            given.append(arg)
        if not any(isinstance(arg, fx.Node) and arg in self.rows for arg in given):
            raise _DifferError
        return self._keep(self.call(node.target, *given, **node.kwargs))

    def _product(self, node: fx.Node, args: list[Any]) -> fx.Node:
        """The rows of each round by its own matrix; what is added to that is rounded with it."""
        *bias, left, right = args
        if left not in self.rows or node.kwargs or not isinstance(right, _Each):
            raise _DifferError
        rounded = left.meta["val"].dtype
        rows, terms = left.meta["val"].shape
        self.flops += 2 * hint_of(rows) * hint_of(terms) * hint_of(node.meta["val"].shape[1])
        if self.library:
            sums = self._library_product(left, right, is_rounded_last=bool(bias) and rounded is not torch.float32)
        else:
            sums = self.call(GROUPED, left, self._matrices(right), self.names["ends"], not bias)
        if not bias:
            return self._keep(sums)
        row = self._per_row(bias[0], 2) if isinstance(bias[0], _Each) else bias[0]
        shared = row is bias[0] and (row in self.rows or row.meta["val"].dim() != 1)
        if shared or not same_size(row.meta["val"].shape[-1], sums.meta["val"].shape[1]):
            raise _DifferError
        if row.meta["val"].dtype is not torch.float32:
            row = self.call(aten._to_copy.default, row, dtype=torch.float32)
        sums = self.call(aten.add.Tensor, sums, row)
        return self._keep(sums if rounded is torch.float32 else self.call(aten._to_copy.default, sums, dtype=rounded))

    def _library_product(self, left: fx.Node, right: _Each, *, is_rounded_last: bool) -> fx.Node:
        """The library's product, which wants the matrices in one tensor and rows of 16 bytes, and rounds each sum."""
        whole = _stacked(right.nodes)
        if whole is None or is_rounded_last:
            raise _DifferError
        val, sizes = left.meta["val"], right.nodes[0].meta["val"].shape
        if any(type(size) is not int or size * val.dtype.itemsize % 16 for size in sizes):
            raise _DifferError
        args = (left, self._turned(*whole), self.names["ends"])
        with quietly(self.mode):
            # Torch's rule for fakes knows bfloat16 alone, its kernels more.
            sums = val.new_empty((val.shape[0], sizes[1]))
        return self._insert(aten._grouped_mm.default, args, sums)

    def _turned(self, tensor: fx.Node, turned: bool) -> fx.Node:
        return self.call(aten.transpose.int, tensor, 1, 2) if turned else tensor

    def _matrices(self, right: _Each) -> list[fx.Node]:
        """The matrices of the rounds: parts of one tensor in order as that tensor, others one by one."""
        whole = _stacked(right.nodes)
        if whole is not None:
            return [self._turned(*whole)]
        first = right.nodes[0].meta["val"]
        if any(not same_layout(first, node.meta["val"]) for node in right.nodes):
            raise _DifferError
        return list(right.nodes)

    def _per_row(self, each: _Each, dims: int) -> fx.Node:
        """A vector or number of each round, for each of its rows."""
        val = each.nodes[0].meta["val"]
        if not all(
            isinstance(node.meta["val"], torch.Tensor) and same_layout(val, node.meta["val"]) for node in each.nodes
        ):
            raise _DifferError
        if val.dim() > 1 or dims != 2:
            raise _DifferError
        table = self.call(aten.stack.default, list(each.nodes))
        table.meta["stored"] = True
        found = self.call(aten._unsafe_index.Tensor, table, [self.names["number"]])
        return self._keep(found if val.dim() == 1 else self.call(aten.unsqueeze.default, found, 1))


def _stacked(nodes: Sequence[fx.Node]) -> tuple[fx.Node, bool] | None:
    """The tensor of which ``nodes`` are the parts along its first dimension, in order, and whether each is transposed; else None."""
    turned = all(node.target is aten.t.default for node in nodes)
    parts: list[Any] = [node.args[0] if turned else node for node in nodes]
    if any(not isinstance(part, fx.Node) or part.target is not aten.select.int for part in parts):
        return None
    places = [tuple(part.args) for part in parts]
    tensor = places[0][0]
    count = tensor.meta["val"].shape[0] if isinstance(tensor, fx.Node) else None
    in_order = (
        type(count) is int and count == len(nodes) and all(place == (tensor, 0, n) for n, place in enumerate(places))
    )
    return (tensor, turned) if in_order else None


def _is_pointwise(target: Any) -> bool:
    """Whether an op computes each element of its own, of nothing but its arguments."""
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags:
        return False
    record = aten_op(target)
    return not (record.draws or record.effect or target._schema.is_mutable)


def _is_same(one: fx.Node, other: fx.Node) -> bool:
    """Whether two nodes are one, or the same view or conversion of one."""
    if one is other:
        return True
    if one.target is not other.target or one.target not in (*_VIEWS, *_CASTS, *_PIECES, aten.select.int):
        return False
    first, second = one.args[0], other.args[0]
    known = isinstance(first, fx.Node) and isinstance(second, fx.Node) and _is_same(first, second)
    return known and (one.args[1:], one.kwargs) == (other.args[1:], other.kwargs)


def _nodes_in(argument: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(argument, found.append)
    return found
