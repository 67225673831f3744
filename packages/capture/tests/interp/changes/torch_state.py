"""Tensors, modules and the state of torch that change."""

from __future__ import annotations

import torch

from . import change


@change
def tensor_grad():
    w = torch.ones(3, requires_grad=True)

    def f(x):
        return x * (2 if w.grad is None else 3)

    return f, lambda: setattr(w, "grad", torch.ones(3))


@change
def requires_grad():
    w = torch.ones(3)

    def f(x):
        return x * (2 if w.requires_grad else 3)

    return f, lambda: w.requires_grad_()


@change
def tensor_attribute():
    w = torch.ones(3)
    w.k = 2

    def f(x):
        return x * w.k

    return f, lambda: setattr(w, "k", 3)


@change
def tensor_attribute_added():
    w = torch.ones(3)

    def f(x):
        return x * getattr(w, "kk", 3)

    return f, lambda: setattr(w, "kk", 5)


@change
def tensor_data_swapped():
    w = torch.ones(3)

    def f(x):
        return x[:1] * w.sum() * w.shape[0]

    return f, lambda: setattr(w, "data", torch.ones(5))


@change
def tensor_version():
    w = torch.ones(3)

    def f(x):
        return x * w._version

    return f, lambda: w.add_(1)


@change
def module_training():
    m = torch.nn.Dropout(1.0)

    def f(x):
        return m(x)

    return f, lambda: m.eval()


@change
def module_parameter_replaced():
    m = torch.nn.Linear(3, 3)

    def f(x):
        return m(x).detach()

    return f, lambda: setattr(m, "weight", torch.nn.Parameter(torch.ones(3, 3)))


@change
def module_submodule_replaced():
    m = torch.nn.Sequential(torch.nn.ReLU())

    def f(x):
        return m(x - 5)

    return f, lambda: m.__setitem__(0, torch.nn.Sigmoid())


@change
def module_hook_added():
    m = torch.nn.ReLU()

    def f(x):
        return m(x)

    return f, lambda: m.register_forward_hook(lambda mod, i, o: o * 3)


@change
def global_module_hook():
    m = torch.nn.ReLU()
    H = []

    def f(x):
        return m(x)

    def ch():
        H.append(torch.nn.modules.module.register_module_forward_hook(lambda mod, i, o: o * 3))

    f.undo = lambda: [h.remove() for h in H]
    return f, ch


@change
def module_forward_patched():
    m = torch.nn.ReLU()

    def f(x):
        return m(x)

    return f, lambda: setattr(m, "forward", lambda x: x * 9)


@change
def parametrization():
    m = torch.nn.Linear(3, 3)

    class Z(torch.nn.Module):
        def forward(s, w):
            return w * 0 + 1

    def f(x):
        return m(x).detach()

    return f, lambda: torch.nn.utils.parametrize.register_parametrization(m, "weight", Z())


@change
def buffer_taken_away():
    m = torch.nn.Module()
    m.register_buffer("b", torch.ones(3))

    def f(x):
        return x * (2 if m.b is None else 3)

    return f, lambda: setattr(m, "b", None)


@change
def torch_default_dtype():
    def f(x):
        return (x.double() * torch.ones(3)).to(torch.ones(1).dtype)

    f.undo = lambda: torch.set_default_dtype(torch.float32)
    return f, lambda: torch.set_default_dtype(torch.float64)


@change
def default_device():
    def f(x):
        return torch.ones(3).device.type

    f.undo = lambda: torch.set_default_device(None)
    return f, lambda: torch.set_default_device("meta")


@change
def tensor_method_patched():
    def f(x):
        return x.relu()

    old = torch.Tensor.relu
    f.undo = lambda: setattr(torch.Tensor, "relu", old) if False else delattr(torch.Tensor, "relu")
    return f, lambda: setattr(torch.Tensor, "relu", lambda s: s * 44)


@change
def attribute_of_a_tensor_subclass():
    class T(torch.Tensor):
        k = 2

    w = torch.ones(3).as_subclass(T)

    def f(x):
        return x * w.k

    return f, lambda: setattr(T, "k", 3)


@change
def child_module_added():
    m = torch.nn.Module()
    m.a = torch.nn.ReLU()

    def f(x):
        for c in m.children():
            x = c(x) + 1
        return x

    return f, lambda: setattr(m, "b", torch.nn.ReLU())


@change
def parameter_added():
    m = torch.nn.Linear(3, 3)

    def f(x):
        return x * len(list(m.parameters()))

    return f, lambda: m.register_parameter("z", torch.nn.Parameter(torch.ones(1)))


@change
def parameterlist_append():
    m = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3))])

    def f(x):
        return sum((p.detach() for p in m), x)

    return f, lambda: m.append(torch.nn.Parameter(torch.ones(3)))
