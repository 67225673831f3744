"""CUDA graphs on a device: every call equals eager, whatever happens to inputs, outputs, streams and random numbers."""

from __future__ import annotations

import copy
import gc
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau
from flambeau_runtime import graphs
from tests.comparison import assert_same, gradients
from tests.models import zoo

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

MODES: list[dict[str, Any]] = [
    {"mode": "reduce-overhead"},
    {"options": {"triton.cudagraphs": True}},
    {"backend": "cudagraphs"},
]


def graphed(function: Any, **arguments: Any) -> Any:
    """``function`` compiled with CUDA graphs."""
    return flambeau.compile(function, **(arguments or MODES[0]))


def mlp(width: int = 64) -> nn.Module:
    """Enough kernels for a graph to pay."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*layers).cuda()


@pytest.fixture(autouse=True)
def unwarned() -> Any:
    """A recording that fails would only warn; here it is an error."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="flambeau: .* runs without a CUDA graph")
        yield


@pytest.mark.parametrize("arguments", MODES, ids=["mode", "option", "backend"])
def test_hundred_calls_with_results_kept(arguments: dict[str, Any]) -> None:
    """New inputs every call, every result kept: all of them are right at the end, and recordings were made."""
    model = mlp()
    compiled = graphed(copy.deepcopy(model), **arguments)
    with torch.no_grad():
        inputs = [torch.randn(8, 64, device="cuda") for _ in range(100)]
        kept = [compiled(x) for x in inputs]
        assert graphs.reserved_bytes() > 0
        for x, y in zip(inputs, kept):
            assert_same(y, model(x), rtol=1e-4, atol=1e-5)


def test_results_dropped_and_kept_in_turns() -> None:
    """A call's result is kept now and then; no later call changes it."""
    model = mlp()
    compiled = graphed(copy.deepcopy(model))
    kept = []
    with torch.no_grad():
        for number in range(60):
            x = torch.randn(8, 64, device="cuda")
            y = compiled(x)
            assert_same(y, model(x), rtol=1e-4, atol=1e-5)
            if number % 7 == 0:
                kept.append((x, y.view(-1)))
        for x, y in kept:
            assert_same(y, model(x).view(-1), rtol=1e-4, atol=1e-5)


def test_training_step_equals_eager() -> None:
    """Losses and parameters over many steps of an optimiser, forward and backward replayed."""
    ours, theirs = mlp(), None
    theirs = copy.deepcopy(ours)
    compiled = graphed(ours)
    first = torch.optim.SGD(ours.parameters(), lr=0.01)
    second = torch.optim.SGD(theirs.parameters(), lr=0.01)
    for number in range(20):
        x = torch.randn(8, 64, device="cuda")
        for model, optimiser in ((compiled, first), (theirs, second)):
            loss = model(x).pow(2).mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=number % 2 == 0)
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        assert_same(mine, other, rtol=1e-3, atol=1e-5)


def test_gradients_accumulate_and_forwards_overlap() -> None:
    """Two forwards before one backward, and gradients added over several of those."""
    ours = mlp()
    theirs = copy.deepcopy(ours)
    compiled = graphed(ours)
    for _ in range(6):
        for model in (ours, theirs):
            model.zero_grad()
        for _ in range(3):
            x, z = torch.randn(8, 64, device="cuda"), torch.randn(8, 64, device="cuda")
            for model in (compiled, theirs):
                (model(x) * model(z)).sum().backward()
        assert_same(gradients(ours), gradients(theirs), rtol=1e-3, atol=1e-3)


def test_backward_long_after_other_forwards() -> None:
    """Activations saved by a replay survive any number of later forwards."""
    ours = mlp()
    theirs = copy.deepcopy(ours)
    compiled = graphed(ours)
    for _ in range(3):
        compiled(torch.randn(8, 64, device="cuda")).sum().backward()
    ours.zero_grad()
    inputs = [torch.randn(8, 64, device="cuda") for _ in range(5)]
    losses = [compiled(x).pow(2).sum() for x in inputs]
    for loss, x in zip(reversed(losses), reversed(inputs)):
        loss.backward()
        theirs(x).pow(2).sum().backward()
    assert_same(gradients(ours), gradients(theirs), rtol=1e-3, atol=1e-3)


