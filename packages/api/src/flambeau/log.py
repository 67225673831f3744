"""`FLAMBEAU_LOGS`: which events of a compilation are shown, in which form, and where.

In: settings (from the environment or `set_logs`) and the events of all packages. Out: lines on standard error, and in the file that `FLAMBEAU_LOGS_OUT` names.
What is not enabled is dropped before it is rendered. Silent by default, but for warnings. `log_names.py` has the names.
The loggers are flambeau's own: structlog's configuration belongs to the application, and is neither read nor changed. Levels of torch's own loggers
are changed where a name asks for it, and put back by the next settings.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, TextIO

from attrs import frozen

import flambeau_autograd.log
import flambeau_capture.log
import flambeau_inductor.log
import flambeau_runtime.log
from flambeau_runtime.event_log import load_structlog

from .errors import InvalidOption
from .log_names import ALIASES, ARTIFACTS, LogSettings, is_artifact, parse, settings_of

__all__ = [
    "ALIASES",
    "ARTIFACTS",
    "Deferred",
    "LogSettings",
    "configure",
    "copy_to",
    "forget",
    "listen",
    "logger",
    "parse",
    "set_logs",
]

Listener = Callable[[str, Mapping[str, Any]], None]

OUT, FORMAT, FILTER = "FLAMBEAU_LOGS_OUT", "FLAMBEAU_LOGS_FORMAT", "FLAMBEAU_LOGS_TRACE_ID_FILTER"


@frozen
class Deferred:
    """A text that is made only when its event is shown; most events are dropped, and printing a graph costs milliseconds."""

    make: Callable[[], str]

    def __call__(self) -> str:
        return self.make()

    def __str__(self) -> str:
        return self.make()


def _level_number(method: str) -> int:
    return logging.getLevelNamesMapping().get(method.upper(), logging.INFO)


def _caller() -> FrameType | None:
    """The frame that logs, which called structlog, which called a processor, which calls this."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "structlog":
        frame = frame.f_back
    return frame


def _level_of(module: str, settings: LogSettings) -> int:
    """The level for a module: that of the nearest name above it."""
    while module:
        if module in settings.modules:
            return settings.modules[module]
        module = module.rpartition(".")[0]
    return settings.level


