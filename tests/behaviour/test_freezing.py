"""The option `freezing`: what follows from parameters alone is computed once, and never out of date."""

from __future__ import annotations

import copy
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import flambeau
import flambeau_runtime
from flambeau_runtime import linear, processor
from tests.comparison import assert_as_exact


class Net(nn.Module):
    """A convolution with a batch norm, a residual, two linear layers, a buffer that something is computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.second, self.again = nn.Conv2d(32, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16, affine=False)
        self.wide, self.narrow = nn.Linear(256, 512), nn.Linear(512, 256)
        self.register_buffer("angles", torch.randn(256))
        for norm in (self.norm, self.again):
            nn.init.uniform_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.relu(self.norm(self.first(x)))
        h = torch.relu(self.again(self.second(h)) + x)
        return h, self.narrow(torch.tanh(self.wide(y))) * torch.cos(self.angles)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """For `Net`."""
    return torch.randn(4, 16, 32, 32), torch.randn(16, 256)


class Counted:
    """How often parameters were folded, and how often a program ran for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folded = self.called = 0
        original, fold = flambeau_runtime.FrozenProgram.__call__, flambeau_runtime.FrozenProgram._fold

        def call(program: Any, *given: Any) -> Any:
            self.called += 1
            return original(program, *given)

        def folding(program: Any, *given: Any) -> Any:
            self.folded += 1
            return fold(program, *given)

        monkeypatch.setattr(flambeau_runtime.FrozenProgram, "__call__", call)
        monkeypatch.setattr(flambeau_runtime.FrozenProgram, "_fold", folding)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Counts, of all frozen programs."""
    return Counted(monkeypatch)


def frozen(function: Any, **options: Any) -> Any:
    """Compiled with the option."""
    return flambeau.compile(function, fullgraph=True, options={"freezing": True, **options})


def same(compiled: Callable[..., Any], eager: Callable[..., Any], *given: Any) -> None:
    """Both give the same without gradients: values, and how they lie."""
    with torch.no_grad():
        got, want = compiled(*given), eager(*given)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    leaves = zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True)
    assert all(a.stride() == b.stride() for a, b in leaves)


PACKED = {
    "GenuineIntel": ("mkl::_mkl_linear", "mkl::_mkl_reorder_linear_weight"),
    "AuthenticAMD": ("mkldnn::_linear_pointwise", "mkldnn::_reorder_linear_weight"),
}


@pytest.mark.parametrize("maker", PACKED)
def test_weights_are_folded_once_and_packed(
    maker: str, counted: Counted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program of each call has neither batch norms nor weights to pack in it, whichever library is the faster one."""
    monkeypatch.setattr(processor, "maker", lambda: maker)
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx2", "avx512f"}))
    monkeypatch.setattr(linear, "has_kernel", lambda: False)
    # The keys of graphs name the processor that this one is.
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    product, packing = PACKED[maker]
    model = Net().eval()
    compiled, given = frozen(model), inputs()
    for _ in range(3):
        same(compiled, model.forward, *given)
    assert (counted.folded, counted.called) == (1, 3)
    with torch.no_grad():
        forward, folding = flambeau.explain(lambda *x: model.forward(*x), options={"freezing": True})(*given).programs
    assert (forward.kind, folding.kind) == ("forward", "folding")
    calls = Counter(forward.library_calls)
    assert calls[product] == 2 and not calls["aten::addmm"]
    assert calls["mkldnn::_convolution_pointwise"] == 2 and not calls["aten::convolution"]
    assert folding.library_calls[packing] == 2


CHANGES: dict[str, Callable[[Net], object]] = {
    "in place": lambda model: model.wide.weight.add_(1),
    "a view of it": lambda model: model.wide.weight[3:5].mul_(2),
    "detached": lambda model: model.first.weight.detach().mul_(2),
    "a statistic": lambda model: model.norm.running_var.add_(1),
    "load_state_dict": lambda model: model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()}),
    "assigned state": lambda model: model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()}, assign=True),
    "data": lambda model: setattr(model.wide.weight, "data", torch.randn(512, 256)),
    "another parameter": lambda model: setattr(model.wide, "weight", nn.Parameter(torch.randn(512, 256))),
    "a buffer": lambda model: model.angles.zero_(),
    "another buffer": lambda model: setattr(model, "angles", torch.randn(256)),
    "a bias": lambda model: model.first.bias.fill_(3),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_at_the_next_call(name: str, counted: Counted) -> None:
    """Whatever changed, and however, of what torch counts."""
    model = Net().eval()
    compiled, given = frozen(model), inputs()
    same(compiled, model.forward, *given)
    with torch.no_grad():
        CHANGES[name](model)
    same(compiled, model.forward, *given)
    same(compiled, model.forward, *given)
    assert counted.folded == 2


