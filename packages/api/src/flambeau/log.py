"""`FLAMBEAU_LOGS`: which artifacts of a compilation are printed, and where the events of all packages go.

In: a string such as `"graph_breaks,recompiles,+guards"` (from the environment or `set_logs`). Out: events whose `artifact` is enabled go to
standard error, the rest are dropped before they are rendered. Silent by default, but for warnings.
The loggers are flambeau's own: structlog's configuration belongs to the application, and is neither read nor changed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, TextIO

from attrs import frozen

import flambeau_autograd.log
import flambeau_capture.log
import flambeau_inductor.log
import flambeau_runtime.log
from flambeau_runtime.log import load_structlog

from .errors import NotHereYet, UnknownName
from .torch_names import LOGS

#: Artifact name -> what it shows. The names are those of TORCH_LOGS.
ARTIFACTS: Mapping[str, str] = {
    "graph_breaks": "each graph break with the user's file and line, the reason and a hint",
    "recompiles": "why a frame was compiled again: the first guard that failed",
    "recompiles_verbose": "every guard that failed, for every cached entry",
    "guards": "the guards of each compiled frame",
    "graph_code": "each captured graph as Python code",
    "graph": "each captured graph as a table",
    "graph_sizes": "sizes of every tensor in the captured graph",
    "bytecode": "the original and the rewritten bytecode of each frame",
    "side_effects": "mutations that are replayed after the graph",
    "dynamic": "symbols, ranges and specialisations of dynamic shapes",
    "aot_joint_graph": "the joint forward and backward graph",
    "aot_graphs": "the partitioned forward and backward graphs",
    "post_grad_graphs": "ATen graphs after inductor's passes",
    "ir_pre_fusion": "loop IR before fusion",
    "ir_post_fusion": "kernel bodies after fusion",
    "ir_stages": "loops, kernels, their sources and the program after each stage of inductor",
    "fusion": "which operations were fused, and why others were not",
    "fallbacks": "operations that became library calls, with the reason",
    "output_code": "the program and the kernels of each artifact",
    "kernel_code": "the source of each generated kernel",
    "autotuning": "what was measured for each product, kernel and program, and what was chosen",
    "caching": "cache hits, misses and the reason of each miss",
    "cudagraphs": "what is recorded as a CUDA graph and what is not, with the reason",
    "repeats": "calls of modules and regions that are alike and were compiled once",
    "perf_hints": "missed optimisations",
    "timings": "seconds spent in each stage of a compilation",
}


@frozen
class LogSettings:
    """Which artifacts are shown.

    Attributes:
        artifacts: enabled artifact names.
        level: the lowest level shown for events that carry no artifact.
    """

    artifacts: frozenset[str] = frozenset()
    level: int = logging.WARNING


@frozen
class Deferred:
    """A text that is made only when its event is shown; most events are dropped, and printing a graph costs milliseconds."""

    make: Callable[[], str]

    def __call__(self) -> str:
        return self.make()

    def __str__(self) -> str:
        return self.make()


def parse(text: str, kind: str = "log artifact") -> LogSettings:
    """Read a `FLAMBEAU_LOGS` value.

    Args:
        text: comma separated artifact names; `+name` is accepted for `name`, `-name` switches one off, `all` means every one,
            `debug` and `info` lower the level of the events that belong to no artifact.
        kind: what an error calls a name.

    Raises:
        UnknownName: for a name that is no artifact.
    """
    chosen: set[str] = set()
    level = logging.WARNING
    for word in filter(None, (part.strip() for part in text.split(","))):
        name = word.lstrip("+-")
        if name in ("debug", "info"):
            level = min(level, logging.DEBUG if name == "debug" else logging.INFO)
        elif name == "all":
            chosen.difference_update(ARTIFACTS) if word.startswith("-") else chosen.update(ARTIFACTS)
        elif name in LOGS:
            raise NotHereYet(kind, name)
        elif name not in ARTIFACTS:
            raise UnknownName(kind, name, [*ARTIFACTS, "all", "debug", "info"])
        elif word.startswith("-"):
            chosen.discard(name)
        else:
            chosen.add(name)
    return LogSettings(frozenset(chosen), level)


def _level_number(method: str) -> int:
    return logging.getLevelNamesMapping().get(method.upper(), logging.INFO)


def _select(settings: LogSettings, structlog: Any) -> Any:
    """A structlog processor that drops what is not enabled."""

    def processor(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        artifact = event.get("artifact")
        shown = artifact in settings.artifacts if artifact else False
        if not shown and _level_number(method) < settings.level:
            raise structlog.DropEvent
        return event

    return processor


def _render(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
    """One line of key=value pairs; multi-line text (graphs, code) follows indented below it."""
    name = event.pop("event")
    artifact = event.pop("artifact", None)
    event.pop("level", None)
    shown = {key: str(value) for key, value in event.items()}
    blocks = {key: text for key, text in shown.items() if "\n" in text}
    pairs = " ".join(f"{key}={value}" for key, value in shown.items() if key not in blocks)
    lines = [f"[flambeau {artifact or method}] {name} {pairs}".rstrip()]
    for key, text in blocks.items():
        lines.append(f"  {key}:")
        lines.extend(f"    {line}" for line in text.rstrip().splitlines())
    return "\n".join(lines)


class _StandardError:
    """Standard error as it is when something is written."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _drop(*args: Any, **values: Any) -> None:
    """What an event is given to that no setting shows."""


class _Router:
    """A logger in front of structlog's, which is made for the first event that may be shown: most processes have none."""

    settings: LogSettings = LogSettings()
    stream: TextIO | None = None
    _made: Any = None

    def configure(self, settings: LogSettings, stream: TextIO | None) -> None:
        self.settings, self.stream, self._made = settings, stream, None

    def __getattr__(self, name: str) -> Any:
        settings = self.settings
        if not settings.artifacts and _LEVELS.get(name, logging.CRITICAL) < settings.level:
            return _drop
        if self._made is None:
            structlog = load_structlog()
            self._made = structlog.wrap_logger(
                structlog.PrintLogger(self.stream or _StandardError()),
                processors=[_select(settings, structlog), _render],
                wrapper_class=structlog.make_filtering_bound_logger(
                    logging.DEBUG if settings.artifacts else settings.level
                ),
                context_class=dict,
                cache_logger_on_first_use=False,
            )
        return getattr(self._made, name)


_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO}
"""The methods whose events are dropped by default."""

logger: Any = _Router()
"""The logger of this package; the others are given it too."""


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Show the events of all packages.

    Args:
        settings: what is shown.
        stream: where it goes; standard error by default.
    """
    logger.configure(settings, stream)
    for package in (flambeau_autograd, flambeau_capture, flambeau_inductor, flambeau_runtime):
        package.log.send_to(logger)


def configure_from_environment() -> None:
    """Apply `FLAMBEAU_LOGS`, once at import."""
    configure(parse(os.environ.get("FLAMBEAU_LOGS", ""), "name in FLAMBEAU_LOGS:"))


def set_logs(*names: str) -> None:
    """Switch artifacts on for this process, e.g. `set_logs("graph_breaks", "recompiles")`; no name switches all off."""
    configure(parse(",".join(names)))
