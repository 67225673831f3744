"""The native node: autograd's rules around a compiled graph."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import sys
import threading
import weakref

import pytest
import torch
from lifting import compile_function, compile_graph, compile_module, lift_function
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from flambeau_autograd import Config, Signature, assemble, default_partition
from flambeau_autograd.records import OutputSpec


def leaf(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.fixture(params=[True, False], ids=["native", "twin"])
def config(request):
    return Config(native=request.param)


def test_native_module_is_built():
    """The extension for this Python and torch is there (build it with tools/build_native.py)."""
    from flambeau_autograd.wrappers.native import native_module

    assert native_module() is not None


def test_second_backward_raises(config):
    """Without retain_graph, the second backward raises eager's error."""
    x = leaf(3)
    (y,) = compile_function(lambda x: x.exp() * x, [x], config=config)(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()


def apart(x, y):
    """Results that share nothing but an input; eager saves nothing for the last."""
    return x.exp().sin(), (y.sin() * x).exp(), x * 2 + y


def beside(x, y):
    """What is saved for the first two serves both."""
    shared = x.exp()
    return shared.sin(), shared * y, (y * 3).cos()


@pytest.mark.parametrize("function", [apart, beside])
def test_backwards_one_after_the_other(config, function):
    """Without retain_graph, each frees what it comes through: another that needs nothing of that may follow, as in eager."""
    compiled = compile_function(function, [leaf(3), leaf(3)], config=config)
    outcomes = []
    for steps in itertools.product([(0,), (1,), (2,), (0, 2)], repeat=3):
        for run in (function, compiled):
            x, y = leaf(3), leaf(3)
            results = run(x, y)
            found = []
            for used in steps:
                found.append(_gradients([results[i].sum() for i in used], x, y))
                if found[-1] is None:
                    break  # what else it came through before it raised is the engine's choice
            outcomes.append(found)
    assert outcomes[::2] == outcomes[1::2]
    assert sum(None in outcome for outcome in outcomes) > 20


def _gradients(losses, *inputs):
    """None where the backward raises."""
    try:
        grads = torch.autograd.grad(losses, inputs, allow_unused=True)
    except RuntimeError as error:
        assert "a second time" in str(error)
        return None
    return [grad if grad is None else [round(value, 4) for value in grad.tolist()] for grad in grads]


def test_what_a_hook_on_saved_tensors_raises(config):
    """It passes, known as the program's own; what the compiled code raises is not."""
    x = leaf(3)
    call = compile_function(lambda x: x.exp() * x, [x], config=config)

    def pack(tensor):
        raise KeyError("no room")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), pytest.raises(KeyError) as raised:
        call(x)
    assert raised.value.raised_in_hook
    with pytest.raises((TypeError, IndexError)) as refused:
        call()
    assert not hasattr(refused.value, "raised_in_hook")


def test_retain_graph(config):
    """With retain_graph, gradients accumulate."""
    x = leaf(3)
    (y,) = compile_function(lambda x: x.exp() * x, [x], config=config)(x)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * first)


@pytest.mark.parametrize("function", [lambda x, y: (x + y * 2).sin(), lambda x, y: x * y])
def test_inference_tensor_as_input(config, function):
    """It has no version counter; whether the backward needs it is the partition's choice."""
    with torch.inference_mode():
        x = torch.arange(3.0)
    y = leaf(3)
    (z,) = compile_function(function, [torch.arange(3.0), y], config=config)(x, y)
    z.sum().backward()
    found, y.grad = y.grad, None
    function(x.clone(), y).sum().backward()
    torch.testing.assert_close(found, y.grad)


def test_inference_tensor_that_is_written(config):
    """In inference mode nobody counts writes."""
    with torch.inference_mode():
        x = torch.ones(3)
        (y,) = compile_function(lambda x: x.add_(1) * 2, [torch.ones(3)], config=config)(x)
    assert torch.equal(y, torch.full((3,), 4.0)) and torch.equal(x, torch.full((3,), 2.0))


def test_saved_input_modified_in_place(config):
    """Writing to an input that was saved raises in the backward, as in eager."""
    x, y = leaf(3), torch.ones(3)
    (z,) = compile_function(lambda x, y: x * y, [x, y], config=config)(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_saved_output_modified_in_place(config):
    """Writing to an output that was saved raises in the backward, as in eager."""
    x = leaf(3)
    (z,) = compile_function(lambda x: x.sigmoid(), [x], config=config)(x)
    z.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_saved_memory_behind_a_returned_view(config):
    """The saved tensor is the base of a returned view: writing to the view is noticed."""
    x = leaf(2, 3)
    (z,) = compile_function(lambda x: x.exp().view(-1), [x], config=config, partition_fn=default_partition)(x)
    with torch.no_grad():
        z.mul_(2)
    if config.native:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_output_may_be_written_when_not_saved(config):
    """An output that the backward does not need can be written in place."""
    x = leaf(3)
    (z,) = compile_function(lambda x: x * 2 + 1, [x], config=config)(x)
    z.mul_(3)
    z.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 6.0))


