"""`flambeau.compile`: the function, the decorator, and what it does to modules.

In: a function, method or module and the arguments of `torch.compile`. Out: a native region (for functions) or the module's
compiled twin. Nothing is traced here: the first call does that.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, overload

import torch

import flambeau_autograd
import flambeau_capture

from . import progress
from .backends import (
    Backend,
    aot_eager,
    aot_eager_decomp_partition,
    cudagraphs,
    inductor,
    is_own,
    lookup_backend,
    note_use,
)
from .ddp import by_buckets
from .defaults import Settings, is_disabled, is_verbose, option_defaults, settings_of, user_errors, variables
from .errors import FlambeauError, InvalidOption, UnknownName, without_our_frames
from .log import copy_to, logger
from .module import compiled_module, original_of
from .observe import observer_of
from .options import OPTIONS, Options, resolve
from .records import Recorder
from .shape_profiles import profile_of
from .stages import resolve_stages
from .targets import name_of, target_of
from .trace.session import region_trace

Function = Callable[..., Any]
Model = TypeVar("Model", bound=Callable[..., Any])
"""A function or a module: what comes back is called as it is, and has its attributes."""
_OF_ANY_BACKEND = (
    "guard_filter_fn",
    "verify",
    "debug_folder",
    "compile_debug",
    "compile_debug_dir",
    "compile_debug_save_real",
    "save_args",
)
"""Options that say what is done around a backend, whatever it is."""
_EVERY: ContextVar[Callable[[Any], Recorder] | None] = ContextVar("flambeau_every_compile", default=None)
"""Gives a recorder for each function or module that is compiled, while a program is explained."""


def _corrected(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """What a kernel returns where a fake lies; looked up at the first op, as importing flambeau loads no formulas."""
    return flambeau_autograd.corrected(op, args, kwargs, out)


flambeau_capture.register_correction(_corrected)


@overload
def compile(
    model: Model,
    *,
    fullgraph: bool | None = None,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Model: ...


@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool | None = None,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Callable[[Model], Model]: ...


def compile(
    model: Any = None,
    *,
    fullgraph: bool | None = None,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Compile a function or a module on its first call.

    Args:
        model: a callable or an `nn.Module`; None makes a decorator.
        fullgraph: True: anything that cannot be captured or compiled is an error with the user's line, not a graph break; None: as
            `flambeau.compiler.config` says, which is False unless it was changed.
        dynamic: None: sizes are static first, those that change become symbolic; True: symbolic from the start; False: never.
        backend: a name of `flambeau.compiler.list_backends()` or a callable `(GraphModule, example_inputs) -> callable`.
        mode: a name of `flambeau.compiler.list_mode_options()`; excludes `options`.
        options: option name -> value, see `flambeau.compiler.list_options()`.
        disable: True: return `model` as it is.
        name: a label for logs and traces.
        recompile_limit: entries per code object in this region, for each module and each decorated function by itself; past it, new shapes run in eager.
        isolate_recompiles: what this call compiles is its own, and counts against no other call's limit: that is so with False, too.
        shapes_spec: the shapes of the parameters, as types of `torch.fx.experimental.dynamic_spec` say them (torch 2.13): sizes and ints that are
            declared as a variable or a term of variables are symbolic, everything else is a constant. Excludes `dynamic`. Code behind a graph
            break learns by itself which sizes change.

    Returns:
        A callable with the function's name and signature; for a module, a module of the same class that shares its state.

    Raises:
        UnknownName: for an unknown backend, mode or option; says what exists and the nearest name.
        InvalidOption: for values of a wrong type, or `mode` together with `options`.
    """
    arguments: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
        "name": name,
        "recompile_limit": recompile_limit,
        "isolate_recompiles": isolate_recompiles,
        "shapes_spec": shapes_spec,
    }
    if model is None:
        return functools.partial(compile, **arguments, disable=disable)
    recorder_of = _EVERY.get()
    try:
        return _compile(model, arguments, recorder_of and recorder_of(model), disable=disable)
    except FlambeauError as error:
        if not is_verbose():
            without_our_frames(error)
        raise


@contextlib.contextmanager
def every_compile_recorded(recorder_of: Callable[[Any], Recorder]) -> Iterator[None]:
    """In the block, what `compile` makes tells the recorder that `recorder_of` gives for the function or module."""
    before = _EVERY.set(recorder_of)
    try:
        yield
    finally:
        _EVERY.reset(before)


