"""A small program for each error that a program can meet.

In: nothing. Out: `EXAMPLES`, a class of error -> `Example`, and `INSTALLATION`, those that importing raises. `tools/generate_docs.py` shows them on
`docs/errors/by-example.md`; `tests/surface/test_error_pages.py` runs them: a program that no longer raises its error, or raises it in other words, fails there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen

import flambeau
import flambeau_autograd
import flambeau_capture
import flambeau_inductor
import flambeau_runtime
from flambeau import errors


@frozen
class Example:
    """A program that raises.

    Attributes:
        program: it.
        says: a part of the error's message.
        mend: what to do, in a sentence.
        instead: a program that does it, where there is one.
        caused: the error of `flambeau` that a program sees, of which this one is the cause.
    """

    program: Callable[[], Any]
    says: str
    mend: str
    instead: Callable[[], Any] | None = None
    caused: type[flambeau.FlambeauError] | None = None


EXAMPLES: dict[type[flambeau.FlambeauError], Example] = {}


def of(
    error: type[flambeau.FlambeauError],
    says: str,
    mend: str,
    instead: Callable[[], Any] | None = None,
    caused: type[flambeau.FlambeauError] | None = None,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The example of an error, which has one."""

    def register(program: Callable[[], Any]) -> Callable[[], Any]:
        if error in EXAMPLES:
            raise ValueError(f"two examples for {error}")
        EXAMPLES[error] = Example(program, says, mend, instead, caused)
        return program

    return register


INSTALLATION: dict[type[flambeau.FlambeauError], tuple[str, str]] = {
    errors.UnsupportedEnvironment: (
        "Python 3.9 is not supported",
        "Install a Python and a torch of the supported range.",
    ),
    flambeau_capture.errors.UnsupportedPythonError: (
        "the bytecode of CPython 3.9 is not known",
        "Run flambeau-capture under a Python that it knows.",
    ),
    flambeau_capture.errors.NativeModuleError: (
        "flambeau-capture's native module was built for torch",
        "Install flambeau-capture again beside this torch.",
    ),
    flambeau_runtime.errors.ExtensionError: (
        "flambeau_runtime._C was built for torch",
        "Install flambeau-runtime again beside this torch.",
    ),
}
"""Errors of importing -> a part of the message, and what to do."""


def a_known_backend() -> None:
    flambeau.compile(torch.sin, backend="inductor")


@of(errors.UnknownName, "unknown backend 'inductr'", "Write a name that the message lists.", a_known_backend)
def an_unknown_backend() -> None:
    flambeau.compile(torch.sin, backend="inductr")


def options_alone() -> None:
    flambeau.compile(torch.sin, options={"max_autotune": True, "nan_asserts": True})


@of(
    errors.InvalidOption,
    "mode and options exclude each other",
    "A mode is a set of options (`flambeau.compiler.list_mode_options()`): write those beside your own.",
    options_alone,
)
def a_mode_and_options() -> None:
    flambeau.compile(torch.sin, mode="max-autotune", options={"nan_asserts": True})


@of(errors.DuplicateBackend, "backend 'eager' is already registered", "Choose another name.")
def a_name_twice() -> None:
    flambeau.compiler.register_backend(lambda gm, inputs: gm.forward, name="eager")


@of(
    errors.BackendLookupError,
    "backend takes a name or a callable, not 3",
    "Pass a name, or a function of a graph and its inputs.",
)
def no_backend() -> None:
    flambeau.compile(torch.sin, backend=3)


@of(errors.NotHereYet, "'trace_shape_events' of torch.compile is not here yet", "Leave it out.")
def of_torch_alone() -> None:
    flambeau.compiler.set_logs("trace_shape_events")


@of(
    errors.GraphNotCompiled,
    "no program can be made of the graph",
    "Drop `fullgraph=True` to have torch's own operations run the graph, or take out what the message names.",
)
def no_program() -> None:
    flambeau.compile(lambda x: x * 2, fullgraph=True)(torch.ones(3, device="meta"))


@of(errors.NotFinite, "result 0 of the forward program has nan or infinity", "Look for the operation that gives them.")
def infinite() -> None:
    compiled = flambeau.compile(torch.mm, options={"nan_asserts": True})
    compiled(torch.full((2, 2), torch.inf), torch.zeros(2, 2))


@of(
    errors.NotRecorded,
    "forward",
    "Drop `triton.cudagraph_or_error`: what cannot be recorded is launched step by step.",
)
def not_recorded() -> None:
    options = {"triton.cudagraphs": True, "triton.cudagraph_or_error": True}
    flambeau.compile(torch.mm, fullgraph=True, options=options)(torch.ones(2, 2), torch.ones(2, 2))


@of(errors.TraceUnreadable, "no-such-folder", "Name the folder that `FLAMBEAU_TRACE` named while the program ran.")
def no_trace() -> None:
    flambeau.trace.read_trace("no-such-folder")


