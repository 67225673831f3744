"""When a program is recorded, replayed, copied out or left alone; with a recorder that needs no GPU."""

from __future__ import annotations

import gc
import math
import threading
from typing import Any

import pytest
import torch
from attrs import evolve

from flambeau_runtime import artifact as a
from flambeau_runtime.graphs.records import GraphSettings

from .harness import Harness, double, tensor

Tensor = torch.Tensor


def test_warms_up_records_and_replays(native: bool) -> None:
    """The first call warms up, the second records, every later one replays; inputs come from anywhere."""
    h = Harness(double, [tensor()], native)
    for number in range(6):
        x = torch.full((3,), float(number))
        assert h.call(x)[0].tolist() == [2.0 * number] * 3
    assert (h.recorder.warmed, h.recorder.recorded, h.recorder.replayed) == (1, 1, 5)
    assert h.reasons("recorded") == ["first call of these sizes after warm-up (1 inputs copied, 0 read in place)"]


def test_dead_results_give_their_memory_to_the_next_call(native: bool) -> None:
    """A result that nobody refers to any more is overwritten; no copy is made."""
    h = Harness(double, [tensor()], native)
    addresses = {h.call(torch.ones(3))[0].data_ptr() for _ in range(6)}
    gc.collect()
    assert len(addresses) <= 2
    assert h.recorder.recorded == 1


@pytest.mark.parametrize("holder", ["tensor", "view", "slice", "saved for backward", "storage"])
def test_results_that_are_referenced_keep_their_values(native: bool, holder: str) -> None:
    """However a result is held on to, later calls do not change it."""
    h = Harness(double, [tensor()], native)
    held: list[Any] = []
    for number in range(8):
        (y,) = h.call(torch.full((4,), float(number)))
        if holder == "saved for backward":
            leaf = torch.ones(4, requires_grad=True)
            held.append(((leaf * y).sum(), leaf))
        else:
            held.append({"tensor": y, "view": y.view(2, 2), "slice": y[1:], "storage": y.untyped_storage()}[holder])
        del y
    for number, kept in enumerate(held):
        if holder == "saved for backward":
            kept[0].backward()
            kept = kept[1].grad
        values = torch.tensor([]).set_(kept) if holder == "storage" else kept
        assert set(values.flatten().tolist()) == {2.0 * number}


def test_turns_then_copies(native: bool) -> None:
    """Two recordings take turns while one earlier result lives; when many live, results are copied out."""
    h = Harness(double, [tensor()], native)
    y = None
    for number in range(10):
        (y,) = h.call(torch.full((3,), float(number)))
    assert h.recorder.recorded == 2
    assert y is not None and y.tolist() == [18.0] * 3
    kept = [h.call(torch.full((3,), float(number)))[0] for number in range(10)]
    assert [k[0].item() for k in kept] == [2.0 * number for number in range(10)]
    assert h.recorder.recorded == 3
    assert any("copied out" in reason for reason in h.reasons("recorded"))


def test_small_results_of_a_large_recording_are_copied_out(native: bool) -> None:
    """A result that the caller keeps does not double the memory of a recording that is large beside it."""

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(), x * 2

    h = Harness(both, [tensor()], native, scratch_limit_bytes=0, settled_results_bytes=0)
    kept = []
    for number in range(8):
        small, large = h.call(torch.full((64,), float(number)))
        assert large[0].item() == 2.0 * number
        kept.append(small)
        del small, large
    assert [value.item() for value in kept] == [64.0 * number for number in range(8)]
    assert h.recorder.recorded == 2 and h.recorder.released == 1
    assert len(h.program.recordings()) == 1


def test_memory_taken_away_is_noticed(native: bool) -> None:
    """A result whose storage somebody resized is no place to write to."""
    h = Harness(double, [tensor()], native)
    for _ in range(2):
        (y,) = h.call(torch.ones(2))
    y.untyped_storage().resize_(4096)
    del y
    for number in range(4):
        (y,) = h.call(torch.full((2,), float(number)))
        assert y.tolist() == [2.0 * number] * 2


def test_large_results_still_referenced_run_plainly(native: bool) -> None:
    """Copying out has a limit; past it the call runs without a recording, with the reason given once."""
    h = Harness(double, [tensor()], native, copy_out_limit_bytes=8)
    kept = [h.call(torch.full((3,), float(number)))[0] for number in range(10)]
    assert [k[0].item() for k in kept] == [2.0 * number for number in range(10)]
    assert h.recorder.recorded == 2
    assert h.reasons("plain") == ["earlier results are still referenced (12 bytes)"]


