"""What is trusted not to change, or is nowhere, gets no guard."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from flambeau_capture.guards.collect import GuardCollector
from flambeau_capture.sources.source import Attribute, Local, Pinned

TRUST = SimpleNamespace(
    is_trusted_namespace=lambda obj: obj is torch, holds_still=lambda obj: True, is_setting=lambda *args: False
)


@pytest.mark.parametrize(
    ("require", "what"),
    [(GuardCollector.type_is, type(torch.add)), (GuardCollector.identity, torch.add), (GuardCollector.constant, 3)],
)
def test_only_what_may_change_is_guarded(require, what):
    """A local, but neither a function of a trusted module nor a value without a source."""
    collector = GuardCollector(lambda: None, TRUST)
    require(collector, None, what)
    require(collector, Attribute(Pinned(torch), "add"), what)
    assert not collector.specs
    require(collector, Local("x"), what)
    require(collector, Attribute(Pinned(SimpleNamespace(add=what)), "add"), what)
    assert len(collector.specs) == 2
