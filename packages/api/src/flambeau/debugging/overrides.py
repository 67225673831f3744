"""What is put around a backend for debugging: another backend for some graphs, graphs that are kept when they fail, calls that are verified.

In: a region's backend, its arguments, the environment. Out: the backend, or one around it. A process that sets none of these variables loads nothing of it
after the look at the environment.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ..backends import Backend, CompiledFn, lookup_backend
from ..errors import InvalidOption

OVERRIDE_BACKENDS = "FLAMBEAU_OVERRIDE_BACKENDS"
_numbers = itertools.count()
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"(>=|<=|>|<)(\d+)|(\d+)-(\d+)|(\d+)")


@frozen
class Rule:
    """Graphs by number, and what is said of them."""

    conditions: tuple[Callable[[int], bool], ...]
    value: str

    def __contains__(self, number: int) -> bool:
        return any(condition(number) for condition in self.conditions)


def rules(text: str, variable: str = OVERRIDE_BACKENDS) -> list[Rule]:
    """`0-3,7:eager;>9:aot_eager` as rules, of which the first that fits counts. Raises InvalidOption for anything else."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        numbers, _, value = part.partition(":")
        conditions = [_condition(word.strip()) for word in numbers.split(",")]
        if not value.strip() or None in conditions:
            raise InvalidOption(
                f"{variable}: {part!r} is no rule", hint="write graphs and a value, as in 0-3,7:eager;>9:aot_eager"
            )
        found.append(Rule(tuple(condition for condition in conditions if condition is not None), value.strip()))
    return found


def _condition(word: str) -> Callable[[int], bool] | None:
    match = _CONDITION.fullmatch(word)
    if match is None:
        return None
    compared, bound, first, last, one = match.groups()
    if compared:
        return lambda number: _COMPARED[compared](number, int(bound))
    low, high = (int(one), int(one)) if one else (int(first), int(last))
    return lambda number: low <= number <= high


def around(
    backend: Backend,
    environment: Mapping[str, str],
    arguments: Mapping[str, Any],
    verify: Any = None,
    *,
    saves: bool = False,
) -> Backend:
    """The backend, with what the environment and the options ask for around it. `saves`: every graph is kept with its inputs."""
    if saves or environment.get("FLAMBEAU_REPRO_AFTER"):
        from .repro import Keeping, keeping

        backend = keeping(backend, Keeping.from_environment(environment, keeps_all=saves), arguments)
    rate = environment.get("FLAMBEAU_VERIFY") if verify is None else verify
    if rate:
        from .verify import rate_of, verified

        backend = verified(backend, rate_of(rate))
    text = environment.get(OVERRIDE_BACKENDS)
    return _chosen(backend, rules(text)) if text else backend


def _chosen(backend: Backend, found: list[Rule]) -> Backend:
    """Another backend for the graphs that a rule names, counted over the process."""
    others = {rule.value: lookup_backend(rule.value) for rule in found}

    @functools.wraps(backend)
    def choose(gm: Any, inputs: list[Any]) -> CompiledFn:
        number = next(_numbers)
        rule = next((rule for rule in found if number in rule), None)
        chosen = backend if rule is None else others[rule.value]
        result: CompiledFn = chosen(gm, inputs)
        return result

    return choose
