"""Modes and options: what is accepted, what is refused and with which hint."""

from __future__ import annotations

import pytest

from flambeau.errors import InvalidOption, UnknownName
from flambeau.options import OPTIONS, Options, list_mode_options, list_options, resolve


def test_defaults_come_from_the_table() -> None:
    """An option that was not given has its record's default."""
    options = resolve(None, None)
    assert all(options[name] == OPTIONS[name].default for name in list_options())


def test_a_mode_sets_its_options() -> None:
    """Every mode resolves to exactly what `list_mode_options` shows."""
    for mode, values in list_mode_options().items():
        options = resolve(mode, None)
        assert {name: options[name] for name in values} == values


def test_unknown_names_tell_the_nearest() -> None:
    """A typo in a mode, an option or a choice."""
    with pytest.raises(UnknownName, match="did you mean 'max-autotune'"):
        resolve("max-autotun", None)
    with pytest.raises(UnknownName, match="did you mean 'numerics'"):
        resolve(None, {"numeric": "fast"})
    with pytest.raises(UnknownName, match="faithful"):
        resolve(None, {"numerics": "sloppy"})


def test_wrong_types_are_refused() -> None:
    """A bool is no int, a string is no bool, options are a dict."""
    for options in ({"compile_threads": True}, {"max_autotune": "yes"}):
        with pytest.raises(InvalidOption):
            resolve(None, options)
    with pytest.raises(InvalidOption, match="takes a dict"):
        resolve(None, [("max_autotune", True)])  # type: ignore[arg-type]


def test_mode_and_options_exclude_each_other() -> None:
    """The hint shows what the mode would have set."""
    with pytest.raises(InvalidOption, match=r"triton\.cudagraphs"):
        resolve("reduce-overhead", {"max_autotune": True})


def test_cache_key_ignores_what_does_not_change_code() -> None:
    """Two regions that differ in compile threads share compiled graphs."""
    assert Options({"compile_threads": 2}).cache_key() == Options().cache_key()
    assert Options({"numerics": "fast"}).cache_key() != Options().cache_key()
