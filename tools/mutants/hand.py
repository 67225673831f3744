"""Faults chosen by hand: texts of C++ and of tables, which no operator on syntax trees reaches.

Stage -> (file, what it is, "text before => text after"); the text before stands in the file once.
"""

from __future__ import annotations

_OPS = "packages/inductor/src/flambeau_inductor/codegen/cpp/ops.py"
_UNIT = "packages/inductor/src/flambeau_inductor/codegen/cpp/unit.py"
_READ = '/ f"{name}.hpp").read_text()'


def _header(before: str, after: str) -> str:
    return f"{_READ} => {_READ}.replace({before!r}, {after!r})"


FAULTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "kernels": (
        (_OPS, "a difference", '("sub", "-") => ("sub", "+")'),
        (_OPS, "a conjunction", '("logical_and", "&") => ("logical_and", "|")'),
        (_OPS, "rounding", '_call("round_even") => _call("trunc")'),
        (_OPS, "a choice", '_call("select") => lambda o: o.call("select", o.args[0], o.args[2], o.args[1])'),
        (_OPS, "a product and a sum", '_call("fma") => lambda o: o.call("fma", o.args[0], o.args[2], o.args[1])'),
        (_OPS, "a quotient", '_call("divide") => lambda o: o.call("divide", o.args[1], o.args[0])'),
        (_OPS, "integer division", '_division("div_floor" => _division("div_trunc"'),
        (_OPS, "integer rest", '_division("mod_floor" => _division("mod_trunc"'),
        (_OPS, "integer power", '_call("ipow") => lambda o: o.call("ipow", o.args[1], o.args[0])'),
        (_OPS, "the mask of failing lanes", "*([o.mask] if o.mask else []) => *()"),
        (_UNIT, "rounding of products", '"-ffp-contract=off" => "-ffp-contract=fast"'),
        (_UNIT, "wrap-around", '"-fwrapv" => "-ftrapv"'),
    ),
}
