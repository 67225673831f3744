"""Where faults are put and which tests are to notice them, stage by stage.

In: nothing. Out: `STAGES`: the modules of a stage, how many faults are drawn from them, and the tests in the order in which they run: the
stage's own first, then a slice of the tests that need every package. `LEFT_OUT`: the modules of no stage, each with the reason.
"""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path

from attrs import frozen

from .hand import FAULTS
from .operators import Fault, faults_of

ROOT = Path(__file__).parents[2]
SEED = 12


@frozen
class Stage:
    """Modules (patterns below `packages/`), how many faults are drawn, and tests."""

    name: str
    modules: tuple[str, ...]
    count: int
    tests: tuple[str, ...]


_CAPTURE, _AUTOGRAD, _INDUCTOR = (
    "capture/src/flambeau_capture", "autograd/src/flambeau_autograd", "inductor/src/flambeau_inductor"
)  # fmt: skip
_RUNTIME = "runtime/src/flambeau_runtime"
_C, _A, _I, _R = (
    "packages/capture/tests",
    "packages/autograd/tests",
    "packages/inductor/tests",
    "packages/runtime/tests",
)
_PROGRAMS = ("tests/behaviour/test_programs.py", "tests/behaviour/test_python_semantics.py")
_DERIVED = (
    "tests/training/test_writes_and_gradients.py", "tests/behaviour/test_memory_layouts.py", "tests/dynamic/test_views.py",
    "tests/conformance/test_slices.py",
)  # fmt: skip
_COMPILED = ("tests/dynamic/test_numbers.py", "tests/dynamic/test_sizes.py")


