"""Modes and options: what is accepted, what is refused and with which hint."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flambeau import torch_names, without_effect
from flambeau.compiler import config
from flambeau.errors import InvalidOption, NotHereYet, UnknownName
from flambeau.log import ARTIFACTS
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


@pytest.mark.parametrize(
    "options",
    [
        {"max_fusion_size": 0},
        {"compile_threads": -1},
        {"cpp.threads": 0},
        {"cpp.threads": 2.0},
        {"activation_memory_budget": 1.5},
        {"guard_filter_fn": 3},
        {"guard_filter_fn": True},
        {"inplace_buffers": 1},
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """The message names the option, the hint says what it is."""
    (name,) = options
    with pytest.raises(InvalidOption, match=name) as raised:
        resolve(None, options)
    assert OPTIONS[name].help in str(raised.value)


def test_extremes_are_accepted() -> None:
    """The ends of each range."""
    given = {
        "max_fusion_size": 1,
        "compile_threads": 1,
        "cpp.threads": 1,
        "activation_memory_budget": 0,
        "guard_filter_fn": list,
    }
    options = resolve(None, given)
    assert {name: options[name] for name in given} == given
    defaults = {"cpp.threads": -1, "compile_threads": 0, "guard_filter_fn": None}
    assert resolve(None, defaults).cache_key() == Options().cache_key()


def test_mode_and_options_exclude_each_other() -> None:
    """The hint shows what the mode would have set."""
    with pytest.raises(InvalidOption, match=r"triton\.cudagraphs"):
        resolve("reduce-overhead", {"max_autotune": True})


def test_cache_key_ignores_what_does_not_change_code() -> None:
    """Two regions that differ in how they are compiled, loaded and guarded share compiled graphs."""
    same = {
        "compile_threads": 2,
        "cpp.threads": 1,
        "guard_filter_fn": list,
        "fallback_random": False,
        "executor": "python",
    }
    assert Options(same).cache_key() == Options().cache_key()
    for option in ({"numerics": "fast"}, {"size_asserts": False}, {"inplace_buffers": False}, {"max_fusion_size": 1}):
        assert Options(option).cache_key() != Options().cache_key()


def test_options_of_torch_that_are_not_here_say_so() -> None:
    """Not a misspelling; and what is here is in no such table."""
    for name in torch_names.OPTIONS:
        with pytest.raises(NotHereYet, match="not here yet"):
            resolve(None, {name: True})
    assert not torch_names.OPTIONS & OPTIONS.keys()
    assert not torch_names.LOGS & ARTIFACTS.keys()
    assert not torch_names.SETTINGS & set(config.names())


def _names_in(module: str) -> set[str]:
    """The settings that a configuration module of torch's defines, from its text: importing it would load torch's compiler."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    tree = ast.parse((Path(found.origin).parent / module / "config.py").read_text())
    scopes = [("", tree.body)]
    names: set[str] = set()
    while scopes:
        prefix, body = scopes.pop()
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                scopes.append((f"{prefix}{statement.name}.", statement.body))
            elif isinstance(statement, ast.If) and not prefix:
                scopes += [(prefix, statement.body), (prefix, statement.orelse)]
            given = [statement.target] if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", ())
            names |= {f"{prefix}{target.id}" for target in given if isinstance(target, ast.Name)}
    return {name for name in names if name.isidentifier() or "." in name} - {"TYPE_CHECKING"}


@pytest.mark.parametrize(
    ("module", "asks"),
    [
        ("_inductor", lambda name: resolve(None, {name: True})),
        ("_inductor", lambda name: config.patch(**{name: True}).__enter__()),
        ("_dynamo", lambda name: config.patch(**{name: True}).__enter__()),
        ("_functorch", lambda name: setattr(config, name, True)),
    ],
)
def test_every_name_that_the_installed_torch_has_is_known(module: str, asks: Callable[[str], Any]) -> None:
    """It is here, with other values perhaps, or is not here yet; none is taken for a misspelling."""
    names = {name for name in _names_in(module) if not name.startswith("_")}
    assert len(names) > 50
    here = {*OPTIONS, *config.names(), *without_effect.OPTIONS, *without_effect.SETTINGS}
    for name in sorted(names - here):
        with pytest.raises(NotHereYet):
            asks(name)


@pytest.mark.parametrize("name", ["trition.cudagraphs", "max_autotunee", "automatic_dynamic_shape", "triton."])
def test_a_misspelt_name_is_one(name: str) -> None:
    """Also where it looks like one of torch's."""
    for asks in (lambda: resolve(None, {name: True}), lambda: config.patch(**{name: True}).__enter__()):
        with pytest.raises(UnknownName) as told:
            asks()
        assert not isinstance(told.value, NotHereYet)


def test_a_given_default_is_not_the_same_as_nothing() -> None:
    """It goes before the environment and `config`."""
    assert resolve(None, {"recompile_limit": 8}).values == {"recompile_limit": 8}