def compile_recorded(model: Any, recorder: Recorder, **arguments: Any) -> Any:
    """`compile`, with everything that happens written into `recorder`."""
    defaults_of_compile: dict[str, Any] = dict.fromkeys(
        ("fullgraph", "dynamic", "backend", "mode", "options", "name", "recompile_limit", "shapes_spec")
    )
    defaults_of_compile["isolate_recompiles"] = False
    for unknown in arguments.keys() - {*defaults_of_compile, "disable"}:
        raise UnknownName("argument of compile", unknown, [*defaults_of_compile, "disable"])
    disable = arguments.pop("disable", False)
    return _compile(model, {**defaults_of_compile, **arguments}, recorder, disable=disable)


def _compile(model: Any, arguments: Mapping[str, Any], recorder: Recorder | None, *, disable: bool) -> Any:
    _check_types(model, arguments)
    named = lookup_backend(arguments["backend"])
    options = _options_of(named, arguments).under(option_defaults())
    settings = settings_of(arguments, options)
    trace = region_trace(options, arguments["name"])
    if trace is not None and trace.folders is not None:
        # A graph that is read back has passed no stage that could be shown.
        options = options.with_(fx_graph_cache=False)
    # A variable with a wrong value is told here, not in the middle of the first call.
    stages = resolve_stages(options, settings)
    copy_to(stages.api.log_file_name)
    backend = _configured_backend(named, arguments, options, settings, recorder)
    if stages.api.optimize_ddp in (True, "ddp_optimizer"):
        backend = by_buckets(backend)
    if recorder is not None:
        # Not at the top: only `explain` and `profile` need what watches graphs.
        from .insight.watch import watching

        backend = watching(backend, recorder)
    if disable or is_disabled():
        return model
    model = original_of(model)
    target = target_of(model)
    if target.reason:
        logger.info("not_captured", artifact="fallbacks", target=name_of(model), reason=target.reason)
        if recorder is not None:
            recorder.not_captured = f"{name_of(model)} is {target.reason}"
    observer = observer_of(recorder, arguments["name"])
    if trace is not None:
        # Not at the top: only what is traced needs it.
        from .trace.hooks import watching as traced

        observer, backend = trace.observed(observer), traced(backend, trace, arguments)
    around: flambeau_capture.Around | None = None if trace is None else trace.around
    if stages.api.compile_cprofile:
        # Not at the top: only those need the profiler who ask for it.
        from .trace.profiles import profiled

        around = profiled(Path(options["compile_debug_dir"]).absolute(), around)
    around = progress.around(stages.api.progress, around)
    with user_errors():
        region = flambeau_capture.make_region(
            target.function,
            backend,
            config=settings.capture,
            observer=observer,
            around=around,
            left=None if recorder is None else recorder.left_to_python,
            label=arguments["name"],
            shapes_spec=arguments["shapes_spec"],
            profile=profile_of(stages),
        )
    if isinstance(model, torch.nn.Module):
        again = functools.partial(_compile, arguments=arguments, recorder=recorder, disable=False)
        return compiled_module(model, region, again, (rebuild, (model, dict(arguments))))
    region.__flambeau_made_from__ = model, dict(arguments)
    # As torch marks what it compiled: torch.compile of a region compiles the original, as that of its own functions does.
    region._torchdynamo_orig_callable = model
    region._torchdynamo_wrapper_id = id(region)
    if (config := _config_of(named, options)) is not None:
        region.get_compiler_config = config
    return region


def _config_of(backend: Backend, options: Options) -> Callable[[], Any] | None:
    """What gives the configuration that something is compiled with: the value of every option, or what a backend of others says."""
    if backend in (inductor, cudagraphs):
        return lambda: {name: options[name] for name in OPTIONS}
    own: Callable[[], Any] | None = getattr(backend, "get_compiler_config", None)
    return own


def rebuild(model: Any, arguments: Mapping[str, Any]) -> Any:
    """Compile an unpickled or copied module or function again, with the arguments of the first time."""
    return compile(model, **arguments)


