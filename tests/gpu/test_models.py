"""The shared models at real sizes on a GPU: outputs and gradients as near to the exact ones as eager's.

"Exact" is the same model in float64 and eager. float32 with and without TF32, bfloat16, and bfloat16 autocast.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from attrs import frozen
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import flambeau
from tests.comparison import assert_as_exact, gradients, twin_of
from tests.models import zoo

from .precision import use_tf32

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@frozen
class Precision:
    """One way to compute with fewer bits.

    Attributes:
        dtype: of weights and inputs.
        tiny: relative error that is allowed even where eager happens to have none: about the rounding of one operand.
        tf32, autocast: whether they are on.
    """

    dtype: torch.dtype
    tiny: float
    tf32: bool = False
    autocast: bool = False


PRECISIONS = {
    "float32": Precision(torch.float32, 1e-5),
    "tf32": Precision(torch.float32, 5e-4, tf32=True),
    "bfloat16": Precision(torch.bfloat16, 4e-3),
    "autocast": Precision(torch.float32, 4e-3, autocast=True),
}
Named = dict[str, Tensor | None]


@frozen
class Subject:
    """A model in one format, how to call it, and its inputs."""

    model: nn.Module
    inputs: dict[str, Any]
    case: zoo.Case


def subject(case: zoo.Case, dtype: torch.dtype) -> Subject:
    """A copy of the case's model and inputs in `dtype`, without dropout (whose draws depend on the format).

    T5 has another activation: of the elements that its ReLUs see, a few are so near to 0 that rounding decides which slope they have, and
    each changes every gradient before it by more than all rounding does.
    """
    model = twin_of(case.model).to(dtype)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "act", None), nn.ReLU):
            module.act = nn.GELU()
    inputs = pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, case.inputs)
    return Subject(model, inputs, case)


def forward(subject: Subject, call: Callable[..., Any], context: AbstractContextManager[Any]) -> Named:
    """Every output tensor of a call in eval mode."""
    subject.model.eval()
    with torch.no_grad(), context:
        return {str(n): t for n, t in enumerate(subject.case.outputs(call(**subject.inputs)))}


def step(subject: Subject, call: Callable[..., Any], context: AbstractContextManager[Any]) -> tuple[Named, Named]:
    """Loss, and every gradient, of a step in training mode."""
    subject.model.train()
    with context:
        loss = subject.case.loss(call(**subject.inputs))
    loss.backward()
    return {"loss": loss.detach()}, gradients(subject.model)


def exact_forward(case: zoo.Case) -> Named:
    """`forward` in float64; its model is gone afterwards."""
    one = subject(case, torch.float64)
    result = forward(one, one.model, nullcontext())
    del one
    torch.cuda.empty_cache()
    return result


def exact_step(case: zoo.Case) -> tuple[Named, Named]:
    """`step` in float64; its model is gone afterwards."""
    one = subject(case, torch.float64)
    result = step(one, one.model, nullcontext())
    del one
    torch.cuda.empty_cache()
    return result


def on_gpu(name: str) -> zoo.Case:
    """The case at real size, made on the GPU."""
    with torch.device("cuda"):
        return zoo.make(name, "real")


def context_of(precision: Precision) -> AbstractContextManager[Any]:
    """Autocast, or nothing."""
    return torch.autocast("cuda", torch.bfloat16) if precision.autocast else nullcontext()


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_inference(name: str, precision: str) -> None:
    """Every output, twice: the second call runs the cached entry."""
    how, case = PRECISIONS[precision], on_gpu(name)
    right = exact_forward(case)
    use_tf32(how.tf32)
    eager = subject(case, how.dtype)
    theirs = forward(eager, eager.model, context_of(how))
    compiled = flambeau.compile(eager.model)
    for _ in range(2):
        assert_as_exact(forward(eager, compiled, context_of(how)), theirs, right, tiny=how.tiny)


@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_step(name: str, precision: str) -> None:
    """Loss and every parameter's gradient."""
    how, case = PRECISIONS[precision], on_gpu(name)
    right = exact_step(case)
    use_tf32(how.tf32)
    eager, ours = subject(case, how.dtype), subject(case, how.dtype)
    theirs = step(eager, eager.model, context_of(how))
    actual = step(ours, flambeau.compile(ours.model), context_of(how))
    for found, expected, wanted in zip(actual, theirs, right, strict=True):
        assert_as_exact(found, expected, wanted, tiny=how.tiny)


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "gan"])
def test_buffers_after_a_step(name: str) -> None:
    """Running means and variances are eager's."""
    case = on_gpu(name)
    exact, eager, ours = (subject(case, dtype) for dtype in (torch.float64, torch.float32, torch.float32))
    step(exact, exact.model, nullcontext())
    step(eager, eager.model, nullcontext())
    step(ours, flambeau.compile(ours.model), nullcontext())
    floating = [
        {key: b for key, b in one.model.named_buffers() if b.is_floating_point()} for one in (ours, eager, exact)
    ]
    assert_as_exact(*floating, tiny=1e-5)
    counts = [{k: int(b) for k, b in one.model.named_buffers() if b.numel() == 1} for one in (ours, eager)]
    assert counts[0] == counts[1]


def test_tf32_flag_is_guarded() -> None:
    """Turning TF32 on between two calls changes the second one's result as it changes eager's."""
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.relu(a @ b)

    compiled = flambeau.compile(product)
    for tf32 in (False, True, False):
        use_tf32(tf32)
        assert torch.equal(compiled(a, b), product(a, b))