def test_undefined_gradients_are_zeros(config):
    """Only one of two outputs takes part in the loss."""
    x = leaf(3)
    a, b = compile_function(lambda x: (x * 2, x.exp()), [x], config=config)(x)
    a.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_gradients_of_any_layout(config):
    """Expanded and transposed gradients reach a backward that was compiled for a dense one."""
    x = leaf(3, 4)
    (y,) = compile_function(lambda x: x.sin().view(-1), [x], config=config)(x)
    y.backward(torch.ones(()).expand(12))
    (z,) = compile_function(lambda x: x.t().sin(), [x], config=config)(x)
    grad = torch.randn(4, 3)
    x.grad = None
    z.backward(grad)
    torch.testing.assert_close(x.grad, grad.t() * x.cos())


def test_hooks_and_retained_grads(config):
    """Tensor hooks and retain_grad work on outputs, inputs and around the node."""
    x = leaf(3)
    seen = []
    inner = x * 2
    inner.retain_grad()
    (y,) = compile_function(lambda x: x.sin(), [torch.randn(3).requires_grad_()], config=config)(inner)
    y.register_hook(lambda g: seen.append("y") or g * 2)
    x.register_hook(lambda g: seen.append("x"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("node"))
    y.sum().backward()
    assert seen == ["y", "node", "x"]
    torch.testing.assert_close(inner.grad, 2 * inner.detach().cos())


def test_outputs_without_grad(config):
    """Integer, boolean and detached outputs do not require grad."""
    x = leaf(3)
    a, b, c = compile_function(lambda x: (x.sin(), x > 0, x.detach() * 2), [x], config=config)(x)
    assert a.requires_grad and not b.requires_grad and not c.requires_grad
    assert a.grad_fn is not None and not a.is_leaf and c.is_leaf


def test_no_grad_call_of_a_training_graph(config):
    """Under no_grad, or with inputs that do not require grad, nothing is tracked."""
    x = leaf(3)
    compiled = compile_function(lambda x: x.exp(), [x], config=config)
    with torch.no_grad():
        (y,) = compiled(x)
    assert not y.requires_grad
    (z,) = compiled(x.detach())
    assert not z.requires_grad
    with torch.inference_mode():
        (w,) = compiled(x)
    assert w.is_inference()


@pytest.mark.parametrize(
    "function",
    [lambda x: x.exp() * x.sin(), lambda x: x.sigmoid().pow(3), lambda x: x.relu() * x],
    ids=["exp", "pow", "relu"],
)
def test_double_backward(function, config):
    """create_graph=True differentiates the backward."""
    x, y = leaf(4), leaf(4)
    (out,) = compile_function(function, [x], config=config)(x)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (g * g).sum().backward()
    (h,) = torch.autograd.grad(function(y).sum(), y, create_graph=True)
    (h * h).sum().backward()
    torch.testing.assert_close(g, h)
    torch.testing.assert_close(x.grad, y.grad)


def test_double_backward_with_parameters(config):
    """A gradient penalty trains the parameters."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = leaf(5, 3)
    compiled = compile_module(m, [x], config=config)
    grads = []
    for f in (lambda v: compiled(v)[0], m):
        m.zero_grad()
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        (g.norm(dim=1) - 1).pow(2).mean().backward()
        grads.append([p.grad.clone() for p in m.parameters() if p.grad is not None])
    assert len(grads[0]) >= 3
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


def test_double_backward_writes_nothing_again(config):
    """What the graph wrote in the forward stays written once."""
    x, counter = leaf(4), torch.zeros(4)

    def function(x, counter):
        counter.add_(1)
        return x * x * x

    (out,) = compile_function(function, [x, counter.clone()], config=config)(x, counter)
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    torch.testing.assert_close(h, 6 * x.detach())
    assert counter.tolist() == [1.0] * 4


LOST = {
    "freed": lambda given: given.clear(),
    "written": lambda given: [value.detach().add_(1) for value in given],
    "resized": lambda given: given[1].resize_(0),
}


@pytest.mark.parametrize("lost", LOST)
def test_double_backward_without_inputs_that_decide_nothing(lost, config):
    """Only their sizes are needed."""
    gm = lift_function(lambda x, y, s: s * s + x * 3 + y, [leaf(4), torch.ones(4), leaf(4)])
    x, s = leaf(4), leaf(4)
    given = [x * 2, torch.ones(4)]
    (out,) = compile_graph(gm, [*given, s], config=config)(*given, s)
    LOST[lost](given)
    g, h = torch.autograd.grad(out.pow(2).sum(), [x, s], create_graph=True)
    again = torch.autograd.grad(h.sum() + g.sum(), [x, s])
    x, s = (value.detach().requires_grad_() for value in (x, s))
    out = s * s + x * 6 + 1
    g, h = torch.autograd.grad(out.pow(2).sum(), [x, s], create_graph=True)
    for ours, theirs in zip(again, torch.autograd.grad(h.sum() + g.sum(), [x, s])):
        torch.testing.assert_close(ours, theirs)


def test_gradcheck():
    """Numerical gradients agree, first and second order."""
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    compiled = compile_function(lambda x: (x.sin() * x.exp()).cumsum(0), [x])
    assert torch.autograd.gradcheck(lambda x: compiled(x)[0], x)
    assert torch.autograd.gradgradcheck(lambda x: compiled(x)[0], x)


def test_saved_tensors_are_freed_after_backward():
    """The node drops what it saved when its backward has run."""
    x = leaf(3)
    kept = []

    def compiler(gm, inputs):
        def forward(*args):
            out = gm(*args)
            kept.extend(weakref.ref(o) for o in out[1:])
            return out

        return forward

    gm = lift_function(lambda x: (x.exp() * 2).sin(), [x])
    (y,) = compile_graph(gm, [x], compiler=compiler)(x)
    y.sum().backward()
    gc.collect()
    assert all(k() is None for k in kept[:2])


def test_the_memory_of_an_input_is_let_go_after_backward(config):
    """Also while the result, and with it the node, is still there."""
    compiled = compile_function(lambda x: x.sin(), [leaf(3)], config=config)
    for run in (torch.sin, lambda x: compiled(x)[0]):
        x = leaf(3) * 2
        memory = StorageWeakRef(x.untyped_storage())
        y = run(x)
        del x
        assert not memory.expired()
        y.sum().backward()
        assert memory.expired()


def test_a_result_is_freed_while_the_backward_of_another_runs(config):
    """Python's collector may do it at any step; the history that goes must not wait for the node that is at work."""
    kept = []

    def backward_compiler(gm, inputs):
        return lambda *args: (kept.clear(), gm(*args))[1]

    x, y = leaf(3), leaf(3)
    compiled = compile_function(lambda x, y: (x.exp(), y.sin()), [x, y], config=config, bw_compiler=backward_compiler)
    # It would wait for ever, with Python's lock. What pytest puts in the place of `sys.stderr` may be no file.
    faulthandler.dump_traceback_later(60, exit=True, file=sys.__stderr__)
    try:
        first, second = compiled(x, y)
        kept.append(second)
        freed = weakref.ref(second)
        del second
        first.sum().backward(retain_graph=True)
        assert freed() is None and not kept
        first.sum().backward()
    finally:
        faulthandler.cancel_dump_traceback_later()
    torch.testing.assert_close(x.grad, 2 * x.exp())
    assert y.grad is None
    with pytest.raises(RuntimeError, match="a second time"):
        first.sum().backward()


def test_no_leak_over_many_calls():
    """Calls with and without backward leave nothing behind."""
    x = leaf(3)
    compiled = compile_function(lambda x: x.exp() * x, [x])
    for _ in range(10):
        compiled(x)[0].sum().backward()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(500):
        compiled(x)[0].sum().backward()
        compiled(x)
    gc.collect()
    assert len(gc.get_objects()) - before < 50


@pytest.mark.parametrize("raises", [False, True])
def test_nothing_waits_for_the_collector(config, raises):
    """A graph with a backward goes with its last reference, and an error of the backward with what its frames hold."""

    def backward(tangent):
        if raises:
            raise ArithmeticError("in a bad mood")
        return (tangent * 2,)

    def passed_on(error, repeat):
        try:
            raise error
        finally:
            del error

    def layouts(inputs, lying):
        return {}

    signature = Signature(
        1, 1, 0, (OutputSpec("graph", 0, True),), differentiable=(0,), tangent_orders=((0,),), grad_inputs=(0,),
        reached_by=((0,),), led_by=((0,),), frees=((),), follows=True,
    )  # fmt: skip
    replay = lift_function(lambda x: x * 2, [leaf(3)])
    replay.graph.find_nodes(op="placeholder")[0].meta["val"] = torch.empty(3)
    gc.collect()
    gc.disable()
    try:
        joined = assemble(
            signature, lambda x: (x * 2,), backward, replay=replay, layouts=layouts, rescue=passed_on, config=config
        )
        (result,) = joined(leaf(3))
        tangent = torch.ones(3)
        with pytest.raises(ArithmeticError) if raises else contextlib.nullcontext():
            result.backward(tangent)
        held = [*map(weakref.ref, (tangent, passed_on, layouts))]
        del joined, result, tangent, passed_on, layouts
        assert [reference() for reference in held] == [None] * 3
    finally:
        gc.enable()


def test_threads():
    """Several threads run forward and backward of one compiled graph."""
    x = leaf(16)
    compiled = compile_function(lambda x: x.exp() * x, [x])
    errors = []

    def work(i):
        try:
            for _ in range(50):
                v = torch.full((16,), float(i) / 10, requires_grad=True)
                compiled(v)[0].sum().backward()
                torch.testing.assert_close(v.grad, v.detach().exp() * (1 + v.detach()))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_boxed_callables(config):
    """Callables marked `_boxed_call` get one list."""
    x = leaf(3)

    def compiler(gm, inputs):
        def run(args):
            values = list(args)
            args.clear()
            return gm(*values)

        run._boxed_call = True
        return run

    compiled = compile_function(lambda x: x.exp(), [x], compiler=compiler, config=config)
    compiled(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


def test_errors_of_compiled_code_reach_the_caller(config):
    """An exception in the compiled backward is raised by backward()."""
    x = leaf(3)
    calls = []

    def compiler(gm, inputs):
        calls.append(gm)
        if len(calls) == 1:
            return gm.forward

        def broken(*args):
            raise KeyError("broken backward")

        return broken

    compiled = compile_function(lambda x: x.exp(), [x], compiler=compiler, config=config)
    with pytest.raises(KeyError, match="broken backward"):
        compiled(x)[0].sum().backward()


def test_wrong_number_of_results():
    """A compiler whose callable returns too much is told so."""
    x = leaf(3)
    compiled = compile_function(lambda x: x.exp() * 2, [x], compiler=lambda gm, i: lambda *a: (*gm(*a), 1))
    with pytest.raises(RuntimeError, match="are expected"):
        compiled(x)


def test_autocast_around_a_compiled_call(config):
    """Compiled code is not cast again by an ambient autocast."""
    x, w = leaf(3, 4), leaf(4, 2)
    compiled = compile_function(lambda x, w: x @ w, [x, w], config=config)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (y,) = compiled(x, w)
    assert y.dtype == torch.float32


def two_results(x):
    """Eager saves the first result and the operand; all that the gradients need is masks."""
    return x.relu(), x.clamp(min=0.1)


WRITES = {"input": lambda x, results: x.add_(1), "result": lambda x, results: results[0].mul_(2)}


@pytest.mark.parametrize(("written", "used"), [("input", (1,)), *(("result", used) for used in ((0,), (1,), (0, 1)))])
def test_what_eager_saved_is_watched(config, written, used):
    """Whatever the partition saves, the backward raises where eager's does: only for gradients that lead to what was written."""
    raised = []
    compiled = compile_function(two_results, [leaf(3)], config=config)
    for function in (two_results, compiled):
        x = leaf(3)
        results = function(x)
        with torch.no_grad():
            WRITES[written](x, results)
        try:
            torch.autograd.grad([results[i].sum() for i in used], [x])
        except RuntimeError as error:
            raised.append(str(error).partition(":")[0])
        else:
            raised.append("")
    assert raised[0] == raised[1]
    assert bool(raised[0]) == (("result", "input").index(written) in used)


def test_statistics_are_written_in_silence(config):
    """Two forwards before the first backward: eager's batch norm saves its statistics, and tells nobody that it writes them."""
    norm = nn.BatchNorm1d(3)
    compiled = compile_module(norm, [leaf(4, 3)], config=config)
    first, second = compiled(leaf(4, 3)), compiled(leaf(4, 3) * 2)
    version = norm.running_mean._version
    torch.autograd.backward([t.sum() for result in (first, second) for t in result])
    assert version == nn.BatchNorm1d(3).running_mean._version
    assert not torch.equal(norm.running_mean, torch.zeros(3))


def _one_by_one(result, x, directions):
    return torch.vmap(lambda v: torch.autograd.grad(result, x, v, retain_graph=True)[0])(directions)


def _batched(result, x, directions):
    return torch.autograd.grad(result, x, directions, is_grads_batched=True)[0]


@pytest.mark.parametrize("batch", [_one_by_one, _batched])
def test_a_batch_of_gradients(config, batch):
    """Of functorch's vmap and of torch.autograd's own: the compiled backward, which reads plain memory, gets one after the other."""

    def function(x):
        return (x.sin() * x,)

    directions = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    found = []
    for run in (function, compile_function(function, [leaf(3)], config=config)):
        x = leaf(3)
        found.append(batch(run(x)[0], x, directions))
    torch.testing.assert_close(found[1], found[0])
