"""What a rule of `rewrite/` is tried on, and the operands that several families take.

In: nothing. Out: `Case`; `table.py` has them all.
"""

import torch
from attrs import frozen


@frozen
class Case:
    """``function`` of ``inputs`` is rewritten; it and each of ``others``, given these, is like it and is not."""

    function: object
    inputs: list
    others: tuple = ()
    options: dict = {}
    tolerance: float = 0.0
    cuda: bool = True
    #: The op runs on CUDA alone: it is compared elsewhere.
    runs: bool = True
    #: Places of the inputs that are frozen.
    frozen: tuple = ()
    #: Whether products of float32 may round to TF32.
    rounds: bool = False
    #: Whether ATen's products of float32 have slow kernels on the processor; where it is None, those of this one.
    slow: bool | None = None
    #: Whether there is a kernel of our own for products of float32.
    kernel: bool = False


def floats(*shapes, dtype=torch.float32):
    """Tensors of these shapes."""
    return [(torch.randn(shape) * 0.3).to(dtype) for shape in shapes]


LINEAR = floats((16,), (4, 8), (8, 16))
LARGE = floats((512,), (1024, 128), (128, 512))
HALVES = [x.bfloat16() for x in floats((96,), (64, 128), (128, 96))]
