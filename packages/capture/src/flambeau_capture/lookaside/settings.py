"""Settings of torch that a program changes inside: the default dtype, deterministic algorithms, which kernels of attention and of libraries may run.

In: calls of their setters and getters met while tracing. Out: the setting in force for what is traced next, and a node of the graph that sets
it there too. `settings_kept` and `setting_effects` leave it as it was before the trace, and as the program left it after the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from ..captured import CallFunction
from ..library import contextlib
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import fx

    from ..graph.builder import GraphBuilder
    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


@frozen(eq=False)
class Setting:
    """How a setting is read, and written by what `read` gave."""

    read: Callable[[], Any]
    write: Callable[[Any], None]


_SETTINGS: dict[Any, Setting] = {}
"""By the functions of torch that change them."""


def _setter(function: Any, setting: Setting, act: Any = None) -> None:
    """Trace calls of a function that changes a setting; `act` does for real what it does, where the function itself does more."""

    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if t.graph.bodies:
            raise GraphBreak("control-flow-operator", "a body changes a setting of torch")
        given = [t.folder.concrete(arg) for arg in args]
        named = {name: t.folder.concrete(value) for name, value in kwargs.items()}
        before = setting.read()
        try:
            (act or function)(*given, **named)
        except (TypeError, ValueError, RuntimeError) as error:  # what torch says of a value that it does not take
            raise t.exceptions.raised(error) from None
        t.graph.settings.setdefault(setting, before)
        t.graph.derive(function, tuple(given), None).kwargs = named
        # Where an operation raises, plain Python leaves the setting as it was then: the frame runs there.
        t.frames.caught = True
        return ConstantValue(None)

    _SETTINGS[function] = setting
    replaces(function)(replacement)


def _getter(function: Any, setting: Setting) -> None:
    """Trace calls of a function that gives a setting: what the frame itself set needs no guard."""

    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if setting in t.graph.settings:
            return t.folder.fold(function, args, kwargs)
        return t.folder.ask(function, args, kwargs)

    replaces(function)(replacement)


def _set_deterministic(state: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


def _act_deterministic(mode: bool, *, warn_only: bool = False) -> None:
    """Of `torch.use_deterministic_algorithms`, all but telling torch's own compiler of it, which that function does when the graph runs."""
    torch._C._set_deterministic_algorithms(mode, warn_only=warn_only)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_DETERMINISTIC = Setting(_deterministic, _set_deterministic)
_setter(torch.use_deterministic_algorithms, _DETERMINISTIC, _act_deterministic)
_setter(torch._C._set_deterministic_algorithms, _DETERMINISTIC)
_DEFAULT_DTYPE = Setting(torch.get_default_dtype, torch.set_default_dtype)
_setter(torch.set_default_dtype, _DEFAULT_DTYPE)

#: Names of the getters and setters in C of settings that have one of each. Those of precisions have more than their getter tells.
_PAIRS = (
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"), ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"), ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("_get_overrideable_sdp_enabled", "_set_sdp_use_overrideable"), ("_get_sdp_priority_order", "_set_sdp_priority_order"),
    ("_get_cudnn_enabled", "_set_cudnn_enabled"), ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"), ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
)  # fmt: skip

for _names in _PAIRS:
    if all(hasattr(torch._C, _name) for _name in _names):
        _get, _set = (getattr(torch._C, _name) for _name in _names)
        _setting = Setting(_get, _set)
        _getter(_get, _setting)
        _setter(_set, _setting)


@replaces(torch.set_default_device, torch.set_num_threads)
def sets_state(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "a global setting of torch is changed")


@contextlib.contextmanager
def settings_kept(graph: GraphBuilder) -> Iterator[None]:
    """Leave the settings as they were before the trace."""
    try:
        yield
    finally:
        for setting, before in graph.settings.items():
            if setting.read() != before:
                setting.write(before)


def setting_effects(t: Tracer) -> Iterator[CallFunction]:
    """What sets for real, after the graph, what the program left changed."""
    for setting, before in t.graph.settings.items():
        if (now := setting.read()) != before:
            yield CallFunction(t.wrapper.wrap_pinned(setting.write), (t.wrapper.from_python(now),))


def changed_settings(nodes: Iterable[fx.Node]) -> list[Setting]:
    """The settings that a graph of these nodes changes while it runs."""
    return list({_SETTINGS[node.target]: None for node in nodes if node.target in _SETTINGS})
