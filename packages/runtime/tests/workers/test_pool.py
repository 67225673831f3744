"""Worker processes: answers in order, errors by request, nobody left behind."""

from __future__ import annotations

import io

import pytest

from flambeau_runtime.workers import Pool, Request, WorkerFailed
from flambeau_runtime.workers.protocol import read_frame, write_frame


def test_frames_survive_a_round_trip() -> None:
    """Header and byte strings come back equal; a closed pipe reads as None."""
    stream = io.BytesIO()
    write_frame(stream, {"a": [1, "x"]}, [b"", b"123"])
    stream.seek(0)
    assert read_frame(stream) == ({"a": [1, "x"]}, [b"", b"123"])
    assert read_frame(stream) is None


def test_a_torn_frame_is_an_error() -> None:
    """A pipe that closes inside a frame raises EOFError."""
    stream = io.BytesIO()
    write_frame(stream, {}, [b"123"])
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(stream.getvalue()[:-1]))


def test_a_request_that_fails_leaves_the_worker_usable() -> None:
    """An unknown method and a malformed request are failures of those requests only."""
    with Pool(1) as pool:
        first, second = pool.run([Request("no such"), Request("compile")])
        assert isinstance(first, WorkerFailed) and "no such" in str(first)
        assert isinstance(second, WorkerFailed)
        (worker,) = pool._all
        assert worker.alive()
    assert worker.process.returncode == 0


def test_a_killed_worker_fails_its_request_and_is_replaced() -> None:
    """Killing a worker between requests costs one request."""
    with Pool(1) as pool:
        pool.run([Request("no such")])
        pool._all[0].process.kill()
        pool._all[0].process.wait()
        (answer,) = pool.run([Request("no such")])
        assert isinstance(answer, WorkerFailed)
        (answer,) = pool.run([Request("no such")])
        assert "KeyError" in str(answer)


def test_no_requests_start_no_worker() -> None:
    """An empty batch starts nothing."""
    with Pool(1) as pool:
        assert pool.run([]) == [] and pool._all == []
