"""Which stage is at fault: stages are left out one by one until the program is right.

In: a test that says whether the program is right under some environment variables. Out: `Finding`: stage, pass or rule, which graph, which operation.
From the outside in: first the backends that stop early say how far the program is right; then the stages behind are left out, all at once and then by halves. The
first without which the program is right is at fault (or made what another one cannot do).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from .delta import fewest
from .overrides import OVERRIDE_BACKENDS

Test = Callable[[Mapping[str, str]], bool]

_PASSES, _JOINT = "FLAMBEAU_DISABLED_PASSES", "FLAMBEAU_DISABLED_JOINT_PASSES"
#: A failure is seen, and not run in eager.
_BASE = {"FLAMBEAU_SUPPRESS_ERRORS": "0"}
#: Backend -> the stage that is at fault where it is the first to be wrong.
_BACKENDS = {"eager": "capture", "aot_eager": "autograd", "aot_eager_decomp_partition": "decomposition"}
#: What can be left out around programs, from the outside in.
_AROUND: Mapping[str, Mapping[str, str]] = {
    "cache": {"FLAMBEAU_FORCE_DISABLE_CACHES": "1"},
    "CUDA graphs": {"FLAMBEAU_CUDAGRAPHS": "0"},
    "executor": {"FLAMBEAU_EXECUTOR": "python"},
}
#: Stages of inductor behind its passes, from the outside in; see `flambeau_inductor.switches`.
_STAGES = {
    "autotuning": "launches",
    "combining of launches": "combining",
    "memory plan": "memory",
    "generated products": "generated_products",
    "splitting of reductions": "splitting",
}
#: Stages made of many parts, and their kind in `flambeau_inductor.pipeline.switches`.
_KINDS = {"joint passes": "joint", "passes": "pass"}


@frozen
class Finding:
    """What is at fault.

    Attributes:
        stage: one of capture, autograd, decomposition, joint passes, passes, lowering, fusion, code generation, memory plan, executor, CUDA
            graphs, cache, …; "the program" where it fails without flambeau, "nothing" where nothing fails.
        detail: the pass or rule, or the operation that is lowered wrong.
        graph: the number of the graph in its process; -1 where it does not matter.
        steps: what was tried, each with whether the program was right.
        setting: environment variables under which it is right.
    """

    stage: str
    detail: str = ""
    graph: int = -1
    steps: tuple[tuple[str, bool], ...] = ()
    setting: Mapping[str, str] = {}

    def __str__(self) -> str:
        lines = [f"at fault: {self.stage}" + (f", {self.detail}" if self.detail else "")]
        if self.graph >= 0:
            lines.append(f"in graph {self.graph}")
        if self.setting:
            lines.append("right with " + " ".join(f"{k}={v!r}" for k, v in self.setting.items()))
        return "\n".join(lines)


def bisect(test: Test, tell: Callable[[str], None] = lambda words: None, *, slow: bool = False) -> Finding:
    """Name the stage at fault.

    Args:
        test: whether the program is right under these environment variables.
        tell: is given a line for each thing tried.
        slow: right is what is as fast as eager. Backends that stop early say nothing then: what they leave to eager is in smaller pieces.
    """
    return _Search(test, tell, slow=slow).run()


def bisect_here(function: Callable[[], bool], tell: Callable[[str], None] = lambda words: None) -> Finding:
    """As `bisect`, for a function of this process that compiles anew, calls, and answers whether all was right; an exception counts as wrong."""
    from ..compiler import reset

    def test(environment: Mapping[str, str]) -> bool:
        with _environment(environment):
            reset()
            try:
                return bool(function())
            except Exception:
                return False
            finally:
                reset()

    return bisect(test, tell)


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _together(changes: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Several changes of the environment as one: lists of names are joined."""
    found: dict[str, str] = {}
    for name, value in (item for each in changes for item in each.items()):
        found[name] = f"{found[name]},{value}" if name == _PASSES and name in found else value
    return found