def test_static_inputs_are_read_in_place(native: bool) -> None:
    """A parameter is not copied: its new values are seen."""
    h = Harness(lambda w, x: (w * x,), [tensor(static=True), tensor(1)], native)
    w = torch.ones(2)
    for number in range(5):
        w.fill_(number)
        assert h.call(w, torch.full((2,), 3.0))[0].tolist() == [3.0 * number] * 2
    assert h.recorder.recorded == 1
    assert "1 inputs copied, 1 read in place" in h.reasons("recorded")[0]


def test_static_input_that_moves_is_recorded_again_then_copied(native: bool) -> None:
    """Few moves give new recordings; many make the input a copied one."""
    h = Harness(lambda w: (w + 1,), [tensor(static=True)], native)
    kept = [torch.full((2,), float(number)) for number in range(9)]
    for w in kept:
        assert h.call(w)[0].tolist() == [w[0].item() + 1] * 2
    assert h.recorder.recorded == 4
    assert h.recorder.released == 3
    assert "0 read in place" in h.reasons("recorded")[-1]


def test_two_sets_of_parameters_have_a_recording_each(native: bool) -> None:
    """Alternating between two tensors does not record over and over."""
    h = Harness(lambda w: (w + 1,), [tensor(static=True)], native)
    one, two = torch.zeros(2), torch.ones(2)
    for _ in range(5):
        assert h.call(one)[0].tolist() == [1.0, 1.0]
        assert h.call(two)[0].tolist() == [2.0, 2.0]
    assert h.recorder.recorded == 2


def test_mutated_input_is_written_in_place_once_a_call(native: bool) -> None:
    """A buffer counts the calls; recording it does not count, and its version moves."""

    def count(buffer: Tensor, x: Tensor) -> tuple[Tensor]:
        buffer.add_(1)
        return (buffer * x,)

    h = Harness(count, [tensor(mutated=True), tensor(1)], native)
    buffer = torch.zeros(2)
    for number in range(1, 7):
        version = buffer._version
        assert h.call(buffer, torch.ones(2))[0].tolist() == [float(number)] * 2
        assert buffer._version > version
    assert h.recorder.recorded == 1


@pytest.mark.parametrize("layout", ["dense", "gaps"])
def test_mutated_input_that_moves_is_written_back(native: bool, layout: str) -> None:
    """New tensors every call: copied in and out again, and nothing between their elements is touched."""

    def bump(x: Tensor) -> tuple[()]:
        x.add_(1)
        return ()

    h = Harness(bump, [tensor(mutated=True)], native)
    kept = []
    for number in range(9):
        whole = torch.full((6,), float(number))
        x = whole[::2] if layout == "gaps" else whole
        kept.append(whole)
        h.call(x)
        expected = [number + 1.0, float(number)] * 3 if layout == "gaps" else [number + 1.0] * 6
        assert whole.tolist() == expected
    assert h.recorder.recorded == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(12.0).view(3, 4).t(),
        lambda: torch.arange(24.0).view(4, 6)[:, ::2],
        lambda: torch.arange(3.0).expand(4, 3),
        lambda: torch.arange(5.0)[2:],
        lambda: torch.empty(0, 3),
        lambda: torch.tensor(3.0),
        lambda: torch.arange(5).to(torch.bool),
    ],
)
def test_any_layout_is_copied_in(native: bool, make: Any) -> None:
    """Transposed, sliced, expanded, shifted, empty, scalar and boolean inputs."""
    h = Harness(lambda x: (x.clone(),), [tensor()], native)
    for _ in range(5):
        x = make()
        (y,) = h.call(x)
        assert torch.equal(x, y)
        del y
    assert h.recorder.replayed >= 4


def test_a_result_of_another_recording_is_read_in_place(native: bool) -> None:
    """Chained programs share memory instead of copying; a value from elsewhere still works."""
    first = Harness(double, [tensor()], native)
    second = Harness(lambda x: (x + 1,), [tensor()], native)
    for number in range(6):
        assert second.call(*first.call(torch.full((2,), float(number))))[0].tolist() == [2.0 * number + 1] * 2
    assert "1 read in place" in second.reasons("recorded")[0]
    for number in range(6):
        assert second.call(torch.full((2,), float(number)))[0].tolist() == [number + 1.0] * 2
    assert any("not the result of a recording" in reason for reason in second.reasons("plain"))
    assert "1 inputs copied" in second.reasons("recorded")[-1]


