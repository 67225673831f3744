"""One record per ATen op: held to torch's registry, to the other rows, and to the stages that read it."""

import ast
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from attrs import fields
from torch._decomp import decomposition_table
from torch.torch_version import TorchVersion

import flambeau_inductor
from flambeau_inductor import decompositions, effects
from flambeau_inductor.ir.loops import SCAN_KINDS
from flambeau_inductor.lowering import RULES_LOADED
from flambeau_inductor.lowering.registry import lowered_ops, lowers, rule_for
from flambeau_inductor.ops import aten as records
from flambeau_inductor.ops.aten import (
    AtenOp,
    Trait,
    Treatment,
    aten_op,
    declare,
    decomposed_ops,
    moving_names,
    overloads_of,
    rows,
    twin_in_place,
)

aten = torch.ops.aten
assert RULES_LOADED
ROWS = {row.name: row for row in rows()}
#: Names and formulas are those of one torch: another has other ops.
this_torch = pytest.mark.skipif(
    not "2.13" <= TorchVersion(torch.__version__) < "2.14", reason="another torch has other ops and formulas"
)


def _with(trait: Trait) -> list[AtenOp]:
    return [row for row in rows() if trait in row.traits]


@this_torch
def test_torch_knows_every_name():
    """A name that is misspelt, or only has overloads that write to their arguments, would have no effect."""
    assert [row.name for row in rows() if not overloads_of(row.name)] == []


@this_torch
def test_every_op_that_is_taken_apart_has_a_formula():
    """Of each row at least one overload that has no row of its own; else the row does nothing."""
    idle = [
        row.name
        for row in rows()
        if row.treatment is Treatment.DECOMPOSED
        and not any(
            op in decomposition_table and aten_op(op).treatment is row.treatment for op in overloads_of(row.name)
        )
    ]
    assert idle == []


def test_the_ops_that_are_taken_apart_are_those_whose_record_says_so():
    """The table is made row by row, and a record is found op by op."""
    assert all(aten_op(op).treatment is Treatment.DECOMPOSED for op, _ in decomposed_ops())
    listed = {op for op, _ in decomposed_ops()}
    assert all(op in listed for op in overloads_of("std") if aten_op(op).treatment is Treatment.DECOMPOSED)
    assert aten.std.dim in listed and aten.std.correction not in listed


def test_every_op_has_one_treatment():
    """Kept whole and taken apart exclude each other, op by op, whatever rows it comes from."""
    kept = {Treatment.LOWERED, Treatment.LIBRARY}
    for op, formula in decompositions().items():
        assert (aten_op(op).treatment in kept) == (formula is None), op
        assert (rule_for(op) is not None) == (aten_op(op).treatment is Treatment.LOWERED)


def test_a_library_call_by_a_listed_name_is_the_only_use_of_that_name():
    """A packet that is left to the library has no overload that is treated otherwise."""
    packets = [row for row in rows() if row.treatment is Treatment.LIBRARY and "." not in row.name]
    assert [
        op for row in packets for op in overloads_of(row.name) if aten_op(op).treatment is not Treatment.LIBRARY
    ] == []


def test_a_layout_that_the_kernel_chooses_is_of_a_call():
    """What is taken apart is laid out by its parts; a rule may leave cases to the call."""
    assert all(row.treatment is not Treatment.DECOMPOSED for row in _with(Trait.CHOOSES_LAYOUT))


@this_torch
def test_ops_by_strides_take_strides():
    """Sizes and strides are among their arguments."""
    for row in _with(Trait.BY_STRIDES):
        for op in overloads_of(row.name):
            assert {"size", "stride", "storage_offset"} <= {argument.name for argument in op._schema.arguments}


@this_torch
def test_views_are_hidden_where_schemas_do_not_show_them():
    """Where the schema says it, the trait would add nothing; and the result does share its operand's memory."""
    extra = {"view": [[3, 2]], "_unsafe_view": [[3, 2]], "unsafe_split_with_sizes": [[1, 1]]}
    for row in _with(Trait.HIDDEN_VIEW):
        for op in overloads_of(row.name):
            assert not aten_op(op).aliases and aten_op(op).shares_memory
            x = torch.arange(6.0).view(2, 3)
            found = op(x, *extra.get(row.base, [1]))
            for part in found if isinstance(found, list) else [found]:
                assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), op


@this_torch
def test_a_changed_copy_has_a_twin_that_changes():
    """Of the same arguments, the first of which it writes to."""
    for row in _with(Trait.CHANGED_COPY):
        for op in overloads_of(row.name):
            twin = twin_in_place(op)
            assert twin is not None and twin._schema.arguments[0].alias_info.is_write
            assert [a.name for a in twin._schema.arguments] == [a.name for a in op._schema.arguments]
    assert twin_in_place(aten.add.Tensor) is None


def test_names_that_move_are_of_ops_without_arithmetic():
    """A kernel is named after what it computes."""
    assert {"view", "permute", "clone"} <= moving_names()
    assert moving_names().isdisjoint({"add", "sum", "gather", "cat", "constant_pad_nd"})


