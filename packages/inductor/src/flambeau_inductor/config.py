"""Options of inductor: one frozen record, passed in, never written to.

In: keyword arguments, an options mapping, or ``FLAMBEAU_INDUCTOR_*`` variables. Out: ``Config``. A field's metadata has its help
text, whether it belongs to a cache key (it changes what is generated), and which values it takes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import Attribute, evolve, field, fields, frozen

from .errors import OptionError

_PREFIX = "FLAMBEAU_INDUCTOR_"
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KINDS: dict[type, str] = {bool: "on or off", int: "an integer", float: "a number", str: "a text"}
_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda value: True, "")
_POSITIVE: tuple[Callable[[Any], bool], str] = (lambda value: value >= 1, "at least 1")


def _option(
    default: Any,
    help: str,
    *,
    key: bool = True,
    choices: tuple[Any, ...] = (),
    accepts: tuple[Callable[[Any], bool], str] = _ANYTHING,
) -> Any:
    facts = {"help": help, "key": key, "kind": type(default), "choices": choices, "accepts": accepts}
    return field(default=default, validator=_check, metadata=facts)


def _check(config: Any, option: Attribute[Any], value: Any) -> None:
    if value is option.default:
        return  # most are, and every compile call makes a record
    expected = _expected(option, value)
    if expected:
        raise OptionError(f"{option.name}={value!r}: expected {expected}", hint=option.metadata["help"])


def _expected(option: Attribute[Any], value: Any) -> str:
    """What the option takes, where `value` is not that; else nothing."""
    kind, choices, (accepts, words) = (option.metadata[name] for name in ("kind", "choices", "accepts"))
    if choices and value not in choices:
        return " or ".join(repr(choice) for choice in choices)
    if not isinstance(value, (kind, int) if kind is float else kind) or (isinstance(value, bool) and kind is not bool):
        return f"{_KINDS.get(kind, kind.__name__)}"
    return "" if accepts(value) else words


@frozen
class Config:
    """What the compiler may do. Every field has a default that is right for most programs."""

    numerics: str = _option(
        "faithful",
        "'faithful': half-precision results are rounded after every eager op; 'fast': only when stored",
        choices=("faithful", "fast"),
    )
    max_inline_ops: int = _option(
        24, "a value costing more scalar ops than this is stored, not recomputed, for several users", accepts=_POSITIVE
    )
    max_inline_reads: int = _option(
        4, "a value reading more buffers than this is stored, not recomputed, for several users", accepts=_POSITIVE
    )
    fuse: bool = _option(True, "fuse loops into kernels; False makes one kernel per operation")
    max_fused_reads: int = _option(32, "the most buffers one kernel may touch", accepts=_POSITIVE)
    max_fusion_size: int = _option(
        64, "the most loops, each with a result of its own, that are fused into one kernel", accepts=_POSITIVE
    )
    reuse_memory: bool = _option(True, "give the memory of a dead buffer to a later one of the same shape")
    inplace_buffers: bool = _option(True, "let a kernel write a result over an intermediate that it reads last")
    size_asserts: bool = _option(True, "hold what library calls return to the layout that was predicted")
    epilogue_fusion: bool = _option(True, "let a library's product of matrices do the activation after it")
    spend_memory: bool = _option(False, "let rewrites hold more memory at a time than eager does where that saves time")
    layout_optimization: bool = _option(True, "run convolutions channels-last where that pays")
    blocked_losses: int = _option(
        1 << 26,
        "scores of a loss that take at least so many bytes are computed block by block of the classes, and never lie in memory whole; 0: none are",
        accepts=(lambda value: value >= 0, "at least 0"),
    )
    gemm: str = _option(
        "auto",
        "who computes matrix products and convolutions on a GPU: 'library', 'generated' kernels, or 'auto': generated ones where they are expected to be far faster",
        choices=("auto", "generated", "library"),
    )
    max_autotune: bool = _option(
        False,
        "measure on the GPU which kernel computes a product or convolution fastest, and in which blocks kernels run fastest",
    )
    max_autotune_gemm: bool = _option(False, "max_autotune for products and convolutions alone")
    max_autotune_pointwise: bool = _option(False, "max_autotune for kernels over points and reductions alone")
    coordinate_descent_tuning: bool = _option(
        False,
        "look around the fastest kernel that was measured for a faster one: one knob at a time, as far as a budget goes",
    )
    stored_choices: bool = _option(
        True, "use what was measured before on such a device, also where nothing is measured, and keep what is measured"
    )
    cpp_kernels: bool = _option(True, "generate C++ for loops on the CPU; False calls the library for everything")
    triton_kernels: bool = _option(True, "generate Triton for loops on the GPU; False calls the library for everything")
    cpu_backend: str = _option(
        "cpp", "the language of CPU kernels; 'triton' runs them under Triton's interpreter", choices=("cpp", "triton")
    )
    verify: bool = _option(False, "check the IR between stages", key=False)
    dump: str = _option("", "a folder that receives the text of every stage", key=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **overrides: Any) -> Config:
        """Defaults, overridden by ``FLAMBEAU_INDUCTOR_<FIELD>``, overridden by keyword arguments.

        Raises ``OptionError`` for a value that does not fit and names its variable. A variable that is set to nothing counts as not set.
        """
        table = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(cls):
            text = table.get(variable_of(option.name), "")
            if text:
                values[option.name] = _parse(option, text)
        return cls(**values).with_options(overrides)

    def with_options(self, options: Mapping[str, Any] | None) -> Config:
        """A copy with ``options`` set; OptionError for a name or value that does not exist."""
        if not options:
            return self
        known = {attribute.name for attribute in fields(type(self))}
        for name in options:
            if name not in known:
                raise OptionError(f"there is no option {name!r}", hint=f"the options are {', '.join(sorted(known))}")
        return evolve(self, **options)

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The part of the options that changes what is generated."""
        return tuple((o.name, getattr(self, o.name)) for o in fields(type(self)) if o.metadata["key"])


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    return _PREFIX + name.upper()


def _parse(option: Attribute[Any], text: str) -> Any:
    """A variable's text as a value of its field. Booleans are 1 or 0, true or false, yes or no, on or off."""
    kind = option.metadata["kind"]
    value: Any = text
    with contextlib.suppress(ValueError):
        if kind is bool:
            value = _WORDS.get(text.strip().lower(), text)
        elif kind is not str:
            value = kind(text)
    expected = _expected(option, value)
    if expected:
        variable = variable_of(option.name)
        raise OptionError(f"{variable}={text!r}: expected {expected}", hint=option.metadata["help"])
    return value