def test_readers_of_a_dropped_recording_are_dropped(native: bool) -> None:
    """What read the results of a recording that is gone is recorded again, and does not stay."""
    first = Harness(double, [tensor()], native)
    second = Harness(lambda x: (x + 1,), [tensor()], native)
    for number in range(8):
        if number == 4:
            first.program.reset()
        assert second.call(*first.call(torch.full((2,), float(number))))[0].tolist() == [2.0 * number + 1] * 2
    assert second.recorder.recorded == 2 or second.recorder.released == 1
    assert len(second.program.recordings()) == 1


def test_each_size_has_a_recording_up_to_a_limit(native: bool) -> None:
    """Sizes past the limit run plainly, with one warning."""
    h = Harness(double, [tensor()], native, sizes_limit=3)
    with pytest.warns(RuntimeWarning, match="3 different sizes") as seen:
        for _ in range(4):
            for size in range(1, 7):
                assert h.call(torch.ones(size))[0].tolist() == [2.0] * size
    assert len(seen) == 1
    assert h.recorder.recorded == 3


def test_numbers_are_part_of_the_key(native: bool) -> None:
    """A number is baked into a recording; another number, or another type, is another recording."""
    h = Harness(lambda n, x: (x * n, n), [a.InputSpec("scalar", 0), tensor()], native)
    for _ in range(4):
        for n in (2, 3, 3.0, True):
            y, back = h.call(n, torch.ones(2))
            assert y.tolist() == [float(n)] * 2 and type(back) is type(n)
            del y
    assert h.recorder.recorded == 4


def test_zeros_of_different_sign_are_different_numbers(native: bool) -> None:
    """And all NaNs are one, though none equals another."""
    h = Harness(lambda n, x: (x / n, n), [a.InputSpec("scalar", 0), tensor()], native)
    for _ in range(3):
        for zero in (0.0, -0.0):
            assert h.call(zero, torch.ones(2))[0].tolist() == [math.copysign(math.inf, zero)] * 2
    assert h.recorder.recorded == 2
    for _ in range(4):
        assert h.call(float("nan"), torch.ones(2))[0].isnan().all()
    assert h.recorder.recorded == 3


def test_outputs_of_every_kind(native: bool) -> None:
    """Inputs come back as themselves, windows on inputs as windows, None and numbers as they are."""

    def many(x: Tensor, w: Tensor) -> tuple[Any, ...]:
        fresh = x * 2
        return x, x[1:], w[2:], None, 7, fresh, fresh[1:], fresh

    h = Harness(many, [tensor(), tensor(1, static=True)], native)
    w = torch.arange(4.0)
    for number in range(6):
        base = torch.full((8,), float(number))
        x = base[3:6]
        same, window, part, none, seven, fresh, tail, again = h.call(x, w)
        assert same is x and none is None and seven == 7
        window.fill_(9)
        assert base[4:6].tolist() == [9.0, 9.0]
        assert part.data_ptr() == w[2:].data_ptr()
        assert fresh.tolist() == [2.0 * number] * 3 and tail.tolist() == [2.0 * number] * 2
        fresh.fill_(5)
        assert again.tolist() == [5.0] * 3 and tail.tolist() == [5.0] * 2
        del fresh, tail, again, same, window, part
    assert h.recorder.recorded == 1


