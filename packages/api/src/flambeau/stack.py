"""The default backend: autograd, inductor and runtime joined, with the disk cache between them.

In: a captured graph and its fake inputs. Out: a compiled callable with the graph's calling convention. On a cache hit neither
autograd nor inductor runs: signature and artifacts are read back. A graph that is refused with a reason runs in eager and is counted; one that
fails for a reason that is ours does so after one warning. Under `fullgraph` both raise, and without `suppress_errors` the second does.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from typing import Any

import attrs
import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

import flambeau_autograd as autograd
import flambeau_inductor as inductor
import flambeau_runtime as runtime
from flambeau_capture import NumbersRefused, no_warnings, unpatched
from flambeau_inductor.extensions.table import edition
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.build import find_toolchain
from flambeau_runtime.build.toolchain import Toolchain
from flambeau_runtime.cache import CacheKey, Store, default_store
from flambeau_runtime.errors import CompilerUnavailable

from .accounting import counters, note_seconds
from .attention_masks import drop_known_masks
from .compiled_graph import CompiledGraph, Fresh
from .defaults import Settings, current, option_defaults, user_errors
from .errors import GraphNotCompiled, InternalError, InvalidOption, UserError
from .freezing import frozen_places, may_freeze
from .graph_key import Uncacheable, graph_key
from .graph_logs import log_pass, log_pre_grad, log_prepared, log_program
from .loading import load_program
from .log import Deferred, logger
from .options import Options
from .perf_hints import instructions_of
from .places import Places
from .records import ProgramRecord, Recorder
from .repeats import outline
from .rescue import REPORT, as_if_not_called, in_eager, mispredicted_operator, rescue, rescue_backward, writes_last
from .shape_guards import replay_guards, shape_guards
from .stages import Stages, resolve_stages
from .trace import hooks as trace

CACHE_KIND = "graph"
CompiledFn = Callable[..., Any]


class NotLowered(Exception):
    """Inductor refuses the graph, for a reason that is the message; eager runs it."""


def compile_stack(
    gm: fx.GraphModule,
    inputs: list[Any],
    options: Options,
    recorder: Recorder | None = None,
    settings: Settings | None = None,
) -> CompiledFn:
    """Compile a captured graph; the default backend.

    Args:
        gm: torch-level graph; every placeholder has `meta["val"]`. Gets `meta["rescue"]`: what answers where the program raises.
        inputs: the fake inputs in order.
        options: the region's options.
        recorder: collects programs and seconds.
        settings: the region's settings; those in force by default.
    """
    recorder, settings = recorder or Recorder(), settings or current()
    options = options.under(option_defaults(environment=False))
    with unpatched():
        try:
            stages = attrs.evolve(resolve_stages(options, settings), recorded=gm.meta.get("recorded", (None, None)))
            _run_first_pass(gm, options["pre_grad_custom_pass"])
            flat = autograd.flatten(gm, inputs)
            with user_errors():
                if flat is None:
                    return _compile(gm, inputs, options, stages, recorder)
                return flat.compiled_with(partial(_compile, options=options, stages=stages, recorder=recorder))
        except (autograd.UnsupportedGraph, NotLowered) as error:
            return refused(gm, error, recorder, is_strict=settings.capture.fullgraph)
        except UserError:
            raise
        except Exception as error:
            _raise_if_registered(error)
            return failed(gm, error, recorder, settings)


def _raise_if_registered(error: BaseException | None) -> None:
    """What a program registered with the compiler is at fault: also where a stage that called it reports a failure of its own."""
    while error is not None:
        if isinstance(error, inductor.ExtensionError):
            raise InvalidOption(error.message, error.hint) from error
        error = error.__cause__


def _run_first_pass(gm: fx.GraphModule, run: Callable[[fx.Graph], Any] | None) -> None:
    """The user's own pass on the captured graph."""
    if run is None:
        return
    try:
        run(gm.graph)
        gm.graph.lint()
        gm.recompile()
    except Exception as error:
        raise InvalidOption(f"pre_grad_custom_pass failed: {type(error).__name__}: {error}") from error


def failed(gm: fx.GraphModule, error: Exception, recorder: Recorder, settings: Settings) -> CompiledFn:
    """A graph whose compilation failed for a reason that is ours: eager runs it after one warning, or it is an error."""
    if settings.capture.fullgraph or not settings.capture.suppress_errors:
        raise InternalError(f"compiling a graph failed: {type(error).__name__}: {error}") from error
    _leave_numbers_out(gm, error)
    recorder.ran_in_eager(f"{type(error).__name__}: {error}")
    told = "".join(["\n", *traceback.format_exception(error)]) if settings.capture.verbose else ""
    warnings.warn(
        f"flambeau could not compile a graph and runs it in eager: {type(error).__name__}: {error}\n  {REPORT}{told}",
        RuntimeWarning,
        stacklevel=3,
    )
    return in_eager(gm)


