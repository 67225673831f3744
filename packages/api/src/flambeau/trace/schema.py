"""What a trace holds: lines of JSON, one record each, in the order in which they were written.

In: nothing. Out: `VERSION`, `KINDS`. Every record has `kind`, `time` (seconds since the process began to trace, on its monotonic clock), `thread`, and
`compile`, the id of the frame that was being compiled ("2/0": the third code object's first entry), or "". The first record of a file is `process`. A
reader takes any file of its own version, leaves out what it does not know, and a last line that was cut off.

Texts are whole; `program` is "forward", "backward", "folding", or "" outside of a program. `nodes` maps the name of a graph's node to the user's positions
(`[file, line, function]`, the outermost first). That is how lines are linked: node names of the graph behind inductor's passes are what loops
(`origins`), kernels (`kernels`) and steps (`schedule`) say that they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

VERSION = 1
"""Changes when a record loses or redefines a field; new kinds and fields do not change it."""

#: Kind of record -> its fields beside the common ones.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "process": "version, flambeau, torch, python, pid, host, rank, command, started (seconds since 1970)",
        "device": "device, name, bandwidth (bytes/s of a copy), flops (dtype -> operations/s of a product): measured here",
        "frame_begin": "function, owner (the class of the module whose method it is, or ''), file, line, entry, region, misses (why no earlier entry fits: a recompile)",
        "frame_end": "error: what was raised, or ''",
        "frame": "function, graph (whether there is one), operations, skipped (why plain Python runs it, or ''), trace_seconds, backend_seconds",
        "stage_begin": "stage, package",
        "stage_end": "stage, package, seconds; what no stage_begin came before began that long ago",
        "break": "code, reason, hint, file, line, function, stack",
        "guards": "guards: [{text, words, seconds, position}]: as an expression, as a sentence, and what each costs by itself on this frame",
        "bytecode": "function, before, after: listings; runs ('graph' where the entry runs the graph itself)",
        "file": "path, text: a source that positions name",
        "graph": "name (captured, joint, forward, backward, post_grad), program, text, nodes",
        "script": "text: a program that runs the captured graph (in debug folders alone)",
        "ir": "stage, form, program, text: loop IR, kernels behind fusion, kernel IR, sources",
        "positions": "program, nodes: those of the graph behind inductor's passes",
        "origins": "program, origins: buffer -> nodes",
        "schedule": "program, steps: [{name, kind, plan, origins, reads, writes}]",
        "fusion": "program, text: which loop joined which, and why not",
        "program": "program, text, cached, digest",
        "kernels": "program, kernels: [{name, position, origins, ops, stack, modules, bytes, flops, seconds, device, note}]",
        "source": "program, name, language, text",
        "memory": "program, planned: [[instruction, bytes]]",
        "lifetimes": "values: [{name, op, backward, bytes}], what eager would hold",
        "cache": "event, entry (kind of entry), key, why",
        "cuda_graph": "program, decision, reason, position",
        "eager": "reason: why a graph runs in eager",
        "log": "event, artifact, fields: everything else that the packages tell",
    }
)  # fmt: skip
