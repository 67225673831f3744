"""Errors of the runtime: each has a stable code, a message and a hint; `error_root.py` says how they are told."""

from __future__ import annotations

from typing import ClassVar

from .error_root import FlambeauError


class RuntimeFault(FlambeauError):
    """Root of everything the runtime raises."""

    code: ClassVar[str] = "FB400"


class UserError(RuntimeFault):
    """The caller gave something that cannot work."""

    code = "FB400"


class InputError(UserError, TypeError):
    """A compiled program was called with inputs that differ from those it was compiled for."""

    code = "FB401"
    hint = "recompile for these inputs, or mark the size that changes as dynamic"


class ArtifactError(UserError, ValueError):
    """An artifact is malformed, truncated, or of another version."""

    code = "FB402"
    hint = "delete the file and compile again"


class CompilerUnavailable(UserError, RuntimeError):
    """No working C++ compiler was found; programs of library calls still run."""

    code = "FB403"
    hint = "install g++ or clang++, or name one in the environment variable CXX"


class OptionError(UserError, ValueError):
    """An option, or the environment variable that stands for it, has a value that it does not take."""

    code = "FB407"


class ReleasedError(UserError, RuntimeError):
    """A program was given a parameter whose memory was given back when another froze it (`freezing_discard_parameters`)."""

    code = "FB406"
    hint = "load the parameter again, or compile without freezing_discard_parameters"


class PredictionError(RuntimeFault, RuntimeError):
    """An operator returned something else than its fake said when the program was compiled. ``operator`` is its name."""

    code = "FB408"
    hint = "correct what the operator's registered fake returns; for one of torch's own, please report it"

    @property
    def operator(self) -> str:
        """Who returned it."""
        return self.message.partition(" returned ")[0]


class BuildError(RuntimeFault, RuntimeError):
    """The C++ compiler refused a generated source: our fault, not the user's."""

    code = "FB491"
    hint = "this is a defect of the code generator; the source is part of the message"


class ExtensionError(UserError, ImportError):
    """The native extension is missing or was built for another torch or Python."""

    code = "FB404"
    hint = "build it again: python tools/build_native.py --inplace runtime"


class InternalError(RuntimeFault, AssertionError):
    """A broken promise inside this package."""

    code = "FB490"
    hint = "please report this with the artifact's text()"
