"""ATen ops: one record per op, which every stage asks.

In: rows. ``aten_table.py`` has those of ops that are not lowered, ``@lowers`` (``lowering/registry.py``) those of ops that are, each beside its
rule. A row names one overload (``"max.dim"``), or a packet (``"mm"``): all its functional overloads that have no row of their own. Out:
``aten_op(overload)``, an ``AtenOp``: what the row says, and what torch's schema and tags say.

A second row of a name is refused, and so are rows that contradict each other: the only packet that may have a row beside one of its overloads
is one that is taken apart except for an overload that lowering has a rule for. An op without a row is a library call with a counted reason.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from attrs import evolve, field, frozen
from torch._ops import OpOverload

Rule = Callable[..., Any]
Formula = Callable[..., Any]


class Treatment(enum.Enum):
    """What becomes of a call; an op has one."""

    UNKNOWN = "nothing is said of it: a call of its own kernel"
    LOWERED = "a rule of lowering makes loops of it, or declines"
    LIBRARY = "a call of its own kernel, on purpose"
    DECOMPOSED = "taken apart by torch's formula while the graph is traced"
    ITEM = "reads a number out of a tensor"
    ASSERTION = "checks a number at run time"
    IGNORED = "says something of sizes or tensors that is known, and computes nothing"


#: Treatments under which an op stays as it is while a graph is traced.
_KEPT = (Treatment.LOWERED, Treatment.LIBRARY)


class Trait(enum.Flag):
    """What is true of an op whatever becomes of it."""

    NONE = 0
    #: Its kernel chooses how the result lies, by the device, the build and the sizes: that is compared with the prediction in every program.
    CHOOSES_LAYOUT = enum.auto()
    #: Its arguments are places in the memory of its operand, not elements: the operand has to lie as in eager, all of it.
    BY_STRIDES = enum.auto()
    #: Its result may be a view of its operand, or it may read that after the call, although the schema does not say so.
    HIDDEN_VIEW = enum.auto()
    #: It gives a changed copy of its first operand; the overload of the same name with an underscore changes that.
    CHANGED_COPY = enum.auto()
    #: It says where elements lie and computes none: kernels are not named after it.
    MOVES = enum.auto()
    #: It converts its operand, which may be of a type that nothing is computed in.
    CONVERTS = enum.auto()


@frozen(eq=False)
class AtenOp:
    """One row, or, from ``aten_op``, the whole of what is known of one overload.

    ``rule``: of lowering, where the treatment is that. ``adapt``: what is done to torch's formula before it is used. ``scan``: the kind of the loop
    IR's scan that combines elements by this op. ``workspace``: the result in which its kernel keeps a workspace for the gradient, where
    grad mode is on. ``sizes_of``: the place of an argument of which its rule reads the sizes alone. The last three
    fields come from schema and tags: ``draws``, it takes numbers from a generator; ``effect``, a call whose
    results nobody reads could still be missed; ``aliases``, the schema says that a result shares memory with an argument.
    """

    name: str
    treatment: Treatment = Treatment.UNKNOWN
    rule: Rule | None = field(default=None, repr=False)
    adapt: Callable[[Formula], Formula] | None = field(default=None, repr=False)
    scan: str = ""
    workspace: int | None = None
    sizes_of: int | None = None
    traits: Trait = Trait.NONE
    draws: bool = False
    effect: bool = False
    aliases: bool = False

    def __attrs_post_init__(self) -> None:
        wrong = (
            "a rule without being lowered, or the other way round"
            if (self.rule is not None) != (self.treatment is Treatment.LOWERED)
            else "a formula that is never used"
            if self.adapt is not None and self.treatment is not Treatment.DECOMPOSED
            else "a scan without a rule"
            if self.scan and self.rule is None
            else "an argument that no rule reads"
            if self.sizes_of is not None and self.rule is None
            else "a workspace, and no kernel of its own"
            if self.workspace is not None and self.treatment is not Treatment.LIBRARY
            else "a trait of what is never called"
            if self.traits and self.treatment in (Treatment.ITEM, Treatment.ASSERTION, Treatment.IGNORED)
            else ""
        )
        if wrong:
            raise ValueError(f"{self.name} has {wrong}")

    @property
    def base(self) -> str:
        """The packet's name."""
        return self.name.partition(".")[0]

    @property
    def shares_memory(self) -> bool:
        """Whether a result may lie in an argument's memory, by the schema or unsaid."""
        return self.aliases or Trait.HIDDEN_VIEW in self.traits


_ROWS: dict[str, AtenOp] = {}
#: The rows of overloads, by packet.
_SPLIT: dict[str, list[AtenOp]] = {}
#: The rules that a program registered, which go before rows.
_OWN: dict[OpOverload, Rule] = {}
#: What was asked for, by overload; a new row or rule may change it.
_FOUND: dict[OpOverload, AtenOp] = {}
#: Held while a record is made, and while what it is made of changes: no record is kept of what was before.
_LOCK = threading.Lock()

