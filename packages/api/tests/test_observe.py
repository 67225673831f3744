"""What capture reports of a frame reaches the recorder."""

from __future__ import annotations

from flambeau.observe import observer_of
from flambeau.records import Recorder
from flambeau_capture import CompileRecord
from flambeau_capture.record import BreakRecord


def test_a_break_is_recorded() -> None:
    """With its place, its code and its hint."""
    recorder = Recorder()
    found = BreakRecord("call", "a reason", "a hint", "file.py", 3, "function")
    observer_of(recorder, "region")(
        CompileRecord(test_a_break_is_recorded.__code__, 0, None, 0, (), (found,), 0.5, 0.0)
    )
    (reason,) = recorder.breaks
    assert (reason.file, reason.line, reason.function) == ("file.py", 3, "function")
    assert (reason.code, reason.reason, reason.hint) == ("call", "a reason", "a hint")
    assert recorder.graphs == [] and recorder.seconds == {"capture": 0.5}
