"""Graphs that fail are kept, in a folder each, with a script that runs them again.

In: `FLAMBEAU_REPRO_AFTER=dynamo` and the variables beside it, or the option `save_args`, which is level 3. Out: in `flambeau_repro/<process>-<number>` (or `FLAMBEAU_REPRO_DIR`) `repro.py`, which stands alone
but for the inputs, and `graph.pkl`, which `flambeau minify` reads. The folder is there before the graph is compiled and called, and goes away when that
went well: so it is there after a crash of the process too.

======  =================================================================================
level   what is kept
======  =================================================================================
1       the script of each graph that cannot be compiled, or whose first call raises
2       the graph as well, which `flambeau minify` takes (the default)
3       every graph
4       as 2, and graphs whose first call gives another result than eager
======  =================================================================================
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..backends import Backend, CompiledFn
from ..calling import on_first_call, one_by_one
from ..errors import InvalidOption
from ..log import logger
from ..rescue import as_captured
from .graphs import pack, script
from .trial import judge
from .verify import WrongResult

_numbers = itertools.count()
GRAPH, SCRIPT, INPUTS = "graph.pkl", "repro.py", "inputs.pt"


@frozen
class Keeping:
    """What is kept, and where.

    Attributes:
        level: see above.
        tolerance: of comparisons; by type where it is None.
        forward_only: gradients are not compared.
        ignore_integers: tensors that are not of floats are not compared.
    """

    folder: Path
    level: int = 2
    tolerance: float | None = None
    forward_only: bool = False
    ignore_integers: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, keeps_all: bool = False) -> Keeping:
        """Of `FLAMBEAU_REPRO_*`; `keeps_all`: level 3, whatever these say. Raises InvalidOption for a value that does not fit."""
        after = environment.get("FLAMBEAU_REPRO_AFTER", "")
        if after != "dynamo" and not (keeps_all and not after):
            raise InvalidOption(
                f"FLAMBEAU_REPRO_AFTER is 'dynamo', not {after!r}", hint="graphs are kept as they were captured"
            )
        level = "3" if keeps_all else environment.get("FLAMBEAU_REPRO_LEVEL") or "2"
        if level not in ("1", "2", "3", "4"):
            raise InvalidOption(f"FLAMBEAU_REPRO_LEVEL is 1, 2, 3 or 4, not {level!r}")
        tolerance = environment.get("FLAMBEAU_REPRO_TOLERANCE", "")
        try:
            allowed = float(tolerance) if tolerance else None
        except ValueError:
            raise InvalidOption(f"FLAMBEAU_REPRO_TOLERANCE is a number, not {tolerance!r}") from None
        return cls(
            Path(environment.get("FLAMBEAU_REPRO_DIR") or "flambeau_repro"),
            int(level),
            allowed,
            environment.get("FLAMBEAU_REPRO_FORWARD_ONLY") == "1",
            environment.get("FLAMBEAU_REPRO_IGNORE_NON_FP") == "1",
        )


def keeping(backend: Backend, kept: Keeping, arguments: Mapping[str, Any]) -> Backend:
    """`backend`, whose graphs are kept where they fail; failures are raised, not run in eager."""

    @functools.wraps(backend)
    def compile_and_keep(gm: fx.GraphModule, inputs: list[Any]) -> CompiledFn:
        folder = kept.folder / f"{os.getpid()}-{next(_numbers)}"
        _write(folder, gm, inputs, kept, "crash", arguments)
        compiled: CompiledFn = backend(gm, inputs)

        @contextmanager
        def kept_meanwhile(given: tuple[Any, ...]) -> Iterator[None]:
            _write(folder, gm, given, kept, "crash", arguments)
            if kept.level == 4:
                _compare(folder, gm, one_by_one(compiled), given, kept, arguments)
            yield
            if kept.level != 3:
                shutil.rmtree(folder, ignore_errors=True)

        return on_first_call(compiled, kept_meanwhile)

    return compile_and_keep


def _compare(
    folder: Path, gm: fx.GraphModule, compiled: CompiledFn, given: Any, kept: Keeping, arguments: Mapping[str, Any]
) -> None:
    eager = as_captured(gm)

    class Model(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return eager(*inputs)

    verdict = judge(
        Model(),
        compiled,
        given,
        "wrong",
        tolerance=kept.tolerance,
        ignore_integers=kept.ignore_integers,
        forward_only=kept.forward_only,
    )
    if verdict.startswith("wrong"):
        _write(folder, gm, given, kept, "wrong", arguments)
        raise WrongResult(f"{verdict.partition(': ')[2]} (kept in {folder})")


def _write(
    folder: Path, gm: fx.GraphModule, inputs: Any, kept: Keeping, check: str, arguments: Mapping[str, Any]
) -> None:
    """What cannot be written is told, and nothing else: the program goes on."""
    plain = {name: value for name, value in arguments.items() if value is not None and name != "name"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        from .graphs import unpack

        data = pack(gm, inputs)
        plain_gm, real = unpack(data)
        torch.save(real, folder / INPUTS)
        words = script(plain_gm, real, check, data=INPUTS, **plain)
        (folder / SCRIPT).write_text(words)
        if kept.level > 1:
            (folder / GRAPH).write_bytes(data)
    except Exception as error:
        logger.warning("graph_not_kept", reason=f"{type(error).__name__}: {error}")