def test_dropout_draws_the_ungraphed_sequence() -> None:
    """The random stream of replays is the one of the same program without graphs, and moves on from call to call."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64), nn.Dropout(0.3)).cuda()
    plain, compiled = flambeau.compile(copy.deepcopy(model)), graphed(copy.deepcopy(model))
    x = torch.randn(16, 64, device="cuda")
    results = []
    for run in (plain, compiled):
        with torch.no_grad():
            run(x)
            torch.manual_seed(5)
            results.append([run(x).clone() for _ in range(8)] + [torch.rand(4, device="cuda")])
    for mine, other in zip(*results):
        assert_same(mine, other, rtol=1e-4, atol=1e-5)
    assert not torch.equal(results[0][3], results[0][4])


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_layers_compiled_once_are_recorded_with_their_random_numbers(training: bool) -> None:
    """Nine layers are calls of one program, which draws with recordings what the same layers apart draw without."""
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 64)) for _ in range(9))
    )
    model.cuda()
    explanation = flambeau.explain(copy.deepcopy(model), **MODES[0])
    x = torch.randn(16, 64, device="cuda", requires_grad=training)
    results = []
    for run in (flambeau.compile(copy.deepcopy(model), options={"repeats_outlined": 0}), graphed(copy.deepcopy(model))):
        with torch.set_grad_enabled(training):
            run(x)
            torch.manual_seed(5)
            for _ in range(6):
                y = run(x)
                results.append([y.detach().clone(), *(torch.autograd.grad(y.sum(), x) if training else ())])
            results.append([torch.rand(4, device="cuda")])
    for mine, other in zip(results[:7], results[7:], strict=True):
        assert_same(mine, other, rtol=1e-4, atol=1e-5)
    with torch.set_grad_enabled(training):
        found = explanation(x)
    assert [repeat.calls for repeat in found.repeats] == [9]


def test_batch_norm_statistics() -> None:
    """Buffers are written once a call, recording or not."""
    ours = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).cuda().train()
    theirs = copy.deepcopy(ours)
    compiled = graphed(ours)
    for _ in range(8):
        x = torch.randn(4, 3, 8, 8, device="cuda")
        assert_same(compiled(x), theirs(x), rtol=1e-3, atol=1e-4)
    for mine, other in zip(ours.buffers(), theirs.buffers()):
        assert_same(mine, other, rtol=1e-4, atol=1e-5)
    assert ours[1].num_batches_tracked.item() == 8


def test_input_mutation() -> None:
    """A tensor of the caller's is written, the same one or a new one each time."""

    def step(state: Tensor, x: Tensor) -> Tensor:
        state.mul_(0.9).add_(x)
        return state.sin() + x

    compiled = graphed(step)
    with torch.no_grad():
        state = torch.zeros(32, device="cuda")
        expected = state.clone()
        for number in range(16):
            if number > 6:
                state, expected = state.clone(), expected.clone()
            x = torch.randn(32, device="cuda")
            assert_same(compiled(state, x), step(expected, x))
            assert_same(state, expected)


def test_lstm_loop() -> None:
    """Results are fed back as inputs."""
    cell = nn.LSTMCell(32, 64).cuda()
    compiled = graphed(copy.deepcopy(cell))
    with torch.no_grad():
        state = (torch.zeros(4, 64, device="cuda"), torch.zeros(4, 64, device="cuda"))
        expected = state
        for _ in range(40):
            x = torch.randn(4, 32, device="cuda")
            state, expected = compiled(x, state), cell(x, expected)
            assert_same(state[0], expected[0], rtol=1e-4, atol=1e-5)
        assert_same(state[1], expected[1], rtol=1e-4, atol=1e-5)


def test_mixture_of_experts() -> None:
    """Routing by data: sizes differ from call to call inside; results kept."""
    case = zoo.make("moe")
    model = case.model.cuda().eval()
    compiled = graphed(copy.deepcopy(model))
    kept = []
    with torch.no_grad():
        for _ in range(100):
            inputs = {
                key: torch.randn_like(value.cuda()) if value.is_floating_point() else value.cuda()
                for key, value in case.inputs.items()
            }
            kept.append((inputs, compiled(**inputs)))
        for inputs, found in kept[::9]:
            assert_same(found, model(**inputs), rtol=1e-3, atol=1e-4)


