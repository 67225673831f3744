"""State of torch that programs read and write: gradients, hooks, modes, defaults; and functions seldom met."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Independent, Normal, kl_divergence
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..engines import inner_compile
from ..registry import Made, program

SECTION = "torch state and rest"


@program(SECTION)
def gradient_attribute_read() -> Made:
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.full((3,), 2.0)
    return lambda x: x * w.grad + w.detach(), [(torch.randn(3),)], w


@program(SECTION)
def gradient_attribute_written() -> Made:
    w = nn.Parameter(torch.ones(3))

    def f(x: Tensor) -> Tensor:
        w.grad = x * 2
        w.grad.add_(1)
        return w.grad.sum()

    return f, [(torch.randn(3),), (torch.randn(3),)], w


@program(SECTION)
def gradients_set_to_none() -> Made:
    layer = nn.Linear(3, 2)
    layer.weight.grad = torch.ones(2, 3)

    def f(x: Tensor) -> Tensor:
        for p in layer.parameters():
            if p.grad is not None:
                p.grad = None
        return layer(x)

    return f, [(torch.randn(2, 3),)], layer


@program(SECTION)
def tensor_hook_on_an_intermediate() -> Made:
    def f(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda g: g * 2)
        return y * y

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def tensor_hook_recording_gradients() -> Made:
    seen: list[Tensor] = []

    def f(x: Tensor) -> Tensor:
        y = x * 3
        y.register_hook(seen.append)
        return y.exp()

    return f, [(torch.randn(3, requires_grad=True),)], seen


@program(SECTION)
def tensor_hook_on_an_input() -> Made:
    def f(x: Tensor) -> Tensor:
        x.register_hook(lambda g: g.clamp(-1, 1))
        return (x * 5).sum()

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def module_hooks_before_and_after() -> Made:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model.register_forward_hook(lambda module, args, out: out + 1)
    return model, [(torch.randn(2, 3),)]


@program(SECTION)
def retained_gradient_of_an_intermediate() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        y.retain_grad()
        return y, (y * 2).sum()

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def sdpa_kernel_chosen() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return f, [tuple(torch.randn(1, 2, 4, 8) for _ in range(3))]


@program(SECTION)
def sdpa_kernels_in_order() -> Made:
    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
            return F.scaled_dot_product_attention(q, k, v) + 1

    return f, [tuple(torch.randn(1, 2, 4, 8) for _ in range(3))]


@program(SECTION)
def cpu_autocast_by_its_old_name() -> Made:
    layer = nn.Linear(3, 3)

    def f(x: Tensor) -> Tensor:
        with torch.cpu.amp.autocast(dtype=torch.bfloat16):
            return layer(x) + 1

    return f, [(torch.randn(2, 3),)], layer


@program(SECTION)
def autocast_nested_off() -> Made:
    def f(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = a @ b
            with torch.autocast("cpu", enabled=False):
                high = low.float() @ b
        return low, high

    return f, [(torch.randn(3, 3), torch.randn(3, 3))]


@program(SECTION)
def autocast_decorator() -> Made:
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def inner(a: Tensor) -> Tensor:
        return a @ a

    return lambda a: inner(a).float() + a, [(torch.randn(3, 3),)]


@program(SECTION)
def tensor_new_of_a_size() -> Made:
    return lambda x: x.new(x.size(0), 2).fill_(3) + x.new([1.0, 2.0]), [(torch.randn(4),)]


@program(SECTION)
def tensor_constructor_by_type() -> Made:
    return lambda x: x * torch.FloatTensor([1.0, 2.0, 3.0]) + torch.Tensor(3).zero_(), [(torch.randn(3),)]


@program(SECTION)
def jit_annotations() -> Made:
    def f(x: Tensor) -> Tensor:
        parts = torch.jit.annotate(list[Tensor], [])
        for i in range(2):
            parts.append(x * i)
        if torch.jit.is_scripting():
            return x
        return torch.stack(parts)

    return f, [(torch.randn(3),)]


@program(SECTION)
def scripted_function_called() -> Made:
    scripted = torch.jit.script(_gelu_like)
    return lambda x: scripted(x * 2) + 1, [(torch.randn(3),)]


def _gelu_like(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


@program(SECTION)
def compiled_inside_compiled() -> Made:
    inner = inner_compile(lambda x: x.sin() * 2)
    return lambda x: inner(x + 1).cos(), [(torch.randn(3),)]


@program(SECTION)
def compiled_module_inside_compiled() -> Made:
    inner = inner_compile(nn.Linear(3, 3))
    return lambda x: inner(x).relu() + x, [(torch.randn(2, 3),)], list(inner.parameters())


@program(SECTION)
def assert_on_a_tensor() -> Made:
    def f(x: Tensor) -> Tensor:
        assert (x > 0).all(), "must be positive"
        return x.log()

    return f, [(torch.rand(3) + 1,)]


@program(SECTION, raises=True)
def asynchronous_assert() -> Made:
    def f(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all(), "must be positive")
        return x.log()

    return f, [(torch.ones(3),), (-torch.ones(3),)]


@program(SECTION)
def torch_assert_of_shapes() -> Made:
    def f(x: Tensor) -> Tensor:
        torch._assert(x.shape[-1] % 2 == 0, "even width")
        a, b = x.chunk(2, -1)
        return a * b.sigmoid()

    return f, [(torch.randn(3, 4),)]


@program(SECTION)
def distribution_sampled_and_scored() -> Made:
    def f(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        d = Normal(mean, std)
        x = d.rsample()
        return x, d.log_prob(x) + d.entropy()

    return f, [(torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True))]


@program(SECTION)
def distribution_with_validation() -> Made:
    def f(logits: Tensor) -> tuple[Tensor, Tensor]:
        d = Categorical(logits=logits, validate_args=True)
        action = d.sample()
        return action, d.log_prob(action)

    return f, [(torch.randn(4, 3, requires_grad=True),)]


@program(SECTION)
def divergence_of_distributions() -> Made:
    def f(m: Tensor, s: Tensor) -> Tensor:
        q = Independent(Normal(m, s.exp()), 1)
        return kl_divergence(q, Independent(Normal(torch.zeros_like(m), torch.ones_like(s)), 1))

    return f, [(torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True))]


@program(SECTION, raises=True)
def distribution_refusing_its_arguments() -> Made:
    return lambda p: Bernoulli(probs=p, validate_args=True).sample() + 1, [(torch.rand(3),), (torch.rand(3) + 2,)]


@program(SECTION)
def masked_part_scaled_in_place() -> Made:
    def f(x: Tensor, mask: Tensor) -> Tensor:
        z = x * 2
        z[mask] *= -1
        return z

    return f, [(torch.randn(4, requires_grad=True), torch.tensor([True, False, True, False]))]


@program(SECTION)
def augmented_slices() -> Made:
    def f(x: Tensor) -> Tensor:
        z = x.clone()
        z[1:] += z[:-1].clone()
        z[..., 0] -= 1
        z[[0, 2]] **= 2
        return z

    return f, [(torch.randn(4, 3),)]


@program(SECTION)
def default_dtype_set_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        try:
            return x + torch.ones(3) * 0.1
        finally:
            torch.set_default_dtype(torch.float32)

    return f, [(torch.randn(3),)]


@program(SECTION)
def deterministic_algorithms_set_inside() -> Made:
    def f(x: Tensor, ids: Tensor) -> Tensor:
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        out = torch.zeros(3).index_add(0, ids, x)
        torch.use_deterministic_algorithms(before)
        return out

    return f, [(torch.randn(4), torch.tensor([0, 1, 1, 2]))]


@program(SECTION)
def inference_mode_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.inference_mode():
            y = x.sin() + 1
        return y.clone()

    return f, [(torch.randn(3),)]


@program(SECTION)
def grad_mode_functions() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.set_grad_enabled(False):
            a = x * 2
        torch.set_grad_enabled(True)
        return a, x * 3 if torch.is_grad_enabled() else x

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def seed_set_inside() -> Made:
    def f(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        return x + torch.rand(3)

    return f, [(torch.zeros(3),), (torch.zeros(3),)]


@program(SECTION)
def generator_argument() -> Made:
    generator = torch.Generator().manual_seed(3)
    return lambda x: x + torch.rand(3, generator=generator), [(torch.zeros(3),), (torch.zeros(3),)]


@program(SECTION)
def rng_forked() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.random.fork_rng():
            noise = torch.randn_like(x)
        return x + noise + torch.rand_like(x)

    return f, [(torch.zeros(3),)]


@program(SECTION)
def padding_to_a_multiple() -> Made:
    def f(x: Tensor) -> Tensor:
        extra = -x.shape[-1] % 4
        return F.pad(x, (0, extra)).unflatten(-1, (-1, 4)).sum(-1)

    return f, [(torch.randn(2, 5),), (torch.randn(2, 7),), (torch.randn(2, 10),)]


@program(SECTION)
def padding_by_reflection() -> Made:
    def f(x: Tensor) -> Tensor:
        p = x.shape[-1] // 2
        return F.pad(x, (p, p), mode="reflect")

    return f, [(torch.randn(1, 1, 5),), (torch.randn(1, 1, 7),), (torch.randn(1, 1, 8),)]


@program(SECTION)
def interpolation_to_a_size() -> Made:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return F.interpolate(x, size=y.shape[-2:], mode="bilinear", align_corners=False) + y

    return f, [(torch.randn(1, 1, n, n), torch.randn(1, 1, 2 * n, 2 * n)) for n in (3, 4, 5)]


@program(SECTION)
def interpolation_by_a_factor() -> Made:
    return lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), [(torch.randn(1, 2, n, n),) for n in (3, 4, 5)]


@program(SECTION)
def parametrized_weight() -> Made:
    layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    return layer, [(torch.randn(2, 3),)]


@program(SECTION)
def spectral_norm_updates_buffers() -> Made:
    layer = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    return layer, [(torch.randn(2, 3),), (torch.randn(2, 3),)]


@program(SECTION)
def buffers_registered_and_replaced() -> Made:
    class Ema(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
            return x - self.mean

    return Ema(), [(torch.randn(4, 3),), (torch.randn(4, 3),)]


@program(SECTION)
def saved_tensor_hooks_packing() -> Made:
    def f(x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to(torch.float64), lambda t: t.to(torch.float32)):
            return x.sin() * x.exp()

    return f, [(torch.randn(3, requires_grad=True),)]


@program(SECTION)
def version_and_data_attributes() -> Made:
    def f(x: Tensor) -> tuple[Tensor, Any]:
        y = x * 1
        y.data.mul_(2)
        return y, (y.is_leaf, y.layout is torch.strided, y.element_size())

    return f, [(torch.randn(3),)]


@program(SECTION)
def finfo_and_dtype_arithmetic() -> Made:
    def f(x: Tensor) -> Tensor:
        low = torch.finfo(x.dtype).min
        kind = torch.promote_types(x.dtype, torch.int64)
        return x.masked_fill(x < 0, low).to(kind)

    return f, [(torch.randn(3),), (torch.randn(3, dtype=torch.bfloat16),)]


@program(SECTION)
def lazily_shaped_module() -> Made:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    return model, [(torch.randn(2, 3),), (torch.randn(2, 3),)]


@program(SECTION)
def einsum_and_rearrangement() -> Made:
    def f(q: Tensor, k: Tensor) -> Tensor:
        scores = torch.einsum("bhid,bhjd->bhij", q, k)
        return scores.movedim(1, -1).flatten(1, 2).softmax(-1)

    return f, [(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4))]
