"""A program some of whose inputs hold the same for many calls: what follows from those is computed when they change, and not at each call.

In: two programs (*folding* takes the watched inputs, *program* takes the kept inputs and what folding gave), the places of both among the inputs. Out: a
callable of all inputs. A watched input is the same as before if it is the same tensor over the same memory and nothing was written to it, as autograd
counts writes: every operator in place does, whatever calls it (optimizers, `load_state_dict`). Not counted are writes to the memory behind torch's back:
through `tensor.data`, by NumPy, by another process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen

from .errors import ReleasedError
from .extension import extension
from .log import FOLDED, FOLDED_OFTEN, logger

Program = Callable[..., tuple[Any, ...]]

#: So many changes, and what is saved by folding is little beside it.
_OFTEN = 16
_RELEASED = (
    "the memory of this parameter was given back after its contents went into a compiled program (freezing_discard_parameters); "
    "load it again, or compile without that option"
)


@frozen(eq=False)
class _Folded:
    """What was folded, and the native ``Watch`` that tells whether the inputs that it was folded of are as they were."""

    watch: Any
    values: tuple[Any, ...]


class FrozenProgram:
    """See the module. ``release``: give back the memory of watched inputs that the program itself does not take."""

    def __init__(
        self, program: Program, folding: Program, watched: Sequence[int], kept: Sequence[int], *, release: bool = False
    ) -> None:
        self._program, self._folding = program, folding
        self._watched, self._kept = tuple(watched), tuple(kept)
        self._release = release
        self._folded: _Folded | None = None
        self._times = 0

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        folded = self._folded
        if folded is None or not folded.watch.holds(inputs):
            folded = self._fold([inputs[place] for place in self._watched], inputs)
        return self._program(*[inputs[place] for place in self._kept], *folded.values)

    def _fold(self, given: list[torch.Tensor], inputs: tuple[Any, ...]) -> _Folded:
        for tensor in given:
            if _is_released(tensor):
                raise ReleasedError(_RELEASED)
        # Before folding: what is written meanwhile is a change.
        watch = extension().Watch(inputs, self._watched)
        with torch.inference_mode(False), torch.no_grad():
            values = tuple(self._folding(*given))
        self._times += 1
        logger.debug(FOLDED, artifact="caching", inputs=len(given), times=self._times)
        if self._times == _OFTEN:
            logger.info(FOLDED_OFTEN, artifact="perf_hints", times=self._times)
        if self._release:
            self._give_back(given, inputs)
        self._folded = _Folded(watch, values)
        return self._folded

    def _give_back(self, given: Sequence[torch.Tensor], inputs: Sequence[Any]) -> None:
        needed = {
            inputs[place].untyped_storage()._cdata for place in self._kept if isinstance(inputs[place], torch.Tensor)
        }
        for tensor in given:
            if tensor.untyped_storage()._cdata not in needed and not tensor.is_inference():
                extension().release_memory(tensor, _RELEASED)


def _is_released(tensor: torch.Tensor) -> bool:
    return tensor.numel() != 0 and tensor.untyped_storage().nbytes() == 0
