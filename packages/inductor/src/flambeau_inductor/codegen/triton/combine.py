"""Independent kernels as one Triton function: each has a range of program numbers.

In: ``Combined`` steps. Out: one ``GeneratedKernel`` each. Every body becomes a function of its own (equal bodies share one) that is
given the number of its first program; the kernel itself only says whose turn it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import Combined, KernelBody
from ..cpp.canonical import canonical
from ..kernel import GeneratedKernel
from .errors import UnsupportedKernel
from .kernel import KernelText, kernel_text
from .module import generated

_PROGRAM = "tl.program_id(0)"


def generate_combined(steps: Sequence[Combined]) -> list[GeneratedKernel]:
    """Triton for every step, in order; steps with equal text share one kernel. Raises one UnsupportedKernel with the origins of every body that is refused."""
    kernels: list[GeneratedKernel] = []
    known: dict[str, GeneratedKernel] = {}
    refused: dict[str, str] = {}
    for step in steps:
        writer = _Writer(f"triton_{step.name}")
        for body in step.bodies:
            try:
                writer.add(body)
            except UnsupportedKernel as error:
                refused |= dict.fromkeys(body.origins, str(error)) or {"": str(error)}
        kernel = writer.finish()
        code = kernel.source.replace(writer.entry, "kernel")
        facts = [kernel.meta[name] for name in ("signature", "divisible", "num_warps", "asserts")]
        same = known.setdefault(f"{code}\n{facts}", kernel)
        kernels.append(evolve(kernel, name=same.name, source=same.source))
    if refused:
        raise UnsupportedKernel("; ".join(dict.fromkeys(refused.values())), tuple(filter(None, refused)))
    return kernels


@define
class _Writer:
    """The arguments, functions and branches of one combined kernel so far."""

    entry: str
    parts: dict[str, str] = field(factory=dict)
    branches: list[str] = field(factory=list)
    buffers: dict[str, str] = field(factory=dict)
    scalars: dict[Expr | str, str] = field(factory=dict)
    types: dict[str, str] = field(factory=dict)
    pieces: list[GeneratedKernel] = field(factory=list)
    dtypes: dict[str, object] = field(factory=dict)
    unaligned: set[str] = field(factory=set)
    programs: Expr = ex.ZERO

    def add(self, body: KernelBody) -> None:
        """One more body, behind the programs of those before."""
        renamed, names = canonical(body)
        text = kernel_text(renamed, name="part")
        if text.source.count(_PROGRAM) != 1:
            raise UnsupportedKernel("a kernel that does not number its programs once")
        part = self.parts.setdefault(_as_part(text), f"{self.entry}_part{len(self.parts)}")
        first = self._number(self.programs)
        arguments = [first, *self._arguments(text, names)]
        arguments += [str(size) for size in text.config.blocks.values()]
        self.programs = self.programs + text.programs
        self.branches.append(f"if pid < {self._number(self.programs)}:\n        {part}({', '.join(arguments)})")
        self.pieces.append(generated(text))

    def _arguments(self, text: KernelText, names: dict[str, str]) -> list[str]:
        found: list[str] = []
        keys = list(text.signature)
        dtypes = {buffer.name: buffer.layout.dtype for buffer in text.body.buffers}
        for parameter, buffer in zip(keys, text.buffers, strict=False):
            name = self.buffers.setdefault(names[buffer], f"ptr{len(self.buffers)}")
            self.types[name], self.dtypes[names[buffer]] = text.signature[parameter], dtypes[buffer]
            if parameter not in text.divisible:
                self.unaligned.add(name)
            found.append(name)
        for parameter, scalar in zip(keys[len(text.buffers) :], text.scalars, strict=True):
            found.append(self._scalar(scalar, text.signature[parameter]))
        return found

    def _scalar(self, scalar: Expr | str, kind: str) -> str:
        name = self.scalars.setdefault(scalar, f"n{len(self.scalars)}")
        # One that some body needs wide is wide for all.
        self.types[name] = "i64" if "i64" in (kind, self.types.get(name)) else kind
        return name

    def _number(self, e: Expr) -> str:
        return str(int(e)) if e.is_int else self._scalar(e, "i32")

    def finish(self) -> GeneratedKernel:
        """The function that holds the branches."""
        parameters = [*self.buffers.values(), *self.scalars.values()]
        parts = [_named(source, name) for source, name in self.parts.items()]
        lines = ["@triton.jit", f"def {self.entry}({', '.join(parameters)}):", f"    pid = {_PROGRAM}"]
        lines += [f"    {'el' if n else ''}{branch}" for n, branch in enumerate(self.branches)]
        metas = [piece.meta for piece in self.pieces]
        return GeneratedKernel(
            name=self.entry,
            source="\n\n".join([*parts, "\n".join(lines) + "\n"]),
            buffers=tuple(self.buffers),
            dtypes=tuple(self.dtypes[name] for name in self.buffers),
            scalars=tuple(self.scalars),
            scalar_kinds="".join("f" if self.types[name] == "fp64" else "i" for name in self.scalars.values()),
            extent=self.programs,
            grain=1,
            checks=next((piece.checks for piece in self.pieces if piece.checks), ()),
            meta={
                "signature": {name: self.types[name] for name in parameters},
                "constexprs": {},
                "divisible": [name for name in self.buffers.values() if name not in self.unaligned],
                "num_warps": max((meta["num_warps"] for meta in metas), default=4),
                "num_stages": max((meta["num_stages"] for meta in metas), default=1),
                "asserts": any(meta["asserts"] for meta in metas),
                "helpers": sorted({name for meta in metas for name in meta["helpers"]}),
                "bytes": sum(meta["bytes"] for meta in metas),
                "origins": list(dict.fromkeys(origin for meta in metas for origin in meta["origins"])),
            },
        )


def _as_part(text: KernelText) -> str:
    """The function of a body, without its name and comments, counting its programs from ``first``."""
    lines = [line for line in text.source.splitlines() if not line.startswith("#")]
    return "\n".join(lines).replace("def part(", "def {name}(first, ", 1).replace(_PROGRAM, f"({_PROGRAM} - first)")


def _named(source: str, name: str) -> str:
    return source.replace("{name}", name, 1) + "\n"
