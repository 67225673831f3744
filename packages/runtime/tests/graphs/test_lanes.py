"""Recordings that share scratch memory: which ones do, where their results go, how their replays follow each other."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import pytest
import torch
from attrs import evolve

from flambeau_runtime.graphs.table import make_lane

from .fake import FakeRecorder
from .harness import Harness, double, tensor

Tensor = torch.Tensor
REPLAYING = "another thread replays it, or what shares its scratch memory"


def triple(x: Tensor) -> tuple[Tensor]:
    return (x * 3,)


def pair(native: bool, **limits: Any) -> tuple[Harness, Harness, FakeRecorder]:
    """Two programs with a recording each, made on queue 0."""
    recorder = FakeRecorder(native=native)
    first, second = (Harness(one, [tensor()], native, recorder=recorder, **limits) for one in (double, triple))
    for _ in range(2):
        first.call(torch.ones(3))
        second.call(torch.ones(3))
    assert recorder.recorded == 2 and not recorder.followed
    return first, second, recorder


@pytest.mark.parametrize(
    ("results", "limit", "shared"),
    [((3,), 12, True), ((4,), 12, False), ((2, 2), 12, False), ((0,), 0, True), ((), 0, True)],
)
def test_small_results_make_a_recording_share(native: bool, results: tuple[int, ...], limit: int, shared: bool) -> None:
    """All results together count, in bytes."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.new_ones(size) for size in results)

    h = Harness(function, [tensor()], native, settled_results_bytes=limit)
    for _ in range(4):
        h.call(torch.ones(8))
    assert h.recorder.shared == [shared] and h.recorder.replayed == 3
    (recording,) = h.program.recordings()
    assert (recording.lane is h.recorder.lane) == shared


def test_without_a_warm_up_nothing_is_moved(native: bool) -> None:
    """The sizes of the results are not known then."""
    h = Harness(double, [tensor()], native, warmups=0)
    for number in range(4):
        assert h.call(torch.full((3,), float(number)))[0].tolist() == [2.0 * number] * 3
    assert h.recorder.shared == [False]


def test_moved_results_keep_their_layout(native: bool) -> None:
    """Several results over one storage stay together; offsets, strides, dtypes, inputs and numbers are as they were."""

    def many(x: Tensor) -> tuple[Any, ...]:
        whole = torch.stack([x, x * 2, x * 3])
        return whole[1], whole, whole.t()[1:], x.new_empty(0, 3), (x * 5).to(torch.int64), x[1:], x, None, 7

    h = Harness(many, [tensor()], native)
    for number in range(6):
        x = torch.arange(4.0) + number
        row, whole, turned, empty, integers, window, same, none, seven = h.call(x)
        for found, expected in zip((row, whole, turned, empty, integers, window), many(x)):
            assert torch.equal(found, expected)
            assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
        assert same is x and none is None and seven == 7
        window[0] = 99
        assert x[1] == 99
        whole.fill_(8)
        assert row.tolist() == [8.0] * 4 and turned.tolist() == [[8.0] * 3] * 3
        assert integers[0] == 5 * number
        del row, whole, turned, empty, integers, window, same
    assert h.recorder.shared == [True] and h.recorder.replayed == 5
    (recording,) = h.program.recordings()
    assert [storage.nbytes() for storage in recording.storages] == [48, 0, 32]


def scratch_users(native: bool, settled: int) -> list[Harness]:
    """Programs that make their results in the same piece of memory, as in a pool that recordings share."""
    recorder, scratch = FakeRecorder(native=native), torch.empty(16)

    def program(factor: int) -> Any:
        def function(x: Tensor) -> tuple[Tensor, Tensor]:
            scratch[4:8] = x * factor
            return scratch[4:8].view(2, 2), scratch[5:7]

        return function

    return [
        Harness(program(n), [tensor()], native, recorder=recorder, settled_results_bytes=settled) for n in range(1, 5)
    ]


def test_earlier_results_outlive_other_replays(native: bool) -> None:
    """Kept from every call on, whatever order the programs of the lane are called in."""
    programs = scratch_users(native, 64)
    for h in programs:
        h.call(torch.ones(4))  # the warm-up's result is in the scratch memory itself
    order, kept = random.Random(1), []
    for number in range(60):
        factor = order.randrange(4)
        kept.append((number * (factor + 1.0), programs[factor].call(torch.full((4,), float(number)))))
    for value, (square, part) in kept:
        assert square.tolist() == [[value] * 2] * 2 and part.tolist() == [value] * 2
    recorder = programs[0].recorder
    assert all(recorder.shared) and recorder.recorded == 12 and recorder.replayed == 60


def test_results_in_scratch_memory_would_not() -> None:
    """Left where they are made, those results are overwritten by another replay: the test above can fail."""
    first, second, *_ = scratch_users(True, 0)
    for _ in range(2):
        (square, _part), _other = first.call(torch.full((4,), 2.0)), second.call(torch.full((4,), 2.0))
    assert square.tolist() == [[4.0] * 2] * 2


