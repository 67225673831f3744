"""`mode="reduce-overhead"` on a GPU: many varied calls, every earlier output kept alive, equal to eager."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau_runtime import artifact as a
from flambeau_runtime import graphs
from flambeau_runtime.graphs.call import RecordedProgram
from flambeau_runtime.graphs.cuda import CudaRecorder
from tests.comparison import assert_same, gradient_errors, gradients, relative_error, twin_of
from tests.models import zoo

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CALLS = 100


def on_gpu(name: str) -> zoo.Case:
    with torch.device("cuda"):
        case = zoo.make(name, "small")
    for module in case.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return case


@pytest.mark.parametrize("name", ["lstm_cell", "moe", "gpt2", "resnet50", "mlp"])
def test_inference(name: str) -> None:
    """Outputs are looked at only after the last call."""
    case = on_gpu(name)
    compiled = flambeau.compile(case.model, mode="reduce-overhead")
    kept, expected = [], []
    with torch.no_grad():
        for _ in range(CALLS):
            inputs = zoo.varied(case)
            kept += case.outputs(compiled(**inputs))
            expected += case.outputs(case.model(**inputs))
    assert max(relative_error(a, e) for a, e in zip(kept, expected, strict=True)) < 1e-3


@pytest.mark.parametrize("name", ["lstm_cell", "moe", "gpt2", "mlp"])
def test_training(name: str) -> None:
    """Every loss and every gradient of a hundred steps; losses kept alive."""
    case = on_gpu(name)
    eager, model = twin_of(case.model).train(), case.model.train()
    compiled = flambeau.compile(model, mode="reduce-overhead")
    losses, expected = [], []
    for _ in range(CALLS):
        inputs = zoo.varied(case)
        model.zero_grad(set_to_none=True)
        eager.zero_grad(set_to_none=True)
        losses.append(case.loss(compiled(**inputs)))
        expected.append(case.loss(eager(**inputs)))
        losses[-1].backward()
        expected[-1].backward()
        assert max(gradient_errors(gradients(model), gradients(eager)).values()) < 1e-2
    for ours, theirs in zip(losses, expected, strict=True):
        assert_same(ours, theirs, rtol=1e-3, atol=1e-4)


def test_training_changes_the_weights_in_place() -> None:
    """An optimiser's steps between the calls are seen: parameters are read where they are, not copied once."""
    case = on_gpu("mlp")
    eager, model = twin_of(case.model).train(), case.model.train()
    compiled = flambeau.compile(model, mode="reduce-overhead")
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (model, eager)]
    for _ in range(20):
        inputs = zoo.varied(case)
        ours, theirs = case.loss(compiled(**inputs)), case.loss(eager(**inputs))
        assert_same(ours, theirs, rtol=1e-3, atol=1e-4)
        ours.backward()
        theirs.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def test_written_input() -> None:
    """An input that the function writes is written in the caller's tensor."""

    def function(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        return total * 2

    compiled = flambeau.compile(function, mode="reduce-overhead")
    ours, theirs = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    for number in range(20):
        x = torch.full((64,), float(number), device="cuda")
        assert_same(compiled(x, ours), function(x, theirs))
        assert_same(ours, theirs)


def test_random_numbers_differ_from_call_to_call() -> None:
    """Replays draw new numbers, those that eager would draw."""

    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5) * 2

    compiled = flambeau.compile(function, mode="reduce-overhead")
    x = torch.ones(4096, device="cuda")
    torch.manual_seed(1)
    ours = [compiled(x) for _ in range(10)]
    torch.manual_seed(1)
    theirs = [function(x) for _ in range(10)]
    for actual, expected in zip(ours, theirs, strict=True):
        assert_same(actual, expected)