def _below(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{package}/{name}" for name in names)


STAGES = (
    Stage(
        "guards", _below(_CAPTURE, "guards/build.py", "guards/collect.py", "guards/shape_program.py", "guards/state.py", "aliasing.py"), 22,
        (f"{_C}/guards", f"{_C}/native/test_region_guards.py", f"{_C}/interp/test_identity.py", f"{_C}/interp/test_changes.py",
         f"{_C}/interp/test_patched.py",
         "tests/behaviour/test_state_that_changes.py", *_PROGRAMS),
    ),
    Stage(
        "effects", _below(_CAPTURE, "effects/record.py", "rewrite/replay.py", "interp/outputs.py"), 14,
        (f"{_C}/interp/test_differential.py", f"{_C}/interp/test_python_rules.py", f"{_C}/rewrite/test_end_to_end.py",
         f"{_C}/lookaside/test_autograd.py", *_PROGRAMS),
    ),
    Stage(
        "bytecode", _below(_CAPTURE, "bytecode/normalise.py", "bytecode/lower.py", "bytecode/flow.py", "bytecode/liveness.py",
                           "bytecode/exception_table.py", "bytecode/line_table.py"), 14,
        (f"{_C}/bytecode", f"{_C}/rewrite/test_every_cut.py", f"{_C}/interp/test_differential.py"),
    ),
    Stage(
        "rewrite", _below(_CAPTURE, "rewrite/assemble.py", "rewrite/resume.py", "rewrite/break_point.py", "rewrite/emitter.py"), 12,
        (f"{_C}/rewrite", *_PROGRAMS),
    ),
    Stage(
        "interpreter", _below(_CAPTURE, "interp/assumed_branches.py", "interp/hit_loops.py", "interp/known_numbers.py", "graph/idle_rounds.py", "interp/comparisons.py", "interp/wrapper_tensors.py", "interp/wrapper_code.py", "bytecode/own_containers.py",
                             "interp/handlers/*.py", "interp/operations.py", "interp/arithmetic.py", "interp/calls.py", "interp/cached.py", "interp/frame.py", "interp/narration.py",
                              "interp/tensors.py", "interp/tensor_inputs.py", "interp/wrapping.py", "interp/attributes.py", "interp/class_members.py", "interp/texts.py", "interp/lifetimes.py", "interp/repeated_calls.py", "interp/repetition.py", "interp/likeness.py", "guards/paths.py",
                              "interp/callees.py", "values/members.py", "values/modules.py", "interp/enum_members.py", "patches.py", "library.py",
                              "replaced_names.py"), 28,
        (f"{_C}/interp", f"{_C}/lookaside", f"{_C}/bytecode/test_own_containers.py", f"{_C}/test_patches.py", f"{_C}/test_library.py", f"{_C}/test_replaced_names.py",
         "tests/behaviour/test_patched_torch.py", *_PROGRAMS),
    ),
    Stage(
        "values", _below(_CAPTURE, "values/read_out.py", "values/open_index.py", "values/inner.py", "graph/inner_tensors.py",
                             "values/sequences.py", "values/mappings.py", "values/constants.py", "values/iterators.py",
                         "values/functions.py", "values/objects.py", "values/tensor.py", "values/by_index.py", "values/walk.py", "values/keys.py",
                         "values/generators.py", "values/bound.py", "values/supers.py", "values/written_out.py", "constant_objects.py"), 16,
        (f"{_C}/values", f"{_C}/interp", f"{_C}/lookaside", "tests/sweeps/test_found_containers.py", *_PROGRAMS),
    ),
    Stage(
        "arrays", _below(_CAPTURE, "lookaside/arrays/*.py", "values/ndarrays.py", "interp/numpy_objects.py", "interp/numpy_numbers.py", "numpy_classes.py"), 12,
        (f"{_C}/lookaside/arrays", f"{_C}/interp/test_numpy_objects.py", f"{_C}/interp/test_numpy_numbers.py", "tests/behaviour/test_numpy.py"),
    ),
    Stage(
        "lookasides", _below(_CAPTURE, "lookaside/conversions.py", "interp/conversions.py", "graph/histories.py",
                             "lookaside/gradients.py", "lookaside/groups.py", "lookaside/hooks.py", "results.py",
                             "lookaside/transforms.py", "lookaside/transformed.py", "graph/dispatch.py", "values/graph_functions.py",
                             "lookaside/builtins.py", "lookaside/containers.py", "lookaside/iteration.py", "lookaside/operators.py", "lookaside/stdlib.py", "lookaside/copies.py", "lookaside/messages.py", "lookaside/debuggers.py",
                             "lookaside/autograd.py", "lookaside/checkpoints.py", "lookaside/context_managers.py", "values/autocast.py", "interp/messages.py", "interp/devices.py",
                             "graph/repeats.py", "lookaside/forward_mode.py", "lookaside/lazy_modules.py", "lookaside/gradient_scaling.py",
                             "graph/bodies.py", "lookaside/bodies.py", "lookaside/block_masks.py", "lookaside/flex_attention.py", "values/trees.py"), 18,
        (f"{_C}/graph/test_histories.py", f"{_C}/test_results.py", f"{_C}/graph/test_dispatch.py",
         f"{_C}/lookaside", f"{_C}/graph/test_bodies.py", f"{_C}/values/test_trees.py", f"{_C}/interp/test_differential.py",
         "tests/behaviour/test_forward_mode.py", "tests/behaviour/test_lazy_modules.py", "tests/training/test_gradient_scaling.py", *_PROGRAMS),
    ),
    Stage(
        "overrides", _below(_CAPTURE, "interp/override_probe.py", "interp/overrides.py", "interp/subclass_operators.py", "interp/tensor_classes.py",
                            "lookaside/overrides.py", "values/subclasses.py"), 12,
        (f"{_C}/interp/test_overrides.py", f"{_C}/interp/test_subclass_operators.py", f"{_C}/interp/test_tensor_classes.py",
         f"{_C}/lookaside/test_overrides.py", f"{_C}/lookaside/test_torch_function.py", f"{_C}/values/test_subclasses.py",
         "tests/behaviour/test_tensor_subclasses.py", "tests/behaviour/test_active_modes.py"),
    ),
    Stage(
        "tracing", _below(_CAPTURE, "backend_call.py", "breaks.py", "scopes.py", "lookaside/scopes.py", "lookaside/peer_settings.py", "lookaside/dimension_marks.py", "graph/dimension_marks.py", "interp/told.py",
                             "pipeline.py", "regions.py", "stance.py", "hook.py", "graph/refusals.py", "graph/trials.py", "graph/fake_mode.py", "graph/fake_results.py", "graph/names.py", "graph/nodes.py", "rewrite/rounds.py",
                          "interp/exceptions.py", "interp/folding.py", "interp/formulas.py", "values/sets.py"), 12,
        (f"{_C}/graph", f"{_C}/interp", f"{_C}/lookaside", f"{_C}/rewrite", f"{_C}/test_own_faults.py", f"{_C}/test_backends_and_breaks.py", f"{_C}/test_marks.py", f"{_C}/test_scopes.py", f"{_C}/test_settings.py",
         *_PROGRAMS),
    ),
    Stage(
        "sizes", _below(_CAPTURE, "graph/assumptions.py", "graph/resizing.py", "graph/foreign.py", "graph/open_numbers.py",
                             "graph/shapes.py", "graph/builder.py", "graph/module_paths.py", "graph/dynamics.py",
                             "graph/declared_shapes.py", "interp/stack.py"), 10,
        (f"{_C}/graph", "tests/dynamic/test_numbers.py", "tests/dynamic/test_sizes.py", "tests/dynamic/test_open_sizes.py"),
    ),
    Stage(
        "joint", _below(_AUTOGRAD, "functional/wrapped.py",
                             "joint/*.py", "joint/nested/*.py", "functional/recorder.py", "functional/mutations.py", "functional/scatter.py", "functional/overlap.py",
                        "functional/ops.py", "functional/special.py", "functional/symbols.py", "functional/layout.py"), 26,
        (_A, *_DERIVED),
    ),
    Stage(
        "formulas", _below(_AUTOGRAD, "functional/predictions.py", "functional/loops.py", "functional/foreach.py", "functional/refusals.py"), 12,
        (_A, *_DERIVED, "tests/conformance/test_layouts.py"),
    ),
    Stage(
        "partition", _below(_AUTOGRAD, "partition/split.py", "partition/min_cut.py", "partition/policy.py", "partition/flow.py", "passes/*.py",
                            "analysis/signature.py"), 20,
        (_A, *_DERIVED, "tests/training/test_saved_memory.py"),
    ),
    Stage("wrappers", _below(_AUTOGRAD, "wrappers/*.py", "records.py", "pipeline.py"), 10, (_A, *_DERIVED)),
    Stage(
        "lowering", _below(_INDUCTOR, "lowering/views.py", "lowering/pointwise.py", "lowering/reductions.py", "lowering/indexing.py",
                           "lowering/scatters.py", "lowering/normalise.py", "lowering/joins.py", "lowering/values.py", "lowering/copies.py",
                           "lowering/run.py", "lowering/row_by_row.py", "lowering/in_place.py", "lowering/pooling.py", "lowering/windows.py",
                           "lowering/planes.py", "lowering/depthwise.py", "lowering/accumulate.py"), 30,
        (f"{_I}/lowering", f"{_I}/test_pipeline.py", *_COMPILED),
    ),
    Stage(
        "rewrites", _below(_INDUCTOR, "rewrite/*.py", "lowering/builder.py", "lowering/philox.py", "lowering/random.py", "lowering/positions.py", "origins.py",
                           "lowering/factories.py", "lowering/symbolic.py", "schedule/split.py", "schedule/rows.py", "schedule/combine.py",
                           "lowering/attention.py", "lowering/library_attention.py", "lowering/inlined.py", "lowering/trial.py", "lowering/distances.py", "lowering/key_parts.py", "lowering/written_attention.py",
                           "lowering/written_gradients.py"), 12,
        (f"{_I}/rewrite", f"{_I}/lowering", f"{_I}/schedule", f"{_I}/test_pipeline.py", *_COMPILED, "tests/behaviour/test_ordered_products.py"),
    ),
    Stage(
        "extensions", (*_below(_INDUCTOR, "extensions/*.py"), *_below("api/src/flambeau", "extensions.py", "device_backends.py")), 4,
        ("tests/surface/test_extensions.py", "tests/surface/test_devices.py"),
    ),
    Stage(
        "expressions", _below(_INDUCTOR, "expr/division.py", "expr/node.py", "expr/ranges.py", "expr/truth.py", "expr/rewrite.py",
                              "ir/scalar.py", "ir/verify.py", "ir/verify_gemm.py", "ir/folding.py", "ops/table.py", "ops/costs.py", "ops/dtypes.py"), 18,
        (f"{_I}/expr", f"{_I}/ir", f"{_I}/ops", f"{_I}/schedule", f"{_I}/lowering"),
    ),
    Stage(
        "schedule", _below(_INDUCTOR, "ir/kernel.py", "schedule/fuse.py", "schedule/gemms.py", "schedule/merge.py", "schedule/nest.py", "schedule/loops.py", "schedule/plan.py",
                           "schedule/products.py", "schedule/prologues.py", "schedule/split_terms.py", "schedule/steps.py", "program/memory.py", "program/build.py", "program/registers.py", "program/work.py", "passes/*.py"), 18,
        (f"{_I}/schedule", f"{_I}/program", f"{_I}/passes", f"{_I}/test_pipeline.py", *_COMPILED),
    ),
    Stage(
        "kernels", _below(_INDUCTOR, "codegen/cpp/generate.py", "codegen/cpp/statements.py", "codegen/cpp/reduce.py", "codegen/cpp/emit.py",
                          "codegen/cpp/loops.py", "codegen/cpp/narrow.py", "codegen/cpp/dtypes.py", "codegen/cpp/function.py",
                          "codegen/cpp/print.py", "codegen/cpp/spell.py", "codegen/cpp/pairs.py", "codegen/cpp/short_nans.py",
                          "codegen/cpp/attention.py", "codegen/cpp/rough.py"), 16,
        (f"{_I}/codegen/cpp", f"{_I}/test_pipeline.py", *_COMPILED),
    ),
    Stage(
        "runtime", _below(_RUNTIME, "encode.py", "validate.py", "executor_py.py", "scalars.py", "inputs.py", "held.py", "frozen.py", "cache/*.py"), 18,
        (f"{_R}/test_artifact.py", f"{_R}/test_differential.py", f"{_R}/test_executor.py", f"{_R}/test_scalars.py", f"{_R}/test_held.py", f"{_R}/test_subprograms.py",
         f"{_R}/test_store.py", f"{_R}/test_memory.py", f"{_R}/test_frozen.py"),
    ),
    Stage(
        "facade", _below("api/src/flambeau", "attention_masks.py", "freezing.py", "loading.py", "graph_key.py", "graph_nodes.py", "places.py", "stack.py", "repeats.py", "shape_guards.py", "options.py", "module.py", "compile.py"), 14,
        ("packages/api/tests", "tests/behaviour/test_options.py", "tests/behaviour/test_freezing.py", "tests/dynamic/test_sizes.py", "tests/behaviour/test_logs.py"),
    ),
    Stage(
        "rescue", _below("api/src/flambeau", "rescue.py", "stages.py", "defaults.py", "backends.py", "targets.py", "torch_backend.py"), 8,
        ("packages/api/tests", "tests/robustness/test_rescue.py", "tests/robustness/test_fullgraph.py", "tests/robustness/test_bad_input.py",
         "tests/robustness/test_beside_torch_compile.py"),
    ),
    Stage(
        "checks", _below(_CAPTURE, "guards/check.py", "guard_filter.py", "guards/memory.py", "guards/spec.py", "hook_py.py", "sources/*.py", "cache.py"), 12,
        (f"{_C}/guards", f"{_C}/sources", f"{_C}/native", f"{_C}/test_guard_filter.py", f"{_C}/interp/test_changes.py",
         "tests/behaviour/test_state_that_changes.py"),
    ),
    Stage(
        "opcodes", _below(_CAPTURE, "bytecode/decode.py", "bytecode/encode.py", "bytecode/binding.py", "bytecode/stack_depth.py",
                          "bytecode/behaviour.py", "cut.py"), 10,
        (f"{_C}/bytecode", f"{_C}/rewrite/test_every_cut.py", f"{_C}/interp/test_differential.py"),
    ),
    Stage(
        "surroundings", _below(_CAPTURE, "lookaside/distributions.py", "lookaside/exceptions.py", "lookaside/legacy_tensors.py", "lookaside/settings.py",
                             "lookaside/nested.py", "lookaside/distributed.py",
                             "lookaside/control_flow.py", "lookaside/devices.py", "marks.py", "lookaside/normalisation.py",
                               "lookaside/optimizers.py", "lookaside/optimizer_state.py", "interp/changing_numbers.py", "replacements.py", "signatures.py", "lookaside/sizes.py",
                               "lookaside/supers.py", "lookaside/triton_kernels.py", "lookaside/whole_calls.py", "lookaside/leaf_functions.py", "leaf_functions.py", "leaf_calls.py", "leaf_places.py", "interp/native_slots.py", "interp/moved_calls.py", "rewrite/source_text.py", "torch_policy.py", "lookaside/torch_state.py"), 16,
        (f"{_C}/lookaside", f"{_C}/interp", f"{_C}/test_replacements.py", "tests/behaviour/test_grad_modes.py", "tests/behaviour/test_optimizers.py",
         "tests/behaviour/test_active_modes.py", *_PROGRAMS),
    ),
    Stage(
        "policy", _below(_CAPTURE, "inference.py", "values/counters.py", "values/inference.py", "values/references.py",
                             "values/scripted.py", "values/thread_locals.py",
                             "collector.py", "frame.py", "modes.py", "saved_tensor_hooks.py", "policy.py", "refusal.py", "class_names.py", "interp/tracer.py",
                         "interp/tried.py", "interp/part.py", "values/trust.py", "interp/registry.py", "signals.py", "values/base.py", "values/builtins.py",
                         "values/lazy.py", "values/symbolic.py", "graph/quiet.py", "graph/warned.py",
                         "graph/shape_env.py"), 16,
        (_C, "tests/dynamic/test_numbers.py", "tests/dynamic/test_sizes.py", "tests/training/test_checkpoints.py",
         *_PROGRAMS),
    ),
    Stage(
        "saved", _below(_AUTOGRAD, "partition/exposed.py", "partition/simple.py", "partition/sizes.py", "partition/writes.py",
                        "functional/opaque.py", "functional/origins.py", "functional/random.py", "functional/values.py", "decompose/*.py", "backend.py"), 12,
        (_A, *_DERIVED, "tests/training/test_saved_memory.py"),
    ),
    Stage(
        "library", _below(_INDUCTOR, "lowering/activations.py", "lowering/assumptions.py", "lowering/cudnn_attention.py", "lowering/fallback.py", "lowering/host_scalars.py",
                          "lowering/losses.py", "lowering/one_hot.py", "lowering/products.py", "lowering/provenance.py", "lowering/refused.py", "lowering/registry.py", "lowering/small_products.py", "lowering/writes.py",
                          "ops/aten.py", "ops/aten_table.py", "ops/grouped.py", "ops/packing.py", "effects.py", "pipeline.py", "decomposition_table.py", "program/failures.py", "codegen/generate.py",
                          "codegen/languages.py", "context.py", "devices/*.py", "devices/cuda/*.py"), 16,
        (f"{_I}/devices", f"{_I}/lowering", f"{_I}/program", f"{_I}/ops", f"{_I}/test_pipeline.py", f"{_I}/test_decompositions.py",
         "tests/behaviour/test_written_arguments.py", *_COMPILED),
    ),
    Stage(
        "nested", _below(_INDUCTOR, "fingerprint.py", "lowering/associative.py", "lowering/bodies.py", "lowering/fitting.py", "lowering/nested.py",
                         "lowering/results.py", "lowering/steps.py"), 12,
        (f"{_I}/lowering/test_nested.py", f"{_I}/passes", f"{_I}/rewrite/test_flex_attention.py"),
    ),
    Stage(
        "reference", _below(_INDUCTOR, "ir/evaluate.py", "ir/layout.py", "ir/loops.py", "ir/graph.py", "expr/symbols.py", "expr/render.py",
                            "schedule/mapping.py"), 14,
        (f"{_I}/expr", f"{_I}/ir", f"{_I}/ops", f"{_I}/schedule", f"{_I}/codegen/cpp", f"{_I}/lowering"),
    ),
    Stage(
        "blocks", _below(_INDUCTOR, "codegen/cpp/layout.py", "codegen/cpp/passes.py", "codegen/cpp/running.py", "codegen/cpp/canonical.py", "codegen/cpp/ops.py",
                         "codegen/cpp/unit.py", "codegen/kernel.py"), 14,
        (f"{_I}/codegen/cpp", "tests/robustness/test_tables.py", f"{_I}/schedule", f"{_I}/test_pipeline.py",
         *_COMPILED),
    ),
    Stage(
        "triton", _below(_INDUCTOR, "codegen/tiling.py", *(f"codegen/triton/{name}.py" for name in (
            "combine", "edges", "elementary", "function", "helpers", "kernel", "large_angles", "lookups", "looped", "module", "ops", "pairs", "passes",
            "philox", "pieces", "places", "print", "reduction", "rough", "statements", "texts", "templates/__init__", "templates/attention",
             "numbers", "templates/addresses", "templates/assemble", "templates/bodies", "templates/gemm", "templates/gemv", "templates/grouped", "templates/inline", "templates/points", "templates/short", "templates/walks", "templates/windows", "types", "values")), "ir/meanings.py", "autotune/measure.py"), 20,
        ("tests/robustness/test_tables.py", f"{_I}/codegen/triton", f"{_I}/autotune"),
    ),
    Stage(
        "tuning", _below(_INDUCTOR, "codegen/tunable.py", "codegen/triton/candidates.py", *(f"autotune/{name}.py" for name in (
            "asked", "choice", "descent", "kernels", "products", "progress", "questions", "whole"))), 12,
        (f"{_I}/autotune",),
    ),
    Stage(
        "kernel_ir", _below(_INDUCTOR, *(f"kernel_ir/{name}.py" for name in ("pipelining", "rules", "statements", "strides", "substitute", "values", "verify"))), 12,
        (f"{_I}/kernel_ir", f"{_I}/golden"),
    ),
    Stage(
        "launches", _below(_RUNTIME, "triton_binding.py", "triton_interpreter.py", "triton_kernels.py", "triton_source.py",
                           "device/kernels.py"), 8,
        (f"{_R}/test_triton_binding.py", f"{_R}/test_triton_source.py", f"{_R}/test_triton_kernels.py", f"{_R}/workers",
         f"{_I}/codegen/triton/test_graphs.py", f"{_R}/device"),
    ),
    Stage(
        "graphs", _below(_RUNTIME, *(f"graphs/{name}.py" for name in (
            "call", "classify", "copying", "decided", "memory", "operands", "program", "recorder", "recorders", "records", "settling", "split", "table", "table_py"))),
        16,
        (f"{_R}/graphs", "tests/cudagraph/test_without_gpu.py"),
    ),
    Stage(
        "processes", _below(_RUNTIME, "artifact.py", "records.py", "extension.py", "workers/compilers.py", "workers/pool.py", "workers/protocol.py", "workers/triton_task.py",
                            "build/*.py", "native.py", "executor.py", "accelerators.py", "builtin_languages.py", "devices.py", "languages.py", "registry.py", "linear.py", "ordered.py", "memory.py", "philox.py",
                            "processor.py", "profile.py", "ranges.py"), 14,
        (f"{_R}/test_processor.py", f"{_R}/test_accelerators.py", f"{_R}/test_artifact.py", f"{_R}/test_devices.py", f"{_R}/workers", f"{_R}/test_build.py", f"{_R}/test_scalars.py",
         f"{_R}/test_executor.py", f"{_R}/test_linear.py", f"{_R}/test_ordered.py", f"{_R}/test_memory.py", f"{_R}/test_profile.py", f"{_R}/test_threads.py", f"{_R}/test_package.py",
         f"{_R}/test_triton_kernels.py", f"{_I}/program/test_programs.py"),
    ),
    Stage(
        "state", (*_below("api/src/flambeau", "stance.py", "state.py", "accounting.py", "cache_artifacts.py", "shape_profiles.py", "ddp.py", "calling.py", "torchs_backends.py", "standalone.py", "compiled_graph.py", "testing.py"),
                  *_below(_CAPTURE, "compile_hooks.py")), 8,
        (f"{_C}/test_stance.py", "tests/surface"),
    ),
    Stage(
        "settings", ("*/src/*/config.py", "*/src/*/option_fields.py", *_below("api/src/flambeau", "compat.py", "inductor.py", "environment.py", "without_effect.py", "compiler.py", "observe.py", "records.py", "tables.py",
                                                  "torch_names.py")), 12,
        ("packages/api/tests", f"{_I}/test_config.py", f"{_C}/native/test_options.py", f"{_R}/test_package.py", "tests/behaviour/test_options.py",
         "tests/behaviour/test_logs.py"),
    ),
)  # fmt: skip

#: Modules of no stage, and why: no program gives another result by what they do.
LEFT_OUT = {
    "api/src/flambeau/insight/*.py": "measurements and pages about what was compiled",
    "api/src/flambeau/explain.py": "what explain says",
    "api/src/flambeau/explanation.py": "what explain says",
    "api/src/flambeau/profile.py": "what profile says",
    "api/src/flambeau/units.py": "numbers in words",
    "api/src/flambeau/scripts.py": "scripts that commands run",
    "capture/src/flambeau_capture/guards/words.py": "guards in words",
    "api/src/flambeau/report/*.py": "pages about what was compiled",
    "api/src/flambeau/trace/*.py": "what is written about a compilation",
    "api/src/flambeau/progress.py": "a line that is shown while something compiles",
    "api/src/flambeau/status_line.py": "a line that is shown while something compiles",
    "autograd/src/flambeau_autograd/lifetimes.py": "numbers for reports",
    "capture/src/flambeau_capture/guards/cost.py": "numbers for reports",
    "inductor/src/flambeau_inductor/provenance.py": "names for reports",
    "runtime/src/flambeau_runtime/alone.py": "programs that are only timed",
    "runtime/src/flambeau_runtime/limits.py": "numbers for reports",
    "*/src/*/log.py": "which events are written, and how",
    "*/src/*/event_log.py": "which events are written, and how",
    "api/src/flambeau/log_names.py": "which events are written, and how",
    "api/src/flambeau/graph_logs.py": "which events are written, and how",
    "api/src/flambeau/perf_hints.py": "words",
    "*/src/*/errors.py": "the words of errors",
    "*/src/*/error_root.py": "the words of errors",
    "*/src/*/text.py": "words",
    "*/src/*/*/text.py": "words",
    "*/src/*/*/describe.py": "words",
    "capture/src/flambeau_capture/guards/explain.py": "words",
    "*/src/*/*/listing.py": "words",
    "capture/src/flambeau_capture/reasons.py": "words",
    "inductor/src/flambeau_inductor/switches.py": "what is left out: right either way",
    "*/src/*/__init__.py": "names that are handed on",
    "api/src/flambeau/cli/*.py": "commands that print",
    "api/src/flambeau/debugging/*.py": "finds faults of others; its own are seen in what it says",
    "api/src/flambeau/__main__.py": "a command that prints",
    "capture/src/flambeau_capture/native.py": "the check that the native module fits its torch, which no test can break",
    "autograd/src/flambeau_autograd/partition/costs.py": "what is cheap to compute again: right either way",
    "inductor/src/flambeau_inductor/codegen/triton/options.py": "which block sizes are fast: right either way",
    "inductor/src/flambeau_inductor/codegen/triton/traffic.py": "which block sizes are fast: right either way",
    "inductor/src/flambeau_inductor/codegen/errors.py": "words",
    "inductor/src/flambeau_inductor/autotune/tiles.py": "which tiles are fast: right either way",
    "runtime/src/flambeau_runtime/library_settings.py": "timing",
    "runtime/src/flambeau_runtime/bench.py": "timing",
    "runtime/src/flambeau_runtime/timing.py": "timing",
    "runtime/src/flambeau_runtime/workers/main.py": "run by its path in processes of its own, which no fault of an import reaches",
    "runtime/src/flambeau_runtime/device/conditional.py": "the CUDA driver: its tests need a GPU",
    "runtime/src/flambeau_runtime/device/cuda.py": "the CUDA driver: its tests need a GPU",
    "runtime/src/flambeau_runtime/graphs/cuda.py": "CUDA's own graphs: their tests need a GPU",
}


def rank(fault: Fault) -> str:
    """A place in a fixed random order."""
    return sha256(f"{SEED} {fault.key}".encode()).hexdigest()


def drawn(stage: Stage) -> list[Fault]:
    """The faults of a stage: those chosen by hand, then a fixed random choice, spread over the operators."""
    found: dict[str, list[Fault]] = {}
    for pattern in stage.modules:
        for path in sorted((ROOT / "packages").glob(pattern)):
            name = str(path.relative_to(ROOT))
            for fault in faults_of(name, path.read_text()):
                found.setdefault(fault.operator, []).append(fault)
    # By a hash of each: a change of the sources leaves the choice among the others as it is.
    queues = {operator: sorted(faults, key=rank) for operator, faults in sorted(found.items())}
    order = list(queues)
    random.Random(f"{SEED} {stage.name}").shuffle(order)
    chosen: list[Fault] = []
    while len(chosen) < stage.count and any(queues.values()):
        for operator in order:
            if queues[operator] and len(chosen) < stage.count:
                chosen.append(queues[operator].pop())
    return by_hand(stage) + chosen


def by_hand(stage: Stage) -> list[Fault]:
    """The faults of a stage that no operator makes."""
    return [Fault(path, where, "text", detail) for path, where, detail in FAULTS.get(stage.name, ())]
