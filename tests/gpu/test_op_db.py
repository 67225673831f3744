"""Three hundred ops of torch's database on a GPU, forward and backward through generated Triton, equal to eager.

Most of the time is compilation: run shards side by side (`FLAMBEAU_SHARD=1/8` … `8/8`).
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo

from tests.conformance.database import DIFFERS, check, choice, parameters

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SAMPLES = 2
#: What differs on a GPU alone -> how.
ON_CUDA = {"_softmax_backward_data": "computes where eager's kernel refuses float16 gradients of a float32 softmax"}


@pytest.mark.parametrize("op", parameters(choice(300, seed=21), differs={**DIFFERS, **ON_CUDA}))
@pytest.mark.judges_itself  # some ops have no graph: they answer questions, or break
def test_equals_eager(op: OpInfo) -> None:
    """Forward and backward of two samples."""
    if not op.supports_dtype(torch.float32, "cuda"):
        pytest.skip("torch has no float32 kernel of it for CUDA")
    check(op, SAMPLES, "cuda")
