"""Which of several ways to compute a product is the fastest, measured.

In: a candidate, tiles. Out: the best tile, or None where the library (with the kernel that follows it) is as fast. Each way becomes a small program of its
own with operands of the real layouts; all are timed in turn, in another process (``flambeau_runtime.timing``). What was found is kept in the store for the
device and the versions, so that a later process measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from attrs import evolve

from flambeau_runtime import Artifact, CacheKey, default_store
from flambeau_runtime.timing import time_apart

from ..codegen.generate import generate
from ..config import Config
from ..devices import device_facts
from ..ir.graph import Graph, TensorInput
from ..ir.kernel import GemmTile, Store
from ..ir.layout import Buffer, Ref
from ..ir.loops import Extern
from ..log import MEASURED, logger
from ..program.build import build
from ..schedule import Schedule, Step
from ..schedule.gemms import Candidate
from ..schedule.steps import step_reads, step_writes

#: By how much a kernel must be faster than the library in a measurement: what two runs of one program differ by.
_NOISE = 0.98


def measured_tile(candidate: Candidate, tiles: Sequence[GemmTile], config: Config) -> GemmTile | None:
    """The fastest of ``tiles``; None for the library."""
    product, device = candidate.product, candidate.body.device
    nothing = Graph((), (), (), (), candidate.buffers)
    own_ways = [candidate.steps(tile, nothing, set()) for tile in tiles]
    store, key = default_store(), _key(product.call, [steps for steps, _ in own_ways], config, device)
    stored = store.get_json(key)
    if isinstance(stored, int) and -1 <= stored < len(tiles):
        return tiles[stored] if stored >= 0 else None
    followed: list[Step] = [product.call, *([candidate.epilogue] if candidate.epilogue is not None else [])]
    # The result stays where something else reads it: all ways store the same.
    wanted = tuple(dict.fromkeys(s.buffer for s in candidate.body.statements if isinstance(s, Store)))
    ways: list[tuple[Sequence[Step], Mapping[str, Buffer]]] = [(followed, {}), *own_ways]
    programs = [_program(steps, {**candidate.buffers, **buffers}, wanted, config) for steps, buffers in ways]
    library, *own = time_apart(programs, device=device, store=store)
    best = min((n for n, seconds in enumerate(own) if seconds is not None), key=lambda n: own[n] or 0.0, default=-1)
    if best >= 0 and library is not None and (own[best] or 0.0) > _NOISE * library:
        best = -1
    logger.info(MEASURED, artifact="autotuning", kernel=candidate.body.name, library=library, own=own, chosen=best)
    store.put_json(key, best)
    return tiles[best] if best >= 0 else None


def _program(steps: Sequence[Step], buffers: Mapping[str, Buffer], wanted: tuple[str, ...], config: Config) -> Artifact:
    """``steps`` as a program of what they read, giving ``wanted``."""
    made = {name for step in steps for name in step_writes(step)}
    read = dict.fromkeys(name for step in steps for name in sorted(step_reads(step)) if name not in made)
    # Each operand has memory of its own here, whatever it is part of.
    own = {name: evolve(buffers[name], storage=name) for name in (*read, *made)}
    inputs = tuple(TensorInput(own[name]) for name in read)
    outputs = tuple(Ref.whole(own[name]) for name in wanted)
    graph = Graph(inputs, (), (), outputs, own)
    plan = Schedule(tuple(steps), own)
    sources = generate(steps, config)
    return build(graph, plan, sources.kernels, sources.libraries).artifact


def _key(call: Extern, ways: Sequence[Sequence[Step]], config: Config, device: torch.device) -> CacheKey:
    """What decides the answer: the kernels, whatever their names, the call in their place, the device, and whose library it is."""
    kernels = (generate(steps, config).kernels.values() for steps in ways)
    parts = {f"tile {n}": repr([kernel.code for _, kernel in found]) for n, found in enumerate(kernels)}
    versions = f"{torch.__version__} {torch.version.cuda}"
    return CacheKey("tuning", {**parts, "call": str(call.op), "device": device_facts(device).name, "torch": versions})
