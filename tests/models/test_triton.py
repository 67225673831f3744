"""The shared models with Triton kernels, run by Triton's interpreter, and those kernels cross-compiled for sm_90.

A process holds either Triton's compiler or its interpreter; the runtime's worker takes the other role, so that these tests run
in any pytest process, whatever it has imported.
"""

from __future__ import annotations

import re

import pytest
import torch

import flambeau
from flambeau_runtime import Artifact, executor
from flambeau_runtime.triton_kernels import CompileRequest, compile_kernels, kernel_requests
from tests.comparison import assert_same, gradients, twin_of

from . import zoo

pytest.importorskip("triton")

OPTIONS = {"cpu_backend": "triton"}
SM_90 = 90
SAMPLE = 15
#: Whole steps that take long under the interpreter; their forward is always tested.
SLOW = frozenset({"swin", "t5", "resnet50", "mobilenet_v2"})
STEPS = [
    *(name for name in zoo.ZOO if name not in SLOW),
    *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(SLOW)),
]


@pytest.mark.parametrize("name", sorted(SLOW))
def test_inference_equals_eager(name: str) -> None:
    """Every output of a model whose whole step is too slow for every run."""
    case = zoo.make(name)
    compiled = flambeau.compile(case.model, options=OPTIONS)
    with torch.no_grad():
        expected = case.outputs(case.model(**case.inputs))
        assert_same(case.outputs(compiled(**case.inputs)), expected)


@pytest.mark.parametrize("name", STEPS)
def test_training_step_equals_eager(name: str) -> None:
    """Loss, every gradient and every buffer of a step."""
    case = zoo.make(name)
    eager, model = twin_of(case.model).train(), case.model.train()
    torch.manual_seed(0)
    expected = case.loss(eager(**case.inputs))
    expected.backward()
    torch.manual_seed(0)
    actual = case.loss(flambeau.compile(model, options=OPTIONS)(**case.inputs))
    actual.backward()
    assert_same(actual, expected)
    assert_same(gradients(model), gradients(eager), rtol=1e-3, atol=1e-4)
    assert_same(dict(model.named_buffers()), dict(eager.named_buffers()))


def _requests(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> list[CompileRequest]:
    """What compiling the kernels of the models' training steps takes, each source once. No kernel runs."""
    artifacts: list[Artifact] = []
    real = executor.load

    def load(artifact: Artifact, **rest: object) -> object:
        artifacts.append(artifact)
        return real(artifact, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("flambeau_runtime.load", load)
    monkeypatch.setattr("flambeau_runtime.triton_binding.run_interpreted", lambda *a, **k: None)
    for name in names:
        flambeau.compiler.reset()
        case = zoo.make(name)
        model = case.model.train()
        # Nothing is computed: the values of these steps mean nothing, only their programs do.
        try:
            case.loss(flambeau.compile(model, options=OPTIONS)(**case.inputs)).backward()
        except (IndexError, ValueError, RuntimeError, flambeau.errors.InternalError) as error:
            assert "Triton" not in str(error), error
    unique: dict[tuple[object, ...], CompileRequest] = {}
    for artifact in artifacts:
        for request in kernel_requests(artifact, SM_90):
            unique.setdefault(_identity(request), request)
    return list(unique.values())


def _identity(request: CompileRequest) -> tuple[object, ...]:
    """The text of the function without its comments and name, and how it is compiled."""
    found = re.search(rf"^def {re.escape(request.entry)}\(.*?(?=^#|^@|\Z)", request.source, re.M | re.S)
    assert found is not None
    arguments = {k: str(v) for k, v in request.arguments().items() if k != "entry"}
    return (found[0].replace(request.entry, "kernel", 1).strip(), *sorted(arguments.items()))


def test_a_sample_of_kernels_compiles_for_sm_90(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels spread evenly over those of several models."""
    requests = _requests(monkeypatch, ["mlp", "gpt2", "vit", "convnext", "gan", "moe"])
    chosen = requests[:: max(1, len(requests) // SAMPLE)][:SAMPLE]
    cubins = compile_kernels(chosen)
    assert len(cubins) == SAMPLE
    assert all(cubin.arch == SM_90 and cubin.binary.startswith(b"\x7fELF") for cubin in cubins)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_kernel_compiles_for_sm_90(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel of every model's training step."""
    requests = _requests(monkeypatch, list(zoo.ZOO))
    cubins = compile_kernels(requests)
    print(f"{len(cubins)} kernels compiled for sm_90")
    assert len(cubins) == len(requests) > 100
