"""Lifts functions and modules into torch-level graphs with fake inputs, and compares compiled with eager runs."""

from __future__ import annotations

import copy
import operator

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode

from flambeau_autograd import aot_autograd


class TorchCalls(TorchFunctionMode):
    """Writes down torch-level calls while a function runs on real tensors."""

    def __init__(self):
        super().__init__()
        self.graph = Graph()
        self.nodes = {}
        self.alive = []
        self.constants = {}

    def placeholder(self, name, value):
        self.bind(value, self.graph.placeholder(name))

    def bind(self, tensor, node):
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    def lower(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.nodes:
                name = f"tensor_constant{len(self.constants)}"
                self.constants[name] = value
                self.bind(value, self.graph.get_attr(name))
            return self.nodes[id(value)]
        if isinstance(value, (list, tuple)):
            return type(value)(self.lower(v) for v in value) if type(value) in (list, tuple) else value
        if isinstance(value, dict):
            return {k: self.lower(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(self.lower(value.start), self.lower(value.stop), self.lower(value.step))
        return value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        lowered = self.lower(args), self.lower(kwargs)
        out = func(*args, **kwargs)
        quiet = not any(isinstance(o, torch.Tensor) for o in (out if isinstance(out, (list, tuple)) else [out]))
        name = getattr(func, "__name__", "")
        if quiet and name != "__setitem__" and (not name.endswith("_") or name.endswith("__")):
            return out
        if getattr(func, "__name__", "") == "__get__":
            node = self.graph.call_function(getattr, (lowered[0][0], func.__self__.__name__))
        else:
            node = self.graph.call_function(func, *lowered)
        if isinstance(out, torch.Tensor):
            self.bind(out, node)
        elif isinstance(out, (list, tuple)):
            for i, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    self.bind(item, self.graph.call_function(operator.getitem, (node, i)))
        return out

    def module(self, out):
        out = out if isinstance(out, (list, tuple)) else (out,)
        self.graph.output(tuple(self.lower(o) for o in out))
        root = torch.nn.Module()
        for name, value in self.constants.items():
            root.register_buffer(name, value)
        return GraphModule(root, self.graph)


def lift_module(module, *inputs):
    """(graph with parameters and buffers as placeholders after the inputs, their names)."""
    module = copy.deepcopy(module)
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    calls = TorchCalls()
    given = clones(inputs)
    for i, value in enumerate(given):
        calls.placeholder(f"x{i}", value)
    for name, value in state.items():
        calls.placeholder("p_" + name.replace(".", "_"), value)
    with torch.random.fork_rng(), calls:
        out = module(*given)
    return calls.module(out), list(state)


def lift_function(function, inputs):
    """The function's graph, recorded on copies of the inputs."""
    calls = TorchCalls()
    given = clones(inputs)
    for i, value in enumerate(given):
        calls.placeholder(f"x{i}", value)
    with torch.random.fork_rng(), calls:
        out = function(*given)
    return calls.module(out)


def lift_symbolically(function):
    """The function's graph by symbolic tracing, so that sizes stay expressions."""
    return tuple_output(torch.fx.symbolic_trace(function))


def tuple_output(gm):
    for node in gm.graph.nodes:
        if node.op == "output" and not isinstance(node.args[0], (list, tuple)):
            node.args = ((node.args[0],),)
    gm.recompile()
    return gm


def fakes(values, dynamic=False):
    """Fake inputs in one mode; with `dynamic` every size is a symbol."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    result = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            result.append(value)
        elif dynamic:
            context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * value.dim())
            result.append(mode.from_tensor(value, symbolic_context=context))
        else:
            result.append(mode.from_tensor(value, static_shapes=True))
    return result


class Watched(torch.fx.Interpreter):
    """Runs a graph node by node, each held to the sizes and the type that it shows."""

    def run_node(self, node):
        out = super().run_node(node)
        shown = node.meta.get("val")
        for mine, wanted in zip(*(v if isinstance(v, (list, tuple)) else [v] for v in (out, shown)), strict=False):
            if isinstance(mine, torch.Tensor) and isinstance(wanted, torch.Tensor) and node.op == "call_function":
                assert mine.dtype == wanted.dtype, node.format_node()
                if all(isinstance(size, int) for size in wanted.shape):
                    assert mine.shape == wanted.shape, node.format_node()
        return out


def interpret(gm, inputs):
    """A compiler that runs the graph in Python."""
    return lambda *args: Watched(gm).run(*args)


def compile_graph(gm, inputs, dynamic=False, compiler=interpret, **options):
    given = fakes(inputs, dynamic)
    for node, fake in zip(gm.graph.find_nodes(op="placeholder"), given):
        node.meta["val"] = fake
    return aot_autograd(fw_compiler=compiler, **options)(gm, given)


def compile_function(function, inputs, **options):
    return compile_graph(lift_function(function, inputs), inputs, **options)


def compile_module(module, inputs, **options):
    """A callable of the inputs only; parameters and buffers are passed along."""
    gm, names = lift_module(module, *inputs)
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    values = [state[name] for name in names]
    compiled = compile_graph(gm, [*inputs, *values], **options)
    return lambda *args: compiled(*args, *values)


def clones(inputs):
    return [
        torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t.detach()).requires_grad_(t.requires_grad)
        if isinstance(t, torch.Tensor)
        else t
        for t in inputs
    ]


def as_tuple(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def scalar_loss(outputs):
    total = None
    for i, out in enumerate(outputs):
        if isinstance(out, torch.Tensor) and out.requires_grad:
            part = (
                out
                * torch.linspace(0.1, 1.0, max(out.numel(), 1), dtype=torch.float64)
                .to(out.dtype)
                .view(-1)[: out.numel()]
                .reshape(out.shape)
            ).sum() * (i + 1)
            total = part if total is None else total + part
    return total


def check_gradient(a, b, rtol=1e-4, atol=0.0, **tolerance):
    """Close relative to the gradient's own largest entry, however small that is."""
    assert (a is None) == (b is None)
    if a is not None:
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = b.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax().item() if b.numel() else 0.0
        torch.testing.assert_close(a, b, rtol=rtol, atol=max(atol, rtol * scale, 1e-30), equal_nan=True, **tolerance)


def sharing(tensors):
    """For each tensor, the place of the first that is the same object and of the first in the same memory."""
    objects, memory = {}, {}
    kept = [t for t in tensors if isinstance(t, torch.Tensor)]
    return [
        (objects.setdefault(id(t), i), memory.setdefault(t.untyped_storage()._cdata if t.numel() else id(t), i))
        for i, t in enumerate(kept)
    ]


def check_same(a, b, **tolerance):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
        assert a.requires_grad == b.requires_grad
        assert a.stride() == b.stride() or a.numel() <= 1
    else:
        assert a == b and type(a) is type(b)


def check_function(function, inputs, *, options=None, seed=0, **tolerance):
    """Outputs, input mutations and gradients equal eager's; returns the compiled callable."""
    compiled = compile_function(function, inputs, **(options or {}))
    ours, theirs = clones(inputs), clones(inputs)
    torch.manual_seed(seed)
    got = as_tuple(compiled(*ours))
    torch.manual_seed(seed)
    want = as_tuple(function(*theirs))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        check_same(a, b, **tolerance)
    assert sharing([*got, *ours]) == sharing([*want, *theirs])
    for a, b in zip(ours, theirs):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
    loss = scalar_loss(want)
    if loss is not None:
        loss.backward()
        scalar_loss(got).backward()
        for a, b in zip(ours, theirs):
            if isinstance(a, torch.Tensor) and a.is_leaf:
                check_gradient(a.grad, b.grad, **tolerance)
    return compiled


def check_module(module, inputs, *, seed=0, options=None, **tolerance):
    """The same for a module: outputs, buffers, gradients of inputs and parameters."""
    other = copy.deepcopy(module)
    compiled = compile_module(module, inputs, **(options or {}))
    ours, theirs = clones(inputs), clones(inputs)
    torch.manual_seed(seed)
    got = as_tuple(compiled(*ours))
    torch.manual_seed(seed)
    want = as_tuple(other(*theirs))
    for a, b in zip(got, want):
        check_same(a, b, **tolerance)
    if scalar_loss(want) is not None:
        scalar_loss(want).backward()
        scalar_loss(got).backward()
    for (name, a), (_, b) in zip(module.named_parameters(), other.named_parameters()):
        check_gradient(a.grad, b.grad, **tolerance)
    for (_, a), (_, b) in zip(module.named_buffers(), other.named_buffers()):
        torch.testing.assert_close(a, b, **tolerance)
    for a, b in zip(ours, theirs):
        if isinstance(a, torch.Tensor) and a.requires_grad:
            check_gradient(a.grad, b.grad, **tolerance)
    return compiled