@this_torch
def test_a_workspace_is_a_result_that_the_gradient_takes():
    """By the name that the gradient's schema has for it."""
    for row in rows():
        if row.workspace is not None:
            (op,) = overloads_of(row.name)
            assert 0 <= row.workspace < len(op._schema.returns)
            (gradient,) = overloads_of(f"{row.base}_backward")
            assert "workspace" in {argument.name for argument in gradient._schema.arguments}


def test_scans_are_of_kinds_that_are_written():
    """Each kind of one op."""
    kinds = Counter(row.scan for row in rows() if row.scan)
    assert set(kinds) == set(SCAN_KINDS) and set(kinds.values()) == {1}


def test_what_is_ignored_or_checked_gives_nothing():
    """A result would be missing."""
    for row in rows():
        for op in overloads_of(row.name):
            if row.treatment in (Treatment.IGNORED, Treatment.ASSERTION):
                assert not op._schema.returns, op


def test_every_fact_is_read():
    """A field, a trait or a treatment that no stage asks for is none: the tables themselves do not count."""
    package = Path(flambeau_inductor.__file__).parent
    read: set[str] = set()
    for path in package.rglob("*.py"):
        if path.name != "aten_table.py":
            read |= {
                node.attr
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            }
    facts = {f.name for f in fields(AtenOp)} | {t.name for t in Treatment} | {t.name for t in Trait}
    assert facts - read == set()


def test_schema_and_tags_are_part_of_the_record():
    """Also of ops without a row, and of other libraries, of which nothing else is known."""
    assert aten_op(aten.rand.default).draws and aten_op(aten.rand.default).effect
    assert aten_op(aten.view.default).aliases and not aten_op(aten.clone.default).aliases
    assert aten_op(aten.add_.Tensor).effect and aten_op(aten.add_.Tensor).treatment is Treatment.UNKNOWN
    assert not effects.has_effect(aten.add.Tensor) and not effects.draws(aten.add.Tensor)
    assert aten_op(torch.ops.prims.convert_element_type.default).treatment is Treatment.UNKNOWN


def test_a_packet_stands_for_its_functional_overloads():
    """Those that write to an argument have no row."""
    assert aten_op(aten.mm.default).treatment is Treatment.LIBRARY
    assert aten_op(aten.mm.out).treatment is Treatment.UNKNOWN


def test_a_second_row_is_refused():
    """Also where it says the same."""
    with pytest.raises(ValueError, match="two rows"):
        declare("mm", treatment=Treatment.LIBRARY)
    with pytest.raises(ValueError, match="two rows"):
        lowers("relu")(lambda g, a: a)
    assert aten.relu.default in lowered_ops()


@pytest.mark.parametrize(
    ("name", "facts", "why"),
    [
        ("mm.default", {"treatment": Treatment.LOWERED, "rule": len}, "library and lowered"),
        ("mm.default", {"treatment": Treatment.DECOMPOSED}, "library and decomposed"),
        ("relu", {"treatment": Treatment.LIBRARY}, "library and lowered"),
        ("trace.default", {"treatment": Treatment.LIBRARY}, "decomposed and library"),
        ("made_up", {}, "says nothing"),
        ("made_up", {"treatment": Treatment.LOWERED}, "without being lowered"),
        ("made_up", {"treatment": Treatment.LIBRARY, "rule": len}, "without being lowered"),
        ("made_up", {"treatment": Treatment.LIBRARY, "adapt": len}, "never used"),
        ("made_up", {"treatment": Treatment.DECOMPOSED, "workspace": 3}, "no kernel of its own"),
        ("made_up", {"treatment": Treatment.LIBRARY, "scan": "sum"}, "without a rule"),
        ("made_up", {"treatment": Treatment.IGNORED, "traits": Trait.MOVES}, "never called"),
    ],
)
def test_contradictions_are_refused(name, facts, why):
    """When the row is declared, in whichever order rows come."""
    with pytest.raises(ValueError, match=why):
        declare(name, **facts)
    assert tuple(ROWS) == tuple(row.name for row in rows())


def test_a_new_row_is_found_by_who_asked_before(monkeypatch):
    """Records that were handed out are made again."""
    monkeypatch.setattr("flambeau_inductor.ops.aten._ROWS", {})
    monkeypatch.setattr("flambeau_inductor.ops.aten._SPLIT", {})
    monkeypatch.setattr("flambeau_inductor.ops.aten._FOUND", {})
    assert aten_op(aten.mm.default).treatment is Treatment.UNKNOWN
    declare("mm", treatment=Treatment.LIBRARY)
    assert aten_op(aten.mm.default).treatment is Treatment.LIBRARY


def test_no_record_is_kept_of_what_was_before(monkeypatch):
    """A thread that makes a record while another one registers a rule: who asks afterwards is told of the rule."""
    op, make = aten.cosh.default, records._record
    other = threading.Thread(target=records.own_rules, args=({op: abs},))

    def record(op):
        made = make(op)
        other.start()
        other.join(0.1)
        return made

    records.own_rules({})
    with monkeypatch.context() as patch:
        patch.setattr(records, "_record", record)
        aten_op(op)
    other.join()
    try:
        assert aten_op(op).rule is abs
    finally:
        records.own_rules({})
    assert aten_op(op).rule is not abs
