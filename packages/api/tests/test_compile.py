"""What `flambeau.compile` does before the first call: it traces nothing, and gets compilers ready where they will be needed."""

from __future__ import annotations

import pytest
import torch

import flambeau
import flambeau_runtime


@pytest.mark.parametrize(("in_use", "backend", "expected"), [(True, None, 1), (True, "eager", 0), (False, None, 0)])
def test_kernels_are_expected_where_cuda_is_in_use(
    monkeypatch: pytest.MonkeyPatch, in_use: bool, backend: str | None, expected: int
) -> None:
    """A backend that makes none needs no compiler for them, nor does a process that has not touched the GPU."""
    stores: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: in_use)
    monkeypatch.setattr(flambeau_runtime, "warm_up", stores.append)
    flambeau.compile(lambda x: x + 1, backend=backend)
    assert stores == [flambeau_runtime.default_store()] * expected


def test_a_backend_need_not_have_a_hash() -> None:
    """Any callable is one; a class with `__eq__` alone has none."""

    class Backend:
        def __eq__(self, other: object) -> bool:
            return False

        def __call__(self, gm, inputs):
            return gm.forward

    x = torch.ones(2)
    assert torch.equal(flambeau.compile(lambda x: x + 1, backend=Backend())(x), x + 1)