def refused(gm: fx.GraphModule, error: Exception, recorder: Recorder, *, is_strict: bool) -> CompiledFn:
    """A graph that holds what is not modelled: eager runs it, counted with the reason, or `fullgraph` makes it an error."""
    reason = getattr(error, "message", None) or str(error)
    if is_strict:
        raise GraphNotCompiled(
            f"fullgraph=True, and no program can be made of the graph: {reason}",
            hint=getattr(error, "hint", "")
            or "drop fullgraph=True to run it in eager; backend='eager' captures without compiling",
        ) from error
    _leave_numbers_out(gm, error)
    recorder.ran_in_eager(str(error))
    logger.info("graph_runs_in_eager", artifact="fallbacks", reason=str(error))
    logger.info("graph_without_kernels", artifact="perf_hints", reason=str(error))
    return in_eager(gm)


def _leave_numbers_out(gm: fx.GraphModule, error: Exception) -> None:
    """Have the frame captured anew where the graph holds numbers of tensors, which may be what no program is made for: it ends before them then."""
    if gm.meta.get("is_open"):
        logger.info("numbers_left_out", artifact="fallbacks", reason=str(error))
        raise NumbersRefused(str(error)) from error


def _compile(gm: fx.GraphModule, inputs: list[Any], options: Options, stages: Stages, recorder: Recorder) -> CompiledFn:
    """With calls that repeat compiled once, where there are such and no stage refuses their body."""
    with _timed(recorder, "masks"):
        dropped = drop_known_masks(gm)
        logger.debug("masks_dropped", artifact="fusion", calls=dropped)
        log_pass("masks", gm, changed=bool(dropped))
    with _timed(recorder, "repeats"):
        # What is frozen differs from call to call of a body.
        outlined = outline(gm, 0 if may_freeze(inputs, options) else options["repeats_outlined"])
    if outlined is not None:
        log_pass("repeats", outlined.graph, changed=True)
        try:
            made = _compile_graph(outlined.graph, gm, inputs, options, stages, recorder)
        except (autograd.UnsupportedGraph, NotLowered) as error:
            logger.info("repeats_not_outlined", artifact="fallbacks", reason=str(error))
        else:
            for repeat in outlined.repeats:
                logger.info(
                    "compiled_once",
                    artifact="repeats",
                    name=repeat.name,
                    calls=repeat.calls,
                    operations=repeat.operations,
                )
            recorder.repeats += outlined.repeats
            return made
    return _compile_graph(gm, gm, inputs, options, stages, recorder)


def _compile_graph(
    gm: fx.GraphModule, plain: fx.GraphModule, inputs: list[Any], options: Options, stages: Stages, recorder: Recorder
) -> CompiledFn:
    """`plain`: the graph as it was captured, for what is run again in eager."""
    toolchain = _toolchain(stages)
    if toolchain is None and stages.inductor.cpu_backend == "cpp":
        stages = attrs.evolve(stages, inductor=stages.inductor.with_options({"cpp_kernels": False}))
    places = Places.of(gm)
    registered = edition()
    key = _cache_key(gm, options, stages, toolchain, places)
    # Without caches kernels are kept in memory, for as long as this graph is being compiled.
    store = Store(None) if options["force_disable_caches"] else default_store(stages.runtime)
    if key is not None:
        with _timed(recorder, "cache"):
            found = _read(key, store, inputs)
        if found is not None:
            found = places.told_by(found)
            return _assemble(found, options, stages, gm, plain, recorder, store, cached=True)
    compiled = _compile_both(gm, plain, inputs, options, stages, recorder, store)
    # What somebody registers or takes back meanwhile is in no key.
    if key is not None and edition() == registered and _self_contained(compiled.graph):
        with _timed(recorder, "cache"):
            store.put(key, attrs.evolve(compiled.graph, lines=places.lines, modules=places.modules).to_bytes())
    return _assemble(compiled.graph, options, stages, gm, plain, recorder, store, constants=compiled.constants)


