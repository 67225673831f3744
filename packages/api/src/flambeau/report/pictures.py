"""Pictures of a trace as SVG: the stages over time, memory over a program, kernels under the device's limits, what reads from what.

In: plain rows. Out: SVG as text, coloured by the page's style, each part with a title that says what it is (also for screen readers).
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from markupsafe import Markup

from ..units import bytes_text, counted, number_text, seconds_text
from .cells import cut
from .model import Span, plain_function
from .page import colours
from .stages import meaning

WIDTH = 980
COLOURS = 8
_KINDS = {
    "trace": 1,
    "backend": 7,
    "autograd": 0,
    "inductor": 3,
    "build": 4,
    "load": 5,
    "measure for the trace": 6,
    "kernel": 0,
    "library call": 1,
    "product": 2,
    "template": 3,
    "several kernels": 4,
    "planned": 0,
    "eager (estimate)": 1,
}
#: Spans that take a smaller part of the picture are left out of it; the table has them.
SMALLEST = 1 / 1500
_ROW = 17
_ACROSS = 5
"""Boxes beside each other."""


_FRAME = "var(--c2)"


def colour(name: str) -> str:
    """The colour of a name: the same in all pictures."""
    if name.startswith("compile "):
        name = "build"
    return f"var(--c{_KINDS.get(name, zlib.crc32(name.encode()) % COLOURS)})"


def timeline(rows: Sequence[tuple[str, Sequence[Span]]]) -> Markup:
    """One band a thread; nested stages below what they are in."""
    every = [span for _, spans in rows for span in spans]
    if not every:
        return Markup("<p>no stage was traced</p>")
    begin = min(span.begin for span in every)
    end = max(span.begin + (span.seconds or 0) for span in every)
    length = max(end - begin, 1e-9)
    parts: list[str] = []
    y = 22
    for label, spans in rows:
        shown = [span for span in spans if span.seconds is None or span.seconds / length >= SMALLEST]
        parts.append(f'<text x="0" y="{y + 12}" font-size="12" class="faint">{escape(label)}</text>')
        y += 18
        above: list[str] = []
        for span in shown:
            # What has no colour of its own is part of what is above it.
            own = _FRAME if span.is_frame else colour(span.name) if span.name in _KINDS or not span.depth else ""
            fill = own or (above[span.depth - 1] if span.depth <= len(above) else colour(span.name))
            above[span.depth :] = [fill]
            x = (span.begin - begin) / length * WIDTH
            width = max((span.seconds if span.seconds is not None else end - span.begin) / length * WIDTH, 1)
            told = seconds_text(span.seconds) if span.seconds is not None else "never ended"
            does = meaning(span.name)
            title = f"{span.name}{f' of the {span.program}' if span.program else ''}, compile {span.compile_id or 'none'}: {told}{f'. It is to {does}' if does else ''}"
            mark = "" if own else ' fill-opacity=".82"'
            mark += ' stroke-dasharray="3 2" stroke="var(--bad)"' if span.seconds is None else ""
            named = cut(plain_function(span.name), int((width - 6) / 5.6)) if width > 30 else ""
            parts.append(
                item(title)
                + f'<rect x="{x:.2f}" y="{y + span.depth * _ROW}" width="{width:.2f}" height="{_ROW - 2}" rx="2" fill="{fill}"{mark}/>'
                f'<text x="{x + 3:.2f}" y="{y + span.depth * _ROW + 11}" font-size="10" style="fill:var(--ground)">{escape(named)}</text></g>'
            )
        y += (max((span.depth for span in shown), default=0) + 1) * _ROW + 8
    ticks = "".join(
        f'<line class="grid" x1="{WIDTH * n / 8:.1f}" x2="{WIDTH * n / 8:.1f}" y1="14" y2="{y}"/>'
        f'<text x="{WIDTH * n / 8:.1f}" y="10" font-size="10" class="faint" text-anchor="{"start" if n == 0 else "end" if n == 8 else "middle"}">{seconds_text(length * n / 8)}</text>'
        for n in range(9)
    )
    names = [name for name in _KINDS if any(span.name == name for span in every)]
    return _svg(WIDTH, y, ticks + "".join(parts), "stages of compiles over time") + legend(names, frame=True)


def memory(lines: Sequence[tuple[str, Sequence[float]]], *, height: int = 220) -> Markup:
    """One line for each (name, bytes at each step), over the share of the steps that are done: programs and eager have different steps."""
    most = max((value for _, values in lines for value in values), default=0) or 1
    left, bottom = 74, height - 24
    parts = [
        f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{bottom - bottom * n / 4 * 0.92:.1f}" y2="{bottom - bottom * n / 4 * 0.92:.1f}"/>'
        f'<text x="{left - 6}" y="{bottom - bottom * n / 4 * 0.92 + 4:.1f}" font-size="11" text-anchor="end" class="faint">{bytes_text(most * n / 4)}</text>'
        for n in range(5)
    ]
    for name, values in lines:
        if not values:
            continue
        step = (WIDTH - left) / len(values)
        path = "".join(
            f"{'M' if at == 0 else 'L'}{left + at * step:.1f} {bottom - value / most * bottom * 0.92:.1f}H{left + (at + 1) * step:.1f}"
            for at, value in enumerate(values)
        )
        title = f"{name}: at most {bytes_text(max(values))}"
        parts.append(
            f'<path d="{path}" fill="none" stroke="{colour(name)}" stroke-width="2"><title>{escape(title)}</title></path>'
        )
    parts.append(
        f'<text x="{left}" y="{height - 6}" font-size="11" class="faint">first step</text><text x="{WIDTH}" y="{height - 6}" font-size="11" text-anchor="end" class="faint">last step</text>'
    )
    return _svg(WIDTH, height, "".join(parts), "bytes held over the steps of a program") + legend(
        name for name, _ in lines
    )


def legend(names: Iterable[str], *, frame: bool = False) -> Markup:
    """What the colours stand for."""
    shown = [("frame", _FRAME)] if frame else []
    shown += [(name, colour(name)) for name in names]
    return Markup('<div class="legend">%s</div>') % Markup("").join(
        Markup('<span><i style="background:%s"></i>%s</span>') % (fill, name) for name, fill in shown
    )


def roofline(points: Sequence[Mapping[str, Any]], device: Mapping[str, Any], *, height: int = 330) -> Markup:
    """Kernels by operations a byte and operations a second, under what the device was measured to do; both axes in powers of ten."""
    drawn = [p for p in points if p["flops"] and p["bytes"] and p["seconds"]]
    if not drawn:
        return Markup('<p class="note">No kernel has bytes, operations and a measured time.</p>')
    peak = max(device["flops"].values())
    speeds = [p["flops"] / p["seconds"] for p in drawn]
    ratios = [p["flops"] / p["bytes"] for p in drawn]
    x0, x1 = (
        math.floor(math.log10(min(*ratios, 0.1))),
        math.ceil(math.log10(max(*ratios, peak / device["bandwidth"] * 3))),
    )
    y0, y1 = math.floor(math.log10(min(speeds))), math.ceil(math.log10(peak * 1.1))
    left, bottom = 74, height - 34

    def x(value: float) -> float:
        return left + (math.log10(value) - x0) / (x1 - x0) * (WIDTH - left - 24)

    def y(value: float) -> float:
        return bottom - (math.log10(value) - y0) / (y1 - y0) * (bottom - 12)

    parts = []
    for n in range(x0, x1 + 1):
        parts.append(
            f'<line class="grid" x1="{x(10.0**n):.1f}" x2="{x(10.0**n):.1f}" y1="12" y2="{bottom}"/><text x="{x(10.0**n):.1f}" y="{bottom + 14}" font-size="11" text-anchor="middle" class="faint">{10.0**n:g}</text>'
        )
    for n in range(y0, y1 + 1):
        parts.append(
            f'<line class="grid" x1="{left}" x2="{WIDTH - 24}" y1="{y(10.0**n):.1f}" y2="{y(10.0**n):.1f}"/><text x="{left - 6}" y="{y(10.0**n) + 4:.1f}" font-size="11" text-anchor="end" class="faint">{number_text(10.0**n)}</text>'
        )
    bend = peak / device["bandwidth"]
    low = 10.0**x0
    roof = f"M{x(low):.1f} {y(max(low * device['bandwidth'], 10.0**y0)):.1f}L{x(bend):.1f} {y(peak):.1f}L{x(10.0**x1):.1f} {y(peak):.1f}"
    parts.append(
        f'<text x="{x(bend):.1f}" y="{y(peak) - 6:.1f}" font-size="11" text-anchor="end" style="fill:var(--accent)">at most {number_text(peak)}FLOP/s, {bytes_text(device["bandwidth"])}/s</text>'
        f'<path d="{roof}" fill="none" stroke="var(--accent)" stroke-width="2"><title>what {escape(str(device["name"]))} was measured to do: copies at {bytes_text(device["bandwidth"])}/s, products at {number_text(peak)}FLOP/s</title></path>'
    )
    most = max(p["seconds"] * p["count"] for p in drawn)
    for p, ratio, speed in sorted(zip(drawn, ratios, speeds, strict=True), key=lambda row: -row[0]["seconds"]):
        radius = 3 + 9 * math.sqrt(p["seconds"] * p["count"] / most)
        limit = min(ratio * device["bandwidth"], peak)
        title = f"{p['name']}: {seconds_text(p['seconds'])}, {number_text(speed)}FLOP/s, {speed / limit:.0%} of the limit there"
        parts.append(
            item(title)
            + f'<circle cx="{x(ratio):.1f}" cy="{y(speed):.1f}" r="{radius:.1f}" fill="{colour(p["kind"])}" fill-opacity=".65"/></g>'
        )
    parts.append(
        f'<text x="{WIDTH - 10}" y="{height - 4}" font-size="11" text-anchor="end" class="faint">operations for each byte that is moved →</text>'
        f'<text x="{left + 4}" y="9" font-size="11" class="faint">↑ operations a second; the larger a point, the more of the time</text>'
    )
    return _svg(WIDTH, height, "".join(parts), "kernels under the limits of the device") + legend(
        dict.fromkeys(p["kind"] for p in drawn)
    )


def fusion(steps: Sequence[Mapping[str, Any]], *, most: int = 240) -> Markup:
    """Kernels and library calls from top to bottom, each below all that it reads from; an arrow is a buffer that one fills and the other reads."""
    shown = list(steps[:most])
    writer: dict[tuple[int, str], int] = {}
    level: list[int] = []
    arrows: list[tuple[int, int, list[str]]] = []
    for at, step in enumerate(shown):
        sources: dict[int, list[str]] = defaultdict(list)
        for name in step["reads"]:
            if (source := writer.get((step["plan"], name))) is not None and source != at:
                sources[source].append(name)
        level.append(1 + max((level[source] for source in sources), default=-1))
        arrows += [(source, at, names) for source, names in sources.items()]
        writer |= {(step["plan"], name): at for name in step["writes"]}
    rows: list[list[int]] = []
    row_of: dict[int, int] = {}
    place: dict[int, float] = {}
    parents: dict[int, list[int]] = defaultdict(list)
    for source, target, _ in arrows:
        parents[target].append(source)
    for number in sorted(set(level)):
        members = [at for at, own in enumerate(level) if own == number]
        members.sort(key=lambda at: (sum(place[p] for p in parents[at]) / len(parents[at]) if parents[at] else 0, at))
        for column, at in enumerate(members):
            # What depends on nothing in between may be much: no row is wider than the page.
            if column % _ACROSS == 0:
                rows.append([])
            place[at], row_of[at] = column % _ACROSS, len(rows) - 1
            rows[-1].append(at)
    box, high, gap_x, gap_y = 180, 34, 16, 34
    widest = max((len(row) for row in rows), default=1)
    width = widest * (box + gap_x) + gap_x

    def corner(at: int) -> tuple[float, float]:
        shift = (widest - len(rows[row_of[at]])) / 2
        return gap_x + (place[at] + shift) * (box + gap_x), 12 + row_of[at] * (high + gap_y)

    parts = [
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--faint)"/></marker></defs>'
    ]
    for source, target, names in arrows:
        (sx, sy), (tx, ty) = corner(source), corner(target)
        x1, y1, x2, y2 = sx + box / 2, sy + high, tx + box / 2, ty
        parts.append(
            f'<path data-from="{source}" data-to="{target}" d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + gap_y * 0.7:.0f} {x2:.0f} {y2 - gap_y * 0.7:.0f} {x2:.0f} {y2:.0f}" fill="none" stroke="var(--faint)" stroke-opacity=".6" marker-end="url(#arrow)"><title>{escape(", ".join(names))}</title></path>'
        )
    letters = int((box - 14) / 6.8)  # of the fonts of most systems, at this size
    for at, step in enumerate(shown):
        x, y = corner(at)
        origins = ", ".join(step["origins"])
        title = f"{step['kind']} {step['name']}: computes {origins}"
        parts.append(
            item(title, f' data-box="{at}"')
            + f'<rect x="{x:.0f}" y="{y}" width="{box}" height="{high}" rx="5" fill="var(--ground)" stroke="{colour(step["kind"])}" stroke-width="1.6"/>'
            f'<text x="{x + 7:.0f}" y="{y + 14}" font-size="11">{escape(cut(step["name"].removeprefix("fused_"), letters))}</text>'
            f'<text x="{x + 7:.0f}" y="{y + 27}" font-size="9.5" class="faint">{escape(step["kind"])}, {counted(len(step["origins"]), "operation")}</text></g>'
        )
    picture = _svg(
        width,
        24 + max(len(rows), 1) * (high + gap_y),
        "".join(parts),
        "what was fused, and what reads from what",
    )
    rest = f'<p class="note">The first {most} of {len(steps)} steps.</p>' if len(steps) > most else ""
    scrolls = Markup('<figure class="pan" tabindex="0" aria-label="fusion graph, scrolls">%s</figure>') % picture
    return legend(dict.fromkeys(step["kind"] for step in shown)) + Markup(rest) + scrolls


def standalone(picture: str) -> str:
    """A picture as a file of its own: with the page's colours, for light grounds."""
    named = "".join(f"--{name}:{value};" for name, value in colours(dark=False).items())
    style = f"<style>svg{{{named}background:var(--ground)}}text{{fill:var(--text);font-family:system-ui,sans-serif}}.faint{{fill:var(--faint)}}</style>"
    picture = "".join(picture)  # a plain text: what is put into Markup would be escaped
    svg = picture[picture.index("<svg ") : picture.index("</svg>") + 6]
    head = svg.index(">") + 1
    return svg[:head].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ') + style + svg[head:] + "\n"


def item(title: str, more: str = "") -> str:
    """The beginning of a part of a picture: the page's script lets one walk from part to part, and shows the title of the one where one is."""
    return f'<g class="item"{more} role="img" aria-label={quoteattr(title)}><title>{escape(title)}</title>'


def _svg(width: float, height: float, content: str, title: str) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="group" aria-label={quoteattr(title)}>{content}</svg>'
    )
