"""What the system tells about the processor, and where it tells nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau_runtime import processor

CORES = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\nvendor_id\t: Other\nflags\t: fpu\n"


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    processor._said.cache_clear()
    yield
    processor._said.cache_clear()


def test_the_first_core_speaks_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(CORES)
    monkeypatch.setattr(processor, "_FILE", tmp_path / "cpuinfo")
    assert processor.maker() == "AuthenticAMD"
    assert processor.features() == {"fpu", "avx2", "avx512f"}


def test_where_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_FILE", tmp_path / "absent")
    monkeypatch.setattr("platform.processor", lambda: "one")
    assert (processor.maker(), processor.features()) == ("", {"one"})
