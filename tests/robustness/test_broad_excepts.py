"""Every `except` in the packages that takes any exception has a test for what it lets through; a new one needs a row here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_API, _CAPTURE, _AUTOGRAD = "api/src/flambeau", "capture/src/flambeau_capture", "autograd/src/flambeau_autograd"
_INDUCTOR, _RUNTIME = "inductor/src/flambeau_inductor", "runtime/src/flambeau_runtime"
_FAULT = "tests/robustness/test_fullgraph.py::test_a_fault_of_ours_is_one_warning_or_an_error"
_ERRORS = "packages/autograd/tests/test_errors.py::"
_FAULTS = "packages/capture/tests/test_own_faults.py::"
_KERNELS = "packages/runtime/tests/test_triton_kernels.py::"
_WAITING = f"{_KERNELS}test_who_waits_for_a_kernel_learns_of_any_failure"

_TRIAL, _VERIFY = ("packages/api/tests/debugging/" + name for name in ("test_trial.py::", "test_verify.py::"))
_CLI = "packages/api/tests/cli/"
_FOLDERS = "packages/api/tests/trace/test_folders.py::"

#: Module and function -> the test that fails where the handler swallows what it should not, or hands on what it should keep.
HANDLERS = {
    f"{_API}/cli/programs.py:run_script": f"{_CLI}test_explain.py::test_scripts_that_fail",
    f"{_API}/cli/programs.py:_module": f"{_CLI}test_explain.py::test_scripts_that_fail",
    f"{_API}/cli/programs.py:made_by": f"{_CLI}test_bench.py::test_bad_input",
    f"{_API}/cli/explain.py:_explained": f"{_CLI}test_explain.py::test_bad_input",
    f"{_API}/cli/contestant.py:kept": f"{_CLI}test_bench.py::test_bad_input",
    f"{_API}/cli/contestant.py:answer": f"{_CLI}test_bench.py::test_an_engine_that_fails",
    f"{_API}/cli/doctor.py:small_compile": f"{_CLI}test_doctor.py::test_a_compile_that_fails",
    f"{_API}/explain.py:_measure_whole": "packages/api/tests/test_explanations.py::test_a_call_that_raises_the_second_time_is_a_note",
    f"{_API}/insight/measure.py:measured": "packages/api/tests/test_explanations.py::test_a_graph_that_raises_when_it_is_run_again_is_a_note",
    f"{_API}/debugging/trial.py:judge": f"{_TRIAL}test_verdicts",
    f"{_API}/debugging/trial.py:_quiet.ask": f"{_TRIAL}test_a_model_without_a_twin_in_float64_has_eager_as_its_judge",
    f"{_API}/debugging/trial.py:try_here": f"{_TRIAL}test_compile_calls_that_raise_are_crashes",
    f"{_API}/debugging/trial.py:run_script": f"{_TRIAL}test_scripts_of_this_process",
    f"{_API}/debugging/trial.py:_serve": f"{_TRIAL}test_a_process_survives_its_children",
    f"{_API}/debugging/trial.py:_be_child": f"{_TRIAL}test_a_process_survives_its_children",
    f"{_API}/debugging/reduce.py:_values": f"{_TRIAL}test_a_candidate_that_eager_refuses_is_none",
    f"{_API}/debugging/bisect.py:bisect_here.test": f"{_TRIAL}test_an_exception_is_a_failure_in_this_process",
    f"{_API}/debugging/verify.py:_difference": f"{_VERIFY}test_where_eager_raises_the_call_itself_does",
    f"{_API}/debugging/verify.py:_difference.exact": f"{_VERIFY}test_a_graph_without_a_twin_in_float64",
    f"{_API}/debugging/repro.py:_write": "packages/api/tests/debugging/test_repro.py::test_what_cannot_be_written_is_told",
    f"{_API}/rescue.py:run_in_eager": "tests/robustness/test_rescue.py::test_the_error_is_eagers_with_the_users_line",
    f"{_API}/rescue.py:_results_or_error": "tests/robustness/test_rescue.py::test_what_eager_wrote_before_its_error_is_written",
    f"{_API}/rescue.py:_restoring.call": "tests/robustness/test_rescue.py::test_what_was_written_before_an_error_is_taken_back",
    f"{_API}/rescue.py:from_the_same_numbers.call": "tests/robustness/test_rescue.py::test_a_repeated_call_draws_the_same_numbers",
    f"{_API}/trace/folders.py:Folders._make": f"{_FOLDERS}test_nothing_is_left_of_a_folder_whose_writing_failed",
    f"{_API}/trace/folders.py:_write_all": f"{_FOLDERS}test_nothing_is_left_of_inputs_that_could_not_be_written",
    f"{_API}/trace/session.py:spared": "packages/api/tests/trace/test_trace.py::test_what_goes_wrong_in_a_trace_spares_the_program",
    f"{_API}/stack.py:compile_stack": _FAULT,
    f"{_API}/stack.py:_run_first_pass": "tests/surface/test_options_of_passes.py::test_a_pass_that_fails_is_told",
    f"{_INDUCTOR}/extensions/calls.py:told": "tests/surface/test_extensions.py::test_what_fails_while_it_is_used_is_told",
    f"{_INDUCTOR}/passes/custom.py:run_custom": "tests/surface/test_options_of_passes.py::test_a_pass_that_fails_is_told",
    f"{_API}/stack.py:compile_aot_eager": _FAULT,
    f"{_AUTOGRAD}/functional/predictions.py:corrected": _FAULT,
    f"{_AUTOGRAD}/joint/dispatch.py:dispatch_kept": (
        "packages/autograd/tests/test_transforms.py::test_a_failure_below_transforms_leaves_the_thread_as_it_was"
    ),
    f"{_AUTOGRAD}/joint/control.py:error_without_us": f"{_ERRORS}test_what_torch_raises_by_itself_is_a_refusal",
    f"{_AUTOGRAD}/wrappers/joint_py.py:PyJointFunction.__call__": (
        "packages/autograd/tests/test_node.py::test_what_a_hook_on_saved_tensors_raises"
    ),
    f"{_AUTOGRAD}/wrappers/joint_py.py:_Joined.backward": (
        "tests/robustness/test_faults.py::test_a_backward_that_raises_on_its_way"
    ),
    f"{_AUTOGRAD}/pipeline.py:_traced": f"{_ERRORS}test_a_decomposition_that_raises_is_our_fault",
    f"{_AUTOGRAD}/pipeline.py:_ours": f"{_ERRORS}test_a_stage_that_raises_is_our_fault",
    f"{_CAPTURE}/interp/native_slots.py:_answer": "packages/capture/tests/test_marks.py::test_hashes_and_comparisons_in_c",
    f"{_CAPTURE}/interp/override_probe.py:handed_on": "packages/capture/tests/interp/test_overrides.py::test_what_torch_refuses_is_the_programs_error",
    f"{_CAPTURE}/graph/builder.py:GraphBuilder._run": "tests/behaviour/test_programs.py::test_same_as_plain_python",
    f"{_CAPTURE}/graph/builder.py:GraphBuilder.decide": f"{_FAULTS}test_a_symbol_that_cannot_be_asked",
    f"{_CAPTURE}/graph/builder.py:GraphBuilder.specialise": f"{_FAULTS}test_a_symbol_that_cannot_be_asked",
    f"{_CAPTURE}/graph/foreign.py:formula_reads_values": (
        "tests/training/test_value_formulas.py::test_a_formula_that_raises_does_so_in_the_backward"
    ),
    f"{_CAPTURE}/graph/dispatch.py:dispatch_kept": (
        "tests/behaviour/test_forward_mode.py::test_errors_are_eagers_and_leave_no_level_open"
    ),
    f"{_CAPTURE}/lookaside/lazy_modules.py:infer_parameters": (
        "tests/behaviour/test_lazy_modules.py::test_inputs_that_do_not_fit_are_eagers_errors"
    ),
    f"{_CAPTURE}/lookaside/arrays/calls.py:fold": (
        "packages/capture/tests/lookaside/arrays/test_constants.py::test_what_numpy_refuses_the_program_may_catch"
    ),
    f"{_CAPTURE}/lookaside/arrays/operands.py:ask": (
        "packages/capture/tests/lookaside/arrays/test_reductions.py::test_an_axis_that_is_not_there"
    ),
    f"{_CAPTURE}/interp/folding.py:Folder.fold": (
        "packages/capture/tests/lookaside/test_generated.py::test_methods_do_what_python_does"
    ),
    f"{_CAPTURE}/interp/folding.py:Folder.assumed": (
        "packages/capture/tests/lookaside/test_torch_state.py::test_what_is_marked_as_constant_is_asked_once"
    ),
    f"{_CAPTURE}/interp/folding.py:Folder.real_error": f"{_FAULTS}test_a_model_that_raises_where_python_does_not",
    f"{_CAPTURE}/interp/cached.py:_Call._found": f"{_FAULTS}test_a_cached_function_that_raises_when_asked_for_real",
    f"{_CAPTURE}/interp/exceptions.py:Exceptions.make_exception": (
        "packages/capture/tests/interp/test_exceptions.py::test_fields_of_native_exceptions"
    ),
    f"{_CAPTURE}/lookaside/optimizer_state.py:make_state": (
        "packages/capture/tests/lookaside/test_optimizers.py::test_what_making_the_state_raises_the_step_raises"
    ),
    f"{_CAPTURE}/hook.py:_Handler.answer": _FAULT,
    f"{_CAPTURE}/modes.py:left_as_before.call": "packages/capture/tests/test_state_of_torch.py::test_a_graph_that_raises_leaves_the_modes",
    f"{_CAPTURE}/saved_tensor_hooks.py:with_marked_hooks.call.marking": (
        "tests/training/test_checkpoints.py::test_a_checkpoint_around_a_compiled_module"
    ),
    f"{_CAPTURE}/backend_call.py:call_backend": "tests/robustness/test_bad_input.py::test_backend_that_raises",
    f"{_CAPTURE}/leaf_calls.py:_programs.call": "tests/surface/test_leaf_functions.py::test_errors",
    f"{_CAPTURE}/compile_hooks.py:_call": "tests/surface/test_state.py::test_callbacks",
    f"{_CAPTURE}/regions.py:_Callback._answer": f"{_FAULTS}test_a_model_that_raises_where_python_does_not",
    f"{_CAPTURE}/guards/check.py:_predicate_holds": (
        "packages/capture/tests/guards/test_twins.py::test_errors_inside_guards_mean_that_they_do_not_hold"
    ),
    f"{_CAPTURE}/guards/explain.py:explain": f"{_FAULTS}test_a_guard_is_explained_where_looking_closer_fails",
    f"{_CAPTURE}/guard_filter.py:filter_guards": (
        "packages/capture/tests/test_guard_filter.py::test_bad_filters_are_errors_before_anything_is_compiled"
    ),
    f"{_INDUCTOR}/lowering/run.py:_Lowering._lower": (
        "packages/inductor/tests/lowering/test_refused.py::test_a_rule_that_raises_is_a_fault"
    ),
    f"{_RUNTIME}/graphs/call.py:RecordedProgram._prepare": (
        "packages/runtime/tests/graphs/test_call.py::test_failure_while_recording_leaves_a_plain_program"
    ),
    f"{_RUNTIME}/graphs/call.py:RecordedProgram._record": (
        "packages/runtime/tests/graphs/test_call.py::test_failure_after_recording_gives_its_memory_back"
    ),
    f"{_RUNTIME}/graphs/cuda.py:CudaRecorder.record": (
        "tests/gpu/test_reduce_overhead.py::test_a_capture_that_fails_leaves_the_shared_memory_usable"
    ),
    f"{_RUNTIME}/triton_kernels.py:_hand_on": f"{_KERNELS}test_a_kernel_that_does_not_compile_names_itself",
    f"{_RUNTIME}/triton_kernels.py:submit_stored": _WAITING,
    f"{_RUNTIME}/triton_kernels.py:_keep": f"{_KERNELS}test_a_kernel_that_cannot_be_kept_is_told",
    f"{_RUNTIME}/executor_py.py:PythonExecutor._step": (
        "packages/runtime/tests/test_differential.py::test_both_executors_agree"
    ),
    f"{_RUNTIME}/workers/main.py:serve": (
        "packages/runtime/tests/workers/test_pool.py::test_a_request_that_fails_leaves_the_worker_usable"
    ),
    f"{_RUNTIME}/timing.py:_prepared": "packages/runtime/tests/test_timing.py::test_more_work_takes_longer_and_what_raises_has_no_time",
    f"{_RUNTIME}/workers/triton_task.py:preload": f"{_KERNELS}test_a_worker_that_cannot_get_ready_starts_all_the_same",
    f"{_RUNTIME}/workers/triton_task.py:interpret_entry": (
        "packages/inductor/tests/codegen/triton/test_kernels.py::test_index_out_of_range_raises"
    ),
}


def _handlers(tree: ast.AST, name: str = "") -> Iterator[str]:
    """The functions with a handler of any exception, by qualified name; `suppress(Exception)` is one too."""
    for node in ast.iter_child_nodes(tree):
        inner = f"{name}.{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else name
        if isinstance(node, ast.ExceptHandler) and (node.type is None or _is_broad(node.type)):
            yield name.removeprefix(".")
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("suppress")
            and any(map(_is_broad, node.args))
        ):
            yield name.removeprefix(".")
        yield from _handlers(node, inner)


def _is_broad(kind: ast.expr) -> bool:
    names = {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
    return not names.isdisjoint({"Exception", "BaseException"})


def _in_the_packages() -> set[str]:
    found = set()
    for path in (ROOT / "packages").glob("*/src/**/*.py"):
        names = _handlers(ast.parse(path.read_text()))
        found |= {f"{path.relative_to(ROOT / 'packages')}:{name}" for name in names}
    return found


def test_each_has_its_row() -> None:
    """None is missing, none is left over."""
    assert _in_the_packages() == set(HANDLERS)


@pytest.mark.parametrize("name", sorted(set(HANDLERS.values())))
def test_each_named_test_exists(name: str) -> None:
    """A function of that name in that file."""
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_form_is_found() -> None:
    """Bare, alone, in a tuple, by its longer name, suppressed; narrow ones are not."""
    forms = ("except:", "except Exception:", "except (OSError, BaseException) as e:", "except Exception as e:")
    for form in forms:
        assert list(_handlers(ast.parse(f"class A:\n def f():\n  try: pass\n  {form} pass"))) == ["A.f"], form
    assert list(_handlers(ast.parse("def f():\n with contextlib.suppress(Exception): pass"))) == ["f"]
    assert list(_handlers(ast.parse("try: pass\nexcept (OSError, ValueError): pass"))) == []
