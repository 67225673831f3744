"""Rows of products that are joined: the library writes them into their places, where nobody else reads them."""

from __future__ import annotations

import pytest
import torch
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_runtime import linear, processor
from flambeau_runtime.artifact import Call

SIZE = 400


def joined(a, b, c):
    return torch.cat([a @ c, b @ c, c @ c])


def shown(a, b, c):
    """One of the products is a result itself."""
    first = a @ c
    return torch.cat([first, b @ c]), first


def twice(a, b, c):
    product = a @ c
    return torch.cat([product, product, b @ c])


def beside(a, b, c):
    return torch.cat([a @ c, b @ c], 1)


def made_by(monkeypatch, maker):
    """A processor of this maker, which has AVX-512, and libraries alone for its products."""
    monkeypatch.setattr(linear, "has_kernel", lambda: False)
    monkeypatch.setattr(processor, "maker", lambda: maker)
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx2", "avx512f"}))


@pytest.mark.parametrize(
    ("function", "places"), [(joined, 3), (shown, 0), (twice, 0), (beside, 0), (lambda a, b, c: joined(a, b, c) * 2, 3)]
)
@pytest.mark.parametrize("executor", ["python", "native"])
def test_products_are_written_into_their_places(function, places, executor, monkeypatch):
    """One tensor is made, and no copy, where MKL multiplies."""
    made_by(monkeypatch, "GenuineIntel")
    inputs = [torch.randn(SIZE, SIZE) for _ in range(3)]
    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    found = [
        i for i in artifact.program.instructions if isinstance(i, Call) and (i.op, i.overload) == ("aten::mm", "out")
    ]
    assert len(found) == places
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact), executor=executor)
    wanted = function(*inputs)
    for got, want in zip(run(*inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(got, want)


def test_a_faster_library_is_worth_the_copy(monkeypatch):
    """oneDNN's call cannot write into a place."""
    made_by(monkeypatch, "AuthenticAMD")
    inputs = [torch.randn(SIZE, SIZE) for _ in range(3)]
    artifact = compile_graph(traced(joined, *inputs), inputs, {"verify": True})
    calls = [(i.op, i.overload) for i in artifact.program.instructions if isinstance(i, Call)]
    assert calls.count(("mkldnn::_linear_pointwise", "")) == 3 and ("aten::mm", "out") not in calls
    (got,) = flambeau_runtime.load(artifact)(*inputs)
    # Sums of 400 terms, in another order than eager's.
    torch.testing.assert_close(got, joined(*inputs), rtol=1e-4, atol=1e-3)


def test_small_ones_are_copied():
    """Less than a MiB is copied as fast."""
    inputs = [torch.randn(8, 8) for _ in range(3)]
    artifact = compile_graph(traced(joined, *inputs), inputs, {"verify": True})
    assert not any(isinstance(i, Call) and i.overload == "out" for i in artifact.program.instructions)