def _compile_both(
    gm: fx.GraphModule,
    plain: fx.GraphModule,
    inputs: list[Any],
    options: Options,
    stages: Stages,
    recorder: Recorder,
    store: Store,
) -> Fresh:
    """Autograd and inductor; the C++ compiler works on the forward while the backward is still being lowered."""
    if any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in inputs):
        runtime.warm_up()
    before = len(shape_guards(inputs))
    counters["aot_autograd"]["total"] += 1
    log_pre_grad(gm)
    with _timed(recorder, "autograd"), no_warnings():
        prepared = autograd.prepare(
            gm,
            inputs,
            decompositions=inductor.decompositions(),
            config=stages.autograd,
            **_rewrites(stages),
            plain=None if plain is gm else plain,
        )
    counters["aot_autograd"]["ok"] += 1
    mark_static(gm, prepared)
    if prepared.backward is None:
        # What has no backward is one graph, which nobody has handed to `rewrite`.
        inductor.run_joint_passes(prepared.forward, stages.inductor)
    log_prepared(prepared)
    trace.write_halves(prepared)
    graphs = [(prepared.forward, prepared.forward_inputs)]
    if prepared.backward is not None:
        graphs.append((prepared.backward, prepared.backward_inputs))
    workers, config = _compilers(stages, len(graphs))
    build = partial(runtime.build_libraries, store=store, config=config)
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="flambeau-build") as pool:
        pending = []
        with _timed(recorder, "inductor"):
            for kind, (graph, graph_inputs) in zip(("forward", "backward"), graphs, strict=False):
                if (operator := mispredicted_operator(graph.graph)) is not None:
                    raise NotLowered(f"{operator} returns something else than its fake says")
                frozen = frozen_places(gm, prepared, inputs, options)
                try:
                    with no_warnings(), trace.part(kind):
                        made = inductor.compile_frozen(graph, graph_inputs, frozen, stages.inductor)
                except inductor.UnsupportedGraphError as error:
                    raise NotLowered(str(error)) from error
                pending.append((pool.submit(copy_context().run, build, made.program), _constants(made.program, graph)))
                if made.folding is not None:
                    pending.append(
                        (pool.submit(copy_context().run, build, made.folding), _constants(made.folding, graph))
                    )
        with _timed(recorder, "build"):
            artifacts = [future.result() for future, _ in pending]
    guards = tuple(shape_guards(inputs)[before:])
    built = CompiledGraph(
        prepared.signature,
        artifacts[0],
        artifacts[1] if prepared.backward is not None else None,
        guards,
        artifacts[1] if made.folding is not None else None,
        made.watched,
        made.kept,
    )
    return Fresh(built, tuple(constants for _, constants in pending))


