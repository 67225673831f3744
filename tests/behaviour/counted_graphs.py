"""flambeau.compile with a backend that counts.

In: a function. Out: the function compiled, each of its graphs run by plain torch calls; `number` graphs have been compiled so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau

if TYPE_CHECKING:
    from collections.abc import Callable


class CountedGraphs:
    def __init__(self) -> None:
        self.number = 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return flambeau.compile(function, backend=self._backend)

    def _backend(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        self.number += 1
        return graph.forward
