"""One ``@triton.jit`` function before it has a name.

In: its parameters and lines. Out: its text under any name. Functions are equal that say the same, whatever their comments.
"""

from __future__ import annotations

from attrs import evolve, field, frozen

#: The number of a program in its grid.
PROGRAM = "tl.program_id(0)"


@frozen
class Function:
    """``comments`` come before it, without their marks."""

    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    comments: tuple[str, ...] = field(default=(), eq=False)

    def text(self, name: str) -> str:
        """The source."""
        head = [f"# {line}" for line in self.comments]
        head += ["@triton.jit", f"def {name}({', '.join(self.parameters)}):"]
        return "\n".join([*head, *("    " + line for line in self.lines)]) + "\n"

    def without_comments(self) -> Function:
        """The same for many places."""
        return evolve(self, comments=())


def positions(stacks: tuple[str, ...]) -> tuple[str, ...]:
    """The first of the user's positions that a kernel comes from, as comments."""
    return tuple(line for stack in stacks[:4] for line in stack.splitlines())
