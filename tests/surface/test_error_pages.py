"""The page of errors: a program for each error that one can meet, which raises it in these words; those that are left out are faults of ours, or roots."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tools.generate_docs import PACKAGES, error_classes, is_fault, is_root

import flambeau
import flambeau_runtime.extension as runtime_extension
from flambeau import FlambeauError, compat, errors
from flambeau_capture.bytecode.behaviour import behaviour_of
from flambeau_capture.errors import NativeModuleError, UnsupportedPythonError
from flambeau_runtime.errors import ExtensionError

from .error_examples import EXAMPLES, INSTALLATION, Example


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What programs register is taken back."""
    monkeypatch.setattr("flambeau.rescue._mispredicted", set())
    yield
    flambeau.compiler.set_logs()
    flambeau.compiler.reset()


def test_each_error_has_its_program_on_the_page() -> None:
    codes = {kind.code for package in PACKAGES for kind in error_classes(package)}
    told = {kind.code for kind in (*EXAMPLES, *INSTALLATION)}
    assert {code for code in codes if not is_fault(code) and not is_root(code)} <= told <= codes
    assert not any(map(is_fault, told))
    page = (Path(__file__).resolve().parents[2] / "docs/errors/by-example.md").read_text()
    for kind, example in EXAMPLES.items():
        section = page.partition(f"\n## {kind.code} {kind.__name__}\n")[2].partition("\n## ")[0]
        assert f"def {example.program.__name__}(" in section and example.says in section


@pytest.mark.judges_itself
@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: f"{kind.code}-{kind.__name__}")
def test_each_program_raises_its_error(kind: type[FlambeauError]) -> None:
    example: Example = EXAMPLES[kind]
    with warnings.catch_warnings(), pytest.raises(example.caused or kind) as caught:
        warnings.simplefilter("ignore")  # some warn before they raise
        example.program()
    error: BaseException | None = caught.value
    while example.caused is not None and error is not None and type(error) is not kind:
        error = error.__cause__
    assert type(error) is kind and str(error).startswith(f"[{kind.code}]") and example.says in str(error)
    if example.instead is not None:
        example.instead()


@pytest.mark.compiles(graphs=0)
def test_what_an_installation_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its modules are imported."""

    def raised(kind: type[FlambeauError], ask: Callable[[], Any]) -> None:
        with pytest.raises(kind) as caught:
            ask()
        assert INSTALLATION[kind][0] in str(caught.value)

    raised(errors.UnsupportedEnvironment, lambda: compat.check_environment(python=(3, 9)))
    raised(UnsupportedPythonError, lambda: behaviour_of((3, 9)))
    monkeypatch.setattr(torch, "__version__", "0.0.0")
    raised(NativeModuleError, lambda: importlib.reload(sys.modules["flambeau_capture.native"]))
    runtime_extension.extension.cache_clear()
    raised(ExtensionError, runtime_extension.extension)
