"""Rewrites keep meaning and strides, and happen only where they pay. CUDA graphs are traced on fakes; no device is needed."""

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from tracing import traced, traced_on_cuda

import flambeau_inductor.rewrite.channels_last as module
import flambeau_runtime
from flambeau_inductor import CompileContext, compile_graph, rewrite_joint
from flambeau_inductor.devices import CUDA
from flambeau_inductor.passes.order import PASSES
from flambeau_inductor.passes.runner import run_passes
from flambeau_runtime.artifact import Alloc

aten = torch.ops.aten


def targets(gm, **options):
    """Names of the calls after all passes."""
    after = run_passes(gm, PASSES, CompileContext(CompileContext().config.with_options(options)))
    return [str(n.target).removeprefix("aten.") for n in after.graph.nodes if n.op == "call_function"]


def network(x, w1, b1, w2, mean, var, scale):
    """Two convolutions, a pool, a residual, and results of several shapes."""
    y = F.relu(F.batch_norm(F.conv2d(x, w1, b1, padding=1), mean, var, scale))
    z = F.max_pool2d(F.conv2d(y, w2, None, padding=1) + y, 2)
    return z.mean((2, 3)), z.flatten(1), z, y.view(-1)


NETWORK = (
    torch.randn(2, 8, 16, 16),
    torch.randn(16, 8, 3, 3),
    torch.randn(16),
    torch.randn(16, 16, 3, 3),
    torch.randn(16),
    torch.rand(16) + 0.5,
    torch.randn(16),
)


