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


def test_sizes_of_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ("1", "Instruction", "32K"),
        ("1", "Data", "48K"),
        ("2", "Unified", "2M"),
        ("3", "Unified", "?"),
        ("4", "Unified", ""),
    ]
    for number, row in enumerate(rows):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size"), row, strict=True):
            (folder / name).write_text(f"{value}\n")
    monkeypatch.setattr(processor, "_CACHES", tmp_path)
    processor.cache_bytes.cache_clear()
    assert [processor.cache_bytes(level) for level in range(1, 6)] == [48 << 10, 2 << 20, 0, 0, 0]
    processor.cache_bytes.cache_clear()


def test_where_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_FILE", tmp_path / "absent")
    monkeypatch.setattr("platform.processor", lambda: "one")
    assert (processor.maker(), processor.features()) == ("", {"one"})
