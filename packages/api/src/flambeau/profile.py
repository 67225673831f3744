"""`flambeau.profile`: where the time of a call goes, by kernel.

In: a callable, then the arguments of one call. Out: `KernelProfile`. The callable is called as it is, under torch's profiler: once so that everything is
compiled, then `runs` times. What belongs to compiled code shows; the rest of the call is the difference to its whole time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import asdict, frozen

from .compile import compile_recorded
from .errors import InvalidOption
from .records import Recorder
from .targets import name_of

if TYPE_CHECKING:
    from .insight.steps import Step

SCHEMA = 1
"""The version of what `to_json` writes."""


@frozen
class KernelProfile:
    """Where the time of a call went.

    Attributes:
        name: what was called.
        device: "cpu" or "cuda": whose time it is.
        runs: how many calls the times are of.
        call_seconds: of one call as Python sees it, profiled.
        kernels: kernels and library calls, those that took longest first.
        result: what the last call returned.
    """

    name: str
    device: str
    runs: int
    call_seconds: float
    kernels: tuple[Step, ...]
    result: Any

    @property
    def kernel_seconds(self) -> float:
        """Of all kernels and library calls of one call."""
        return sum(step.measured_seconds or 0.0 for step in self.kernels)

    def __str__(self) -> str:
        from .insight.plain import plain_text

        return plain_text(self._parts())

    def __rich__(self) -> Any:
        from .insight.terminal import renderable

        return renderable(self._parts())

    def rich(self) -> Any:
        """A renderable of the library rich."""
        return self.__rich__()

    def _parts(self) -> list[Any]:
        from .insight.parts import Part, Row, kernels_part
        from .units import seconds_text

        lines: tuple[str, ...] = (
            f"{seconds_text(self.call_seconds)} a call under the profiler, mean of {self.runs}; {seconds_text(self.kernel_seconds)} of it in"
            f" {len(self.kernels)} kernels and library calls of compiled code on the {'CPU' if self.device == 'cpu' else 'GPU'}",
        )
        if not self.kernels:
            lines = (
                *lines,
                "no compiled code ran: flambeau.explain says why",
            )
        return [Part("summary", self.name, (Row(lines=lines),)), kernels_part(self.kernels)]

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes."""
        kernels = [
            {**asdict(step), "bytes_per_second": step.bytes_per_second, "share_of_limit": step.share_of_limit}
            for step in self.kernels
        ]
        return {
            "schema": SCHEMA,
            "name": self.name,
            "device": self.device,
            "runs": self.runs,
            "call_seconds": self.call_seconds,
            "kernel_seconds": self.kernel_seconds,
            "kernels": kernels,
        }

    def to_json(self) -> str:
        """JSON text of everything but the result."""
        return json.dumps(self.to_dict(), indent=1)


def profile(function: Callable[..., Any], *, runs: int = 10, **compile_arguments: Any) -> Callable[..., KernelProfile]:
    """A callable that runs `function` under torch's profiler and says which kernels took how long.

    It calls `function` `runs` + 2 times with the same arguments, effects included: the first call compiles, the second names what is seen.

    Args:
        function: a function or a module, or one that does more, such as a training step around it.
        runs: how many calls are measured.
        compile_arguments: as for `flambeau.compile`.

    Raises:
        InvalidOption: for `runs` below 1, or while another profiler is active.

    Example:
        >>> print(flambeau.profile(model)(x))
    """
    if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
        raise InvalidOption(f"runs takes a number that is at least 1, not {runs!r}")

    def run(*args: Any, **kwargs: Any) -> KernelProfile:
        import torch

        from .insight.steps import device_of, profiled, steps_of

        if torch.autograd._profiler_enabled():
            raise InvalidOption("a profiler is active already", hint="call flambeau.profile outside of it")
        recorder = Recorder()
        compiled = compile_recorded(function, recorder, **compile_arguments)
        results = [compiled(*args, **kwargs)]
        for watched in recorder.watched:
            watched.let_go()
        seconds: list[float] = []

        def call() -> None:
            begin = time.perf_counter()
            results[0] = compiled(*args, **kwargs)
            seconds.append(time.perf_counter() - begin)

        cuda = any(device_of(program.artifact).type == "cuda" for program in recorder.programs)
        taken = profiled(call, cuda=cuda, runs=runs)
        steps = [
            step
            for number, watched in enumerate(recorder.watched)
            for program in watched.programs
            for step in steps_of(number, program.kind, program.artifact, taken, runs)
        ]
        steps.sort(key=lambda step: -(step.measured_seconds or 0.0))
        measured = seconds[1:]
        return KernelProfile(
            name_of(function), "cuda" if cuda else "cpu", runs, sum(measured) / len(measured), tuple(steps), results[0]
        )

    return run