@of(errors.ArtifactError, "no-such-file cannot be read", "Load what `CompiledArtifact.save` wrote, in the same format.")
def no_artifact() -> None:
    flambeau.inductor.CompiledArtifact.load(path="no-such-file")


def all_guards() -> None:
    options = {"guard_filter_fn": lambda guards: [True] * len(guards)}
    flambeau.compile(torch.sin, backend="eager", options=options)(torch.ones(2))


@of(
    flambeau_capture.CaptureError,
    "guard_filter_fn was asked about",
    "Return one truth value for each guard.",
    all_guards,
)
def too_few_answers() -> None:
    options = {"guard_filter_fn": lambda guards: []}
    flambeau.compile(torch.sin, backend="eager", options=options)(torch.ones(2))


def chosen_in_the_graph() -> None:
    @flambeau.compile(fullgraph=True, backend="eager")
    def step(x):
        return torch.where(x.sum() > 0, x * 2, x - 1)

    step(torch.ones(2))


@of(
    errors.GraphBreakError,
    "data-dependent-branch",
    "[The page of graph breaks](graph-breaks.md) has each reason, with what to write instead.",
    chosen_in_the_graph,
)
def a_branch_on_values() -> None:
    @flambeau.compile(fullgraph=True, backend="eager")
    def step(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    step(torch.ones(2))


@of(
    flambeau_capture.RecompileLimitError,
    "reached its limit of 1 compiled entries",
    "Give what changes as a tensor or as a size that is marked dynamic, or raise `recompile_limit`.",
)
def compiled_for_each_text() -> None:
    scaled = flambeau.compile(lambda x, text: x * len(text), backend="eager", fullgraph=True, recompile_limit=1)
    for text in ("a", "bb"):
        scaled(torch.ones(2), text)


@of(
    errors.BackendError,
    "backend 'broken' raised KeyError: 'sin'",
    "Mend the backend; its own error is the cause. `backend='eager'` shows whether the graph is right.",
)
def a_backend_that_fails() -> None:
    def broken(gm, inputs):
        raise KeyError("sin")

    flambeau.compile(torch.sin, backend=broken)(torch.ones(2))


@of(
    flambeau_capture.errors.DynamicShapeError,
    "marked dynamic, but the program needs it to be 5",
    "Drop the mark, or do not ask for one size; `maybe_mark_dynamic` lets the program decide.",
)
def one_size_alone() -> None:
    x = torch.ones(5)
    flambeau.compiler.mark_dynamic(x, 0)
    flambeau.compile(lambda x: x * 2 if x.shape[0] == 5 else x, backend="eager")(x)


@of(
    flambeau_capture.OptionError,
    "FLAMBEAU_CAPTURE_RECOMPILE_LIMIT",
    "Give the variable a value that [its page](../guide/environment.md) says. Through `flambeau` the same is FB002.",
)
def no_number_of_capture() -> None:
    flambeau_capture.Config.from_environment({"FLAMBEAU_CAPTURE_RECOMPILE_LIMIT": "many"})


@of(
    flambeau_capture.CompileRefusedError,
    "never was before",
    "Call the function with inputs of every kind before the stance is taken.",
)
def compiled_too_late() -> None:
    compiled = flambeau.compile(lambda x: x + 1, backend="eager")
    with flambeau.compiler.set_stance("fail_on_recompile"):
        compiled(torch.ones(2))


@of(
    flambeau_capture.CompileCallbackError,
    "told, which is called at a compile, raised ValueError: no",
    "Mend the function that is called; its error is the cause.",
)
def a_callback_that_fails() -> None:
    @flambeau.compiler.on_compile_start
    def told(event):
        raise ValueError("no")

    flambeau.compile(lambda x: x + 1, backend="eager")(torch.ones(2))


@of(
    flambeau_capture.ForbiddenCallError,
    "never is called, which is marked with forbid_in_graph",
    "Call it outside of what is compiled; `disallow_in_graph` would break the graph there instead.",
)
def a_forbidden_call() -> None:
    @flambeau.compiler.forbid_in_graph
    def never(x):
        return x + 1

    flambeau.compile(lambda x: never(x), backend="eager")(torch.ones(2))


@of(
    flambeau_capture.SideEffectError,
    "changes objects outside",
    "Return the value, and store it where the compiled function is called.",
)
def a_list_outside() -> None:
    seen = []

    def step(x):
        seen.append(x.shape[0])
        return x + 1

    with flambeau.compiler.config.patch(side_effect_replay_policy="error"):
        flambeau.compile(step, backend="eager")(torch.ones(2))


@of(
    flambeau_autograd.UnsupportedGraph,
    "a tensor of layout torch.sparse_coo",
    "Drop `fullgraph=True`, or leave out of the compiled function what the message names.",
    caused=errors.GraphNotCompiled,
)
def sparse() -> None:
    @flambeau.compile(fullgraph=True, backend="aot_eager")
    def step(x):
        return x.to_sparse().to_dense() * 2

    step(torch.ones(3, 3))


@of(
    flambeau_autograd.UnsupportedMutation,
    "memory that it overwrites",
    "Drop `fullgraph=True`, or read a copy: `x.add_(x[1].clone())`.",
    caused=errors.GraphNotCompiled,
)
def written_and_read() -> None:
    x = torch.arange(100.0).as_strided((3, 3), (12, 2))
    flambeau.compile(lambda x: x.add_(x[1]), fullgraph=True, backend="aot_eager")(x)


@of(
    flambeau_autograd.UnsupportedDoubleBackward,
    "not linear in what comes in",
    "Leave the function out of what is compiled: `flambeau.compiler.disable`.",
)
def a_second_derivative() -> None:
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * gradient

    x = torch.ones(2, requires_grad=True)
    step = flambeau.compile(lambda x: Squared.apply(x.sin()) * x, backend="aot_eager")
    (gradient,) = torch.autograd.grad(step(x).square().sum(), x, create_graph=True)
    torch.autograd.grad(gradient.square().sum(), x)


@of(
    flambeau_autograd.OptionError,
    "FLAMBEAU_AUTOGRAD_MAX_RECOMPUTE_CHAIN",
    "Give the variable a value that [its page](../guide/environment.md) says. Through `flambeau` the same is FB002.",
)
def no_number_of_autograd() -> None:
    flambeau_autograd.Config.from_environment({"FLAMBEAU_AUTOGRAD_MAX_RECOMPUTE_CHAIN": "long"})


@of(
    flambeau_inductor.UnsupportedGraphError,
    "a tensor on meta has no data to compute with",
    "Drop `fullgraph=True`, or take out what the message names; here, call it with a tensor that has data.",
    caused=errors.GraphNotCompiled,
)
def no_data() -> None:
    flambeau.compile(lambda x: x - 2, fullgraph=True)(torch.ones(3, device="meta"))


@of(
    flambeau_inductor.OptionError,
    "FLAMBEAU_INDUCTOR_FUSE",
    "Give the variable a value that [its page](../guide/environment.md) says. Through `flambeau` the same is FB002.",
)
def no_switch_of_inductor() -> None:
    flambeau_inductor.Config.from_environment({"FLAMBEAU_INDUCTOR_FUSE": "perhaps"})


@of(
    flambeau_inductor.errors.ExtensionError,
    "no operator",
    "Name an operator, `torch.ops.aten.sin`. Through `flambeau.inductor` the same is FB002.",
)
def no_operator() -> None:
    from flambeau_inductor.extensions.lowerings import register_lowering

    register_lowering(torch.sin)


@of(
    flambeau_runtime.InputError,
    "must have sizes [2, 2], got [3, 3]",
    "Compile for these sizes, or with symbolic ones: `dynamic_shapes='from_graph'` takes those of the graph's fakes.",
)
def other_sizes() -> None:
    graph = torch.fx.symbolic_trace(lambda x: torch.mm(x, x))
    run = flambeau.inductor.standalone_compile(graph, [torch.ones(2, 2)], dynamic_shapes="from_example_inputs")
    run(torch.ones(3, 3))


@of(flambeau_runtime.ArtifactError, "this is not an artifact", "Read what `Artifact.save` wrote.")
def other_bytes() -> None:
    flambeau_runtime.Artifact.from_bytes(b"something else" * 9)


@of(
    flambeau_runtime.CompilerUnavailable,
    "/no/such/compiler of CXX was not found",
    "Install g++ or clang++, or name one in `CXX`.",
)
def no_compiler() -> None:
    config = flambeau_runtime.Config(cxx="/no/such/compiler")
    flambeau_runtime.build.toolchain.find_toolchain(config)


@of(
    flambeau_runtime.ReleasedError,
    "freezing_discard_parameters",
    "Load the parameter again, or compile without `freezing_discard_parameters`.",
)
def frozen_twice() -> None:
    model = torch.nn.Linear(2, 2).eval()
    options = {"freezing": True, "freezing_discard_parameters": True}
    with torch.no_grad():
        flambeau.compile(model, options=options)(torch.ones(2, 2))
        flambeau.compile(lambda x: model.forward(x), options=options)(torch.ones(3, 2))


@of(
    flambeau_runtime.OptionError,
    "FLAMBEAU_COMPILE_THREADS",
    "Give the variable a value that [its page](../guide/environment.md) says. Through `flambeau` the same is FB002.",
)
def no_number_of_the_runtime() -> None:
    flambeau_runtime.Config.from_environment({"FLAMBEAU_COMPILE_THREADS": "-1"})


@of(
    flambeau_runtime.PredictionError,
    "error_examples::doubled returned float64",
    "Have the fake say what the operator returns: `torch.empty_like(x, dtype=torch.float64)`.",
)
def a_fake_that_lies() -> None:
    @torch.library.custom_op("error_examples::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x.double() * 2

    doubled.register_fake(torch.empty_like)
    flambeau.compile(lambda x: doubled(x), fullgraph=True)(torch.ones(2))
