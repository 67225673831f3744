"""`flambeau.explain`: compile once, and say what happened.

In: a callable, then the arguments of one call. Out: `Explanation`, with one record per graph, per break and per program.
It compiles in a region of its own, so nothing of the program's own regions changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .compile import compile_recorded
from .records import Explanation, Recorder


def explain(function: Callable[..., Any], **compile_arguments: Any) -> Callable[..., Explanation]:
    """A callable that compiles and runs `function` once and says what happened.

    Args:
        function: a function or a module.
        compile_arguments: as for `flambeau.compile`.

    Example:
        >>> print(flambeau.explain(model)(x))
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        recorder = Recorder()
        compiled = compile_recorded(function, recorder, **compile_arguments)
        result = compiled(*args, **kwargs)
        return Explanation(
            tuple(recorder.graphs),
            tuple(recorder.breaks),
            tuple(recorder.programs),
            tuple(recorder.guards),
            dict(recorder.seconds),
            result,
            tuple(recorder.eager_graphs),
            tuple(recorder.cuda_graphs),
            recorder.not_captured,
            tuple(recorder.repeats),
        )

    return run
