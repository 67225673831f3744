"""Options from the environment, errors with positions, and the table of frames that are captured."""

from __future__ import annotations

import functools

import attrs
import pytest
import torch

from flambeau_capture import errors
from flambeau_capture.config import Config
from flambeau_capture.errors import CaptureError, GraphBreakError, OptionError, UserPosition
from flambeau_capture.policy import Decision, decide


def test_options_come_from_defaults_then_environment_then_arguments():
    environment = {
        "FLAMBEAU_CAPTURE_RECOMPILE_LIMIT": "3",
        "FLAMBEAU_CAPTURE_DYNAMIC": "none",
        "FLAMBEAU_CAPTURE_SPECIALIZE_INT": "1",
    }
    config = Config.from_environment(environment, fullgraph=True)
    assert (config.recompile_limit, config.dynamic, config.specialize_int, config.fullgraph) == (3, None, True, True)
    assert Config.from_environment(environment, recompile_limit=5).recompile_limit == 5


def test_a_bad_value_names_the_variable():
    with pytest.raises(CaptureError, match="FLAMBEAU_CAPTURE_RECOMPILE_LIMIT='many'"):
        Config.from_environment({"FLAMBEAU_CAPTURE_RECOMPILE_LIMIT": "many"})


def test_what_capture_decides_is_in_the_graph_and_not_in_a_key():
    assert Config().key() == Config(dynamic=True, recompile_limit=2).key() == ()
    assert all(a.metadata["help"] for a in attrs.fields(Config))


@pytest.mark.parametrize(
    "value", [{"recompile_limit": 0}, {"recompile_limit": True}, {"fullgraph": 1}, {"dynamic": "maybe"}]
)
def test_a_value_of_the_wrong_kind_is_an_error(value):
    with pytest.raises(OptionError, match=next(iter(value))):
        Config(**value)


def test_every_error_has_its_own_code():
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.FlambeauCaptureError)]
    concrete = [c for c in classes if c is not errors.FlambeauCaptureError]
    assert len({c.code for c in concrete}) == len(concrete)
    assert all(c.__doc__ for c in concrete)


def test_an_error_shows_the_line_and_a_caret(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def f(x):\n    return x.nope()\n")
    error = GraphBreakError("no", positions=[UserPosition(str(path), 2, "f", 11, 19)])
    assert isinstance(error, RuntimeError)
    lines = str(error).splitlines()
    assert lines[0] == "[FB101] no"
    assert lines[1].strip() == f"{path}:2 in f"
    assert lines[2].strip() == "return x.nope()"
    assert lines[3].index("^") - lines[2].index("return") == 7
    assert lines[3].count("^") == 8


def test_frames_are_chosen_by_whose_file_they_are_in():
    assert decide(test_frames_are_chosen_by_whose_file_they_are_in.__code__) is Decision.TRACE
    assert decide(torch.nn.Linear.forward.__code__) is Decision.TRACE
    assert decide(torch.nn.functional.layer_norm.__code__) is Decision.TRACE
    assert decide(torch.save.__code__) is Decision.OPAQUE
    assert (
        decide(functools.reduce.__code__ if hasattr(functools.reduce, "__code__") else functools.wraps.__code__)
        is Decision.SKIP
    )
    assert decide(UserPosition.render.__code__) is Decision.OPAQUE
    assert decide(compile("x", "<generated>", "eval").replace(co_name="f")) is Decision.TRACE
