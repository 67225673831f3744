"""The passes, in the order they run."""

from __future__ import annotations

from .remove_dead import remove_dead
from .remove_noops import remove_noops
from .runner import Pass

PASSES = (Pass("remove_noops", remove_noops), Pass("remove_dead", remove_dead))
