"""Types of the native extension."""

from collections.abc import Callable
from typing import Any

torch_version: str

class JointFunction:
    """See `wrappers.joint_py.PyJointFunction`, its twin."""

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None,
        results: int,
        extras: int,
        differentiable: tuple[int, ...],
        tangent_orders: tuple[tuple[int, ...], ...],
        grad_inputs: tuple[int, ...],
        reached_by: tuple[tuple[int, ...], ...],
        led_by: tuple[tuple[int, ...], ...],
        saved: tuple[tuple[str, int, bool, int, bool], ...],
        watched: tuple[tuple[str, int, tuple[int, ...], bool], ...],
        frees: tuple[tuple[int, ...], ...],
        bumped: tuple[int, ...],
        double: Any,
        flagged: tuple[tuple[int, ...], ...],
    ) -> None: ...
    def __call__(self, *args: Any) -> tuple[Any, ...]: ...

def min_cut_side(
    count: int, tails: list[int], heads: list[int], capacities: list[int], source: int, sink: int
) -> bytes: ...
def write_behind(node: Any) -> Any: ...
