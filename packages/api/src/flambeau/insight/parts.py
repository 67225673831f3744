"""What an explanation says, in parts that every way to show it has in common.

In: an `Explanation`. Out: `Part`s: a heading, a sentence on how to read it, rows. `plain.py`, `terminal.py` and `page.py` show them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import frozen

from ..records import FrameRecord, GuardRecord
from ..report.model import plain_function
from ..units import bytes_text, number_text, seconds_text
from .facts import Facts
from .steps import Step

_MOST_GUARDS = 8
_MOST_LEFT = 6
_MOST_KERNELS = 12
_LIBRARY = "extern_kernels."


@frozen
class Row:
    """`cells`: short, under the headings of the part; `lines`: what is said below them."""

    cells: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


@frozen
class Part:
    """`numeric`: the places of columns that are set to the right. `is_code`: lines are shown as they are."""

    id: str
    title: str
    rows: tuple[Row, ...]
    heads: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    note: str = ""
    is_code: bool = False


def parts_of(found: Facts, *, verbose: bool = False) -> list[Part]:
    """The parts in which there is something."""
    parts = [
        _summary(found),
        _breaks(found),
        _frames(found),
        _left(found, verbose),
        _elsewhere(found),
        kernels_part(found.kernels, most=None if verbose else _MOST_KERNELS),
        _speed(found),
        _memory(found),
        _guards(found, verbose),
        _seconds(found),
        _notes(found),
    ]
    return [part for part in parts if part.rows]


def _lines(texts: Iterable[str]) -> tuple[Row, ...]:
    return tuple(Row(lines=tuple(text.splitlines())) for text in texts)


def _summary(found: Facts) -> Part:
    kernels = sum(program.kernels for program in found.programs)
    calls = sum(sum(program.library_calls.values()) for program in found.programs)
    fused = sum(program.fused_operations for program in found.programs)
    cached = sum(program.cached for program in found.programs)
    lines = [f"not captured: {found.not_captured}"] if found.not_captured else []
    lines.append(
        f"graphs: {found.graph_count}, graph breaks: {found.graph_break_count}, operations: {found.op_count}, guards: {len(found.guards)}"
    )
    if found.programs:
        lines.append(
            f"kernels: {kernels} (of {fused} ATen operation{'' if fused == 1 else 's'}), library calls: {calls}"
        )
    if cached:
        lines.append(f"{cached} of {len(found.programs)} programs came from the disk cache")
    if found.speeds:
        # The whole call, where it was measured: else the graph that there is most to gain from.
        most = max(found.speeds, key=lambda speed: speed.eager_seconds)
        lines.append(f"{most.what}: {most.factor:.2f} times as fast as eager on these inputs")
    return Part("summary", found.name or "explanation", _lines(lines))


def _breaks(found: Facts) -> Part:
    rows = [
        Row(lines=(f"break {n}: [{b.code}] {b.reason}", *b.excerpt.splitlines(), f"    hint: {b.hint}"))
        for n, b in enumerate(found.breaks, 1)
    ]
    note = "Where a graph ends: the line below runs in Python, and a new graph begins after it."
    return Part("breaks", "Graph breaks", tuple(rows), note=note, is_code=True)


def _frames(found: Facts) -> Part:
    told = [frame for frame in found.frames if len(found.frames) > 1 or frame.skipped or frame.recompiled]
    rows = [
        Row((place_of(frame), _what(frame)), tuple(f"  compiled again: {why}" for why in frame.recompiled))
        for frame in told
    ]
    return Part(
        "frames", "Functions", tuple(rows), ("function", "became"), note="Every function that was looked at, in order."
    )


def _left(found: Facts, verbose: bool) -> Part:
    told = list(dict.fromkeys((place_of(frame), frame.skipped) for frame in found.left))
    shown = told if verbose else told[:_MOST_LEFT]
    rows = [Row(row) for row in shown]
    if len(told) > len(shown):
        rows.append(Row(lines=(f"and {len(told) - len(shown)} more: text(verbose=True) shows them",)))
    return Part("left", "Functions that were not looked at", tuple(rows), ("function", "why"))


def place_of(frame: FrameRecord) -> str:
    """The function and where it begins."""
    return f"{plain_function(frame.function)} ({short_file(frame.file)}:{frame.line})"


def _what(frame: FrameRecord) -> str:
    if frame.skipped:
        return f"Python: {frame.skipped}"
    many = "effect" if frame.effects == 1 else "effects"
    effects = f", {frame.effects} {many} after it" if frame.effects else ""
    return f"graph {frame.graph}{effects}" if frame.graph is not None else f"nothing to compute{effects}"


def short_file(file: str) -> str:
    """The end of a path."""
    parts = file.split("/")
    return "/".join(parts[-2:]) if len(parts) > 2 else file


def short_line(line: str) -> str:
    """`file:line in function`, with the end of the path."""
    file, _, rest = line.rpartition(":")
    number, _, function = rest.partition(" in ")
    return f"{short_file(file)}:{number}" + (f" in {plain_function(function)}" if function else "") if file else line


def _elsewhere(found: Facts) -> Part:
    texts = [f"runs in eager: {reason}" for reason in found.eager_graphs]
    texts += [f"compiled once: {repeat}" for repeat in found.repeats]
    texts += [f"CUDA graph, {decision}" for decision in found.cuda_graphs]
    if not found.cuda_graphs:
        waits = [(program.kind, wait) for program in found.programs for wait in program.host_waits]
        texts += [f"the host waits for the GPU, {kind}: {wait}" for kind, wait in waits]
    return Part("decisions", "What else was decided", _lines(texts))


def kernels_part(steps: Sequence[Step], *, most: int | None = None, title: str = "Kernels and library calls") -> Part:
    """The steps by time, or as they run where none was measured."""
    measured = any(step.measured_seconds is not None for step in steps)
    ordered = sorted(steps, key=lambda step: -(step.measured_seconds or 0.0)) if measured else list(steps)
    total = sum(step.measured_seconds or 0.0 for step in steps)
    shown = ordered if most is None else ordered[:most]
    rows = [_kernel(step, total) for step in shown]
    if len(ordered) > len(shown):
        left = sum(step.measured_seconds or 0.0 for step in ordered[len(shown) :])
        took = f", together {seconds_text(left)}" if measured else ""
        rows.append(Row(lines=(f"and {len(ordered) - len(shown)} more{took}: text(verbose=True) shows them",)))
    heads = ("time", "of all", "at least", "limit", "bytes", "GB/s", "flops", "calls", "name")
    note = (
        "time: measured on these inputs, of one call; at least: bytes or operations at the device's measured rates; limit: the share that is"
        " reached, above 100 % where what is read is still in a cache."
        if measured
        else "In running order; at least: bytes or operations at the device's measured rates."
    )
    if any(step.name.startswith(_LIBRARY) for step in shown):
        note += f" {_LIBRARY}NAME is a call of torch's own NAME."
    return Part("kernels", title, tuple(rows), heads, tuple(range(8)), note)


def _kernel(step: Step, total: float) -> Row:
    seconds, rate, share = step.measured_seconds, step.bytes_per_second, step.share_of_limit
    cells = (
        seconds_text(seconds) or "-",
        f"{seconds / total:.0%}" if seconds and total else "-",
        seconds_text(step.estimated_seconds * step.calls),
        "-" if share is None or not (step.bytes or step.flops) else f"{share:.0%}",
        bytes_text(step.bytes * step.calls),
        "-" if rate is None else f"{rate / 1e9:.3g}",
        number_text(step.flops * step.calls),
        f"{step.calls:g}",
        step.name,
    )
    # A library call's name says already which operation it is.
    where = [", ".join(step.ops)] if step.ops and step.name != f"{_LIBRARY}{step.ops[0]}" else []
    where += [f"in {', '.join(step.modules)}"] if step.modules else []
    lines = [f"graph {step.graph}, {step.direction}{': ' if where else ''}{'; '.join(where)}"]
    lines += [short_line(line) for line in step.user_lines[:3]]
    if len(step.user_lines) > 3:
        lines.append(f"and {len(step.user_lines) - 3} more lines")
    return Row(cells, tuple(lines))


def _speed(found: Facts) -> Part:
    rows = [
        Row((s.what, seconds_text(s.eager_seconds), seconds_text(s.compiled_seconds), f"{s.factor:.2f}x"))
        for s in found.speeds
    ]
    note = (
        "Medians on these inputs. A graph is measured alone: eager runs the captured operations one by one, without the Python around"
        " them, so a whole call may gain more."
    )
    return Part("speed", "Speed beside eager", tuple(rows), ("what", "eager", "compiled", "gain"), (1, 2, 3), note)


def _memory(found: Facts) -> Part:
    rows = [
        Row((m.what, bytes_text(m.eager_bytes), bytes_text(m.planned_bytes), _ratio(m.planned_bytes, m.eager_bytes)))
        for m in found.memory
    ]
    note = "Peak of a call beyond its inputs, with its results; on a CPU without what libraries take for themselves."
    return Part("memory", "Memory beside eager", tuple(rows), ("what", "eager", "planned", "share"), (1, 2, 3), note)


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _guards(found: Facts, verbose: bool) -> Part:
    telling = sorted(found.guards, key=_changes)
    shown = telling if verbose else telling[:_MOST_GUARDS]
    rows = [Row(lines=(guard.words, *_beside(guard))) for guard in shown]
    if len(telling) > len(shown):
        kinds = Counter(_KINDS.get(guard.kind, "others") for guard in telling[len(shown) :])
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        rows.append(Row(lines=(f"and {len(telling) - len(shown)} more ({listed}): text(verbose=True) shows them",)))
    note = "What must hold for the compiled code to be used; where one does not, the function is compiled again."
    return Part("guards", "Guards", tuple(rows), note=note)


def _beside(guard: GuardRecord) -> tuple[str, ...]:
    place = f"  (for {short_file(guard.file)}:{guard.line})" if guard.file else ""
    return (f"  {guard.expression}{place}",)


_KINDS = {
    "TensorMatch": "about tensors", "ShapeExpression": "about sizes", "ConstantIs": "about values", "TypeIs": "about classes",
    "NumberIs": "about numbers", "SequenceLength": "about lengths", "DictKeys": "about keys", "Contains": "about attributes",
    "HasAttribute": "about attributes", "IdentityIs": "about objects", "FunctionIs": "about functions", "ClassMembers": "about methods",
    "ModuleBindings": "about names of modules", "GlobalState": "about settings",
}  # fmt: skip


def _changes(guard: GuardRecord) -> int:
    """What tends to change from call to call comes first, what is torch's own last."""
    return len(_ORDER) + 1 if "pinned<" in guard.expression else _ORDER.get(guard.kind, len(_ORDER))


_ORDER = {
    kind: place
    for place, kind in enumerate(
        ("ShapeExpression", "TensorMatch", "NumberIs", "ConstantIs", "DictKeys", "AliasOf", "NoAlias", "GlobalState")
    )
}


def _seconds(found: Facts) -> Part:
    total = sum(found.seconds.values())
    rows = [
        Row((stage, seconds_text(seconds), f"{seconds / total:.0%}" if total else "-"))
        for stage, seconds in sorted(found.seconds.items(), key=lambda pair: -pair[1])
        if seconds >= 0.0005
    ]
    return Part("seconds", "Seconds of compiling", tuple(rows), ("stage", "time", "of all"), (1, 2))


def _notes(found: Facts) -> Part:
    return Part("notes", "What was not measured", _lines(found.notes))
