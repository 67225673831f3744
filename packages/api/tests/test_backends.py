"""The backend registry and the errors around user backends."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau import backends
from flambeau.errors import BackendLookupError, DuplicateBackend, UnknownName


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


def test_what_is_no_backend() -> None:
    """Neither a name nor a callable."""
    with pytest.raises(BackendLookupError, match="takes a name or a callable"):
        backends.lookup_backend(3)  # type: ignore[arg-type]