def test_dynamic_shapes() -> None:
    """Symbolic sizes: a recording a size."""
    model = mlp()
    compiled = graphed(copy.deepcopy(model))
    with torch.no_grad():
        for _ in range(4):
            for rows in (3, 5, 8, 13):
                x = torch.randn(rows, 64, device="cuda")
                assert_same(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_reading_a_number_splits_the_program() -> None:
    """A host read in the middle; both sides are right."""

    def function(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x @ x).tanh() + 1
        scale = x.sum().item()
        for _ in range(3):
            x = (x @ x).tanh() * scale
        return x

    compiled = graphed(function)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(16, 16, device="cuda")
            assert_same(compiled(x), function(x), rtol=1e-3, atol=1e-3)


def test_cpu_tensor_among_the_inputs() -> None:
    """A number on the CPU takes part; its new values are seen."""

    def function(x: Tensor, scale: Tensor) -> Tensor:
        for _ in range(4):
            x = (x @ x).tanh() * scale
        return x

    compiled = graphed(function)
    with torch.no_grad():
        for number in range(6):
            x, scale = torch.randn(16, 16, device="cuda"), torch.tensor(float(number))
            assert_same(compiled(x, scale), function(x, scale), rtol=1e-4, atol=1e-5)


def test_streams() -> None:
    """Calls on several streams in turn, each waiting for the other."""
    model = mlp()
    compiled = graphed(copy.deepcopy(model))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    with torch.no_grad():
        for number in range(12):
            stream = streams[number % 2]
            x = torch.randn(64, 64, device="cuda")
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = compiled(x)
            torch.cuda.current_stream().wait_stream(stream)
            assert_same(y, model(x), rtol=1e-4, atol=1e-5)


def test_threads() -> None:
    """Several threads call at once."""
    model = mlp()
    compiled = graphed(copy.deepcopy(model))
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad():
            for _ in range(20):
                x = torch.randn(8, 64, device="cuda", generator=generator)
                if not torch.allclose(compiled(x), model(x), rtol=1e-3, atol=1e-4):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_inside_a_capture_of_the_callers() -> None:
    """A graph recorded by hand around a compiled call holds its kernels."""
    model = mlp()
    compiled = graphed(copy.deepcopy(model))
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = compiled(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert_same(y, model(x), rtol=1e-4, atol=1e-5)


def test_error_while_recording_leaves_everything_usable() -> None:
    """An operator that waits for the device breaks the capture: a warning, right results, a working generator."""

    @torch.library.custom_op("flambeau_test::waits", mutates_args=())
    def waits(x: Tensor) -> Tensor:
        return x * float(x.sum().item() > -1e30)

    @waits.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def function(x: Tensor) -> Tensor:
        return waits(x.sin() + 1).cos()

    compiled = graphed(function)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="without a CUDA graph"):
        import warnings

        warnings.simplefilter("always")
        for _ in range(4):
            x = torch.randn(32, device="cuda")
            assert_same(compiled(x), function(x))
    torch.rand(3, device="cuda")
    other = mlp()
    again = graphed(copy.deepcopy(other))
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(8, 64, device="cuda")
            assert_same(again(x), other(x), rtol=1e-4, atol=1e-5)


def test_copies_and_reset() -> None:
    """A deep copy records its own; ``reset`` gives the memory back and everything still runs."""
    model = mlp()
    compiled = graphed(model)
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        twin = copy.deepcopy(compiled)
        for _ in range(3):
            assert_same(twin(x), model(x), rtol=1e-4, atol=1e-5)
        flambeau.compiler.reset()
        gc.collect()
        assert graphs.reserved_bytes() == 0
        for _ in range(3):
            assert_same(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_kept_losses_cost_little_memory() -> None:
    """Losses of a larger model are kept; its activations have one place, not two."""
    ours = mlp(1024)
    theirs = copy.deepcopy(ours)
    inputs = [torch.randn(4096, 1024, device="cuda") for _ in range(8)]
    compiled = graphed(lambda x: ours(x).pow(2).mean())
    kept, reserved = [], []
    for x in inputs:
        ours.zero_grad()
        kept.append(compiled(x))
        kept[-1].backward()
        reserved.append(graphs.reserved_bytes())
    for x, loss in zip(inputs, kept):
        theirs.zero_grad()
        expected = theirs(x).pow(2).mean()
        expected.backward()
        assert_same(loss, expected, rtol=1e-3, atol=1e-5)
    assert_same(gradients(ours), gradients(theirs), rtol=1e-2, atol=1e-4)
    assert 0 < reserved[-1] <= 1.5 * reserved[2]


def test_decisions_are_explained() -> None:
    """``explain`` says what is not recorded and why."""

    def function(x: Tensor) -> Tensor:
        return x[x > 0] * 2

    found = flambeau.explain(function, mode="reduce-overhead")(torch.randn(32, device="cuda"))
    assert any(decision.kind == "plain" for decision in found.cuda_graphs)
    assert F.relu(torch.ones(1)).item() == 1