def _reduce(region: Any) -> Any:
    """How a compiled function is pickled and copied: by its name where it stands under it, else as the function and the arguments."""
    owner: Any = sys.modules.get(getattr(region, "__module__", None) or "")
    name = getattr(region, "__qualname__", "")
    with contextlib.suppress(AttributeError):
        if functools.reduce(getattr, name.split("."), owner) is region:
            return name
    made_from = getattr(region, "__flambeau_made_from__", None)
    if made_from is None:
        raise TypeError(f"a region that flambeau.compile did not make cannot be pickled: {region!r}")
    return rebuild, made_from


copyreg.pickle(flambeau_capture.Region, _reduce)


def _check_types(model: Any, arguments: Mapping[str, Any]) -> None:
    if not callable(model):
        raise InvalidOption(
            f"compile takes a function or an nn.Module, not {type(model).__name__}",
            hint="as a decorator with arguments write @flambeau.compile(fullgraph=True)",
        )
    if isinstance(model, type):
        raise InvalidOption("compile takes an instance or a function, not a class", hint="compile the instances")
    for name in ("dynamic", "fullgraph"):
        if not isinstance(arguments[name], bool | None):
            raise InvalidOption(f"{name} takes None, True or False, not {arguments[name]!r}")
    limit = arguments["recompile_limit"]
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InvalidOption(f"recompile_limit takes a number that is at least 1, not {limit!r}")
    if not isinstance(arguments["isolate_recompiles"], bool):
        raise InvalidOption(f"isolate_recompiles takes True or False, not {arguments['isolate_recompiles']!r}")
    if arguments["shapes_spec"] is not None and arguments["dynamic"] is not None:
        raise InvalidOption("dynamic and shapes_spec exclude each other: shapes_spec says what is symbolic")
    if not isinstance(arguments["name"], str | None):
        raise InvalidOption(f"name takes a text, not {arguments['name']!r}")


def _expect_kernels() -> None:
    """Where no kernel was ever compiled for the GPU in use, their compiler gets ready while the first call is traced."""
    if torch.cuda.is_initialized():
        import flambeau_runtime

        flambeau_runtime.warm_up(flambeau_runtime.default_store())


def _options_of(backend: Backend, arguments: Mapping[str, Any]) -> Options:
    """The options that are ours: all of those of a backend of ours; of any other only capture's, as the rest is that backend's to read."""
    mode, given = arguments["mode"], arguments["options"]
    if is_own(backend) or not isinstance(given, Mapping | None):
        return resolve(mode, given)
    if mode is not None and given is not None:
        raise InvalidOption("mode and options exclude each other")
    return resolve(None, {name: given[name] for name in _OF_ANY_BACKEND if given and name in given})


_AROUND_BACKENDS = ("FLAMBEAU_OVERRIDE_", "FLAMBEAU_REPRO_", "FLAMBEAU_VERIFY")
"""Variables that ask for something around backends, see `debugging/overrides.py`."""


def _configured_backend(
    backend: Backend, arguments: Mapping[str, Any], options: Options, settings: Settings, recorder: Recorder | None
) -> Backend:
    """The backend with the options bound that it understands, and what finds faults around it where that was asked for."""
    bound = _bound_backend(backend, arguments, options, settings, recorder)
    environment = variables()
    verify = options["verify"]
    saves = bool(options["save_args"])
    if verify is None and not saves and not any(name.startswith(_AROUND_BACKENDS) for name in environment):
        return bound
    from .debugging.overrides import around

    return around(bound, environment, arguments, verify, saves=saves)


def _bound_backend(
    backend: Backend, arguments: Mapping[str, Any], options: Options, settings: Settings, recorder: Recorder | None
) -> Backend:
    note_use(backend)
    if backend in (aot_eager, aot_eager_decomp_partition):
        return functools.wraps(backend)(functools.partial(backend, settings=settings))
    if backend in (inductor, cudagraphs):
        _expect_kernels()
        bound = functools.partial(backend, options=options, recorder=recorder, settings=settings)
        return functools.wraps(backend)(bound)
    if is_own(backend):
        return backend
    extra: dict[str, Any] = {}
    if arguments["mode"] not in (None, "default"):
        extra["mode"] = arguments["mode"]
    own = {name: value for name, value in (arguments["options"] or {}).items() if name not in _OF_ANY_BACKEND}
    if own:
        extra["options"] = own
    if extra:
        return functools.wraps(backend, updated=())(functools.partial(backend, **extra))
    return backend