def _compilers(stages: Stages, graphs: int) -> tuple[int, runtime.Config]:
    """How many graphs are built at once, and the runtime's options for each: together no more compilers than were asked for."""
    allowed = stages.runtime.compile_threads
    if allowed == 0:
        return graphs, stages.runtime
    workers = min(graphs, allowed)
    return workers, attrs.evolve(stages.runtime, compile_threads=allowed // workers)


def compile_aot_eager(
    gm: fx.GraphModule, inputs: list[Any], *, settings: Settings | None = None, decomposed: bool = False
) -> CompiledFn:
    """Autograd's graphs run by torch's own ops, uncompiled; an error at run time is answered as that of a compiled program.

    `decomposed`: the graphs that inductor would be given, with its decompositions and rewrites.
    """
    settings = settings or current()
    with unpatched():
        try:
            stages = resolve_stages(Options(), settings)
            flat = autograd.flatten(gm, inputs)
            if flat is None:
                return _uncompiled(gm, inputs, stages, decomposed=decomposed)
            return flat.compiled_with(partial(_uncompiled, stages=stages, decomposed=decomposed))
        except autograd.UnsupportedGraph as error:
            return refused(gm, error, Recorder(), is_strict=settings.capture.fullgraph)
        except UserError:
            raise
        except Exception as error:
            return failed(gm, error, Recorder(), settings)


def _uncompiled(gm: fx.GraphModule, inputs: list[Any], stages: Stages, *, decomposed: bool) -> CompiledFn:
    how = {"decompositions": inductor.decompositions(), **_rewrites(stages)} if decomposed else {}
    with no_warnings():
        prepared = autograd.prepare(gm, inputs, config=stages.autograd, **how)
    for half in filter(None, (prepared.forward, prepared.backward)):
        _LazyGraphModule.force_recompile(half)
    backward = None if prepared.backward is None else prepared.backward.forward
    last = writes_last(prepared.forward.graph)
    rewrites = _rewrites(stages) if decomposed else {}
    again = partial(_retraced, gm, config=stages.autograd, decomposed=decomposed, **rewrites)
    forward, laid = prepared.forward.forward, _laid(gm, decomposed=decomposed)
    if prepared.backward is None:
        forward = autograd.with_workspaces(prepared.forward.graph, forward)
    return _join(gm, prepared.signature, forward, backward, stages, again, laid, isolate=True, in_order=last)


def _join(
    gm: fx.GraphModule,
    signature: autograd.Signature,
    forward: CompiledFn,
    backward: CompiledFn | None,
    stages: Stages,
    again: Callable[[], autograd.Trace] | None,
    laid: Callable[..., Any],
    *,
    isolate: bool = False,
    in_order: bool = False,
) -> CompiledFn:
    """Both halves as the callable for the captured graph, which answers where they raise and is what a second derivative is taken of."""
    joined = autograd.assemble(
        signature,
        forward,
        backward,
        replay=gm,
        retrace=again,
        layouts=laid,
        rescue=rescue_backward(stages),
        config=stages.autograd,
        isolate=isolate,
    )
    # A program may also raise for what a library returns, after anything.
    joined = as_if_not_called(gm, signature, joined, in_order=in_order and isolate)
    gm.meta["rescue"] = rescue(gm, signature, stages, in_order=in_order)
    return joined


def mark_static(gm: fx.GraphModule, prepared: autograd.Prepared) -> None:
    """Carry capture's mark of parameters, buffers and what the program says stays in place over to both halves: a CUDA graph reads those where they are."""
    marks = [bool(node.meta.get("static") or node.meta.get("stays")) for node in gm.graph.find_nodes(op="placeholder")]
    for place, node in enumerate(prepared.forward.graph.find_nodes(op="placeholder")):
        node.meta["static"] = place < len(marks) and marks[place]
    if prepared.backward is not None:
        saved = prepared.signature.saved
        for node, value in zip(prepared.backward.graph.find_nodes(op="placeholder"), saved, strict=False):
            node.meta["static"] = value.kind == "input" and marks[value.index]


def _toolchain(stages: Stages) -> Toolchain | None:
    """What compiles C++; None where there is no working compiler, of which the runtime has warned once, or no use for one."""
    if not stages.inductor.cpp_kernels or stages.inductor.cpu_backend != "cpp":
        return None
    try:
        return find_toolchain(stages.runtime)
    except CompilerUnavailable:
        return None


def _cache_key(
    gm: fx.GraphModule, options: Options, stages: Stages, toolchain: Toolchain | None, places: Places
) -> CacheKey | None:
    if not options["fx_graph_cache"] or options["force_disable_caches"]:
        return None
    try:
        parts = graph_key(gm, options, stages)
    except Uncacheable as reason:
        counters["inductor"]["fxgraph_cache_bypass"] += 1
        logger.info("graph_not_cached", artifact="caching", reason=str(reason))
        return None
    # A compiled graph holds machine code: what made it, and for which processor, is part of what it is.
    made_by = {"places": places.numbers, "toolchain": "" if toolchain is None else toolchain.identity}
    return CacheKey(CACHE_KIND, {**parts, **made_by})


def _read(key: CacheKey, store: Store, inputs: list[Any]) -> CompiledGraph | None:
    data = store.get(key)
    if data is None:
        counters["inductor"]["fxgraph_cache_miss"] += 1
        logger.debug("graph_miss", artifact="caching", why=Deferred(lambda: store.why(key)))
        return None
    try:
        found = CompiledGraph.from_bytes(data)
    except (ValueError, TypeError, KeyError) as error:
        logger.warning("cached_graph_unreadable", artifact="caching", reason=str(error))
        store.remove(key)
        return None
    if not replay_guards(found.guards, inputs):
        return None
    counters["inductor"]["fxgraph_cache_hit"] += 1
    return found


def _self_contained(compiled: CompiledGraph) -> bool:
    """Whether the artifacts carry every constant: a cached graph has no other place to take one from."""
    return all(constant.data is not None for _, artifact in compiled.programs for constant in artifact.constants)


def _assemble(
    compiled: CompiledGraph,
    options: Options,
    stages: Stages,
    gm: fx.GraphModule,
    plain: fx.GraphModule,
    recorder: Recorder,
    store: Store,
    *,
    constants: tuple[list[torch.Tensor], ...] = ([], [], []),
    cached: bool = False,
) -> CompiledFn:
    """Load the programs and join them."""
    recorder.built.append(Fresh(compiled, constants))
    forward, backward = _loaded(compiled, constants, options, stages, recorder, store, cached=cached)
    recorder.written.append(frozenset(mutation.index for mutation in compiled.signature.mutations))
    stepped = attrs.evolve(stages, runtime=attrs.evolve(stages.runtime, executor="python"))
    recorder.plans.append(
        partial(_assemble, compiled, options, stepped, gm, plain, Recorder(), store, constants=constants, cached=cached)
    )
    in_order = bool(compiled.forward.meta.get("writes_last"))
    # With what `_compile_both` gives `prepare`.
    rewrites = _rewrites(stages)
    # What eager saves in calls of a body is not known of what the body's forward saves.
    again = None if plain is not gm else partial(_retraced, gm, config=stages.autograd, decomposed=True, **rewrites)
    return _join(
        plain, compiled.signature, forward, backward, stages, again, _laid(plain, decomposed=True), in_order=in_order
    )


def load_compiled(compiled: CompiledGraph, options: Options) -> CompiledFn:
    """A compiled graph whose captured graph is gone: what fails at run time raises, and the backward cannot be differentiated again."""
    stages = resolve_stages(options)
    forward, backward = _loaded(compiled, ([], [], []), options, stages, Recorder(), default_store(stages.runtime))
    return autograd.assemble(compiled.signature, forward, backward, config=stages.autograd)


def _loaded(
    compiled: CompiledGraph,
    constants: tuple[list[torch.Tensor], ...],
    options: Options,
    stages: Stages,
    recorder: Recorder,
    store: Store,
    *,
    cached: bool = True,
) -> tuple[CompiledFn, CompiledFn | None]:
    """Both halves as callables."""
    loaded: dict[str, CompiledFn] = {}
    for (kind, artifact), tensors in zip(compiled.programs, constants, strict=False):
        recorder.programs.append(_program_record(kind, artifact, cached))
        with trace.part(kind):
            log_program(recorder.programs[-1], graphed=stages.is_recorded(kind, options["triton.cudagraphs"]))
        with _timed(recorder, "load"):
            loaded[kind] = load_program(artifact, tensors, kind, options, stages, recorder, store)
        trace.write_program(kind, artifact)
    forward = loaded["forward"]
    if compiled.folding is not None:
        release = options["freezing_discard_parameters"]
        forward = runtime.FrozenProgram(forward, loaded["folding"], compiled.watched, compiled.kept, release=release)
    return forward, loaded.get("backward")


def _rewrites(stages: Stages) -> dict[str, Any]:
    """What edits joint graphs, and those of bodies."""
    rewrite = partial(inductor.rewrite_joint, options=stages.inductor)
    return {"rewrite": rewrite, "rewrite_body": partial(rewrite, nested=True)}


def _retraced(gm: fx.GraphModule, *, decomposed: bool = False, **settings: Any) -> autograd.Trace:
    """How the values of a graph follow from each other, for a second derivative some of whose operands are gone."""
    inputs = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    with unpatched(), no_warnings():
        return autograd.retrace(
            gm, inputs, decompositions=inductor.decompositions() if decomposed else None, **settings
        )


def _laid(gm: fx.GraphModule, *, decomposed: bool = False) -> Callable[..., Any]:
    """How eager lays out the gradients of a graph, for tangents that lie otherwise than its backward was compiled for."""

    def ask(inputs: list[Any], lying: Any) -> Any:
        with unpatched(), no_warnings():
            return autograd.layouts(gm, inputs, lying, decompositions=inductor.decompositions() if decomposed else None)

    return ask


def _constants(artifact: runtime.Artifact, graph: fx.GraphModule) -> list[torch.Tensor]:
    """The tensors that the artifact takes from outside, by the attribute names of the graph that it was made from."""
    return [attrgetter(spec.name)(graph) for spec in artifact.constants if spec.data is None]


def _program_record(kind: str, artifact: runtime.Artifact, cached: bool) -> ProgramRecord:
    calls: dict[str, int] = {}
    kernels = 0
    fused: set[str] = set()
    for instruction in instructions_of(artifact.program):
        if isinstance(instruction, Launch):
            kernels += 1
            fused.update(artifact.kernels[instruction.kernel].meta.get("origins", ()))
        elif isinstance(instruction, Call):
            calls[instruction.op] = calls.get(instruction.op, 0) + 1
    return ProgramRecord(kind, kernels, calls, len(fused), cached, artifact)


@contextmanager
def _timed(recorder: Recorder, stage: str) -> Iterator[None]:
    logger.debug("stage_begun", stage=stage)
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        recorder.spent(stage, seconds)
        note_seconds(stage, seconds)
        logger.debug("stage", artifact="timings", stage=stage, seconds=round(seconds, 6))
