"""Tables that are written while modules are imported: a name is given once, and what it has been given stays.

A second rule for the same op, operator or instruction would win or lose by the order of imports, and nothing else would tell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pytest

from flambeau_autograd.functional import special
from flambeau_capture import reasons, replacements
from flambeau_capture.interp import registry as instructions
from flambeau_inductor.codegen.cpp import ops as cpp_ops
from flambeau_inductor.codegen.triton import helpers
from flambeau_inductor.codegen.triton import ops as triton_ops
from flambeau_inductor.expr import node
from flambeau_inductor.lowering import registry as lowerings
from flambeau_inductor.ops import aten as aten_ops
from flambeau_inductor.ops import table as scalar_ops

pytestmark = pytest.mark.compiles(graphs=0)

WRAPPER = next(iter(replacements._WRAPPERS), None)
#: What is asked for again -> the table, a key that it has, and how another entry would be given.
GIVEN: dict[str, tuple[Mapping[Any, Any], Hashable, Callable[[Any], Any]]] = {
    "break reason": (reasons._TABLE, "input-output", lambda _: reasons.register("input-output", "", "")),
    "instruction": (instructions.HANDLERS, "LOAD_CONST", instructions.handles("LOAD_CONST")),
    "replacement": (replacements._BY_ID, id(len), replacements.replaces(len)),
    "wrapper": (replacements._WRAPPERS, WRAPPER, replacements.replaces_wrapper(WRAPPER)),  # type: ignore[arg-type]
    "special rule": (special.SPECIAL, next(iter(special.SPECIAL)), special.register(next(iter(special.SPECIAL)))),
    "scalar op": (scalar_ops._TABLE, "add", lambda _: scalar_ops.register(scalar_ops.scalar_op("add"))),
    "lowering": (aten_ops._ROWS, "add.Tensor", lowerings.lowers("add.Tensor")),
    "ATen op": (aten_ops._ROWS, "mm", lambda _: aten_ops.declare("mm", treatment=aten_ops.Treatment.LIBRARY)),
    "C++ text": (cpp_ops._TABLE, "add", functools.partial(cpp_ops._register, "add")),
    "Triton text": (triton_ops._TEXTS, "add", functools.partial(triton_ops.register, "add")),
    "Triton helper": (
        helpers._HELPERS,
        next(iter(helpers._HELPERS)),
        lambda _: helpers._helper(next(iter(helpers._HELPERS)), ""),
    ),
    "operator": (node._BINARY, "floordiv", functools.partial(node.register_operation, "floordiv")),
}


@pytest.mark.parametrize("name", GIVEN)
def test_nothing_is_given_twice(name: str) -> None:
    table, key, give = GIVEN[name]
    before = dict(table)
    assert key in before
    with pytest.raises(ValueError, match=r"twice|two "):
        give(lambda *args: None)
    assert dict(table) == before
