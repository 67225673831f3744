"""`nn.Module`: containers, hooks, attributes, subclasses, buffers, modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .table import case


@case(factory=True)
def parameter_list_and_module_dict() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.full((4,), float(i))) for i in range(3)])
            self.layers = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})
            self.stack = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.named = nn.ParameterDict({"scale": nn.Parameter(torch.ones(4))})

        def forward(self, x: Tensor) -> Any:
            for weight in self.weights:
                x = x + weight
            for name, layer in self.layers.items():
                x = layer(x) * len(name)
            for i, layer in enumerate(self.stack):
                x = layer(x) + i
            return x * self.named["scale"], len(self.stack), "a" in self.layers, self.stack[-1](x)

    torch.manual_seed(0)
    return Net()


@case(factory=True)
def sequential_and_children() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4))

        def forward(self, x: Tensor) -> Any:
            total = sum(p.sum() for p in self.parameters())
            names = [name for name, _ in self.named_children()]
            return self.body(x), total, names, self.body[0].weight.shape, self.training

    torch.manual_seed(0)
    return Net()


@case(factory=True)
def hooks_of_modules() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    nn.init.ones_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    net[0].register_forward_hook(lambda module, args, output: output + 1)
    net[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    net.register_forward_hook(lambda module, args, kwargs, output: output - 3, with_kwargs=True)
    return net


@case(factory=True)
def module_with_own_attribute_hooks() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.calls = 0

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name == "computed":
                    return 5
                raise

        def forward(self, x: Tensor) -> Any:
            self.calls += 1
            self.last = x.detach() * self.calls
            return self.inner(x) + self.computed, self.last, hasattr(self, "nothing")

    torch.manual_seed(0)
    return Net()


@case(factory=True)
def buffers_change() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Any:
            self.count += 1
            self.register_buffer("seen", x.sum()) if not hasattr(self, "seen") else None
            self.seen = self.seen + 1
            return self.norm(x) * self.count, self.seen

    return Net()


@case(factory=True)
def replaced_parameter_attribute() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.cache: Any = None

        def forward(self, x: Tensor) -> Any:
            if self.cache is None:
                self.cache = x * 2
            return self.cache * self.scale

    return Net()


@case(factory=True)
def keyword_call_with_flags() -> Callable[[Tensor], Any]:
    class Net(nn.Module):
        def forward(self, x: Tensor, *, flag: bool = False, **kwargs: Any) -> Any:
            return (x + 1 if flag else x - 1), sorted(kwargs)

    net = Net()
    return lambda x: net(x, flag=True, other=1)


@case(factory=True)
def dropout_in_eval_mode() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2, bias=False)).eval()


@case(factory=True)
def attention() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            return self.attention(x[None], x[None], x[None], need_weights=False)[0]

    torch.manual_seed(0)
    return Net()


@case(factory=True)
def weight_norm_by_parametrization() -> nn.Module:
    torch.manual_seed(0)
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


@case(factory=True)
def lstm() -> nn.Module:
    torch.manual_seed(0)
    return nn.LSTM(4, 3)


@case(factory=True)
def shared_module_called_twice() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = self.a

        def forward(self, x: Tensor) -> Any:
            return self.b(F.gelu(self.a(x))), self.a is self.b

    torch.manual_seed(0)
    return Net()


@case(graphs=3, breaks=("input-output",), factory=True)
def layers_that_print() -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            print("block")
            return y.relu()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x + 1)

    torch.manual_seed(0)
    return Net()


@case(factory=True)
def module_made_while_tracing() -> Callable[[Tensor], Any]:
    def run(x: Tensor) -> Any:
        return nn.functional.relu(nn.Flatten()(x)), nn.ReLU()(x), nn.Identity()(x)

    return run


@case(factory=True)
def functional_call() -> Callable[[Tensor], Any]:
    net = nn.Linear(4, 4)
    weights = {"weight": torch.ones(4, 4), "bias": torch.zeros(4)}
    return lambda x: torch.func.functional_call(net, weights, (x,))
