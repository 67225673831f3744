"""Three hundred ops of torch's database on a GPU, forward and backward through generated Triton, equal to eager.

Most of the time is compilation: run shards side by side (`FLAMBEAU_SHARD=1/8` … `8/8`).
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo

from tests.conformance.database import check, choice, identifier, parameters

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SAMPLES = 2
#: Ops of which even eager's result differs from one run on a GPU to the next.
NOT_REPEATABLE: dict[str, str] = {}


@pytest.mark.parametrize("op", parameters(choice(300, seed=21)))
def test_equals_eager(op: OpInfo) -> None:
    """Forward and backward of two samples."""
    if not op.supports_dtype(torch.float32, "cuda"):
        pytest.skip("torch has no float32 kernel of it for CUDA")
    if identifier(op) in NOT_REPEATABLE:
        pytest.skip(NOT_REPEATABLE[identifier(op)])
    check(op, SAMPLES, "cuda")
