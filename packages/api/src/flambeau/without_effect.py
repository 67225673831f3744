"""Names of torch.compile that have no meaning here, each with the reason.

In: nothing. Out: name -> the values that are accepted, since they ask for what is the case here in any event, and a line that says why there is no
other. The first value is what is read back. A name leaves its table when it gets a meaning; tests hold the tables to the surface in `tools/surface`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_ANY_WAY = (False, True)
_PADDING = "no operand is copied to be padded: products whose rows are not aligned are kernels of our own where the library is slow with them"
_WRAPPER = "the program is data that a native executor runs; there is no wrapper whose language could be chosen"
_COLLECTIVES = "a collective stays where the program has it: collectives are neither moved nor joined"
_SHARED_CACHE = (
    "there is no cache service; share the folder (FLAMBEAU_CACHE_DIR), or carry it over with `flambeau cache export`"
)
_SCHEDULER = "the schedule is made of records of our own, not of torch's scheduler nodes; a pass on graphs is post_grad_custom_post_pass"
_LOGS = "FLAMBEAU_LOGS says what is printed: fusion, output_code, autotuning"

OPTIONS: Mapping[str, tuple[tuple[Any, ...], str]] = MappingProxyType(
    {
        "epilogue_fusion_first": (
            (False,),
            "what a product's kernel does after it is known before anything is measured",
        ),
        "shape_padding": ((True, False), _PADDING),
        "comprehensive_padding": ((True, False), _PADDING),
        "pad_outputs": ((False,), _PADDING),
        "force_shape_pad": ((False,), _PADDING),
        "triton.cudagraph_trees": (
            (True,),
            "recordings share memory along the order in which they run; there is no other way to keep it",
        ),
        "cudagraph_policy": ((None,), "the options `triton.cudagraph_*` say what is recorded"),
        "align_random_eager": (_ANY_WAY, "random numbers equal eager's in any event, in fused kernels too"),
        "eager_numerics.division_rounding": (_ANY_WAY, "quotients are rounded as eager's in any event"),
        "eager_numerics.disable_ftz": (
            (False,),
            "sums, products, quotients and roots keep what is denormal; functions such as exp give 0 for results below 2**-126",
        ),
        "eager_numerics.use_pytorch_libdevice": (
            (False,),
            "functions are those of Triton's libdevice, and our own of like accuracy; the CUDA toolkit's are not read",
        ),
        "use_fast_math": (
            (False,),
            "no kernel has functions of larger error; numerics='fast' leaves out roundings between operations",
        ),
        "trace.provenance_tracking_level": (
            (0, 1, 2),
            "kernels and nodes always know the lines, modules and operations that they come from, and a trace has them",
        ),
        "debug": ((False,), _LOGS),
        "verbose_progress": ((False,), _LOGS),
        "comment_origin": ((False,), "the text of a program always names the user's lines"),
        "debug_fusion": ((False,), _LOGS),
        "fx_graph_remote_cache": ((None, False), _SHARED_CACHE),
        "autotune_remote_cache": ((None, False), _SHARED_CACHE),
        "bundle_triton_into_fx_graph_cache": ((True,), "kernels lie in the same store as the graphs that launch them"),
        "worker_start_method": (("subprocess",), "workers are processes of their own; none is a fork of the program's"),
        "quiesce_async_compile_pool": ((True,), "workers always end when there is nothing to compile"),
        "autotune_in_subproc": (_ANY_WAY, "kernels are timed in a process of their own in any event"),
        "cpp_wrapper": ((False,), _WRAPPER),
        "fx_wrapper": ((False,), _WRAPPER),
        "aot_inductor_mode.compile_standalone": ((False,), _WRAPPER),
        "custom_partitioner_fn": (
            (None,),
            "torch's gets a joint graph of torch's own calling convention; flambeau_autograd.prepare(partitioner=) takes one",
        ),
        "_pre_fusion_custom_pass": ((None,), _SCHEDULER),
        "_post_fusion_custom_pass": ((None,), _SCHEDULER),
        "inductor_choices_class": ((None,), "choices are options and measurements, not methods of one class"),
        "reorder_for_compute_comm_overlap": ((False,), _COLLECTIVES),
        "reorder_for_compute_comm_overlap_passes": (([], None), _COLLECTIVES),
        "bucket_all_gathers_fx": (("none",), _COLLECTIVES),
        "bucket_reduce_scatters_fx": (("none",), _COLLECTIVES),
        "_micro_pipeline_tp": ((False,), _COLLECTIVES),
        "reorder_for_peak_memory": (
            (True, False),
            "steps run in the order of the program, in which eager frees what is dead",
        ),
        "memory_planning": (
            (False,),
            "blocks come from torch's allocator, so that other code has what a program does not hold; see allow_buffer_reuse",
        ),
        "memory_pool": (("intermediates",), "see memory_planning"),
        "keep_output_stride": ((True,), "results have eager's strides, on which programs rely"),
        "aggressive_fusion": ((False,), "loops are fused wherever that is valid, up to max_fusion_size"),
        "group_fusion": ((False,), "products of different sizes stay apart; see batch_fusion"),
        "b2b_gemm_pass": ((False,), "two products one after the other are one kernel in attention alone"),
        "benchmark_fusion": (
            (False,),
            "fusing saves memory traffic by construction; max_autotune times the whole program",
        ),
        "triton.unique_kernel_names": ((True,), "kernels of equal text are compiled once whatever their names are"),
        "triton.multi_kernel": (
            (0,),
            "how a reduction goes over its rows is decided when it is compiled; max_autotune_pointwise measures it",
        ),
        "triton.cooperative_reductions": (
            (False,),
            "a reduction with few results is two kernels, see split_reductions",
        ),
        "triton.use_tensor_descriptor": (
            _ANY_WAY,
            "kernels of products fetch operands by descriptors wherever memory lies as those need it",
        ),
        "triton.enable_persistent_tma_matmul": (
            (False,),
            "see triton.use_tensor_descriptor; no kernel of a product stays for several tiles",
        ),
        "triton.enable_pdl": ((False,), "a kernel starts when the one before it has ended"),
        "triton.native_matmul": (
            (False,),
            "a product is a template with what follows it fused, never a loop over points",
        ),
        "cpp.simdlen": ((None,), "kernels are compiled for the vectors that the processor has"),
        "cpp.enable_kernel_profile": ((False,), "FLAMBEAU_EXECUTOR=python times each step"),
        "cpp.enable_grouped_gemm_template": (
            (False,),
            "products of one operand are joined before they are computed, see batch_fusion",
        ),
        "alignment_asserts": (
            (True,),
            "kernels for aligned memory are launched where it is aligned; there is nothing to assert",
        ),
        "scalar_asserts": ((True,), "numbers are checked wherever the program relies on them"),
        "assert_indirect_indexing": (
            (True,),
            "an index out of range is eager's error in any event, on a GPU the kernel's assertion",
        ),
        "cuda_backend": (("triton",), "kernels for CUDA are written in Triton"),
        "xpu_backend": (("triton",), "there are no kernels for that device; a language and a device can be registered"),
        "tpu_backend": (("pallas",), "there are no kernels for that device; a language and a device can be registered"),
        "profiler_mark_wrapper_call": (_ANY_WAY, "under torch's profiler each program is a range in any event"),
        "enabled_metric_tables": (("",), "flambeau.explain has the numbers of each program"),
        "unsafe_skip_cache_dynamic_shape_guards": ((False,), "guards of a cached graph are always evaluated"),
        "unsafe_marked_cacheable_functions": (
            ({},),
            "a function that is not torch's has no stable text to be found by",
        ),
    }
)
"""Of `options={...}` and `flambeau.inductor.config`."""

SETTINGS: Mapping[str, tuple[tuple[Any, ...], str]] = MappingProxyType(
    {
        "dynamic_shapes": (
            (True, False),
            "torch reads it nowhere any more; assume_static_by_default and automatic_dynamic_shapes say when sizes become symbolic",
        ),
        "caching_precompile": ((False,), "of packages that compile ahead of time, which come later"),
        "compiled_autograd": (
            (False,),
            "a backward is compiled with its forward, or as part of a frame that calls it; hooks and sums of gradients in between are the engine's",
        ),
        "activation_memory_budget_solver": (
            ("dp",),
            "the budget is met by minimum cuts, which need no solver for knapsacks",
        ),
        "activation_memory_budget_runtime_estimator": (
            ("flops",),
            "what is computed again is chosen by the bytes that it saves",
        ),
        "recompute_views": (_ANY_WAY, "a view is never saved: it is made again from what it looks at"),
        "ban_recompute_used_far_apart": (
            (True,),
            "the cut counts bytes; a value that is saved anyway costs nothing more for a later reader",
        ),
        "ban_recompute_materialized_backward": (
            (True,),
            "the cut counts bytes, and what is pointwise is computed where it is read",
        ),
        "enable_autograd_cache": (
            (True,),
            "one entry holds both halves and how they are joined; fx_graph_cache governs it",
        ),
        "donated_buffer": (
            (True, False),
            "saved tensors are let go of as the backward reads them, unless the graph is retained",
        ),
        "functionalize_rng_ops": (
            _ANY_WAY,
            "random numbers equal eager's in any event: calls in eager's order, or kernels that read and advance its generator",
        ),
        "view_replay_for_aliased_outputs": (
            (True, False),
            "results that are views are replayed as eager's views in any event",
        ),
        "enable_activation_offloading": (
            (False,),
            "torch.autograd.graph.save_on_cpu around the call moves what is saved",
        ),
        "skip_tensor_guards_with_matching_dict_tags": (
            (False, True),
            "every tensor is looked at in every call, natively: whether the dict that holds it changed is not asked",
        ),
        "enable_cpp_symbolic_shape_guards": (
            (True, False),
            "what is assumed of sizes is checked natively in any event",
        ),
        "saved_tensors_hooks_filtering_mode": (("donated", "all"), "hooks on saved tensors see what eager shows them"),
    }
)
"""Of `flambeau.compiler.config`."""


def is_accepted(value: Any, accepted: tuple[Any, ...]) -> bool:
    """Whether a value is one of those that ask for nothing else than what is the case."""
    return any(type(value) is type(one) and value == one for one in accepted)
