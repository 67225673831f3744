"""What a program reads of its surroundings (environment, files, clocks, switches of modules) is read at every call."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import time
import warnings

import pytest
import torch

from flambeau_capture import make_region

LOGGER = logging.getLogger("flambeau.tests.surroundings")


READS = {
    "variable": (lambda: os.environ.get("FB_READ"), lambda patch: patch.setenv("FB_READ", "1")),
    "getenv": (lambda: os.getenv("FB_READ", "no"), lambda patch: patch.setenv("FB_READ", "1")),
    "is set": (lambda: "FB_READ" in os.environ, lambda patch: patch.setenv("FB_READ", "1")),
    "arguments": (lambda: sys.argv[0], lambda patch: patch.setattr(sys, "argv", ["other"])),
    "number of arguments": (lambda: len(sys.argv), lambda patch: patch.setattr(sys, "argv", [*sys.argv, "more"])),
    "log level": (lambda: LOGGER.isEnabledFor(logging.INFO), lambda patch: LOGGER.setLevel(10)),
    "filters": (lambda: len(warnings.filters), lambda patch: patch.setattr(warnings, "filters", [])),
    "recursion limit": (sys.getrecursionlimit, lambda patch: sys.setrecursionlimit(sys.getrecursionlimit() + 1)),
    "folder": (os.getcwd, lambda patch: patch.chdir("/")),
    "file": (lambda: os.path.exists("made"), lambda patch: open("made", "w").close()),
    "fast path": (
        torch.backends.mha.get_fastpath_enabled,
        lambda patch: patch.setattr(torch.backends.mha, "_is_fastpath_enabled", False),
    ),
    "switch": (
        lambda: torch.backends.cudnn.benchmark,
        # Not by assignment: after torch's own test helpers were imported, that is refused in the whole process.
        lambda patch: torch._C._set_cudnn_benchmark(True),
    ),
    "switch of a class": (
        lambda: torch.nn.Module.dump_patches,
        lambda patch: patch.setattr(torch.nn.Module, "dump_patches", True),
    ),
}


@pytest.mark.parametrize(("read", "change"), READS.values(), ids=READS)
def test_a_change_is_seen(read, change, monkeypatch, tmp_path):
    """The same region answers as plain Python does, before and after."""
    limit = sys.getrecursionlimit()
    monkeypatch.chdir(tmp_path)
    region = make_region(lambda x: (x + 1, read()), lambda graph, inputs: graph.forward)
    x = torch.ones(2)
    try:
        before = read()
        assert region(x)[1] == region(x)[1] == before
        change(monkeypatch)
        assert read() != before
        assert region(x)[1] == read()
    finally:
        sys.setrecursionlimit(limit)
        LOGGER.setLevel(logging.NOTSET)
        torch._C._set_cudnn_benchmark(False)


@pytest.mark.parametrize(
    "clock", [time.monotonic_ns, time.time_ns, datetime.datetime.now, lambda: os.urandom(8)], ids=lambda c: c.__name__
)
def test_clocks_and_noise_are_not_constants(clock):
    """Two calls give two answers."""
    region = make_region(lambda x: (x + 1, clock()), lambda graph, inputs: graph.forward)
    x = torch.ones(2)
    assert region(x)[1] != region(x)[1]
