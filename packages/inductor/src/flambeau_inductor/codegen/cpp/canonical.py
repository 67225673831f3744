"""A kernel body with its buffers and reductions renamed by position, so that equal kernels of a model become equal text.

In: a ``KernelBody``. Out: the same over buffers ``g0, g1, …`` and results ``m0, m1, …``, and the original buffer names.
"""

from __future__ import annotations

from attrs import evolve

from ... import expr as ex
from ...ir.kernel import KernelBody, Statement, Store
from ...ir.scalar import Scalar, index_value, load, reduced, transform


def canonical(body: KernelBody) -> tuple[KernelBody, dict[str, str]]:
    """The renamed body, and new buffer name -> old one."""
    names = {buffer.name: f"g{n}" for n, buffer in enumerate(body.buffers)}
    storages: dict[str, str] = {}
    for buffer in body.buffers:
        storages.setdefault(buffer.storage, names[buffer.name])
    results = {s.name: f"m{n}" for n, s in enumerate(s for s in body.statements if not isinstance(s, Store))}

    def replace(node: Scalar) -> Scalar | None:
        if node.kind == "load":
            return load(names[node.buffer], node.index, node.dtype)
        if node.kind == "reduced":
            # What no statement computes is given to the kernel under its name.
            return reduced(results.get(node.args[0], node.args[0]), node.dtype)
        return None

    def rename(statement: Statement) -> Statement:
        value = transform(statement.value, replace)
        if not isinstance(statement, Store):
            return evolve(statement, value=value, name=results[statement.name])
        index = ex.as_expr(transform(index_value(statement.index), replace).args[0])
        return evolve(statement, buffer=names[statement.buffer], value=value, index=index)

    # A buffer in place of one that the kernel does not touch keeps a storage of its own name, and stays marked as in place.
    buffers = tuple(
        evolve(
            b,
            name=names[b.name],
            storage=storages[b.storage] if not b.in_place or _shares(body, b.storage) else f"outside_{names[b.name]}",
        )
        for b in body.buffers
    )
    fresh = evolve(body, buffers=buffers, statements=tuple(rename(s) for s in body.statements))
    return fresh, {new: old for old, new in names.items()}


def _shares(body: KernelBody, storage: str) -> bool:
    return sum(b.storage == storage for b in body.buffers) > 1
