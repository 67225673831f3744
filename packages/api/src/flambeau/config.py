"""Options that the api itself acts on: what lies between the packages, caches, and what is switched off.

In: `options={...}`, assignments, environment variables. Out: `Config`. Every other option stands in the record of the package that acts on it;
`options.py` joins them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from attrs import frozen

from flambeau_runtime.option_fields import Condition, OptionRecord, option

from .errors import InvalidOption


def is_pattern(text: str) -> bool:
    """Whether a text is a regular expression."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


_NOT_NEGATIVE: Condition = (lambda value: value >= 0, "at least 0")
_FUNCTION: Condition = (callable, "a function of an fx.Graph, or None")
_SIZES: Condition = (
    lambda value: isinstance(value, list | tuple) and all(type(size) is int for size in value),
    "a list of numbers, or None",
)
_PATTERN: Condition = (is_pattern, "a regular expression")
_DDP: Condition = (
    lambda value: value in (True, False, "ddp_optimizer", "no_optimization"),
    "True or 'ddp_optimizer', False or 'no_optimization' (reducers in Python need an engine that is compiled)",
)
_THREADS: Condition = (lambda value: value == -1 or value >= 1, "at least 1, or -1")


@frozen
class Config(OptionRecord):
    """What `flambeau.compile` does around the packages."""

    error: ClassVar[type[Any]] = InvalidOption

    triton_cudagraphs: bool = option(False, "record and replay CUDA graphs", user="triton.cudagraphs", key=False)
    triton_cudagraph_skip_dynamic_graphs: bool = option(
        False, "record no program whose sizes change", user="triton.cudagraph_skip_dynamic_graphs", key=False
    )
    triton_cudagraph_capture_sizes: tuple[int, ...] | None = option(
        None,
        "record calls alone whose sizes that change are all among these numbers; None: any",
        user="triton.cudagraph_capture_sizes",
        key=False,
        kind=object,
        accepts=_SIZES,
        variable=False,
    )
    triton_cudagraph_support_input_mutation: bool = option(
        True,
        "record programs that write to an input as well",
        user="triton.cudagraph_support_input_mutation",
        key=False,
    )
    triton_cudagraph_dynamic_shape_warn_limit: int | None = option(
        None,
        "warn once where one program is recorded for more sizes than this; None: only where no more are recorded",
        user="triton.cudagraph_dynamic_shape_warn_limit",
        key=False,
        kind=int,
        accepts=_NOT_NEGATIVE,
    )
    triton_cudagraph_or_error: bool = option(
        False, "raise where a part cannot be a CUDA graph", user="triton.cudagraph_or_error", key=False
    )
    triton_skip_cudagraph_warmup: bool = option(
        False,
        "record the first call of a size, without a plain one before it",
        user="triton.skip_cudagraph_warmup",
        key=False,
    )
    graph_partition: bool = option(
        True,
        "record the parts of a program that can be, where some cannot; False: all or nothing",
        user=True,
        key=False,
    )
    nan_asserts: bool = option(False, "raise where a result of a program is nan or infinite", user=True, key=False)
    emulate_precision_casts: bool | None = option(
        None,
        "True is numerics='faithful', False is 'fast'; None, and where numerics is given, leave it to that",
        user=True,
        kind=bool,
    )
    repeats_outlined: int = option(
        8,
        "calls of modules that are alike and are compiled once from this many on; 0 = only regions that are marked",
        user=True,
        accepts=_NOT_NEGATIVE,
    )
    pre_grad_custom_pass: Callable[[Any], Any] | None = option(
        None,
        "a pass of yours on the captured graph, which edits it in place",
        user=True,
        key=False,
        kind=object,
        accepts=_FUNCTION,
        variable=False,
    )
    freezing: bool = option(
        False,
        "where no gradient is wanted, compute what follows from parameters and buffers alone once, and again only when one of them changes: "
        "weights are packed for the library, batch norms folded into convolutions (writes through `.data` are not noticed)",
        user=True,
    )
    freezing_discard_parameters: bool = option(
        False,
        "with freezing, give back the memory of parameters that are left in another form only; using one afterwards is an error",
        user=True,
        key=False,
    )
    fallback_by_default: bool = option(False, "library calls for everything: a minimal compile", user=True)
    fallback_random: bool = option(
        True, "random numbers equal eager's; they always do, False changes nothing", user=True, key=False
    )
    deterministic: bool = option(
        False,
        "measure nothing and use nothing that was measured: the same program is made each time, also with max_autotune "
        "(for colliding writes on a GPU see torch.use_deterministic_algorithms)",
        user=True,
    )
    batch_invariant: bool = option(
        False,
        "a row's result has the same bits however many rows there are, on a CPU: products and sums add up in one order, nothing is measured; slower, and an "
        "error for what only a library computes (convolutions, random numbers) and on other devices",
        user=True,
    )
    verify: Any = option(
        None,
        "compare calls with eager, on copies: every eighth for 8, a tenth for 0.1; a difference that float64 does not excuse warns ('8,error': raises)",
        user=True,
        key=False,
        variable=False,
    )
    fx_graph_cache: bool = option(True, "keep compiled graphs on disk", user=True, key=False)
    force_disable_caches: bool = option(
        False, "neither read nor write the disk cache: no compiled graphs, no kernels", user=True
    )
    cpp_threads: int = option(
        -1,
        "threads of a C++ kernel at most; -1 = torch.get_num_threads() at the call",
        user="cpp.threads",
        key=False,
        accepts=_THREADS,
    )
    trace_enabled: bool = option(
        False,
        "write down what each compile does, for `flambeau report` (kernels are measured meanwhile, so that compiling takes longer)",
        user="trace.enabled",
        key=False,
    )
    trace_debug_dir: str = option(
        "",
        "the folder of the trace, which switches it on; `flambeau_trace` where only `trace.enabled` is given",
        user="trace.debug_dir",
        key=False,
        variable="FLAMBEAU_TRACE",
    )
    trace_graph_diagram: bool = option(
        False,
        "draw what was fused as an SVG picture beside the trace, one a program",
        user="trace.graph_diagram",
        key=False,
    )
    debug_folder: str = option(
        "",
        "write a folder here about each compile: bytecode, graphs, loops, kernels, program, guards, log, and a script that runs it (graphs are compiled anew)",
        user=True,
        key=False,
        variable="FLAMBEAU_DEBUG",
    )
    compile_debug: bool = option(False, "the same, in `compile_debug_dir`", user=True, key=False)
    compile_debug_dir: str = option("flambeau_debug", "where `compile_debug` writes its folders", user=True, key=False)
    compile_debug_save_real: bool = option(
        False,
        "keep the inputs of each graph's first call in its debug folder, for the script there; False: it draws some of the same kind",
        user=True,
        key=False,
    )
    save_args: bool = option(
        False,
        "keep every graph with the inputs of its first call, and a script that runs it, in `flambeau_repro` (or FLAMBEAU_REPRO_DIR)",
        user=True,
        key=False,
    )
    compile_cprofile: bool = option(
        False, "profile each compile with cProfile, into a file of `compile_debug_dir`", key=False
    )
    progress: bool | str = option(
        "auto",
        "a line on the terminal that says what a compile does: once it takes longer than a second, from the start, or never",
        choices=("auto", True, False),
        kind=bool,
        key=False,
    )
    log_file_name: str | None = option(
        None, "a file to which logs are written too", kind=str, key=False, variable=False
    )
    profile_bandwidth: bool = option(
        False,
        "print what bandwidth each kernel of a program reaches by itself, when it is loaded",
        user=True,
        key=False,
    )
    profile_bandwidth_regex: str = option(
        "",
        "the same of kernels alone whose names this regular expression is found in (1: all of them)",
        user=True,
        key=False,
        accepts=_PATTERN,
        variable="FLAMBEAU_PROFILE",
    )
    benchmark_kernel: bool = option(
        False,
        "keep each program in a file of the cache folder's `programs`, of which `flambeau kernels` times the kernels again",
        user=True,
        key=False,
    )
    disable: bool = option(False, "compile nothing: `flambeau.compile` returns what it was given", key=False)
    job_id: str | None = option(
        None,
        "a word for runs of one program: sizes that changed in one are symbolic from the first compile on in the next",
        key=False,
        kind=str,
    )
    pgo_extra_read_key: str | None = option(
        None,
        "another word: what was learnt about sizes under it counts as well",
        key=False,
        kind=str,
        variable="FLAMBEAU_STICKY_PGO_READ",
    )
    pgo_extra_write_key: str | None = option(
        None,
        "another word under which what is learnt about sizes is kept, too",
        key=False,
        kind=str,
        variable="FLAMBEAU_STICKY_PGO_WRITE",
    )
    enable_compiler_collectives: bool = option(
        False,
        "before each compile the ranks of a job tell each other their sizes: those in which they differ are symbolic for all of them",
        key=False,
        variable="FLAMBEAU_COMPILER_COLLECTIVES",
    )
    optimize_ddp: bool | str = option(
        True,
        "cut graphs under DistributedDataParallel where a bucket of gradients is full, so that it is reduced while the backward goes on",
        key=False,
        kind=object,
        accepts=_DDP,
        variable=False,
    )
    cache_key_tag: str = option("", "a word in the key of every compiled graph: with another, none of them is found")