def heads(count: int) -> list[Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Functions of several launches, matrix products among them, whose results are small beside what they compute."""

    def head(number: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            hidden = torch.relu(x @ w + number)
            for _ in range(3):
                hidden = torch.tanh(hidden @ w) * 2
            return hidden[:64] * number, hidden.sum(1)

        return function

    return [head(number) for number in range(1, count + 1)]


def weight(width: int) -> Tensor:
    return torch.randn(width, width, device="cuda") / width**0.5


def forget() -> None:
    """Drop every recording."""
    flambeau.compiler.reset()
    gc.collect()
    assert graphs.reserved_bytes() == 0


def recorded(functions: list[Any], *arguments: Tensor) -> list[Any]:
    """Compiled, warm, and with a recording each."""
    forget()
    compiled = [flambeau.compile(function, mode="reduce-overhead") for function in functions]
    with torch.no_grad():
        for _ in range(3):
            for call in compiled:
                call(*arguments)
    assert graphs.reserved_bytes() > 0
    return compiled


def test_earlier_results_outlive_the_replays_of_other_programs() -> None:
    """Recordings share their scratch memory: none may have a result where another one computes."""
    functions, w = heads(5), weight(512)
    compiled = recorded(functions, torch.randn(512, 512, device="cuda"), w)
    kept, expected = [], []
    with torch.no_grad():
        for turn in range(8):
            order = range(5) if turn % 2 == 0 else reversed(range(5))
            for number in order:
                x = torch.randn(512, 512, device="cuda")
                kept.append(compiled[number](x, w))
                expected.append(functions[number](x, w))
    for ours, theirs in zip(kept, expected, strict=True):
        assert_same(ours, theirs, rtol=1e-3, atol=1e-3)


def test_recordings_share_their_scratch_memory() -> None:
    """Eight pools would have a cuBLAS workspace each: 256 MiB on an H100, and their segments."""
    x, w = torch.randn(256, 256, device="cuda"), weight(256)
    forget()
    compiled = [flambeau.compile(function, mode="reduce-overhead") for function in heads(8)]
    with torch.no_grad():
        for call in compiled:
            call(x, w)
        before = torch.cuda.memory_reserved()
        assert graphs.reserved_bytes() == 0
        for call in compiled:
            call(x, w)
    assert graphs.reserved_bytes() > 0
    assert torch.cuda.memory_reserved() - before < 100 << 20


def test_two_streams() -> None:
    """Programs that share scratch memory, on two streams that nothing else orders."""
    functions, w = heads(2), weight(1024)
    compiled = recorded(functions, torch.randn(1024, 1024, device="cuda"), w)
    inputs = [torch.randn(1024, 1024, device="cuda") for _ in range(40)]
    with torch.no_grad():
        expected = [functions[number % 2](x, w) for number, x in enumerate(inputs)]
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        torch.cuda.synchronize()
        kept = []
        for number, x in enumerate(inputs):
            with torch.cuda.stream(streams[number % 2]):
                kept.append(compiled[number % 2](x, w))
        torch.cuda.synchronize()
    for ours, theirs in zip(kept, expected, strict=True):
        assert_same(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_result_that_another_stream_reads_is_not_overwritten() -> None:
    """It is read where it was made, after the other program went to another stream; the next replay there waits."""
    functions, w = heads(2), weight(1024)
    first, second = recorded(functions, torch.randn(1024, 1024, device="cuda"), w)
    inputs = [torch.randn(1024, 1024, device="cuda") for _ in range(20)]
    with torch.no_grad():
        expected = [functions[0](x, w)[0] for x in inputs]
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        read = []
        for x, other in zip(inputs[::2], inputs[1::2]):
            with torch.cuda.stream(one):
                result = first(x, w)
            with torch.cuda.stream(two):
                second(other, w)
            with torch.cuda.stream(one):
                torch.cuda._sleep(10_000_000)
                read.append(result[0] + 0)
            del result
            with torch.cuda.stream(two):
                first(other, w)
        torch.cuda.synchronize()
    for ours, theirs in zip(read, expected[::2], strict=True):
        assert_same(ours, theirs, rtol=1e-3, atol=1e-3)


def test_two_threads() -> None:
    """Each with a stream and a program of its own, over the same scratch memory."""
    functions, w = heads(2), weight(1024)
    compiled = recorded(functions, torch.randn(1024, 1024, device="cuda"), w)
    inputs = [torch.randn(1024, 1024, device="cuda") for _ in range(CALLS)]
    with torch.no_grad():
        expected = [[function(x, w) for x in inputs] for function in functions]
    torch.cuda.synchronize()
    kept: list[list[Any]] = [[], []]

    def work(number: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for x in inputs:
                # Copies: while results are held, a thread makes recordings of its own.
                kept[number].append(tuple(result.clone() for result in compiled[number](x, w)))
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, eager in zip(kept, expected, strict=True):
        for ours, theirs in zip(mine, eager, strict=True):
            assert_same(ours, theirs, rtol=1e-3, atol=1e-3)


def test_recordings_come_and_go() -> None:
    """Shared scratch memory outlives one that is dropped, and is made anew after the last one."""
    functions, x, w = heads(3), torch.randn(256, 256, device="cuda"), weight(256)
    compiled = recorded(functions, x, w)
    with torch.no_grad():
        expected = [function(x, w) for function in functions]
        kept = [call(x, w) for call in compiled]
        del compiled[0]
        gc.collect()
        kept += [call(x, w) for call in compiled]
        for _ in range(2):
            forget()
            torch.cuda.empty_cache()
            for _ in range(3):
                kept += [call(x, w) for call in compiled]
            assert graphs.reserved_bytes() > 0
    wanted = expected + expected[1:] * ((len(kept) - 3) // 2)
    for ours, theirs in zip(kept, wanted, strict=True):
        assert_same(ours, theirs, rtol=1e-3, atol=1e-3)


def program(function: Callable[[Tensor], tuple[Tensor, ...]], decisions: list[graphs.GraphDecision]) -> RecordedProgram:
    """A function of one tensor, recorded by CUDA."""
    settings = graphs.GraphSettings()
    return RecordedProgram("test", (a.InputSpec("tensor", 0),), function, CudaRecorder(), decisions.append, settings)


@pytest.mark.parametrize("fault", ["results differ", "waits for the device"])
def test_a_capture_that_fails_leaves_the_shared_memory_usable(fault: str) -> None:
    """Earlier recordings replay, further ones are made; results that differ from the warm-up are recorded after all."""
    w, calls, decisions = weight(256), [], []

    def product(x: Tensor) -> tuple[Tensor]:
        return (torch.relu(x @ w) @ w,)

    def faulty(x: Tensor) -> tuple[Tensor]:
        calls.append(1)
        if fault == "waits for the device":
            return (x * 2 + float((x @ w).sum().item() * 0),)
        # Over more memory than in the warm-up.
        return (torch.cat([x * 2] * (1 + (len(calls) > 1)))[: len(x)],)

    before, broken, after = program(product, decisions), program(faulty, decisions), program(product, decisions)
    kept: list[tuple[Tensor, Tensor]] = []

    def call(one: RecordedProgram, function: Callable[[Tensor], tuple[Tensor]]) -> None:
        x = torch.randn(64, 256, device="cuda")
        kept.append((one.table(x)[0], function(x)[0]))

    with torch.no_grad():
        for _ in range(3):
            call(before, product)
        with warnings_of(fault):
            for _ in range(3):
                call(broken, lambda x: (x * 2,))
        for _ in range(3):
            call(after, product)
            call(before, product)
    for ours, theirs in kept:
        assert_same(ours, theirs, rtol=1e-3, atol=1e-3)
    assert not before.closed and not after.closed
    if fault == "results differ":
        assert not broken.closed
        lanes = [one.recordings()[0].lane for one in (before, broken, after)]
        assert lanes[0] is lanes[2] and lanes[1] is not lanes[0]
    else:
        assert broken.closed and not broken.recordings()


def warnings_of(fault: str) -> Any:
    """The warning that a program stays plain, where the fault is none that recording can do without."""
    if fault == "results differ":
        return contextlib.nullcontext()
    return pytest.warns(RuntimeWarning, match="without a CUDA graph")