def test_steps_of_an_optimizer_are_seen(counted: Counted) -> None:
    """Training goes on in the compiled module; what it evaluates with is never the weights of before."""
    model = Net().eval()
    compiled, given = frozen(model), inputs()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        same(compiled, model.forward, *given)
        sum(out.sum() for out in compiled(*given)).backward()
        optimizer.step()
        optimizer.zero_grad()
    same(compiled, model.forward, *given)
    assert counted.folded == 4


def test_gradients_are_wanted_and_nothing_is_frozen(counted: Counted) -> None:
    """The graph with a backward is that of a program without the option."""
    model = Net().eval()
    compiled, (x, y) = frozen(model), inputs()
    compiled(x, y)[1].sum().backward()
    got = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    model.forward(x, y)[1].sum().backward()
    torch.testing.assert_close(got, {name: p.grad for name, p in model.named_parameters()})
    assert counted.called == 0


def test_training_mode_updates_statistics(counted: Counted) -> None:
    """What the graph writes to is not frozen; what comes after sees it."""
    model, twin = Net(), Net()
    twin.load_state_dict(model.state_dict())
    compiled, given = frozen(model), inputs()
    for mode in (False, True, True, False):
        model.train(mode), twin.train(mode)
        same(compiled, twin.forward, *given)
        torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))


def test_results_are_the_callers_own(counted: Counted) -> None:
    """Constant results are new at each call, views of parameters lie in them, parameters are themselves."""

    class Constants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64), requires_grad=False)

        def forward(self, x: torch.Tensor) -> Any:
            doubled = self.weight * 2
            return doubled, doubled.view(32, 128), self.weight, self.weight[2:], x @ self.weight.exp()

    model = Constants()
    compiled, x = frozen(model), torch.randn(3, 64)
    want = [t.clone() for t in model.forward(x)]
    first = compiled(x)
    assert first[2] is model.weight and first[3].data_ptr() == model.weight[2:].data_ptr()
    assert first[0].data_ptr() == first[1].data_ptr()
    first[0].zero_()
    torch.testing.assert_close(list(compiled(x)), want)
    assert counted.folded == 1


