"""Options of inductor: one frozen record, passed in, never written to.

In: keyword arguments, an options mapping, or environment variables (``option_fields.py`` of the runtime). Out: ``Config``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from flambeau_runtime.option_fields import Condition, OptionRecord, option

from .errors import OptionError


def _are_backends(text: str) -> bool:
    return bool(set(_BACKENDS.intersection(_words(text)))) and _BACKENDS.issuperset(_words(text))


def _words(text: str) -> list[str]:
    return [word.strip().upper() for word in text.split(",") if word.strip()]


#: Who may compute products and convolutions; C++ is what computes them on a CPU beside the library.
_BACKENDS = frozenset(("ATEN", "TRITON", "CPP"))
_SOURCES: Condition = (_are_backends, "ATEN, TRITON and CPP, or some of them with commas between")
_FUNCTION: Condition = (callable, "a function of an fx.Graph, or None")
_PASSES = ("joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass")
_POSITIVE: Condition = (lambda value: value >= 1, "at least 1")
_NOT_NEGATIVE: Condition = (lambda value: value >= 0, "at least 0")


#: With these off nothing is measured, and nothing is used that was.
MEASURING = (
    "max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "autotune_local_cache",
)  # fmt: skip
_BY_SIZES = ("pattern_matcher", "batch_fusion", "split_reductions", "loop_ordering_after_fusion")
#: What `batch_invariant` decides, whatever else is asked for: nothing is chosen by sizes or by how fast it was, no sum is taken apart, halves are rounded.
_ROW_BY_ROW: dict[str, Any] = {**dict.fromkeys((*MEASURING, *_BY_SIZES), False), "numerics": "faithful"}

#: A function of the user. It is in the key of a compiled graph by what its ``uuid()`` says; without that, the graph is not kept.
_OWN_PASS: dict[str, Any] = {"user": True, "key": False, "kind": object, "accepts": _FUNCTION, "variable": False}


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
    max_autotune_gemm_backends: str = option(
        "ATEN,TRITON,CPP",
        "with max_autotune: who may compute matrix products, the library (ATEN) or kernels of our own (TRITON, CPP)",
        user=True,
        accepts=_SOURCES,
    )
    max_autotune_conv_backends: str = option(
        "ATEN,TRITON", "with max_autotune: who may compute convolutions", user=True, accepts=_SOURCES
    )
    max_autotune_gemm_search_space: str = option(
        "DEFAULT",
        "with max_autotune: which tiles of a product are measured; the best by a model, or all of them",
        user=True,
        choices=("DEFAULT", "EXHAUSTIVE"),
    )
    coordinate_descent_check_all_directions: bool = option(
        False, "with coordinate_descent_tuning: where no knob alone helps, two at once", user=True
    )
    coordinate_descent_search_radius: int = option(
        1, "with coordinate_descent_tuning: how many steps of a knob are tried", user=True, accepts=_POSITIVE
    )
    autotune_local_cache: bool = option(
        True,
        "use what was measured before on such a device, also where nothing is measured, and keep what is measured",
        user=True,
    )
    batch_invariant: bool = option(
        False,
        "on a CPU: add sums up in the order of their terms, compute each lane by itself, measure nothing, rewrite nothing by patterns, and refuse library calls that may "
        "depend on how many rows there are",
    )
    prologue_fusion: bool = option(
        True,
        "let our kernels of matrix products compute an operand that is nothing but a conversion or a scale",
        user=True,
    )
    split_reductions: bool = option(
        True, "reduce in two kernels where one would have too few results to be busy", user=True
    )
    combo_kernels: bool = option(True, "launch small kernels that do not need each other as one, on a GPU", user=True)
    loop_ordering_after_fusion: bool = option(
        True, "order, split and merge the loops of a kernel by how it goes through memory", user=True
    )
    pattern_matcher: bool = option(
        True,
        "trade calls for others that do the same in less time: attention, products with what follows, layouts",
        user=True,
    )
    batch_fusion: bool = option(True, "compute products of one operand with several others as one", user=True)
    conv_1x1_as_mm: bool = option(
        False,
        "compute every convolution of single points as a product, on a CPU; False: where that is known to be faster",
        user=True,
    )
    force_layout_optimization: bool = option(
        False, "run every convolution channels-last, whether that is expected to pay or not", user=True
    )
    triton_persistent_reductions: bool = option(
        True, "keep a row that is reduced in registers where it fits", user="triton.persistent_reductions"
    )
    cpp_min_chunk_size: int | None = option(
        None,
        "the fewest rounds of a C++ kernel's outer loop that a thread gets; None: by what a round costs",
        user="cpp.min_chunk_size",
        kind=int,
        accepts=_POSITIVE,
    )
    triton_descriptive_names: str | bool = option(
        "original_aten",
        "what kernels are named after: ATen's operators, or nothing (False)",
        user="triton.descriptive_names",
        kind=object,
        choices=("original_aten", False),
    )
    joint_custom_pre_pass: Callable[[Any], Any] | None = option(
        None, "a pass of yours on forward and backward in one, before ours", **_OWN_PASS
    )
    joint_custom_post_pass: Callable[[Any], Any] | None = option(
        None, "a pass of yours on forward and backward in one, after ours", **_OWN_PASS
    )
    post_grad_custom_pre_pass: Callable[[Any], Any] | None = option(
        None, "a pass of yours on each functional graph, before ours", **_OWN_PASS
    )
    post_grad_custom_post_pass: Callable[[Any], Any] | None = option(
        None, "a pass of yours on each functional graph, after ours", **_OWN_PASS
    )
    cpp_kernels: bool = option(True, "generate C++ for loops on the CPU; False calls the library for everything")
    triton_kernels: bool = option(True, "generate Triton for loops on the GPU; False calls the library for everything")
    cpu_backend: str = option(
        "cpp",
        "code generator for CPU tensors; 'triton' runs kernels under Triton's interpreter",
        user=True,
        choices=("cpp", "triton"),
    )
    disabled_passes: str = option(
        "",
        "stages, passes and rules that are left out, separated by commas, as `flambeau bisect` names them; name>2: that are used twice in a graph and no more",
        user=True,
    )
    verify: bool = option(False, "check the IR between stages", key=False)
    dump: str = option("", "a folder that receives the text of every stage", key=False)

    def __attrs_post_init__(self) -> None:
        if not self.batch_invariant:
            return
        if self.cpu_backend != "cpp":
            raise OptionError(
                f"batch_invariant and cpu_backend={self.cpu_backend!r}: C++ kernels alone compute rows in one order",
                hint="leave one of the two out",
            )
        for name, value in _ROW_BY_ROW.items():
            object.__setattr__(self, name, value)

    def custom_passes(self) -> dict[str, Callable[[Any], Any]]:
        """The passes of the user, by option."""
        return {name: getattr(self, name) for name in _PASSES if getattr(self, name) is not None}
