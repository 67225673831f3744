"""The Python twin of the region: the same answers to the same calls, for tests and for reading.

In: what `make_region` takes. Out: a `PyRegion` that binds arguments with `inspect`, checks guards with `guards/check.py` and calls
compiled results. It replaces only the callable's own frame, not frames called from it, and it is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from .config import Config
from .frame import Callback, FrameInfo, RunCode, RunGraph, Skip
from .guards.check import check
from .hook import flatten
from .library import inspect
from .sources.source import resolve


class PyRegion:
    """A region over one plain function. Call it like the function."""

    def __init__(self, function: FunctionType, callback: Callback, config: Config | None = None) -> None:
        self.function = function
        self.callback = callback
        self.limit = (config or Config()).recompile_limit
        self.entries: list[RunCode | RunGraph] = []
        self.skipped = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.function
        if self.skipped:
            return function(*args, **kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        f_locals = dict(bound.arguments)
        order = flatten(function.__code__).co_varnames[: len(f_locals)]
        values = [f_locals[name] for name in order]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            f_locals[name] = cell.cell_contents
        for entry in self.entries:
            if check(entry.guards, f_locals, function.__globals__) == -1:
                self.entries.remove(entry)
                self.entries.insert(0, entry)
                return self.run(entry, values, f_locals)
        if len(self.entries) >= self.limit:
            return function(*args, **kwargs)
        frame = FrameInfo(
            function.__code__, f_locals, function.__globals__, {}, function.__closure__, function, len(self.entries)
        )
        answer = self.callback(frame)
        if isinstance(answer, (RunCode, RunGraph)):
            self.entries.insert(0, answer)
            return self.run(answer, values, f_locals)
        self.skipped = not isinstance(answer, Skip)
        return function(*args, **kwargs)

    def run(self, entry: RunCode | RunGraph, values: list[Any], f_locals: Mapping[str, Any]) -> Any:
        """Run a matching entry with the frame's values."""
        if isinstance(entry, RunCode):
            code = flatten(entry.code)
            return FunctionType(code, self.function.__globals__, closure=self.function.__closure__)(*values)
        inputs = [resolve(source, f_locals, self.function.__globals__) for source in entry.inputs]
        call: Callable[..., Any] = entry.compiled
        results = call(inputs) if getattr(call, "_boxed_call", False) else call(*inputs)
        return pick(results, entry.outputs)


def pick(results: Any, outputs: Any) -> Any:
    """A frame's return value out of a graph's results, as `RunGraph.outputs` says."""
    if outputs is None:
        return None
    if isinstance(outputs, int):
        return results[outputs]
    return type(outputs)(None if index is None else results[index] for index in outputs)
