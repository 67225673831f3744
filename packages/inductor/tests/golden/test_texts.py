"""What the stages make of small programs is what is kept as text: a change of generated code is read as a diff.

After a change that is meant: `pytest packages/inductor/tests/golden --update-golden`, and read what `git diff` shows. The texts are those of the
torch that the tests pin: another one traces other graphs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden.programs import OPTIONS, PROGRAMS
from torch.torch_version import TorchVersion

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_graph

TEXTS = Path(__file__).parent / "texts"
#: What of a compilation is kept, by the file of its dump. The last is without its first line, which has a hash of all sources.
STAGES = ("lowering", "combining", "kernels", "text", "program")


def texts_of(name: str, folder: Path) -> str:
    """The stages of one program."""
    gm, inputs = PROGRAMS[name]()
    language = "triton" if name.endswith("_triton") else "cpp"
    config = Config(dump=str(folder), cpu_backend=language, verify=True, **OPTIONS.get(name, {}))
    compile_graph(gm, inputs, context=CompileContext(config))
    parts = {stage: (folder / f"{stage}.txt").read_text() for stage in STAGES}
    if not parts["kernels"]:
        del parts["kernels"]  # of templates there is none yet
    parts["program"] = parts["program"].partition("\n")[2]
    return "\n".join(f"======== {stage}\n{text.strip()}\n" for stage, text in parts.items())


@pytest.mark.skipif(
    not "2.13" <= TorchVersion(torch.__version__) < "2.14", reason="the texts are of what torch 2.13 traces"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_texts(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = texts_of(name, tmp_path)
    path = TEXTS / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        TEXTS.mkdir(exist_ok=True)
        path.write_text(found)
    assert path.exists(), "there is no text yet: --update-golden writes it"
    assert found == path.read_text(), "generated code changed; where that is meant, --update-golden keeps it"


def test_every_text_has_its_program() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == set(PROGRAMS)
