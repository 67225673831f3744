"""Modes and options: what `flambeau.compile(mode=..., options=...)` accepts, as one frozen record.

In: a mode name or a dict with the option names of `torch.compile`. Out: `Options`, validated, printable, with a stable cache key.
One record per option (`OPTIONS`) feeds validation, `list_options()`, and the docs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from attrs import evolve, field, frozen

from .errors import InvalidOption, NotHereYet, UnknownName
from .torch_names import OPTIONS as NOT_YET


@frozen
class OptionSpec:
    """One option.

    Attributes:
        name: the key in `options={...}`.
        types: accepted Python types; a bool is not accepted as an int.
        default: value when it is not given.
        help: one sentence.
        cached: whether the value is part of the compilation cache's key.
        choices: the accepted values, if they are few.
        accepts: a further condition on values of the right type, and the words for it.
    """

    name: str
    types: tuple[type, ...]
    default: Any
    help: str
    cached: bool = True
    choices: tuple[Any, ...] | None = None
    accepts: tuple[Callable[[Any], bool], str] | None = None


def _spec(name: str, default: Any, help: str, *, types: tuple[type, ...] | None = None, **more: Any) -> OptionSpec:
    return OptionSpec(name, types or (type(default),), default, help, **more)


_POSITIVE = (lambda value: value >= 1, "at least 1")
_NOT_NEGATIVE = (lambda value: value >= 0, "at least 0")
_THREADS = (lambda value: value == -1 or value >= 1, "at least 1, or -1")
_SHARE = (lambda value: 0 <= value <= 1, "from 0 to 1")
_FUNCTION = (lambda value: value is None or callable(value), "a callable or None")

_SPECS = (
    _spec("numerics", "faithful", "'faithful' rounds where eager rounds; 'fast' may not", choices=("faithful", "fast")),
    _spec("cpu_backend", "cpp", "code generator for CPU tensors", choices=("cpp", "triton")),
    _spec("triton.cudagraphs", False, "record and replay CUDA graphs", cached=False),
    _spec(
        "max_autotune",
        False,
        "measure on the GPU which kernel computes a matrix product fastest, the library's included, and in which blocks "
        "kernels run fastest; kept on disk, where the default finds it too, and dropped where the whole program does not gain",
    ),
    _spec("max_autotune_gemm", False, "max_autotune for matrix products alone"),
    _spec("max_autotune_pointwise", False, "max_autotune for kernels over points and reductions alone"),
    _spec(
        "coordinate_descent_tuning",
        False,
        "with max_autotune: look around the fastest kernel for a faster one, one knob at a time, for a few seconds",
    ),
    _spec("epilogue_fusion", True, "let the library's product of matrices do the activation after it (CUDA)"),
    _spec(
        "max_fusion_size", 64, "loops, each with a result of its own, fused into one kernel at most", accepts=_POSITIVE
    ),
    _spec(
        "repeats_outlined",
        8,
        "calls of modules that are alike and are compiled once from this many on; 0 = only regions that are marked",
        accepts=_NOT_NEGATIVE,
    ),
    _spec(
        "freezing",
        False,
        "where no gradient is wanted, compute what follows from parameters and buffers alone once, and again only when one of them changes: "
        "weights are packed for the library, batch norms folded into convolutions (writes through `.data` are not noticed)",
    ),
    _spec(
        "freezing_discard_parameters",
        False,
        "with freezing, give back the memory of parameters that are left in another form only; using one afterwards is an error",
        cached=False,
    ),
    _spec("allow_buffer_reuse", True, "let a freed buffer serve a later one"),
    _spec("inplace_buffers", True, "let a kernel write its result over an intermediate that it reads last"),
    _spec("spend_memory", False, "hold more memory at a time than eager does where that saves time"),
    _spec("fallback_by_default", False, "library calls for everything: a minimal compile"),
    _spec("fallback_random", True, "random numbers equal eager's; they always do, False changes nothing", cached=False),
    _spec(
        "deterministic",
        False,
        "measure nothing and use nothing that was measured: the same program is made each time, also with max_autotune "
        "(for colliding writes on a GPU see torch.use_deterministic_algorithms)",
    ),
    _spec("fx_graph_cache", True, "keep compiled graphs on disk", cached=False),
    _spec(
        "force_disable_caches",
        False,
        "neither read nor write the disk cache: no compiled graphs, no kernels",
        cached=False,
    ),
    _spec(
        "compile_threads",
        0,
        "C++ compilers at work on one graph at once; 0 = as many as it can use (Triton's are always one a core)",
        accepts=_NOT_NEGATIVE,
        cached=False,
    ),
    _spec(
        "cpp.threads",
        -1,
        "threads of a C++ kernel at most; -1 = torch.get_num_threads() at the call",
        accepts=_THREADS,
        cached=False,
    ),
    _spec(
        "activation_memory_budget",
        1.0,
        "saved activations as a share of eager's (0..1)",
        types=(float, int),
        accepts=_SHARE,
    ),
    _spec("size_asserts", True, "check what library calls return against what was predicted"),
    _spec("recompile_limit", 8, "compiled entries of one frame in one region", cached=False),
    _spec(
        "guard_filter_fn",
        None,
        "gets a list of entries, returns a bool for each guard: False drops it (unsafe)",
        types=(object,),
        accepts=_FUNCTION,
        cached=False,
    ),
    _spec("suppress_errors", True, "our own failure runs the graph in eager after one warning", cached=False),
    _spec("executor", "native", "which executor runs the program", choices=("native", "python"), cached=False),
)

#: Option name -> its record.
OPTIONS: Mapping[str, OptionSpec] = MappingProxyType({spec.name: spec for spec in _SPECS})

_MODES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "reduce-overhead": {"triton.cudagraphs": True, "spend_memory": True},
        "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True, "spend_memory": True},
        "max-autotune": {
            "max_autotune": True,
            "coordinate_descent_tuning": True,
            "triton.cudagraphs": True,
            "spend_memory": True,
        },
        "lite": {"fallback_by_default": True, "allow_buffer_reuse": False},
    }
)


def _plain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))


@frozen
class Options:
    """The options of one compile region, resolved once.

    Attributes:
        values: option name -> value, only those that were given.
    """

    values: Mapping[str, Any] = field(factory=dict, converter=_plain)

    def __getitem__(self, name: str) -> Any:
        if name not in OPTIONS:
            raise UnknownName("option", name, OPTIONS)
        return self.values.get(name, OPTIONS[name].default)

    def cache_key(self) -> str:
        """The part of a cache key that the options contribute."""
        return repr(sorted((k, v) for k, v in self.values.items() if OPTIONS[k].cached and v != OPTIONS[k].default))

    def with_(self, **changes: Any) -> Options:
        """A copy with some options changed; dots in names are written as double underscores."""
        renamed = {name.replace("__", "."): value for name, value in changes.items()}
        return evolve(self, values={**self.values, **_validated(renamed)})


def _validated(given: Mapping[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in given.items():
        spec = OPTIONS.get(name)
        if spec is None:
            raise NotHereYet("option", name) if name in NOT_YET else UnknownName("option", name, OPTIONS)
        wrong_type = not isinstance(value, spec.types) or (isinstance(value, bool) and bool not in spec.types)
        if wrong_type and object not in spec.types:
            expected = " or ".join(kind.__name__ for kind in spec.types)
            raise InvalidOption(f"option {name!r} takes {expected}, not {value!r}", hint=spec.help)
        if spec.accepts is not None and not spec.accepts[0](value):
            raise InvalidOption(f"option {name!r} is {spec.accepts[1]}, not {value!r}", hint=spec.help)
        if spec.choices is not None and value not in spec.choices:
            raise UnknownName(f"value of option {name!r}", value, map(str, spec.choices))
        result[name] = value
    return result


def resolve(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """The `Options` of a compile call.

    Args:
        mode: one of `list_mode_options()`, or None.
        options: option name -> value, or None.

    Raises:
        InvalidOption: when both are given, or a value has the wrong type or is out of range.
        UnknownName: for an unknown mode, option or choice.
    """
    if mode is not None and options is not None:
        raise InvalidOption(
            "mode and options exclude each other",
            hint=f"write what the mode sets into the options: {dict(_MODES.get(mode, {}))}",
        )
    if mode is not None:
        if mode not in _MODES:
            raise UnknownName("mode", mode, _MODES)
        return Options(_validated(_MODES[mode]))
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOption(f"options takes a dict, not {type(options).__name__}")
    return Options(_validated(options or {}))


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Mode name -> the options it sets; with `mode`, that mode's options alone."""
    if mode is None:
        return {name: dict(values) for name, values in _MODES.items()}
    if mode not in _MODES:
        raise UnknownName("mode", mode, _MODES)
    return dict(_MODES[mode])


def list_options() -> list[str]:
    """Names of all options, sorted."""
    return sorted(OPTIONS)