@pytest.mark.parametrize("executor", ["python", "native"])
def test_channels_last_results_and_strides_equal_eager(monkeypatch, executor):
    """The layout inside changes, what comes out does not."""
    monkeypatch.setattr(module, "CPU_ACTIVATIONS_PER_WEIGHT", 0)
    monkeypatch.setattr(module, "WORTH", 100)
    gm = traced(network, *NETWORK)
    assert targets(gm).count("clone.default") >= 4
    artifact = compile_graph(gm, NETWORK, {"verify": True})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact), executor=executor)
    for got, want in zip(run(*NETWORK), network(*NETWORK), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()


def test_small_images_on_a_cpu_keep_their_layout():
    """Their weights would cost more to convert than the layout gains."""
    assert "clone.default" not in targets(traced(network, *NETWORK))


def test_an_option_switches_the_layout_off(monkeypatch):
    """``layout_optimization=False`` leaves the graph alone."""
    monkeypatch.setattr(module, "CPU_ACTIVATIONS_PER_WEIGHT", 0)
    monkeypatch.setattr(module, "WORTH", 100)
    assert "clone.default" not in targets(traced(network, *NETWORK), layout_optimization=False)


def rounding(tf32):
    """A GPU whose convolutions of float32 may round, or not."""
    fast = (torch.float16, torch.bfloat16, *([torch.float32] if tf32 else []))
    return evolve(CUDA, libraries=evolve(CUDA.libraries, channels_last=lambda dtype: dtype in fast))


@pytest.mark.parametrize(("dtype", "tf32", "wanted"), [(torch.float16, False, True), (torch.float32, True, True), (torch.float32, False, False)])  # fmt: skip
def test_cuda_layout_follows_dtype_and_precision_flags(monkeypatch, dtype, tf32, wanted):
    """Full float32 has no channels-last kernels worth having."""
    monkeypatch.setattr(module, "device_of", lambda place: rounding(tf32))

    def chain(x, w):
        for _ in range(4):
            x = F.relu(F.conv2d(x, w, padding=1))
        return x

    gm = traced_on_cuda(chain, torch.randn(8, 32, 28, 28).to(dtype), torch.randn(32, 32, 3, 3).to(dtype))
    assert targets(gm).count("clone.default") == (3 if wanted else 0)


def test_one_convolution_is_not_worth_the_copies():
    """Input, weight and result would all be moved by us instead of by the library."""
    gm = traced_on_cuda(
        lambda x, w: F.conv2d(x, w), torch.randn(8, 32, 28, 28).half(), torch.randn(32, 32, 3, 3).half()
    )
    assert "clone.default" not in targets(gm)


@pytest.mark.parametrize(("dtype", "groups", "wanted"), [(torch.float16, 1, True), (torch.float16, 4, False), (torch.float16, 32, True), (torch.float32, 32, True)])  # fmt: skip
def test_grouped_networks(monkeypatch, dtype, groups, wanted):
    """Grouped kernels are slower channels-last, depthwise ones are not."""
    monkeypatch.setattr(module, "device_of", lambda place: rounding(True))

    def mixed(x, w, v):
        for _ in range(3):
            x = F.relu(F.conv2d(F.conv2d(x, w, groups=groups, padding=1), v))
        return x

    shapes = ((8, 32, 28, 28), (32, 32 // groups, 3, 3), (32, 32, 1, 1))
    gm = traced_on_cuda(mixed, *(torch.randn(shape).to(dtype) for shape in shapes))
    assert ("clone.default" in targets(gm)) is wanted


def test_random_masks_are_drawn_in_eager_order(monkeypatch):
    """Random numbers are dealt in memory order, so a draw sees the old layout."""
    monkeypatch.setattr(module, "CPU_ACTIVATIONS_PER_WEIGHT", 0)
    monkeypatch.setattr(module, "WORTH", 100)
    inputs = (torch.randn(2, 8, 6, 6), torch.randn(8, 8, 3, 3))

    def function(x, w):
        return aten.native_dropout(F.conv2d(x, w), 0.5, True)[0]

    run = flambeau_runtime.load(flambeau_runtime.build_libraries(compile_graph(traced(function, *inputs), inputs)))
    torch.manual_seed(0)
    want = function(*inputs)
    torch.manual_seed(0)
    torch.testing.assert_close(run(*inputs)[0], want, rtol=1e-4, atol=1e-4)


def test_convolution_bias_is_added_outside_on_cuda():
    """cuDNN takes no bias: the addition joins the kernel that follows."""
    found = targets(traced_on_cuda(lambda x, w, b: F.relu(F.conv2d(x, w, b)), *NETWORK[:3]), layout_optimization=False)
    assert found == ["convolution.default", "view.default", "add.Tensor", "relu.default"]


def test_large_products_leave_their_bias_to_the_kernel_that_follows():
    """In float32, where nothing is rounded in between, and only where a generated kernel reads the result."""

    def function(x, w, b, v):
        y = F.linear(x, w, b)
        return F.gelu(y.view(2, 1024, -1)), F.linear(x, w, b + 1) @ v

    inputs = (torch.randn(2048, 512), torch.randn(2048, 512), torch.randn(2048), torch.randn(2048, 8))
    found = targets(traced_on_cuda(function, *inputs))
    assert [found.count(name) for name in ("mm.default", "addmm.default")] == [2, 1]
    halves = targets(traced_on_cuda(function, *(t.half() for t in inputs)))
    assert [halves.count(name) for name in ("mm.default", "addmm.default")] == [1, 2]
    small = targets(traced_on_cuda(lambda x, w, b: F.gelu(F.linear(x, w, b)), inputs[0][:8], *inputs[1:3]))
    assert "addmm.default" in small


@pytest.mark.parametrize(("function", "options", "fused"), [
    (lambda x, w, b: F.relu(F.linear(x, w, b)), {}, True),
    (lambda x, w, b: F.relu(F.linear(x, w, b)), {"epilogue_fusion": False}, False),
    (lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), {}, False),
    (lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), {"numerics": "fast"}, True),
    (lambda x, w, b: F.gelu(F.linear(x, w, b)), {"numerics": "fast"}, False),
])  # fmt: skip
def test_activation_epilogues(function, options, fused):
    """ReLU commutes with rounding; tanh-GELU needs leave to round once."""
    gm = traced_on_cuda(function, torch.randn(4, 8), torch.randn(16, 8), torch.randn(16))
    assert ("_addmm_activation.default" in targets(gm, **options)) is fused


def test_a_product_with_two_readers_keeps_its_value():
    """The value before the activation is needed."""
    gm = traced_on_cuda(lambda x, w, b: (F.relu(F.linear(x, w, b)), F.linear(x, w, b).exp()), *(torch.randn(4, 8), torch.randn(16, 8), torch.randn(16)))  # fmt: skip
    shared = traced_on_cuda(lambda x, w, b: (lambda y: (F.relu(y), y.exp()))(F.linear(x, w, b)), torch.randn(4, 8), torch.randn(16, 8), torch.randn(16))  # fmt: skip
    assert "_addmm_activation.default" in targets(gm)
    assert "_addmm_activation.default" not in targets(shared)


def test_a_joint_graph_keeps_the_layout_in_its_backward(monkeypatch):
    """Forward and backward in one graph: no copies between, gradients in the layout of their parameters."""
    monkeypatch.setattr(module, "CPU_ACTIVATIONS_PER_WEIGHT", 0)
    monkeypatch.setattr(module, "WORTH", 100)
    inputs = (torch.randn(2, 8, 12, 12), torch.randn(16, 8, 3, 3), torch.randn(16, 16, 3, 3))

    def step(*values):
        x, w, v = (value.detach().requires_grad_() for value in values)
        with torch.enable_grad():
            loss = F.conv2d(torch.relu(F.conv2d(x, w)), v).square().sum()
            return torch.autograd.grad(loss, (x, w, v))

    gm = traced(step, *inputs)
    gm.graph.eliminate_dead_code()
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    kept = rewrite_joint(gm.graph, list(output.args[0]), {})
    assert len(kept) == 3
    for result, copy in kept.items():
        output.replace_input_with(result, copy)
    backwards = [n for n in gm.graph.nodes if n.target is aten.convolution_backward.default]
    for node in backwards:
        assert all(n.meta["val"].is_contiguous(memory_format=torch.channels_last) for n in node.args[:3])
    gm.recompile()
    artifact = compile_graph(gm, inputs, {"verify": True})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    for got, want in zip(run(*inputs), step(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
        assert got.stride() == want.stride()


@pytest.mark.parametrize(("kind", "copies"), [("efficient", 0), ("flash", 1)])
def test_attention_reads_keys_and_values_where_they_lie(kind, copies):
    """The query's layout shows in flash attention's result, so its copy stays; an unaligned view is copied."""
    op = getattr(aten, f"_scaled_dot_product_{kind}_attention").default

    def attention(width):
        """The graph of a call on copies of transposed views."""

        def heads(*values):
            split = (aten.transpose(aten.view(x, [2, 16, 4, -1]), 1, 2) for x in values)
            return tuple(aten.clone(x, memory_format=torch.contiguous_format) for x in split)

        gm = traced_on_cuda(heads, *[torch.randn(2, 16, width).half()] * 3)
        (output,) = (n for n in gm.graph.nodes if n.op == "output")
        with gm.graph.inserting_before(output):
            call = gm.graph.call_function(op, (*output.args[0], *((None, False) if kind == "efficient" else ())))
        call.meta["val"] = tuple(n.meta["val"] for n in output.args[0])
        output.args = (call,)
        return targets(gm).count("clone.default")

    assert attention(32) == copies
    assert attention(20) == 3


def tied_table(h, g, first, a, second, b):
    """The gradients of a table that is the last layer's weight and two embeddings; one embedding's gradient by itself."""

    def looked_up(grad, indices):
        return aten.embedding_dense_backward(grad, indices, 50, -1, False)

    return g.t() @ h + looked_up(a, first) + looked_up(b, second), looked_up(a * 2, second)


def tied_inputs(dtype):
    """Indices that collide, within an embedding and between them."""
    first, second = torch.randint(0, 50, (3, 40)), torch.randint(0, 9, (3, 40))
    a, b = torch.randn(3, 40, 8).to(dtype), torch.randn(3, 40, 8).to(dtype)
    return torch.randn(7, 8).to(dtype), torch.randn(7, 50).to(dtype), first, a, second, b


@pytest.mark.parametrize("executor", ["python", "native"])
def test_gradients_of_a_tied_table_lie_in_one(executor):
    """The product's result takes in both embeddings; nothing else is as large."""
    inputs = tied_inputs(torch.float32)
    gm = traced(tied_table, *inputs)
    names = targets(gm)
    assert names.count("index_put.default") == 2 and names.count("embedding_dense_backward.default") == 1
    artifact = compile_graph(gm, inputs, {"verify": True})
    tables = [i for i in artifact.program.instructions if isinstance(i, Alloc) and i.sizes == (50, 8)]
    assert len(tables) == 1
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact), executor=executor)
    for got, want in zip(run(*inputs), tied_table(*inputs), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_adds_rounded_gradients(dtype):
    """As eager does."""
    assert "index_put.default" not in targets(traced(tied_table, *tied_inputs(dtype)))


def test_rows_of_another_shape_than_the_indices():
    """The op flattens both; neither the rewrite nor the generated kernel takes them for one another."""

    def flat(grad, indices, x):
        return x.cos() + aten.embedding_dense_backward(grad, indices, 50, -1, False)

    inputs = (torch.randn(12, 8), torch.randint(0, 50, (3, 4)), torch.randn(50, 8))
    gm = traced(flat, *inputs)
    assert "index_put.default" not in targets(gm)
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(compile_graph(gm, inputs)))
    torch.testing.assert_close(run(*inputs)[0], flat(*inputs))


def test_a_gradient_that_is_needed_by_itself_is_made():
    """Neither summand may have another use."""

    def both(grad, indices, x):
        table = x.cos()
        found = aten.embedding_dense_backward(grad, indices, 50, -1, False)
        return table + found, found

    inputs = (torch.randn(5, 8), torch.randint(0, 50, (5,)), torch.randn(50, 8))
    assert "index_put.default" not in targets(traced(both, *inputs))