def test_failure_while_recording_leaves_a_plain_program(native: bool) -> None:
    """One warning, the reason kept, results right."""
    h = Harness(double, [tensor()], native)
    h.call(torch.ones(2))
    h.recorder.fail = RuntimeError("no capture here")
    with pytest.warns(RuntimeWarning, match="no capture here") as seen:
        for _ in range(4):
            assert h.call(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert len(seen) == 1
    assert h.program.closed.endswith("no capture here")
    assert [d.kind for d in h.decisions] == ["failed"]


def test_failure_after_recording_gives_its_memory_back(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording that cannot be finished is released; the program stays plain."""
    h = Harness(double, [tensor()], native)
    h.call(torch.ones(2))

    def unfinished(*args: Any) -> None:
        raise RuntimeError("not to be finished")

    monkeypatch.setattr(h.program, "_finish", unfinished)
    with pytest.warns(RuntimeWarning, match="not to be finished"):
        assert h.call(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert (h.recorder.recorded, h.recorder.released) == (1, 1)


def test_an_error_of_the_program_is_raised_as_it_is(native: bool) -> None:
    """What the executor raises in a warm-up reaches the caller; the next call is as good as ever."""
    broken = [True]

    def flaky(x: Tensor) -> tuple[Tensor]:
        if broken[0]:
            raise IndexError("index out of range")
        return (x + 1,)

    h = Harness(flaky, [tensor()], native)
    with pytest.raises(IndexError, match="out of range"):
        h.call(torch.ones(2))
    broken[0] = False
    for _ in range(4):
        assert h.call(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert not h.program.closed


def test_a_capture_of_the_callers_is_left_alone(native: bool) -> None:
    """While the caller records a graph, the program runs plainly into it."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    replayed = h.recorder.replayed
    h.recorder.busy = "the caller records"
    assert h.call(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert h.recorder.replayed == replayed
    assert h.reasons("plain") == ["the caller records"]


def test_another_thread_runs_plainly_during_a_replay(native: bool) -> None:
    """A replay in progress owns the placeholders; a call from elsewhere does not wait and does not disturb."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    found: list[float] = []

    def other() -> None:
        found.extend(h.call(torch.full((2,), 5.0))[0].tolist())

    def during() -> None:
        h.recorder.during = None
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    h.recorder.during = during
    assert h.call(torch.full((2,), 4.0))[0].tolist() == [8.0, 8.0]
    assert found == [10.0, 10.0]


def test_a_change_of_stream_waits_for_the_last_one(native: bool) -> None:
    """The placeholders may still be read by the last replay's stream."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    h.recorder.queue = 7
    h.call(torch.ones(2))
    h.call(torch.ones(2))
    assert h.recorder.followed == [0]


def test_reset_releases_and_starts_again(native: bool) -> None:
    """Memory is reported, given back, and the program records again."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    assert h.program.reserved_bytes() == 1024 + 8
    h.program.reset()
    assert h.recorder.released == 1 and h.program.reserved_bytes() == 0
    for _ in range(3):
        assert h.call(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert h.recorder.recorded == 2


def test_shared_memory_that_is_written_runs_plainly(native: bool) -> None:
    """Two inputs over one storage, one of them written and one copied: separate placeholders would not see the write."""

    def write(x: Tensor, y: Tensor) -> tuple[Tensor]:
        x.add_(1)
        return (y * 1,)

    h = Harness(write, [tensor(mutated=True), tensor(1)], native)
    base = torch.zeros(4)
    for number in range(1, 5):
        assert h.call(base[:2], base[1:3])[0].tolist() == [float(number), 0.0]
    assert h.recorder.recorded == 0
    assert any("share memory" in reason for reason in h.reasons("plain"))


def test_wrong_inputs_are_left_to_the_executor(native: bool) -> None:
    """A wrong count, a list for a tensor, another device: the executor words the error."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    with pytest.raises(TypeError):
        h.call()
    with pytest.raises(TypeError):
        h.call(torch.ones(2), torch.ones(2))
    assert h.call([1])[0] == [1, 1]  # type: ignore[comparison-overlap]
    assert h.call(torch.ones(2, device="meta"))[0].device.type == "meta"


def test_program_and_recordings_are_collected(native: bool) -> None:
    """Nothing of a program outlives it."""
    import weakref

    h = Harness(double, [tensor()], native)
    for _ in range(4):
        h.call(torch.ones(2))
    alive = weakref.ref(h.program)
    del h
    gc.collect()
    assert alive() is None


def test_inference_mode_results(native: bool) -> None:
    """Results made in inference mode are inference tensors, others are not."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    with torch.inference_mode():
        assert h.call(torch.ones(2))[0].is_inference()
    assert not h.call(torch.ones(2))[0].is_inference()


def test_memory_has_a_budget(native: bool) -> None:
    """Past it no more recordings are made; those that exist are used."""
    h = Harness(double, [tensor()], native)
    for _ in range(3):
        h.call(torch.ones(2))
    h.recorder.budget = 0
    for _ in range(3):
        assert h.call(torch.ones(3))[0].tolist() == [2.0] * 3
        assert h.call(torch.ones(2))[0].tolist() == [2.0] * 2
    assert h.recorder.recorded == 1
    assert "no more are made" in h.reasons("plain")[0]


def test_patience_ends(native: bool) -> None:
    """Where calls never find use for a recording, no more thought is given to it."""
    h = Harness(double, [tensor()], native, patience=3)
    for _ in range(6):
        h.call(torch.ones(2, device="meta"))
    for _ in range(4):
        assert h.call(torch.ones(2))[0].tolist() == [2.0, 2.0]
    assert h.recorder.recorded == 0


def test_settings_are_plain_data() -> None:
    """Limits can be changed one by one."""
    assert evolve(GraphSettings(), warmups=3).warmups == 3
