"""A page that needs nothing beside itself: one HTML file with its style, script, pictures and texts.

In: a title, sections (HTML each), long texts that a script shows when they are asked for. Out: HTML. Light and dark as the reader's system is,
usable without a mouse, on narrow screens and, but for the texts, without scripts::

    render_page("what was compiled", [Section("graphs", "Graphs", "<p>two</p>")])
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from attrs import frozen
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..units import bytes_text, number_text, seconds_text

_COLOUR = re.compile(r"--([\w-]+): (#\w+);")


@frozen
class Section:
    """One part of a page.

    Attributes:
        id: what links to it name, `#id`.
        title: its heading, also in the list of sections.
        html: its content; a plain `str` is escaped, `Markup` is not.
        count: a number or word beside the title in the list of sections, or "".
        note: one sentence under the heading that says how to read it.
    """

    id: str
    title: str
    html: str
    count: str = ""
    note: str = ""


@functools.cache
def environment() -> Environment:
    """The templates of this package: values are escaped, an unknown name is an error."""
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(seconds=seconds_text, bytes=bytes_text, number=number_text)
    return made


def render(template: str, **values: Any) -> Markup:
    """A template of this package, filled."""
    return Markup(environment().get_template(template).render(**values))


def render_page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    texts: Mapping[str, Any] | None = None,
) -> str:
    """The page.

    Args:
        title, subtitle: what stands at the top.
        sections: its parts, in order.
        texts: name -> what can be written as JSON; the script reads one when it is shown, under `flambeau.data(name)`.
    """
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            sections=sections,
            style=Markup(_asset("report.css")),
            script=Markup(_asset("report.js")),
            texts={name: Markup(embedded(value)) for name, value in (texts or {}).items()},
        )
    )


def embedded(value: Any) -> str:
    """JSON that can stand in a `<script>`: nothing in it ends the element or opens a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


@functools.cache
def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def colours(*, dark: bool) -> dict[str, str]:
    """The names of colours, and what they are on light or on dark grounds."""
    light, _, rest = _asset("report.css").partition("@media (prefers-color-scheme: dark)")
    return dict(_COLOUR.findall(rest.partition("* {")[0] if dark else light))