def _select(settings: LogSettings, wanted: frozenset[str], structlog: Any) -> Any:
    """A structlog processor that drops what is not enabled, and notes whose event it is. `wanted`: compile ids, if not all."""

    def processor(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        level, shown = settings.level, event.get("artifact") in settings.artifacts
        if settings.modules and not shown:
            frame = _caller()
            level = _level_of(str(frame.f_globals.get("__name__", "")) if frame is not None else "", settings)
        if not shown and _level_number(method) < level:
            raise structlog.DropEvent
        number = flambeau_capture.log.compile_id.get()
        if wanted and (not number or wanted.isdisjoint((number, number.partition("/")[0]))):
            raise structlog.DropEvent
        if number:
            event["id"] = f"[{number}]"
        return event

    return processor


def _filter_of(text: str) -> frozenset[str]:
    """Compile ids as `FLAMBEAU_LOGS_TRACE_ID_FILTER` has them: `[0/1],[2/0]`, or `0` for every compile of that frame."""
    return frozenset(filter(None, (part.strip().strip("[]") for part in text.split(","))))


def _line(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
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


def _json(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
    """One JSON object a line."""
    name = event.pop("event")
    time = datetime.datetime.now(datetime.UTC).isoformat()
    plain = {key: value if isinstance(value, bool | int | float | None) else str(value) for key, value in event.items()}
    return json.dumps({"time": time, "level": method, "event": name, **plain})


def _formatted(template: str) -> Any:
    """A renderer for a format of `logging`: its attributes, with `message` as the line would say it, `artifact` and `trace_id`."""
    formatter = logging.Formatter(template)

    def render(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        frame = _caller()
        path, line, module, function = "", 0, "", ""
        if frame is not None:
            path, line, function = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            module = str(frame.f_globals.get("__name__", ""))
        artifact, number = event.get("artifact") or "", str(event.pop("id", ""))
        words = _line(logger, method, event).partition("] ")[2]
        record = logging.LogRecord(module, _level_number(method), path, line, words, None, None, function)
        vars(record).update(artifact=artifact, trace_id=number, artifact_name=artifact)
        return formatter.format(record)

    return render


def renderer_of(text: str) -> Any:
    """What `FLAMBEAU_LOGS_FORMAT` says: nothing for lines as they are, `short`, `json`, or a format of `logging` such as `%(asctime)s %(trace_id)s %(message)s`.

    Raises:
        InvalidOption: for a text that is none of these.
    """
    if text in ("", "default"):
        return _line
    if text == "json":
        return _json
    if text == "short":
        return _formatted("%(levelname)s:%(name)s:%(message)s")
    try:
        record = logging.LogRecord("name", logging.INFO, "", 0, "message", None, None)
        vars(record).update(artifact="", trace_id="", artifact_name="")
        if "%(" not in text:
            raise ValueError("it names no attribute")
        logging.Formatter(text).format(record)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidOption(
            f"{FORMAT}={text!r} is no format: {error}",
            "'short', 'json', or attributes of logging: '%(asctime)s %(message)s'",
        ) from None
    return _formatted(text)


class _Output:
    """Standard error as it is when something is written, a file where one is named, and one that all outputs have, `copy`."""

    file: TextIO | None = None
    copy: ClassVar[TextIO | None] = None
    copied_to: ClassVar[str] = ""
    lock: ClassVar[threading.RLock] = threading.RLock()  # `copy` is closed by one thread while others write

    def __init__(self, path: str) -> None:
        if path:
            self.file = _opened(path)

    def write(self, text: str) -> int:
        with self.lock:
            for file in filter(None, (self.file, self.copy)):
                file.write(text)
        return sys.stderr.write(text)

    def flush(self) -> None:
        with self.lock:
            for file in filter(None, (self.file, self.copy)):
                file.flush()
        sys.stderr.flush()


# A forked child has none of the threads that may hold it.
os.register_at_fork(
    before=_Output.lock.acquire, after_in_parent=_Output.lock.release, after_in_child=_Output.lock.release
)


def _opened(path: str) -> TextIO:
    target = Path(path).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.open("a", encoding="utf-8")


def copy_to(path: str | None) -> None:
    """Write what is shown into this file as well from now on; None: into none. Raises InvalidOption where it cannot be opened."""
    with _Output.lock:
        if (path or "") == _Output.copied_to:
            return
        if _Output.copy is not None:
            _Output.copy.close()
        _Output.copy, _Output.copied_to = None, ""
        if path:
            try:
                _Output.copy, _Output.copied_to = _opened(path), path
            except OSError as error:
                raise InvalidOption(f"log_file_name={path!r} cannot be written: {error}") from error


def _drop(*args: Any, **values: Any) -> None:
    """What an event is given to that no setting shows."""


_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO}
"""The methods whose events are dropped by default."""


class _Router:
    """A logger in front of structlog's, which is made for the first event that may be shown: most processes have none."""

    settings: LogSettings = LogSettings()
    _output: Any = None
    _render: Any = None
    _wanted: frozenset[str] = frozenset()
    _made: Any = None

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def configure(self, settings: LogSettings, output: Any, render: Any, wanted: frozenset[str]) -> None:
        self.settings, self._output, self._render, self._wanted, self._made = settings, output, render, wanted, None

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of every event, shown or not."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Tell `listener` no more."""
        self._listeners.remove(listener)

    def _tell(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """A structlog processor that tells the listeners."""
        for listener in tuple(self._listeners):
            listener(method, event)
        return event

    def _only_tell(self, method: str, event: str, /, **values: Any) -> None:
        """What a logger's method does whose events are not shown: structlog is not loaded for them."""
        self._tell(None, method, {**values, "event": event})

    def shows(self, artifact: str) -> bool:
        """Whether somebody reads events of an artifact, for who has to compute what they say."""
        return bool(self._listeners) or artifact in self.settings.artifacts or self.settings.level <= logging.DEBUG

    def asks_for(self, artifact: str) -> bool:
        """Whether an artifact was named, for events that are too many to be made for a listener or a low level."""
        return artifact in self.settings.artifacts

    def __getattr__(self, name: str) -> Any:
        settings = self.settings
        lowest = min([settings.level, *settings.modules.values()]) if settings.modules else settings.level
        if settings.artifacts:
            lowest = logging.DEBUG
        if _LEVELS.get(name, logging.CRITICAL) < lowest:
            return partial(self._only_tell, name) if self._listeners else _drop
        made = self._made
        if made is None:
            structlog = load_structlog()
            self._made = made = structlog.wrap_logger(
                structlog.PrintLogger(self._output),
                processors=[self._tell, _select(settings, self._wanted, structlog), self._render],
                wrapper_class=structlog.make_filtering_bound_logger(lowest),
                context_class=dict,
                cache_logger_on_first_use=False,
            )
        return getattr(made, name)


logger: Any = _Router()
"""The logger of this package; the others are given it too."""

_LEVELS_BEFORE: dict[str, int] = {}
"""Levels of torch's own loggers as they were before the settings in force."""


def configure(
    settings: LogSettings, stream: TextIO | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Show the events of all packages.

    Args:
        settings: what is shown.
        stream: where it goes; standard error, and the file that the environment names, by default.
        environment: where the format, the file and the filter are read from.

    Raises:
        InvalidOption: for a format that is none, or a file that cannot be written.
    """
    environment = os.environ if environment is None else environment
    render = renderer_of(environment.get(FORMAT, ""))
    output: Any = stream
    if output is None:
        try:
            output = _Output(environment.get(OUT, ""))
        except OSError as error:
            raise InvalidOption(f"{OUT}={environment[OUT]!r} cannot be written: {error}") from error
    logger.configure(settings, output, render, _filter_of(environment.get(FILTER, "")))
    for package in (flambeau_autograd, flambeau_capture, flambeau_inductor, flambeau_runtime):
        package.log.logger.send_to(logger)
    for name, level in _LEVELS_BEFORE.items():
        logging.getLogger(name).setLevel(level)
    _LEVELS_BEFORE.clear()
    for name, level in settings.loggers.items():
        _LEVELS_BEFORE[name] = logging.getLogger(name).level
        logging.getLogger(name).setLevel(level)


def listen(listener: Listener) -> None:
    """Have `listener(level, event)` called with every event of all packages from now on, shown or not; once, however often it is asked for."""
    logger.listen(listener)


def forget(listener: Listener) -> None:
    """Call `listener` no more."""
    logger.forget(listener)


def configure_from_environment() -> None:
    """Apply `FLAMBEAU_LOGS` and what goes with it, once at import."""
    configure(parse(os.environ.get("FLAMBEAU_LOGS", ""), "name in FLAMBEAU_LOGS:"))


def set_logs(
    *names: str, all: int | None = None, modules: Mapping[str, int] | None = None, **levels: int | bool | None
) -> None:
    """Choose what is logged in this process; without arguments nothing but warnings.

    Args:
        names: as in `FLAMBEAU_LOGS`: `set_logs("graph_breaks", "+dynamo")`.
        all: the level of everything that belongs to no artifact.
        modules: module of flambeau or torch, or artifact -> level or truth value.
        levels: artifacts with True or False, aliases with a level: `set_logs(recompiles=True, dynamo=logging.DEBUG)`.

    Raises:
        UnknownName: for a name that does not exist.
        InvalidOption: for a level of an artifact, or a truth value of something else.
    """
    given: list[tuple[str, int | bool]] = []
    for name, value in {**(modules or {}), **levels}.items():
        if value is not None:
            given.append((name, value))
    listed = parse(",".join(names))
    named = settings_of(given)
    off = {name for name, value in given if is_artifact(name) and value is False}
    configure(
        LogSettings(
            (listed.artifacts | named.artifacts) - off,
            min(listed.level, named.level) if all is None else all,
            {**listed.modules, **named.modules},
            {**listed.loggers, **named.loggers},
        )
    )
