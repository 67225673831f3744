"""Where the operations of a graph stand in the user's program, so that a cached graph tells the lines of the program that reads it.

In: a captured graph; a compiled graph that was made of an equal one, perhaps from other files. Out: the compiled graph, whose kernels and library calls tell
the lines and modules of the captured one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen
from torch import fx

from flambeau_inductor.origins import line_of
from flambeau_runtime import Artifact
from flambeau_runtime.artifact import Call, Program, Subprogram

from .compiled_graph import CompiledGraph


@frozen
class Places:
    """The user's lines and the paths of modules, each once, in order of appearance; ``numbers`` has those of every node.

    Graphs with equal numbers tell the same of their places but for the names.
    """

    lines: tuple[str, ...]
    modules: tuple[str, ...]
    numbers: str

    @classmethod
    def of(cls, gm: fx.GraphModule) -> Places:
        """Those of a captured graph, the graphs of bodies included."""
        lines: dict[str, int] = {}
        modules: dict[str, int] = {}
        numbers = []
        for module in gm.modules():
            for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
                line = lines.setdefault(line_of(node), len(lines))
                path = modules.setdefault(node.meta.get("module") or "", len(modules))
                numbers.append(f"{line}:{path}")
        return cls(tuple(lines), tuple(modules), " ".join(numbers))

    def told_by(self, compiled: CompiledGraph) -> CompiledGraph:
        """The compiled graph of an equal captured graph, telling these places instead of that graph's."""
        if (compiled.lines, compiled.modules) == (self.lines, self.modules):
            return compiled
        known = {
            "stack": dict(zip(compiled.lines, self.lines, strict=True)),
            "modules": dict(zip(compiled.modules, self.modules, strict=True)),
        }
        moved: dict[str, Any] = {kind: _moved(artifact, known) for kind, artifact in compiled.programs}
        return attrs.evolve(compiled, lines=self.lines, modules=self.modules, **moved)


_Known = Mapping[str, Mapping[str, str]]


def _moved(artifact: Artifact, known: _Known) -> Artifact:
    kernels = tuple(attrs.evolve(kernel, meta=_renamed(kernel.meta, known)) for kernel in artifact.kernels)
    return attrs.evolve(artifact, kernels=kernels, program=_moved_program(artifact.program, known))


def _moved_program(program: Program, known: _Known) -> Program:
    instructions = []
    for instruction in program.instructions:
        if isinstance(instruction, Call):
            instruction = attrs.evolve(instruction, meta=_renamed(instruction.meta, known))
        elif isinstance(instruction, Subprogram):
            nested = tuple(_moved_program(each, known) for each in instruction.programs)
            instruction = attrs.evolve(instruction, programs=nested)
        instructions.append(instruction)
    return attrs.evolve(program, instructions=tuple(instructions))


def _renamed(meta: Mapping[str, Any], known: _Known) -> dict[str, Any]:
    """A name that the graph does not have is left out."""
    told = {
        fact: [names[name] for name in meta[fact] if names.get(name)] for fact, names in known.items() if fact in meta
    }
    return {**meta, **told}
