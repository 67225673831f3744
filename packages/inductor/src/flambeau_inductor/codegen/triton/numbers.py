"""Numbers that are known at run time only, as arguments of Triton kernels.

In: a kernel body. Out: for each of its scalars the name, the type in the signature and the variable in the kernel IR.
"""

from __future__ import annotations

import re

import torch

from ... import kernel_ir as kir
from ...ir.kernel import KernelBody
from ...ir.scalar import walk
from ...kernel_ir import Variable

_INT32 = 2**31 - 1


def scalar_names(body: KernelBody) -> dict[str, str]:
    """Symbol or parameter -> its argument, in the order of ``body.scalars``."""
    names = [scalar if isinstance(scalar, str) else scalar.name for scalar in body.scalars]
    return {name: "n_" + re.sub(r"\W", "_", name) for name in names}


def scalar_types(body: KernelBody) -> dict[str, str]:
    """Argument -> its type in a signature."""
    floating = {
        n.args[0]: n.dtype.is_floating_point for s in body.statements for n in walk(s.value) if n.kind == "parameter"
    }
    found = {}
    for scalar, name in zip(body.scalars, scalar_names(body).values(), strict=True):
        if isinstance(scalar, str):
            found[name] = "fp64" if floating.get(scalar, True) else "i64"
        else:
            found[name] = "i32" if scalar.lo >= -_INT32 and scalar.hi <= _INT32 else "i64"
    return found


def scalar_variables(body: KernelBody) -> tuple[Variable, ...]:
    """The arguments in the kernel IR."""
    found = []
    for scalar, (name, kind) in zip(body.scalars, scalar_types(body).items(), strict=True):
        dtype = torch.float64 if kind == "fp64" else torch.int64 if isinstance(scalar, str) else kir.INDEX
        found.append(Variable(name, kir.NO_TILES, dtype))
    return tuple(found)