class _Search:
    def __init__(self, test: Test, tell: Callable[[str], None], *, slow: bool = False) -> None:
        self._test, self._tell, self._slow = test, tell, slow
        self._steps: list[tuple[str, bool]] = []

    def right(self, words: str, **changes: str) -> bool:
        """Whether the program is right with these variables."""
        found = self._test({**_BASE, **changes})
        self._steps.append((words, found))
        self._tell(f"{words}: {'right' if found else 'wrong'}")
        return found

    def run(self) -> Finding:
        if self.right("as it is"):
            return self._found("nothing")
        if not self.right("without flambeau", FLAMBEAU_DISABLE="1"):
            return self._found("the program")
        for backend, stage in {} if self._slow else _BACKENDS.items():
            chosen = {OVERRIDE_BACKENDS: f">=0:{backend}"}
            if not self.right(f"with backend {backend}", **chosen):
                return self._early(stage, chosen)
        graph = self._graph()
        left_out = self._left_out()
        if not self.right("without all stages but lowering and code generation", **_together(left_out.values())):
            return self._kernels(graph)
        stage = self._one(left_out)
        return self._stage(stage, left_out, graph)

    def _early(self, stage: str, chosen: Mapping[str, str]) -> Finding:
        """Of autograd, the pass; of what is done to joint graphs, the rewrite."""
        if stage == "decomposition":
            names = self._names("joint")
            if self.right("without joint passes", **chosen, **{_PASSES: ",".join(names)}):
                name = self._one({name: {_PASSES: name} for name in names}, chosen)
                return self._found("joint passes", name, -1, {_PASSES: name})
        if stage == "capture":
            return self._found(stage, "", -1, {})
        name = self._pass_of_autograd(chosen)
        return self._found("autograd", name, -1, {_JOINT: name}) if name else self._found(stage, "", -1, {})

    def _pass_of_autograd(self, chosen: Mapping[str, str]) -> str:
        """The first without which the program is right, or ""."""
        from flambeau_autograd.passes.runner import SWITCHES

        left_out = ((name, {**chosen, _JOINT: name}) for name in SWITCHES)
        return next((name for name, changes in left_out if self.right(f"without autograd's {name}", **changes)), "")

    def _left_out(self) -> dict[str, Mapping[str, str]]:
        """Each stage that a program does without, with the variables that leave it out; from the outside in."""
        found = {**_AROUND, **{stage: {_PASSES: switch} for stage, switch in _STAGES.items()}}
        found |= {stage: {_PASSES: ",".join(self._names(kind))} for stage, kind in _KINDS.items()}
        return {**found, "fusion": {_PASSES: "fusion"}}

    def _stage(self, stage: str, left_out: Mapping[str, Mapping[str, str]], graph: int) -> Finding:
        """Of a stage that has many parts, the one at fault."""
        if stage not in _KINDS:
            return self._found(stage, "", graph, _together(left_out[name] for name in stage.split(", ")))
        name = self._one({name: {_PASSES: name} for name in self._names(_KINDS[stage])})
        rules = {rule: {_PASSES: rule} for rule in self._rules(name)}
        return self._found(stage, self._one(rules) if rules else name, graph, {_PASSES: name})

    def _kernels(self, graph: int) -> Finding:
        if not self.right("without kernels", **{_PASSES: "lowering"}):
            if name := self._pass_of_autograd({}):
                return self._found("autograd", name, graph, {_JOINT: name})
            return self._found("program", "library calls and the outer program", graph, {})
        at_fault = self._operation()
        if self._slow:
            return self._found("code generation", at_fault, graph, {_PASSES: "lowering"})
        if self.right("with the interpreter of the loop IR", **{OVERRIDE_BACKENDS: ">=0:loops"}):
            return self._found("code generation", at_fault, graph, {_PASSES: "lowering"})
        return self._found("lowering", at_fault, graph, {_PASSES: "lowering"})

    def _names(self, kind: str) -> list[str]:
        from flambeau_inductor.pipeline import switches

        return [name for name, its in switches().items() if its == kind]

    def _one(self, parts: Mapping[str, Mapping[str, str]], chosen: Mapping[str, str] | None = None) -> str:
        """The one of several without which the program is right, all of them being left out; those, where more than one has to be. The first, where each of several
        would do."""

        def is_right(names: Sequence[str]) -> bool:
            return self.right(
                f"without {', '.join(names)}", **(chosen or {}), **_together(parts[name] for name in names)
            )

        return ", ".join(fewest(list(parts), is_right))

    def _rules(self, name: str) -> list[str]:
        from flambeau_inductor.passes.order import TABLES

        return [rule.name for rule in TABLES[name].rules] if name in TABLES else []

    def _graph(self) -> int:
        """The first graph with which the program is wrong; -1 where there is one only."""
        low, high = 0, 1
        while self.right(f"first {high} graphs compiled", **{OVERRIDE_BACKENDS: f">={high}:eager"}):
            low, high = high, 2 * high
            if high > 1 << 12:
                return -1
        while high - low > 1:
            middle = (low + high) // 2
            if self.right(f"first {middle} graphs compiled", **{OVERRIDE_BACKENDS: f">={middle}:eager"}):
                low = middle
            else:
                high = middle
        return high - 1

    def _operation(self) -> str:
        """Which of the calls of its graph, in order, makes the program wrong as soon as it is a kernel."""
        low, high = 0, 1
        while self.right(f"first {high} operations lowered", **{_PASSES: f"lowering>{high}"}):
            low, high = high, 2 * high
            if high > 1 << 14:
                return ""
        while high - low > 1:
            middle = (low + high) // 2
            if self.right(f"first {middle} operations lowered", **{_PASSES: f"lowering>{middle}"}):
                low = middle
            else:
                high = middle
        return f"operation {high} of its graph"

    def _found(
        self, stage: str, detail: str = "", graph: int = -1, setting: Mapping[str, str] | None = None
    ) -> Finding:
        return Finding(stage, detail, graph, tuple(self._steps), dict(setting or {}))
