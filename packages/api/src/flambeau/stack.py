"""The default backend: autograd, inductor and runtime joined, with the disk cache between them.

In: a captured graph and its fake inputs. Out: a compiled callable with the graph's calling convention. On a cache hit neither
autograd nor inductor runs: signature and artifacts are read back. What fails for a reason that is ours runs in eager after one
warning (or raises, when `suppress_errors` is off).
"""

from __future__ import annotations

import base64
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flambeau_autograd as autograd
import flambeau_inductor as inductor
import flambeau_runtime as runtime
import structlog
import torch
from attrs import frozen
from flambeau_runtime.build import find_toolchain
from flambeau_runtime.cache import CacheKey, Store, default_store
from flambeau_runtime.errors import CompilerUnavailable
from torch import fx

from .errors import InternalError
from .explain import ProgramRecord, Recorder
from .graph_key import Uncacheable, graph_key
from .options import Options
from .shape_guards import replay_guards, shape_guards

logger: Any = structlog.get_logger("flambeau.stack")

CACHE_KIND = "graph"
CompiledFn = Callable[..., Any]


@frozen
class CompiledGraph:
    """Everything a cached graph needs: the joining signature and one artifact per direction."""

    signature: autograd.Signature
    forward: runtime.Artifact
    backward: runtime.Artifact | None
    guards: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """JSON with the artifacts as base64 text."""
        artifacts = [self.forward, self.backward]
        blobs = [None if a is None else base64.b64encode(a.to_bytes()).decode() for a in artifacts]
        return json.dumps({"signature": self.signature.to_json(), "artifacts": blobs, "guards": self.guards}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> CompiledGraph:
        """Inverse of `to_bytes`; raises `ValueError` for anything else."""
        fields = json.loads(data)
        forward, backward = (
            None if blob is None else runtime.Artifact.from_bytes(base64.b64decode(blob)) for blob in fields["artifacts"]
        )
        if forward is None:
            raise ValueError("a cached graph without a forward")
        return cls(autograd.Signature.from_json(fields["signature"]), forward, backward, tuple(fields["guards"]))


def compile_stack(
    gm: fx.GraphModule, inputs: list[Any], options: Options, recorder: Recorder | None = None
) -> CompiledFn:
    """Compile a captured graph; the default backend.

    Args:
        gm: torch-level graph; every placeholder has `meta["val"]`.
        inputs: the fake inputs in order.
        options: the region's options.
        recorder: collects programs and seconds.
    """
    try:
        return _compile(gm, inputs, options, recorder or Recorder())
    except autograd.UnsupportedGraph as error:
        logger.info("graph_runs_in_eager", artifact="fallbacks", reason=str(error))
        return gm.forward
    except Exception as error:
        if not _suppressed(options):
            raise
        warnings.warn(
            f"flambeau could not compile a graph and runs it in eager: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return gm.forward


def _suppressed(options: Options) -> bool:
    return bool(options["suppress_errors"]) and os.environ.get("FLAMBEAU_SUPPRESS_ERRORS", "1") != "0"


def _compile(gm: fx.GraphModule, inputs: list[Any], options: Options, recorder: Recorder) -> CompiledFn:
    options = _for_this_machine(options)
    key, store = _cache_key(gm, options), default_store()
    if key is not None:
        with _timed(recorder, "cache"):
            found = _read(key, store, inputs)
        if found is not None:
            with _timed(recorder, "load"):
                return _assemble(found, options, gm, inputs, recorder, cached=True)
    before = len(shape_guards(inputs))
    with _timed(recorder, "autograd"):
        prepared = autograd.prepare(gm, inputs, decompositions=inductor.decompositions(), config=_autograd_config(options))
    _log_graphs(prepared)
    with _timed(recorder, "inductor"):
        settings = inductor_options(options)
        forward = inductor.compile_graph(prepared.forward, prepared.forward_inputs, settings)
        backward = None
        if prepared.backward is not None:
            backward = inductor.compile_graph(prepared.backward, prepared.backward_inputs, settings)
    with _timed(recorder, "build"):
        forward = runtime.build_libraries(forward)
        backward = None if backward is None else runtime.build_libraries(backward)
    compiled = CompiledGraph(prepared.signature, forward, backward, tuple(shape_guards(inputs)[before:]))
    if key is not None and _self_contained(compiled):
        with _timed(recorder, "cache"):
            store.put(key, compiled.to_bytes())
    with _timed(recorder, "load"):
        return _assemble(compiled, options, gm, inputs, recorder, cached=False, prepared=prepared)
