"""What symbolic execution of one frame yields: `FrameResult`, the input of `rewrite.assemble`.

In: nothing but values and sources. Out: frozen records. Values are compared by identity everywhere.

How the rewriter uses it, in order:

1. load every source of `inputs`, call the compiled graph with them; it returns a tuple, one entry for each of `outputs`
   (`emitter.value(v)` for a `v` in `outputs` is that entry and never calls `v.rebuild`);
2. replay `effects` in order;
3. either return `exit.value`, or restore `exit.stack` (bottom first, `NullValue` is a NULL) and `exit.locals`, run
   `exit.instruction` for real and go on in a resume function.

With `graph is None` nothing is called; there are no outputs then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from .signals import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch.fx

    from .sources.source import Source
    from .values.base import Value


@frozen(eq=False)
class Effect:
    """A change to the world outside the graph, recorded while tracing and done after the graph ran."""


@frozen(eq=False)
class SetAttribute(Effect):
    """`target.name = value` with `object.__setattr__`-like plainness when `plain`, else by the type's own rule."""

    target: Value
    name: str
    value: Value
    plain: bool = True


@frozen(eq=False)
class DeleteAttribute(Effect):
    """`del target.name`."""

    target: Value
    name: str


@frozen(eq=False)
class SetGlobal(Effect):
    """`namespace[name] = value`; `namespace` is the globals dict itself, `None` for the root frame's own."""

    namespace: dict[str, Any] | None
    name: str
    value: Value


@frozen(eq=False)
class DeleteGlobal(Effect):
    """`del namespace[name]`."""

    namespace: dict[str, Any] | None
    name: str


@frozen(eq=False)
class SetCell(Effect):
    """`cell.cell_contents = value`; `cell` is a cell that existed before the frame ran."""

    cell: Value
    value: Value


@frozen(eq=False)
class ReplaceItems(Effect):
    """Give an existing container new contents, its identity kept.

    `kind` is `"list"` or `"deque"` (`items` in order), `"set"` (`items` in order), or `"dict"` (`items` alternates keys and values).
    """

    target: Value
    kind: str
    items: tuple[Value, ...]


@frozen(eq=False)
class CallFunction(Effect):
    """`function(*args)` with the result dropped; for state that has a setter (`torch.set_grad_enabled(False)`)."""

    function: Value
    args: tuple[Value, ...]


@frozen(eq=False)
class Return:
    """The frame ran to its end."""

    value: Value


@frozen(eq=False)
class Break:
    """The frame was traced up to `instruction` (an index into `decode_normalised(code)`), which has to run for real.

    `locals` holds every bound local; a cell variable is a `CellValue` (rebuilding it gives the cell object), free variables are
    left out (the frame has them). `stack` is bottom first. `handled` are the exceptions being handled, the outermost first: one for
    each PUSH_EXC_INFO whose POP_EXCEPT has not run yet. `is_open`: what the instruction pushes has a shape that depends on data.
    """

    instruction: int
    stack: tuple[Value, ...]
    locals: Mapping[str, Value]
    reason: str
    position: Position
    handled: tuple[Value, ...] = ()
    is_open: bool = False


@frozen(eq=False)
class FrameResult:
    """One traced frame."""

    graph: torch.fx.GraphModule | None
    inputs: tuple[Source, ...]
    outputs: tuple[Value, ...]
    effects: tuple[Effect, ...]
    exit: Return | Break
    example_inputs: tuple[Any, ...] = field(default=())
    caught: bool = False
    """Whether an exception of the graph may belong to a handler of the program, or comes after effects: the frame is run in plain Python then.
    Not where the graph may have written by then; see `starts_anew` in its meta."""
    wants_grad: bool = False
    """Whether the graph is called with gradients enabled, in a frame that runs without."""
