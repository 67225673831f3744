"""What this stage decides, as records: limits, decisions, and one recorded program.

In: nothing. Out: plain frozen types that the other modules of ``graphs`` share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen


@frozen
class GraphSettings:
    """Limits of one recorded program.

    Attributes:
        warmups: calls of one size that run plainly before the first recording.
        sizes_limit: different sizes (and numbers) that are recorded; further ones run plainly.
        moves_limit: how often an input that is read in place may move before it is copied instead.
        moving_bytes: a larger parameter is recorded again instead of copied.
        copy_in_limit_bytes: inputs that were results of recordings, and now come from elsewhere, are copied up to this.
        settled_results_bytes: results up to this in all are moved out of the recording's scratch memory, which it then
            shares with other recordings.
        lenders: recordings that hand out their own memory, in turn while earlier results are still referenced.
        copy_out_limit_bytes: results up to this are copied out when every lender is taken; else the call runs plainly.
        scratch_limit_bytes: where a second lender would take more, with what reads its results, there is none for results
            that are small beside that (an eighth): the recording is made again, and those are copied out. By default what
            cuBLAS works in on recent devices, which every recording with a pool of its own has.
        rewrites_limit: how often it is made again for that.
        smallest_program, smallest_segment: device steps that a program, or a segment of a divided one, needs to be
            recorded: a single launch costs no more than a replay with its copies.
        recordings_limit: recordings that are kept.
        sizes_warned: a warning comes once where more sizes than this are recorded; None: only at the limit.
        capture_sizes: calls whose sizes that change are not all among these run plainly; None: any.
        splits: whether parts of a program are recorded where the whole cannot be.
        collects: whether Python's collector runs before each recording.
        patience: calls in a row without use for a recording, after which no thought is given to further ones.
    """

    warmups: int = 1
    sizes_limit: int = 16
    moves_limit: int = 2
    moving_bytes: int = 1 << 20
    copy_in_limit_bytes: int = 64 << 20
    settled_results_bytes: int = 4 << 20
    lenders: int = 2
    copy_out_limit_bytes: int = 16 << 20
    scratch_limit_bytes: int = 32 << 20
    rewrites_limit: int = 3
    smallest_program: int = 2
    smallest_segment: int = 3
    recordings_limit: int = 32
    sizes_warned: int | None = None
    capture_sizes: frozenset[int] | None = None
    splits: bool = True
    collects: bool = False
    patience: int = 200


@frozen
class GraphDecision:
    """One decision and its reason.

    ``kind``: ``recorded`` (a recording was made), ``plain`` (this part, or this call, runs without one), ``split``
    (the program is divided here), ``failed`` (recording raised; the part stays plain for good). ``program`` is the name
    given to the program and the part of it; ``position`` the user's line or the instruction, where there is one.
    """

    kind: str
    reason: str
    program: str
    position: str = ""

    def __str__(self) -> str:
        where = f" ({self.position})" if self.position else ""
        return f"{self.program}: {self.kind}: {self.reason}{where}"


Report = Callable[[GraphDecision], None]


@frozen
class TensorFact:
    """What a tensor input must be for a recording to fit."""

    position: int
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@frozen(eq=False)
class CopiedInput:
    """An input that is copied into ``placeholder`` before a replay, and back after it when the program writes to it."""

    position: int
    placeholder: torch.Tensor
    back: bool


@frozen(eq=False)
class Result:
    """One output of a recording.

    ``kind``: ``own`` (memory of the recording: ``sample`` has its sizes and storage), ``alias`` (a window on the storage
    of input ``position``, ``shift`` elements of the sample's dtype after the input's own offset), ``input`` (that very
    object) or ``value`` (``sample`` itself).
    """

    kind: str
    sample: Any = None
    position: int = -1
    shift: int = 0


@frozen(eq=False)
class Recording:
    """A recorded program: when it fits, what moves in, what comes out.

    ``fixed`` are (position, address) of the inputs that are read in place. Results are handed out as they are,
    except those of the ``storages`` numbered in ``copied_out`` (None: of all), which are copied out. ``lane`` is that
    of the recordings that share its scratch memory: no two of them run at the same time. ``borrowed`` are the addresses
    of other recordings' storages that it reads. ``reserved_bytes`` is what recording it took from the device,
    ``again_bytes`` what another one like it would take.
    """

    scalars: tuple[tuple[int, int | float | bool], ...]
    tensors: tuple[TensorFact, ...]
    fixed: tuple[tuple[int, int], ...]
    copied: tuple[CopiedInput, ...]
    mutated: tuple[int, ...]
    results: tuple[Result, ...]
    copied_out: frozenset[int] | None
    replay: Callable[[], None]
    release: Callable[[], None]
    lane: Any
    reserved_bytes: int = 0
    again_bytes: int = 0
    borrowed: frozenset[int] = frozenset()

    @property
    def storages(self) -> tuple[torch.UntypedStorage, ...]:
        """The distinct storages of the recording's own results."""
        own = [result.sample.untyped_storage() for result in self.results if result.kind == "own"]
        return tuple({storage._cdata: storage for storage in own}.values())

    def lends(self, storage: int) -> bool:
        """Whether the storage of that number is handed out as it is."""
        return self.copied_out is not None and storage not in self.copied_out

    @property
    def lent(self) -> tuple[torch.UntypedStorage, ...]:
        """Those that are handed out as they are."""
        return tuple(storage for number, storage in enumerate(self.storages) if self.lends(number))