#: Namespaces whose ops do what their schemas say: torch's, and ours.
_COMPUTING_NAMESPACES = (
    "aten",
    "prims",
    "quantized",
    "_quantized",
    "mkldnn",
    "mkl",
    "onednn",
    "sparse",
    "prim",
    "flambeau",
    "flambeau_inductor",
)


#: Collectives come back before they have read their operands, and waiting for one gives its result itself: such memory is not given to others.
_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional")


def declare(*names: str, **facts: Any) -> None:
    """Give each name a row with ``facts``, fields of ``AtenOp``. ValueError for a row that is there, contradicts one, or says nothing."""
    for name in names:
        row = AtenOp(name, **facts)
        if name in _ROWS:
            raise ValueError(f"{name} has two rows")
        if row.treatment is Treatment.UNKNOWN and not row.traits:
            raise ValueError(f"the row of {name} says nothing")
        is_packet = row.base == name
        packet = row if is_packet else _ROWS.get(row.base)
        for overload in _SPLIT.get(name, ()) if is_packet else (row,):
            if packet is not None:
                _check_together(packet, overload)
        _ROWS[name] = row
        if not is_packet:
            _SPLIT.setdefault(row.base, []).append(row)
    with _LOCK:
        _FOUND.clear()
    moving_names.cache_clear()


def _check_together(packet: AtenOp, overload: AtenOp) -> None:
    if (packet.treatment, overload.treatment) != (Treatment.DECOMPOSED, Treatment.LOWERED):
        kinds = f"{packet.treatment.name.lower()} and {overload.treatment.name.lower()}"
        raise ValueError(f"{packet.name} and {overload.name} contradict each other: {kinds}")


def own_rules(rules: Mapping[OpOverload, Rule]) -> None:
    """Have these rules, and no others, go before rows."""
    with _LOCK:
        _OWN.clear()
        _OWN.update(rules)
        _FOUND.clear()


def aten_op(op: OpOverload) -> AtenOp:
    """The record of an overload: of ATen with its row, of another namespace what its schema and tags say; with a program's own rule where it has one."""
    found = _FOUND.get(op)
    if found is None:
        with _LOCK:
            found = _FOUND[op] = _record(op)
    return found


def _record(op: OpOverload) -> AtenOp:
    schema = op._schema
    name = f"{schema.name.partition('::')[2]}.{op._overloadname}"
    row = None
    if op.namespace == "aten":
        row = _ROWS.get(name) or (None if schema.is_mutable else _ROWS.get(name.partition(".")[0]))
    elif op.namespace in _COLLECTIVES:
        row = AtenOp(name, traits=Trait.HIDDEN_VIEW)
    if op in _OWN:
        row = AtenOp(name, Treatment.LOWERED, _OWN[op], traits=Trait.NONE if row is None else row.traits)
    draws = torch.Tag.nondeterministic_seeded in op.tags
    return evolve(
        row or AtenOp(name),
        name=name,
        draws=draws,
        effect=schema.is_mutable or not schema.returns or draws or op.namespace not in _COMPUTING_NAMESPACES,
        aliases=any(result.alias_info is not None for result in schema.returns),
    )


def rows() -> tuple[AtenOp, ...]:
    """Every row, in the order in which they came."""
    return tuple(_ROWS.values())


def overloads_of(name: str) -> tuple[OpOverload, ...]:
    """The functional overloads that a row's name stands for, whether or not they have rows of their own; none where this torch lacks it."""
    base, _, suffix = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return ()
    found = [getattr(packet, o, None) for o in ([suffix] if suffix else packet.overloads())]
    return tuple(op for op in found if op is not None and not op._schema.is_mutable)


def kept_ops() -> Iterator[OpOverload]:
    """The overloads that lowering wants to meet whole: those with a rule, and those that stay library calls on purpose."""
    return (op for row in rows() if row.treatment in _KEPT for op in overloads_of(row.name))


def decomposed_ops() -> Iterator[tuple[OpOverload, AtenOp]]:
    """The overloads that are taken apart where torch has a formula for them, each with its row."""
    for row in rows():
        if row.treatment is Treatment.DECOMPOSED:
            own = {overload.name for overload in _SPLIT.get(row.name, ())}
            yield from ((op, row) for op in overloads_of(row.name) if f"{row.base}.{op._overloadname}" not in own)


@functools.cache
def moving_names() -> frozenset[str]:
    """The packets of the ops that only say where elements lie."""
    return frozenset(row.base for row in rows() if Trait.MOVES in row.traits)


def twin_in_place(op: OpOverload) -> OpOverload | None:
    """The overload that does in its first argument what ``op`` does in a copy of it; None where it gives no such copy."""
    if Trait.CHANGED_COPY not in aten_op(op).traits:
        return None
    base, _, suffix = aten_op(op).name.partition(".")
    twin: OpOverload = getattr(getattr(torch.ops.aten, f"{base}_"), suffix)
    return twin