def test_tied_weights_and_views_of_one_buffer(counted: Counted) -> None:
    """Written through one name, changed under all. Sums of large terms that cancel: neither library's are within a fixed tolerance of the exact ones."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(300, 256)
            self.head = nn.Linear(256, 300, bias=False)
            self.head.weight = self.table.weight
            self.register_buffer("both", torch.randn(2, 256))
            self.register_buffer("second", self.both[1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(x) * self.second.exp()) + self.both.sin().sum()

    model = Tied()
    compiled, x = frozen(model), torch.randint(0, 300, (32,))
    for _ in range(2):
        exact = copy.deepcopy(model).double()
        with torch.no_grad():
            assert_as_exact({"out": compiled(x)}, {"out": model.forward(x)}, {"out": exact(x)}, tiny=1e-6)
            model.both.add_(1)
            model.table.weight.mul_(2)
    assert counted.folded == 2


@pytest.mark.falls_back("whose memory another input shares")
def test_a_graph_that_writes_to_the_memory_of_a_frozen_one() -> None:
    """A counter in the memory of another buffer: neither is frozen."""

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("both", torch.zeros(2, 64))
            self.register_buffer("count", self.both[0])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x * self.both.exp().sum()

    model, twin = Writes(), Writes()
    compiled, x = flambeau.compile(model, options={"freezing": True}), torch.randn(3)
    for _ in range(3):
        same(compiled, twin.forward, x)


def test_a_function_of_several_parameters_in_turn(counted: Counted) -> None:
    """Not the values of those that it was compiled with."""
    first, second = (nn.Parameter(torch.randn(256, 512)) for _ in range(2))
    compiled = frozen(lambda x, w: x @ w.exp())
    x = torch.randn(16, 256)
    for weight in (first, second, second, first):
        same(compiled, lambda x, w: x @ w.exp(), x, weight)
    assert counted.folded == 3


def test_models_of_one_class_are_not_confused(counted: Counted) -> None:
    """Also with the graph of the first taken from the disk."""
    models = [Net().eval() for _ in range(2)]
    compiled, given = [frozen(model) for model in models], inputs()
    for _ in range(2):
        for function, model in zip(compiled, models, strict=True):
            same(function, model.forward, *given)
    assert counted.folded == 2


def test_dtypes_change(counted: Counted) -> None:
    """A module that is converted is compiled anew."""
    model = Net().eval()
    compiled, given = frozen(model), inputs()
    same(compiled, model.forward, *given)
    model.double()
    same(compiled, model.forward, *(x.double() for x in given))
    assert counted.folded == 2


def test_hooks_run(counted: Counted) -> None:
    """As in eager, also one that comes later."""
    model = Net().eval()
    compiled, given = frozen(model), inputs()
    same(compiled, model.forward, *given)
    model.wide.register_forward_hook(lambda module, args, out: out * 2)
    same(compiled, model.forward, *given)


def test_inference_mode(counted: Counted) -> None:
    """What inference mode made counts no writes: it is folded at each call."""
    model = Net().eval()
    compiled, given = frozen(model), inputs()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(*given), model.forward(*given), rtol=1e-4, atol=1e-5)
        made = Net().eval()
        own = frozen(made)
        for _ in range(2):
            torch.testing.assert_close(own(*given), made.forward(*given), rtol=1e-4, atol=1e-5)
            made.wide.weight.mul_(2)
    assert counted.folded == 3


def test_sizes_change(counted: Counted) -> None:
    """A batch of another size, then of any."""
    model = Net().eval()
    compiled = frozen(model)
    for rows in (4, 6, 9):
        same(compiled, model.forward, torch.randn(rows, 16, 32, 32), torch.randn(rows, 256))


def packed(dtype: torch.dtype) -> int:
    """How many programs have packed weights of a type: none of bfloat16 where oneDNN has no kernels for it, on processors without AVX-512."""
    return int(dtype is torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported())


@pytest.mark.parametrize("numerics", ["faithful", "fast"])
def test_bfloat16(numerics: str, counted: Counted) -> None:
    """Linear layers with activations, in the tolerance of the type."""
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128), nn.SiLU(), nn.Linear(128, 64), nn.ReLU())
    model = model.bfloat16().eval()
    x = torch.randn(2, 32, 128).bfloat16()
    compiled = frozen(model, numerics=numerics)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model.forward(x), rtol=2e-2, atol=2e-2)
    assert counted.folded == packed(torch.bfloat16)


def test_parameters_are_given_back(counted: Counted) -> None:
    """Their memory goes; what the program still reads stays; using one is an error that says why."""
    model = Net().eval()
    given = inputs()
    with torch.no_grad():
        want = model.forward(*given)
    compiled = frozen(model, freezing_discard_parameters=True)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(*given), want, rtol=1e-4, atol=1e-5)
    assert counted.folded == 1
    assert model.wide.weight.untyped_storage().nbytes() == 0 and model.wide.bias.untyped_storage().nbytes() > 0
    with pytest.raises(RuntimeError, match="freezing_discard_parameters"):
        model.wide.weight + 1
    with pytest.raises(RuntimeError, match="freezing_discard_parameters"):
        torch.save(model.state_dict(), io.BytesIO())
    state = Net().state_dict()
    fresh = Net().eval()
    fresh.load_state_dict(state)
    model.load_state_dict(state, assign=True)
    same(compiled, fresh.forward, *given)


def test_another_program_cannot_have_what_was_given_back() -> None:
    """A clear error, and no wrong result."""
    model = Net().eval()
    x, y = inputs()
    with torch.no_grad():
        frozen(model, freezing_discard_parameters=True)(x, y)
        with pytest.raises(RuntimeError, match="freezing_discard_parameters"):
            frozen(lambda x, y: model.forward(x, y))(x[:2], y[:2])


def test_a_cached_graph_holds_no_weights(counted: Counted) -> None:
    """What another process reads serves any weights; its key says that it is frozen."""
    stored = []
    original = flambeau_runtime.Store.put
    with mock.patch.object(
        flambeau_runtime.Store, "put", lambda store, key, data: stored.append(data) or original(store, key, data)
    ):
        models = [nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).eval() for _ in range(2)]
        x = torch.randn(16, 256)
        for model in models:
            same(frozen(model), model.forward, x)
            same(flambeau.compile(model), model.forward, x)
    assert counted.folded == 2
    graphs = [data for data in stored if b"folding" in data]
    assert len(graphs) == 1 and len(graphs[0]) < 1 << 18


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("numerics", ["faithful", "fast"])
def test_what_is_not_finite(dtype: torch.dtype, numerics: str, counted: Counted) -> None:
    """NaN goes through packed layers and their activations as in eager; infinities through convolutions."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(32, 32, 3, padding=1)
            self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            image = torch.relu(self.convolution(x) + x)
            functions = (torch.relu, nn.functional.gelu, nn.functional.silu, torch.sigmoid, torch.tanh)
            tanh = nn.functional.gelu(self.layers[5](y), approximate="tanh")
            return [image, tanh, *(f(layer(y)) for f, layer in zip(functions, self.layers))]

    model = Layers().to(dtype).eval()
    compiled = frozen(model, numerics=numerics)
    x, y = torch.randn(2, 32, 32, 32).to(dtype).to(memory_format=torch.channels_last), torch.randn(16, 256).to(dtype)
    x[0, 0, 3, 3], x[1, 1, 5, 5], y[0, 0] = torch.nan, torch.inf, torch.nan
    with torch.no_grad():
        got, want = compiled(x, y), model.forward(x, y)
    tolerance = 1e-4 if dtype is torch.float32 else 4e-2
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert counted.folded == packed(dtype)