@pytest.mark.parametrize("change", ["size", "number"])
def test_results_that_differ_from_the_warm_up_stay_where_they_are(
    native: bool, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the recording shares nothing; the buffer that the program writes counts no call twice."""
    runs = []

    def uneven(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        runs.append(1)
        total.add_(1)
        whole = torch.cat([x, x]) * total[0]
        if len(runs) == 1:
            return whole[:3], whole[3:]
        return whole[:3].clone(), whole[3:].clone() if change == "number" else whole[3:]

    h = Harness(uneven, [tensor(mutated=True), tensor(1)], native)
    tried: list[Any] = []
    monkeypatch.setattr(
        h.recorder, "places", lambda sizes: tried.append(sizes) or FakeRecorder.places(h.recorder, sizes)
    )
    total = torch.zeros(2)
    for number in range(1, 6):
        first, second = h.call(total, torch.ones(3))
        assert total.tolist() == [number] * 2
        assert first.tolist() == [number] * 3 and second.tolist() == [number] * 3
        del first, second
    assert h.recorder.shared == [False] and not h.program.closed
    assert [decision.kind for decision in h.decisions] == ["recorded"]
    (recording,) = h.program.recordings()
    assert recording.lane is not h.recorder.lane
    kept = [h.call(total, torch.ones(3)) for _ in range(2)]  # a second one, to take turns
    assert h.recorder.shared == [False, False] and len(kept) == 2 and len(tried) == 1


def test_a_replay_follows_the_lanes_last_one(native: bool) -> None:
    """Another program's replay on another queue may still use the scratch memory."""
    first, second, recorder = pair(native)
    recorder.queue = 7
    first.call(torch.ones(3))
    assert recorder.followed == [0]
    recorder.queue = 0
    second.call(torch.ones(3))
    assert recorder.followed == [0, 7]
    second.call(torch.ones(3))
    assert recorder.followed == [0, 7]


def test_a_replay_follows_its_own_last_one(native: bool) -> None:
    """Its last results may have been read there after the lane went elsewhere."""
    first, second, recorder = pair(native)
    recorder.queue = 1
    first.call(torch.ones(3))
    recorder.queue = 2
    second.call(torch.ones(3))
    recorder.followed.clear()
    first.call(torch.ones(3))
    assert recorder.followed == [1]
    recorder.queue = 3
    first.call(torch.ones(3))
    assert recorder.followed == [1, 2]


def test_a_further_recording_leaves_the_lane_as_it_is(native: bool) -> None:
    """One that is made on another queue plays after the lane's last replay."""
    first, _second, recorder = pair(native)
    recorder.queue = 4
    third = Harness(lambda x: (x * 4,), [tensor()], native, recorder=recorder)
    third.call(torch.ones(3))
    assert recorder.followed == []
    assert third.call(torch.ones(3))[0].tolist() == [4.0] * 3
    assert recorder.followed == [0]
    first.call(torch.ones(3))
    assert recorder.followed == [0, 0]  # its own last results were on queue 0


def test_recordings_with_pools_of_their_own_do_not_wait(native: bool) -> None:
    """Each is a lane."""
    first, second, recorder = pair(native, settled_results_bytes=0)
    recorder.queue = 7
    first.call(torch.ones(3))
    recorder.queue = 0
    second.call(torch.ones(3))
    assert recorder.followed == [0]


def during(recorder: FakeRecorder, action: Any) -> None:
    """Run ``action`` in another thread in the middle of the next replay."""

    def once() -> None:
        recorder.during = None
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()

    recorder.during = once


@pytest.mark.parametrize("shared", [True, False])
def test_a_replay_keeps_the_lane_from_other_threads(native: bool, shared: bool) -> None:
    """The other program runs plainly meanwhile, and replays afterwards; one with a lane of its own replays at once."""
    first, second, recorder = pair(native, settled_results_bytes=1 << 20 if shared else 0)
    found: list[Any] = []
    during(recorder, lambda: found.extend(second.call(torch.full((3,), 5.0))[0].tolist()))
    before = recorder.replayed
    assert first.call(torch.full((3,), 4.0))[0].tolist() == [8.0] * 3
    assert found == [15.0] * 3
    assert recorder.replayed == before + (1 if shared else 2)
    assert second.reasons("plain") == ([REPLAYING] if shared else [])
    assert second.call(torch.ones(3))[0].tolist() == [3.0] * 3
    assert recorder.replayed == before + (2 if shared else 3) and recorder.recorded == 2


def test_a_recording_made_meanwhile_is_not_played(native: bool) -> None:
    """A program without recordings cannot know that its lane is taken before it has one."""
    first, _second, recorder = pair(native)
    third = Harness(lambda x: (x * 4,), [tensor()], native, recorder=recorder)
    third.call(torch.ones(3))
    found: list[Any] = []
    during(recorder, lambda: found.extend(third.call(torch.full((3,), 5.0))[0].tolist()))
    before = recorder.replayed
    first.call(torch.ones(3))
    assert found == [20.0] * 3 and recorder.recorded == 3 and recorder.replayed == before + 1
    assert third.reasons("plain") == [REPLAYING]
    assert third.call(torch.ones(3))[0].tolist() == [4.0] * 3
    assert recorder.recorded == 3 and recorder.replayed == before + 2


def test_a_lane_that_is_free_again_needs_no_other_recording(native: bool) -> None:
    """A call that found the lane taken, and comes to be recorded when it is free, replays what there is."""
    first, _second, recorder = pair(native)
    before = recorder.replayed
    assert first.program.miss(torch.full((3,), 5.0))[0].tolist() == [10.0] * 3
    assert recorder.replayed == before + 1 and recorder.recorded == 2


def test_an_error_in_a_replay_frees_the_lane(native: bool) -> None:
    """What the replay raises reaches the caller; the other program replays."""
    first, second, recorder = pair(native)

    def fail() -> None:
        recorder.during = None
        raise ArithmeticError("replay")

    recorder.during = fail
    with pytest.raises(ArithmeticError):
        first.call(torch.ones(3))
    before = recorder.replayed
    second.call(torch.ones(3))
    assert recorder.replayed == before + 1 and not recorder.lane.running


def test_a_dropped_recording_leaves_the_others(native: bool) -> None:
    """Results of both stay, the other program replays, and the first records again."""
    first, second, recorder = pair(native)
    ours, theirs = first.call(torch.full((3,), 2.0))[0], second.call(torch.full((3,), 2.0))[0]
    first.program.reset()
    gc.collect()
    assert recorder.released == 1
    before = recorder.replayed
    assert second.call(torch.full((3,), 5.0))[0].tolist() == [15.0] * 3
    for number in range(3):
        assert first.call(torch.full((3,), float(number)))[0].tolist() == [2.0 * number] * 3
    assert ours.tolist() == [4.0] * 3 and theirs.tolist() == [6.0] * 3
    assert all(recorder.shared) and recorder.replayed == before + 3


def test_reset_waits_for_a_replay_of_another_thread(native: bool) -> None:
    """A recording is not released while it is replayed, and is not replayed again."""
    first, _second, recorder = pair(native)
    started, go = threading.Event(), threading.Event()

    def wait() -> None:
        recorder.during = None
        started.set()
        assert go.wait(20)

    recorder.during = wait
    replaying = threading.Thread(target=first.call, args=(torch.ones(3),))
    replaying.start()
    assert started.wait(20)
    resetting = threading.Thread(target=first.program.reset)
    resetting.start()
    resetting.join(0.1)
    assert recorder.released == 0 and resetting.is_alive()
    go.set()
    replaying.join()
    resetting.join()
    assert recorder.released == 1 and not first.program.recordings()


def test_turns_cost_a_recording_that_shares_only_its_results(native: bool) -> None:
    """The first one of a lane reserved the scratch memory, another one would not: results are lent, not copied out."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(), x * 2

    h = Harness(both, [tensor()], native, scratch_limit_bytes=1000)
    for number in range(6):
        small = h.call(torch.full((64,), float(number)))[0]
        assert small.item() == 64.0 * number
    assert h.program.recordings()[0].reserved_bytes > 1000
    assert h.recorder.recorded == 2 and h.recorder.released == 0


@pytest.mark.parametrize("limit", [1200, 2000])
def test_turns_cost_what_reads_the_results_too(native: bool, limit: int) -> None:
    """A small result that is kept does not have a large reader of the others recorded twice: it is copied out."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(), x * 2

    recorder = FakeRecorder(native=native)
    first = Harness(both, [tensor()], native, recorder=recorder, scratch_limit_bytes=limit)
    reader = Harness(triple, [tensor()], native, recorder=recorder, settled_results_bytes=0)
    small = None
    for number in range(8):
        small, large = first.call(torch.full((64,), float(number)))
        (read,) = reader.call(large)
        assert small.item() == 64.0 * number and read.tolist() == [6.0 * number] * 64
        del large, read
    recordings = [len(one.program.recordings()) for one in (first, reader)]
    # A turn takes the results' 260 bytes and the 1,024 of the reader's recording.
    assert recordings == ([1, 1] if limit == 1200 else [2, 2])


def test_a_native_table_takes_native_lanes_only() -> None:
    """A lane is read without asking Python."""
    h = Harness(double, [tensor()], native=True)
    for _ in range(2):
        h.call(torch.ones(3))
    (recording,) = h.program.recordings()
    with pytest.raises(TypeError, match="lane"):
        h.call.add(evolve(recording, lane=make_lane(0, native=False)))


def test_lanes_are_alike(native: bool) -> None:
    """A stream's handle may need all of 64 bits."""
    lane = make_lane((1 << 64) - 1, native=native)
    assert lane.stream == (1 << 64) - 1 and lane.running is False
    lane.stream, lane.running = 5, True
    assert lane.stream == 5 and lane.running is True
