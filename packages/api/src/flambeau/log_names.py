"""The names of logs: artifacts, torch's aliases, modules; and what a list of them switches on.

In: a string as `FLAMBEAU_LOGS` has it, or names with levels as `set_logs` takes them. Out: `LogSettings`. Nothing is shown or changed here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from types import MappingProxyType

from attrs import frozen

from .errors import InvalidOption, NotHereYet, UnknownName
from .torch_names import LOGS

#: Artifact name -> what it shows. The names are those of TORCH_LOGS.
ARTIFACTS: Mapping[str, str] = {
    "graph_breaks": "each graph break with the user's file and line, the reason and a hint",
    "recompiles": "why a frame was compiled again: the first guard that failed",
    "recompiles_verbose": "every guard that failed, for every cached entry",
    "guards": "the guards of each compiled frame",
    "verbose_guards": "the same, each with the user's line that needs it",
    "graph_code": "each captured graph as Python code",
    "graph_code_verbose": "the captured graph after each pass before autograd that changes it",
    "graph": "each captured graph as a table",
    "graph_sizes": "sizes of every tensor in the captured graph",
    "bytecode": "the original and the rewritten bytecode of each frame",
    "trace_source": "each line of the program as it is traced, with its function and file",
    "trace_call": "each call as it is traced: the line, with a mark under the call",
    "trace_bytecode": "each instruction as it is traced, with what is on the stack before it",
    "side_effects": "mutations that are replayed after the graph",
    "dynamic": "symbols, ranges and specialisations of dynamic shapes",
    "pre_grad_graphs": "torch-level graphs as autograd is given them",
    "aot_joint_graph": "the joint forward and backward graph",
    "aot_graphs": "the partitioned forward and backward graphs",
    "post_grad_graphs": "ATen graphs after inductor's passes",
    "ir_pre_fusion": "loop IR before fusion",
    "compute_dependencies": "what each operation of the loop IR reads and writes, before fusion",
    "ir_post_fusion": "kernel bodies after fusion",
    "schedule": "kernels and library calls in the order in which they run, with the operations in each and the user's lines",
    "loop_ordering": "the axes of each kernel's loops in their order, outermost first, beside the order before",
    "loop_tiling": "how each kernel's loops are cut: mode, what runs in parallel, how much a thread takes",
    "ir_stages": "loops, kernels, their sources and the program after each stage of inductor",
    "fusion": "which operations were fused, and why others were not",
    "fallbacks": "operations that became library calls, graphs and frames that run in eager, each with the reason",
    "output_code": "the program and the kernels of each artifact",
    "kernel_code": "the source of each generated kernel",
    "inductor_metrics": "of each program: kernels, library calls, operations in kernels, bytes that kernels move",
    "autotuning": "what was measured for each product, kernel and program, and what was chosen",
    "benchmarking": "each measurement: the program, and its seconds",
    "caching": "cache hits, misses and the reason of each miss",
    "ddp_graphs": "into how many parts a graph under DistributedDataParallel is cut, and how many nodes each has",
    "cudagraphs": "what is recorded as a CUDA graph and what is not, with the reason",
    "cudagraph_static_inputs": "which inputs of each program stay where they are, so that a CUDA graph reads them there",
    "repeats": "calls of modules and regions that are alike and were compiled once",
    "perf_hints": "missed optimisations, each with what to do about it",
    "timings": "seconds spent in each stage of a compilation",
}

#: Alias of TORCH_LOGS -> modules of ours whose events it means. An alias that is not here means loggers of torch itself.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "dynamo": ("flambeau_capture",),
    "aot": ("flambeau_autograd",),
    "inductor": ("flambeau_inductor",),
    "cache": ("flambeau_runtime.cache",),
    "async_compile": ("flambeau_runtime.workers", "flambeau_runtime.build"),
}
#: All of ours.
PACKAGES = ("flambeau", "flambeau_capture", "flambeau_autograd", "flambeau_inductor", "flambeau_runtime")
_WORDS = {"debug": logging.DEBUG, "info": logging.INFO}


@frozen
class LogSettings:
    """What is shown.

    Attributes:
        artifacts: enabled artifact names.
        level: the lowest level shown of other events.
        modules: module of ours -> the lowest level shown of its events, also of those below it.
        loggers: logger of torch itself -> its level.
    """

    artifacts: frozenset[str] = frozenset()
    level: int = logging.WARNING
    modules: Mapping[str, int] = MappingProxyType({})
    loggers: Mapping[str, int] = MappingProxyType({})


def parse(text: str, kind: str = "log artifact") -> LogSettings:
    """Read a `FLAMBEAU_LOGS` value.

    Args:
        text: comma separated names. An artifact is shown (`+name` too), `-name` switches it off. An alias (`dynamo`) or a module
            (`flambeau_inductor.lowering`, `torch.distributed`) shows its events from INFO on, with `+` from DEBUG, with `-` errors alone. `all` means
            every artifact; `debug` and `info` lower the level of everything else.
        kind: what an error calls a name.

    Raises:
        UnknownName: for a name that is nothing of these.
    """
    given: list[tuple[str, int | bool]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        name = word.lstrip("+-")
        if is_artifact(name):
            given.append((name, not word.startswith("-")))
        else:
            signs = {"+": logging.DEBUG, "-": logging.ERROR}
            given.append((name, signs.get(word[0], logging.INFO)))
    return settings_of(given, kind)


def is_artifact(name: str) -> bool:
    """Whether a name is an artifact, or stands for all of them."""
    return name in ARTIFACTS or name == "all"


def settings_of(given: Iterable[tuple[str, int | bool]], kind: str = "log artifact") -> LogSettings:
    """The settings that names ask for: an artifact with a truth value, another name with a level.

    Raises:
        UnknownName: for a name that is no artifact, alias, or module of flambeau or torch.
        InvalidOption: for a level of something that is shown or not, or the other way round.
    """
    artifacts: set[str] = set()
    level = logging.WARNING
    modules: dict[str, int] = {}
    loggers: dict[str, int] = {}
    for name, value in given:
        if is_artifact(name):
            if not isinstance(value, bool):
                raise InvalidOption(
                    f"the artifact {name!r} is shown or not, it has no level {value!r}", "pass True or False"
                )
            names = ARTIFACTS if name == "all" else (name,)
            artifacts = artifacts.union(names) if value else artifacts.difference(names)
            continue
        of_torch: list[str] = []
        ours = ALIASES.get(name, ())
        if name.partition(".")[0] in PACKAGES and find_spec(name) is not None:
            ours = (name,)
        if name not in _WORDS and not ours:
            of_torch = _loggers_of_torch(name)
            if not of_torch and name in LOGS:
                raise NotHereYet(kind, name)
            if not of_torch:
                raise UnknownName(kind, name, [*ARTIFACTS, *ALIASES, *_aliases_of_torch(), "all", "debug", "info"])
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidOption(
                f"{name!r} takes a level of logging, not {value!r}", "pass logging.INFO or logging.DEBUG"
            )
        level = min(level, _WORDS.get(name, level))
        modules.update(dict.fromkeys(ours, value))
        loggers.update(dict.fromkeys(of_torch, value))
    return LogSettings(frozenset(artifacts), level, modules, loggers)


def _aliases_of_torch() -> Mapping[str, list[str]]:
    """The aliases that the installed torch knows, without those for its compiler."""
    from torch._logging._internal import log_registry

    return {
        name: names
        for name, names in log_registry.log_alias_to_log_qnames.items()
        if name not in ALIASES and name != "dynamic"
    }


def _loggers_of_torch(name: str) -> list[str]:
    """The loggers of torch that a name means: by its aliases, or a module."""
    if name == "torch" or name.startswith("torch."):
        return [name]
    found = _aliases_of_torch().get(name, [])
    return [found] if isinstance(found, str) else list(found)
