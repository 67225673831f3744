"""The backend registry and the errors around user backends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flambeau import backends
from flambeau.errors import BackendError, DuplicateBackend, UnknownName


def graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(lambda x: x + 1)


def test_built_in_names() -> None:
    """Debug backends are hidden unless asked for."""
    assert "inductor" in backends.list_backends()
    assert "eager" not in backends.list_backends()
    assert {"eager", "aot_eager", "noop", "inductor"} <= set(backends.list_backends(exclude_tags=None))


def test_register_as_decorator_and_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered name resolves to the function; registering another under it is refused."""
    monkeypatch.setattr(backends, "_REGISTRY", dict(backends._REGISTRY))

    @backends.register_backend(name="mine", tags=("experimental",))
    def mine(gm: Any, inputs: Any) -> Any:
        return gm.forward

    assert backends.lookup_backend("mine") is mine
    assert "mine" not in backends.list_backends()
    with pytest.raises(DuplicateBackend):
        backends.register_backend(lambda gm, inputs: gm, name="mine")


def test_unknown_backend_lists_names() -> None:
    """The error says what exists and the nearest name."""
    with pytest.raises(UnknownName, match="(?s)aot_eager.*did you mean 'inductor'"):
        backends.lookup_backend("inductr")


def test_failures_become_backend_errors() -> None:
    """An exception and a non-callable result are both named."""
    with pytest.raises(BackendError, match="raised ZeroDivisionError"):
        backends.checked(lambda gm, inputs: 1 / 0, "bad")(graph(), [])  # type: ignore[arg-type,return-value]
    with pytest.raises(BackendError, match="returned NoneType"):
        backends.checked(lambda gm, inputs: None, "bad")(graph(), [])  # type: ignore[arg-type,return-value]
