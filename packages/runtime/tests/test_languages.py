"""A language that only the test knows: its kernels are functions that it binds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from flambeau_runtime import ArtifactError, Store, load
from flambeau_runtime import artifact as a
from flambeau_runtime.builtin_languages import CPP
from flambeau_runtime.languages import Language, language_of, register, registered

STARTED: list[str] = []


def _bind(artifact: a.Artifact, store: Store) -> Mapping[int, Any]:
    def double(tensors: list[torch.Tensor], scalars: list[Any], grid: Any, extent: int) -> int:
        tensors[1].copy_(tensors[0] * 2)
        return 0

    return {n: double for n, k in enumerate(artifact.kernels) if artifact.libraries[k.library].language == "words"}


WORDS = Language(name="words", bind=_bind, start=lambda artifact, store: STARTED.append(artifact.libraries[0].source))


def doubled() -> a.Artifact:
    steps = [a.Alloc(1, [3], [1], torch.float32), a.Launch(0, [0, 1], [], 3, 1)]
    inputs = [a.InputSpec("tensor", 0, torch.float32, "cpu", [3], [1])]
    program = a.Program(steps, 2, 0, inputs, [a.OutputSpec("tensor", 1)])
    return a.Artifact(program, [a.Library("demo", "words", "twice")], [a.Kernel("twice", 0, "twice", 2)])


def test_a_name_has_one_record() -> None:
    assert language_of(a.Library("demo", "cpp", "")) is CPP
    with pytest.raises(ValueError, match="cpp is registered twice"):
        register(Language(name="cpp"))


@pytest.mark.parametrize("executor", ["native", "python"])
def test_its_functions_are_called(executor: str) -> None:
    """Compiling begins when there is an artifact, before anything is bound."""
    STARTED.clear()
    with registered(WORDS):
        run = load(doubled(), executor=executor)
        assert STARTED == ["twice"]
        (result,) = run(torch.arange(3.0))
    assert result.tolist() == [0.0, 2.0, 4.0]


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ArtifactError, match="library demo: unknown language 'words'"):
        doubled().validate()
