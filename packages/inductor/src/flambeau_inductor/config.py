"""Options of inductor: one frozen record, passed in, never written to.

In: keyword arguments, an options mapping, or ``FLAMBEAU_INDUCTOR_*`` variables. Out: ``Config``. A field's metadata has its help
text and whether it belongs to the cache key (it changes what is generated).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from attrs import asdict, evolve, field, fields, frozen, validators

from .errors import OptionError

_PREFIX = "FLAMBEAU_INDUCTOR_"


def _option(default: Any, help: str, *, key: bool = True, choices: tuple[Any, ...] = ()) -> Any:
    check = validators.in_(choices) if choices else validators.instance_of(type(default))
    return field(default=default, validator=check, metadata={"help": help, "key": key, "choices": choices})


@frozen
class Config:
    """What the compiler may do. Every field has a default that is right for most programs."""

    numerics: str = _option(
        "faithful",
        "'faithful': half-precision results are rounded after every eager op; 'fast': only when stored",
        choices=("faithful", "fast"),
    )
    max_inline_ops: int = _option(
        24, "a value costing more scalar ops than this is stored, not recomputed, for several users"
    )
    max_inline_reads: int = _option(
        4, "a value reading more buffers than this is stored, not recomputed, for several users"
    )
    fuse: bool = _option(True, "fuse loops into kernels; False makes one kernel per operation")
    max_fused_reads: int = _option(32, "the most buffers one kernel may touch")
    max_fusion_size: int = _option(64, "the most loops, each with a result of its own, that are fused into one kernel")
    reuse_memory: bool = _option(True, "give the memory of a dead buffer to a later one of the same shape")
    inplace_buffers: bool = _option(True, "let a kernel write a result over an intermediate that it reads last")
    size_asserts: bool = _option(True, "hold what library calls return to the layout that was predicted")
    epilogue_fusion: bool = _option(True, "let a library's product of matrices do the activation after it")
    spend_memory: bool = _option(False, "let rewrites hold more memory at a time than eager does where that saves time")
    layout_optimization: bool = _option(True, "run convolutions channels-last where that pays")
    cpp_kernels: bool = _option(True, "generate C++ for loops on the CPU; False calls the library for everything")
    triton_kernels: bool = _option(True, "generate Triton for loops on the GPU; False calls the library for everything")
    cpu_backend: str = _option(
        "cpp", "the language of CPU kernels; 'triton' runs them under Triton's interpreter", choices=("cpp", "triton")
    )
    verify: bool = _option(False, "check the IR between stages", key=False)
    dump: str = _option("", "a folder that receives the text of every stage", key=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Defaults overridden by ``FLAMBEAU_INDUCTOR_<FIELD>``; OptionError for a value that does not parse."""
        found = os.environ if environ is None else environ
        given: dict[str, Any] = {}
        for attribute in fields(cls):
            text = found.get(_PREFIX + attribute.name.upper())
            if text is not None:
                given[attribute.name] = _parse(attribute.name, text, attribute.default)
        return cls().with_options(given)

    def with_options(self, options: Mapping[str, Any] | None) -> Config:
        """A copy with ``options`` set; OptionError for a name or value that does not exist."""
        if not options:
            return self
        known = {attribute.name for attribute in fields(type(self))}
        for name in options:
            if name not in known:
                raise OptionError(f"there is no option {name!r}", hint=f"the options are {', '.join(sorted(known))}")
        try:
            return evolve(self, **options)
        except (ValueError, TypeError) as error:
            raise OptionError(str(error.args[0])) from error

    def key(self) -> tuple[tuple[str, Any], ...]:
        """The part of the options that changes what is generated."""
        values = asdict(self)
        return tuple((a.name, values[a.name]) for a in fields(type(self)) if a.metadata["key"])


def _parse(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
        raise OptionError(f"{_PREFIX}{name.upper()} is a yes or no, not {text!r}")
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError as error:
            raise OptionError(f"{_PREFIX}{name.upper()} is an integer, not {text!r}") from error
    return text
