"""Pages about compilations: `render_page` makes one file of sections."""

from __future__ import annotations

from .page import Section, render_page

__all__ = ["Section", "render_page"]
