"""Run a program's text, plain or compiled, and write down what it shows.

In: a text that defines `drive(compile, call, show, backward)`. Out: a `Run`: entries in order, and for a compiled one what capture and the
backend counted. Both runs get a module of their own, made of the same text, so that nothing the program changes is seen by the other.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from attrs import Factory, define, frozen
from torch import Tensor
from torch.utils import _pytree as pytree

import flambeau
from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from .backends import backend_of
from .names import NAMES
from .nudge import Nudging
from .observe import Entry, Observer
from .restored import restored

FILE = "<sweep program>"
_MODULE = "sweep_program"


@frozen
class Run:
    """What one run showed.

    Attributes:
        entries: in order.
        graphs, breaks, eager: of a compiled run: how many graphs, the codes of breaks, why graphs were left to eager.
        captured: of a compiled run: whether any frame was looked at; one without tensors has no graph.
        broken: the program itself failed outside of its calls; nothing can be said of it.
        odd_bools: see `Observer`.
    """

    entries: list[Entry]
    graphs: int = 0
    breaks: tuple[str, ...] = ()
    eager: tuple[str, ...] = ()
    captured: bool = False
    broken: str = ""
    odd_bools: bool = False


@define
class _Driver:
    """What `drive` is given."""

    compiler: Callable[..., Any]
    observer: Observer = Factory(Observer)
    calls: int = 0

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """One call: its result or error, and what became of its arguments."""
        self.calls += 1
        where = f"call {self.calls}"
        result = None
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            self.observer.error(where, error)
            _let_go(error)
        else:
            self.observer.show(f"{where}: result", result)
        self.observer.show(f"{where}: arguments", (args, kwargs))
        return result

    def backward(self, result: Any, weight: int = 1, part: int | None = None, *, again: bool = False) -> None:
        """Gradients of whatever in a result can have some, or of its `part`-th tensor alone, from whole numbers.

        The tensors that take part are counted round; `again` keeps what another backward needs.
        """
        wanted = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
        if not wanted:
            return
        if part is not None:
            wanted = [wanted[part % len(wanted)]]
        tangents = [_laid_as(t, (torch.arange(t.numel()).reshape(t.shape) % 3 + weight).to(t.dtype)) for t in wanted]
        try:
            torch.autograd.backward(wanted, tangents, retain_graph=again)
        except Exception as error:
            self.observer.error(f"backward {self.calls}", error)
            _let_go(error)

    def show(self, *values: Any) -> None:
        """Look at what else the program may have changed."""
        for number, value in enumerate(values):
            self.observer.show(f"shown after call {self.calls}[{number}]", value)

    def compile(self, function: Any, **options: Any) -> Any:
        """Compiled, or in the plain run just as it is."""
        return self.compiler(function, **options)


def _laid_as(result: Tensor, tangent: Tensor) -> Tensor:
    """The tangent as dense as the result, in its order of dimensions: another one is copied into that, and then dimensions of one element
    have strides of their own in what comes of it."""
    like = torch.empty_like(result)
    return tangent if result.is_contiguous() or like.stride() != result.stride() else like.copy_(tangent)


def _let_go(error: BaseException | None) -> None:
    """Drop what the frames of an error hold: as long as they live, older torch leaves the hooks of a checkpointed call that raised in place."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def run_plain(source: str) -> Run:
    """What Python and eager do."""
    driver = _Driver(_uncompiled)
    broken = _drive(source, driver, lambda: None)
    return Run(driver.observer.entries, broken=broken, odd_bools=driver.observer.odd_bools)


def run_nudged(source: str, seed: int) -> Run:
    """What eager does where each rounding goes another way."""
    with Nudging(seed):
        return run_plain(source)


def run_widened(source: str) -> Run:
    """What eager does in float64, with layers whose weights are those that they have in float32."""
    with _drawing_as_float32():
        return run_plain(source)


@contextlib.contextmanager
def _drawing_as_float32() -> Iterator[None]:
    """New tensors are in float64; what fills them draws the numbers of float32."""

    def drawn(fill: Any) -> Any:
        def filled(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            with torch.no_grad():
                return self.copy_(fill(torch.empty(self.shape, dtype=torch.float32), *args, **kwargs))

        return filled

    before = torch.get_default_dtype()
    with (
        mock.patch.object(Tensor, "uniform_", drawn(Tensor.uniform_)),
        mock.patch.object(Tensor, "normal_", drawn(Tensor.normal_)),
    ):
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _uncompiled(function: Any, **options: Any) -> Any:
    """The function itself; of a module another object over the same state, as a compiled one is."""
    if not isinstance(function, torch.nn.Module):
        return function
    twin = object.__new__(type(function))
    twin.__dict__ = function.__dict__
    return twin


def run_compiled(source: str, backend: str) -> Run:
    """What flambeau does."""
    recorder = Recorder()

    def compiler(function: Any, **options: Any) -> Any:
        return compile_recorded(function, recorder, backend=backend_of(backend, recorder), **options)

    flambeau.compiler.reset()
    driver = _Driver(compiler)
    try:
        broken = _drive(source, driver, flambeau.compiler.reset)
    finally:
        flambeau.compiler.reset()
    breaks = tuple(reason.code for reason in recorder.breaks)
    captured = "capture" in recorder.seconds
    return Run(driver.observer.entries, len(recorder.graphs), breaks, tuple(recorder.eager_graphs), captured, broken)


def _drive(source: str, driver: _Driver, reset: Callable[[], None]) -> str:
    """Run the text; what made it fail outside of its calls, or nothing."""
    module = types.ModuleType(_MODULE)
    vars(module).update(NAMES, reset=reset)
    sys.modules[_MODULE] = module
    printed = io.StringIO()
    broken, before = "", set(threading.enumerate())
    with _same_surroundings(), contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with restored():
                exec(compile(source, FILE, "exec"), vars(module))
                module.drive(driver.compile, driver.call, driver.show, driver.backward)
        except Exception as error:
            broken = f"{type(error).__name__}: {error}"
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith("Thread-"):  # those of a pool have other names
                thread.join()  # it would go on in the next run
        _show_surroundings(driver.observer)
    driver.observer.note("broken", "broken", broken)
    driver.observer.note("printed", "printed", printed.getvalue())
    ours = [f"{w.category.__name__}: {w.message}" for w in warned if w.filename == FILE and "warnings.warn" in source]
    driver.observer.note("warned", "printed", tuple(ours))
    sys.modules.pop(_MODULE, None)
    return broken


def _show_surroundings(observer: Observer) -> None:
    facts = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), str(torch.get_default_dtype()))
    more = (torch.is_autocast_enabled("cpu"), str(torch.get_default_device()))
    observer.note("afterwards", "surroundings", facts + more)
    observer.note("afterwards: random numbers", "random", (float(torch.rand(())), random.random()))


@contextlib.contextmanager
def _same_surroundings() -> Iterator[None]:
    """Every run begins with the same seeds, and leaves no setting of torch changed."""
    dtype, deterministic, threads = (
        torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    )  # fmt: skip
    torch.manual_seed(0)
    random.seed(0)
    torch.set_grad_enabled(True)
    try:
        yield
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_device(None)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)
