"""The configuration of every stage behind capture, resolved once for one graph and passed down.

In: a region's `Options` and `Settings`, the environment. Out: `Stages`. Nothing behind it reads the environment, and its `key` is in the cache
key of a compiled graph, so that whatever changes what is generated changes the key.
"""

from __future__ import annotations

from attrs import frozen

import flambeau_autograd
import flambeau_inductor
import flambeau_runtime
from flambeau_inductor.config import MEASURING

from .config import Config
from .defaults import Settings, current, user_errors, variables
from .options import RECORDS, Options

_IMPLIED = (
    ("deterministic", dict.fromkeys(MEASURING, False)),
    ("batch_invariant", {"batch_invariant": True}),
    ("force_disable_caches", {"autotune_local_cache": False}),
    ("fallback_by_default", {"cpp_kernels": False, "triton_kernels": False}),
)
"""An option of the api that is on, and the fields of inductor that it decides."""


@frozen
class Stages:
    """What each package works with while one graph is compiled.

    Attributes:
        api: the options that are acted on here.
        autograd, inductor, runtime: the packages' own records.
        is_strict: whether a graph that cannot be compiled is an error: `fullgraph`.
        suppress_errors: whether a fault of ours runs the graph in eager after one warning.
        recorded: whether the program says of the graph's forward and backward that they are recorded as CUDA graphs; None: the options do.
    """

    api: Config
    autograd: flambeau_autograd.Config
    inductor: flambeau_inductor.Config
    runtime: flambeau_runtime.Config
    is_strict: bool
    suppress_errors: bool
    recorded: tuple[bool | None, bool | None] = (None, None)

    def is_recorded(self, kind: str, by_options: bool) -> bool:
        """Whether a half is recorded as a CUDA graph, where the options say `by_options`."""
        said = self.recorded[kind == "backward"]
        return by_options if said is None else said

    def key(self) -> str:
        """The part of a cache key that the packages' configurations contribute."""
        return repr([*self.api.key(), *self.autograd.key(), *self.inductor.key(), *self.runtime.key()])


def resolve_stages(options: Options, settings: Settings | None = None) -> Stages:
    """The configuration for one graph.

    Args:
        options: the region's options; those that were given go before environment variables.
        settings: the region's settings; those in force by default.

    Raises:
        InvalidOption: for an environment variable whose value does not fit.
    """
    settings = settings or current()
    given = {package: {**options.of_package(package), **settings.of_package(package)} for package in RECORDS}
    environment = variables()
    with user_errors():
        api = Config.from_environment(environment, **given["api"])
        for name, fields in _IMPLIED:
            if getattr(api, name):
                given["inductor"] |= fields
        if api.emulate_precision_casts is not None and "numerics" not in given["inductor"]:
            given["inductor"]["numerics"] = "faithful" if api.emulate_precision_casts else "fast"
        return Stages(
            api,
            flambeau_autograd.Config.from_environment(environment, **given["autograd"]),
            flambeau_inductor.Config.from_environment(environment, **given["inductor"]),
            flambeau_runtime.Config.from_environment(environment, **given["runtime"]),
            settings.capture.fullgraph,
            settings.capture.suppress_errors,
        )
