"""The configuration of every stage behind capture, resolved once for one graph and passed down.

In: a region's `Options` and `Settings`, the environment. Out: `Stages`. Nothing behind it reads the environment, and its `key` is in the cache
key of a compiled graph, so that whatever changes what is generated changes the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

import flambeau_autograd
import flambeau_inductor
import flambeau_runtime

from .defaults import Settings, current, user_errors, variables
from .options import Options

_OF_INDUCTOR: Mapping[str, str] = {
    "numerics": "numerics",
    "epilogue_fusion": "epilogue_fusion",
    "max_fusion_size": "max_fusion_size",
    "allow_buffer_reuse": "reuse_memory",
    "inplace_buffers": "inplace_buffers",
    "size_asserts": "size_asserts",
    "spend_memory": "spend_memory",
    "cpu_backend": "cpu_backend",
    "max_autotune": "max_autotune",
    "max_autotune_gemm": "max_autotune_gemm",
    "max_autotune_pointwise": "max_autotune_pointwise",
    "coordinate_descent_tuning": "coordinate_descent_tuning",
}
"""Option -> inductor's field. An option that was not given leaves the field to its variable and default."""

_MEASURING = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")


@frozen
class Stages:
    """What each package works with while one graph is compiled.

    Attributes:
        autograd, inductor, runtime: the packages' own records.
        is_strict: whether a graph that cannot be compiled is an error: `fullgraph`.
        suppress_errors: whether a fault of ours runs the graph in eager after one warning.
    """

    autograd: flambeau_autograd.Config
    inductor: flambeau_inductor.Config
    runtime: flambeau_runtime.Config
    is_strict: bool
    suppress_errors: bool

    def key(self) -> str:
        """The part of a cache key that the packages' configurations contribute."""
        return repr([*self.autograd.key(), *self.inductor.key(), *self.runtime.key()])


def resolve_stages(options: Options, settings: Settings | None = None) -> Stages:
    """The configuration for one graph.

    Args:
        options: the region's options; those that were given go before environment variables.
        settings: the region's settings; those in force by default.

    Raises:
        InvalidOption: for an environment variable whose value does not fit.
    """
    settings = settings or current()
    given = options.values
    inductor = {field: given[name] for name, field in _OF_INDUCTOR.items() if name in given}
    if given.get("deterministic"):
        inductor |= dict.fromkeys((*_MEASURING, "stored_choices"), False)
    if given.get("force_disable_caches"):
        inductor["stored_choices"] = False
    if given.get("fallback_by_default"):
        inductor |= {"cpp_kernels": False, "triton_kernels": False}
    autograd: dict[str, Any] = {}
    if "activation_memory_budget" in given:
        autograd["memory_budget"] = float(given["activation_memory_budget"])
    runtime: dict[str, Any] = {"cache_shared": settings.cache_shared}
    if "executor" in given:
        runtime["executor"] = given["executor"]
    environment = variables()
    with user_errors():
        return Stages(
            flambeau_autograd.Config.from_environment(environment, **autograd),
            flambeau_inductor.Config.from_environment(environment, **inductor),
            flambeau_runtime.Config.from_environment(environment, **runtime),
            settings.capture.fullgraph,
            settings.capture.suppress_errors,
        )
