"""Independent kernels as one Triton function: each has a range of program numbers.

In: ``Combined`` steps. Out: one ``GeneratedKernel`` each. Every body becomes a function of its own (equal bodies share one) that is
given the number of its first program; the kernel itself only says whose turn it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field, frozen

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import Combined, KernelBody
from ...kernel_ir import Node, Pointer
from ..cpp.canonical import canonical
from ..errors import UnsupportedKernel
from ..kernel import GeneratedKernel, with_shared_sources
from .function import Function
from .kernel import KernelText
from .module import generated
from .places import PID
from .print import Printer
from .texts import KernelTexts


@frozen
class _Branch:
    """Whose turn it is up to program ``end``: the part's, on ``arguments``."""

    end: Node
    part: int
    arguments: tuple[Node | Pointer, ...]


def generate_combined(steps: Sequence[Combined]) -> list[GeneratedKernel]:
    """Triton for every step, in order; steps with equal text share one kernel. Raises one UnsupportedKernel with the origins of every body that is refused."""
    kernels: list[GeneratedKernel] = []
    texts = KernelTexts(first="first")
    refused: dict[str, str] = {}
    for step in steps:
        writer = _Writer(f"triton_{step.name}", texts)
        for body in step.bodies:
            try:
                writer.add(body)
            except UnsupportedKernel as error:
                refused |= dict.fromkeys(body.origins, str(error)) or {"": str(error)}
        kernels.append(writer.finish())
    if refused:
        raise UnsupportedKernel("; ".join(dict.fromkeys(refused.values())), tuple(filter(None, refused)))
    return with_shared_sources(kernels)


@define
class _Writer:
    """The arguments, functions and branches of one combined kernel so far."""

    entry: str
    texts: KernelTexts
    parts: dict[Function, int] = field(factory=dict)
    branches: list[_Branch] = field(factory=list)
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
        text = self.texts.of(renamed)
        part = self.parts.setdefault(text.function.without_comments(), len(self.parts))
        first = self._number(self.programs)
        arguments = [first, *self._arguments(text, names)]
        arguments += [kir.Number(size) for size in text.config.blocks.values()]
        self.programs = self.programs + text.programs
        self.branches.append(_Branch(self._number(self.programs), part, tuple(arguments)))
        self.pieces.append(generated(text))

    def _arguments(self, text: KernelText, names: dict[str, str]) -> list[Node | Pointer]:
        found: list[Node | Pointer] = []
        keys = list(text.signature)
        dtypes = {buffer.name: buffer.layout.dtype for buffer in text.body.buffers}
        for parameter, buffer in zip(keys, text.buffers, strict=False):
            name = self.buffers.setdefault(names[buffer], f"ptr{len(self.buffers)}")
            self.types[name], self.dtypes[names[buffer]] = text.signature[parameter], dtypes[buffer]
            if parameter not in text.divisible:
                self.unaligned.add(name)
            found.append(Pointer(name, dtypes[buffer]))
        for parameter, scalar in zip(keys[len(text.buffers) :], text.scalars, strict=True):
            found.append(self._scalar(scalar, text.signature[parameter]))
        return found

    def _scalar(self, scalar: Expr | str, kind: str) -> Node:
        name = self.scalars.setdefault(scalar, f"n{len(self.scalars)}")
        # One that some body needs wide is wide for all.
        self.types[name] = "i64" if "i64" in (kind, self.types.get(name)) else kind
        return kir.position(name)

    def _number(self, e: Expr) -> Node:
        return kir.Number(int(e)) if e.is_int else self._scalar(e, "i32")

    def finish(self) -> GeneratedKernel:
        """The function that holds the branches."""
        parameters = [*self.buffers.values(), *self.scalars.values()]
        names = [f"{self.entry}_part{number}" for number in self.parts.values()]
        turns: kir.Block = ()
        for branch in reversed(self.branches):
            run = kir.Run(names[branch.part], branch.arguments)
            turns = (kir.If(kir.arith("lt", PID, branch.end), (run,), turns),)
        lines = Printer((), 32).lines([kir.Assign((PID,), kir.Program()), *turns])
        metas = [piece.meta for piece in self.pieces]
        compiled = {
            "signature": {name: self.types[name] for name in parameters},
            "constexprs": {},
            "divisible": [name for name in self.buffers.values() if name not in self.unaligned],
            "num_warps": max((meta["num_warps"] for meta in metas), default=4),
            "num_stages": max((meta["num_stages"] for meta in metas), default=1),
            "asserts": any(meta["asserts"] for meta in metas),
            "helpers": sorted({name for meta in metas for name in meta["helpers"]}),
        }
        whole = Function(tuple(parameters), tuple(lines)).text(self.entry)
        return GeneratedKernel(
            name=self.entry,
            source="\n\n".join([*map(Function.text, self.parts, names), whole]),
            buffers=tuple(self.buffers),
            dtypes=tuple(self.dtypes[name] for name in self.buffers),
            scalars=tuple(self.scalars),
            scalar_kinds="".join("f" if self.types[name] == "fp64" else "i" for name in self.scalars.values()),
            extent=self.programs,
            grain=1,
            checks=next((piece.checks for piece in self.pieces if piece.checks), ()),
            meta={
                **compiled,
                "bytes": sum(meta["bytes"] for meta in metas),
                "origins": list(dict.fromkeys(origin for meta in metas for origin in meta["origins"])),
            },
            kernels=tuple(kernel for piece in self.pieces for kernel in piece.kernels),
            code=(tuple(self.parts), tuple(self.branches), repr(compiled)),
        )
