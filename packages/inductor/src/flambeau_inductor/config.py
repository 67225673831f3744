"""Options of inductor: one frozen record, passed in, never written to.

In: keyword arguments, an options mapping, or environment variables (``option_fields.py`` of the runtime). Out: ``Config``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import frozen

from flambeau_runtime.option_fields import Condition, OptionRecord, option

from .errors import OptionError

_POSITIVE: Condition = (lambda value: value >= 1, "at least 1")
_NOT_NEGATIVE: Condition = (lambda value: value >= 0, "at least 0")


@frozen
class Config(OptionRecord):
    """What the compiler may do. Every field has a default that is right for most programs."""

    prefix: ClassVar[str] = "FLAMBEAU_INDUCTOR_"
    error: ClassVar[type[Any]] = OptionError

    numerics: str = option(
        "faithful",
        "'faithful' rounds where eager rounds; 'fast' may not: half-precision results are rounded only when stored",
        user=True,
        choices=("faithful", "fast"),
    )
    realize_opcount_threshold: int = option(
        24,
        "a value costing more scalar ops than this is stored, not recomputed, for several users",
        user=True,
        accepts=_POSITIVE,
    )
    realize_reads_threshold: int = option(
        4,
        "a value reading more buffers than this is stored, not recomputed, for several users",
        user=True,
        accepts=_POSITIVE,
    )
    fuse: bool = option(True, "fuse loops into kernels; False makes one kernel per operation")
    max_fusion_unique_io_buffers: int = option(
        32, "the most buffers that one kernel may touch", user=True, accepts=_POSITIVE
    )
    max_fusion_size: int = option(
        64, "loops, each with a result of its own, fused into one kernel at most", user=True, accepts=_POSITIVE
    )
    allow_buffer_reuse: bool = option(True, "let a freed buffer serve a later one of the same shape", user=True)
    inplace_buffers: bool = option(
        True, "let a kernel write its result over an intermediate that it reads last", user=True
    )
    size_asserts: bool = option(True, "check what library calls return against what was predicted", user=True)
    epilogue_fusion: bool = option(True, "let the library's product of matrices do the activation after it", user=True)
    spend_memory: bool = option(
        False, "let rewrites hold more memory at a time than eager does where that saves time", user=True
    )
    layout_optimization: bool = option(True, "run convolutions channels-last where that pays", user=True)
    blocked_losses: int = option(
        1 << 26,
        "scores of a loss that take at least so many bytes are computed block by block of the classes, and never lie in memory whole; 0: none are",
        accepts=_NOT_NEGATIVE,
    )
    gemm: str = option(
        "auto",
        "who computes matrix products and convolutions on a GPU: 'library', 'generated' kernels, or 'auto': generated ones where they are expected to be far faster",
        choices=("auto", "generated", "library"),
    )
    max_autotune: bool = option(
        False,
        "measure on the GPU which kernel computes a matrix product or convolution fastest, the library's included, and in which blocks "
        "kernels run fastest; kept on disk, where the default finds it too, and dropped where the whole program does not gain",
        user=True,
    )
    max_autotune_gemm: bool = option(False, "max_autotune for products and convolutions alone", user=True)
    max_autotune_pointwise: bool = option(False, "max_autotune for kernels over points and reductions alone", user=True)
    coordinate_descent_tuning: bool = option(
        False,
        "with max_autotune: look around the fastest kernel for a faster one, one knob at a time, for a few seconds",
        user=True,
    )
    stored_choices: bool = option(
        True, "use what was measured before on such a device, also where nothing is measured, and keep what is measured"
    )
    cpp_kernels: bool = option(True, "generate C++ for loops on the CPU; False calls the library for everything")
    triton_kernels: bool = option(True, "generate Triton for loops on the GPU; False calls the library for everything")
    cpu_backend: str = option(
        "cpp",
        "code generator for CPU tensors; 'triton' runs kernels under Triton's interpreter",
        user=True,
        choices=("cpp", "triton"),
    )
    verify: bool = option(False, "check the IR between stages", key=False)
    dump: str = option("", "a folder that receives the text of every stage", key=False)
