"""Errors of the runtime: each has a stable code, a message and a hint."""

from __future__ import annotations


class RuntimeFault(Exception):
    """Root of what this package raises. ``code`` is stable, ``hint`` says what to do."""

    code = "R000"
    hint = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        if hint is not None:
            self.hint = hint
        super().__init__(f"[{self.code}] {message}" + (f"\n  hint: {self.hint}" if self.hint else ""))


class UserError(RuntimeFault):
    """The caller gave something that cannot work."""

    code = "R100"


class InputError(UserError, TypeError):
    """A compiled program was called with inputs that differ from those it was compiled for."""

    code = "R101"
    hint = "recompile for these inputs, or mark the size that changes as dynamic"


class ArtifactError(UserError, ValueError):
    """An artifact is malformed, truncated, or of another version."""

    code = "R102"
    hint = "delete the file and compile again"


class CompilerUnavailable(UserError):
    """No working C++ compiler was found; programs of library calls still run."""

    code = "R103"
    hint = "install g++ or clang++, or name one in the environment variable CXX"


class OptionError(UserError, ValueError):
    """An option, or the environment variable that stands for it, has a value that it does not take."""

    code = "R105"


class ReleasedError(UserError, RuntimeError):
    """A program was given a parameter whose memory was given back when another froze it (`freezing_discard_parameters`)."""

    code = "R106"
    hint = "load the parameter again, or compile without freezing_discard_parameters"


class PredictionError(RuntimeFault, RuntimeError):
    """An operator returned something else than its fake said when the program was compiled. ``operator`` is its name."""

    code = "R201"
    hint = "correct what the operator's registered fake returns; for one of torch's own, please report it"

    @property
    def operator(self) -> str:
        """Who returned it."""
        return self.message.partition(" returned ")[0]


class BuildError(RuntimeFault):
    """The C++ compiler refused a generated source: our fault, not the user's."""

    code = "R200"
    hint = "this is a defect of the code generator; the source is part of the message"


class ExtensionError(UserError, ImportError):
    """The native extension is missing or was built for another torch or Python."""

    code = "R104"
    hint = "build it again: python tools/build_native.py --inplace runtime"


class InternalError(RuntimeFault):
    """A broken promise inside this package."""

    code = "R900"
    hint = "please report this with the artifact's text()"
