"""Cases of the rules for products: their biases, activations, roundings and parts."""

import torch
import torch.nn.functional as F

from .case import HALVES, LARGE, LINEAR, Case, floats

aten = torch.ops.aten


def linear(b, x, w):
    return torch.ops.mkldnn._linear_pointwise(x, w.t().contiguous(), b, "none", [], "")


def activated(function):
    """A case of an activation behind the library's linear layer, in one rounding."""
    other = (lambda b, x, w: (lambda y: function(y) + y)(linear(b, x, w)), HALVES)
    return Case(
        lambda b, x, w: function(linear(b, x, w)), HALVES, (other,), {"numerics": "fast"}, tolerance=2e-2, cuda=False
    )


CASES = {
    "gelu_of_a_linear": activated(F.gelu),
    "swish_of_a_linear": activated(F.silu),
    "sigmoid_of_a_linear": activated(torch.sigmoid),
    "tanh_of_a_linear": activated(torch.tanh),
    "bias_of_a_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).relu(),
        LARGE,
        (
            (lambda b, x, w: torch.addmm(b, x, w).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w, beta=2).relu(), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w) @ w.t(), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), [x.half() for x in LARGE]),
            (lambda b, x, w: torch.addmm(b.expand(1024, 512), x, w).relu(), LARGE),
        ),
        tolerance=1e-5,
    ),
    "bias_behind_a_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).view(32, 32, 512).relu(),
        LARGE,
        (
            (lambda b, x, w: torch.addmm(b, x, w).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2).relu(), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), [x.double() for x in LARGE]),
            (lambda b, x, w: torch.addmm(b.expand(1024, 512), x, w).relu(), LARGE),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=False,
    ),
    "rounded_product": Case(
        lambda g, x: g.t() @ x,
        floats((1536, 1540), (1536, 1400)),
        (
            (lambda g, x: g.t() @ x, floats((1536, 1024), (1536, 1024))),
            (lambda g, x: g.t() @ x, floats((512, 1540), (512, 1400))),
            (lambda g, x: g.t() @ x, floats((1538, 1540), (1538, 1400))),
            (lambda g, x: g.t() @ x, floats((1536, 1540), (1536, 1400), dtype=torch.bfloat16)),
            (lambda g, x: g @ x, floats((1540, 1536), (1536, 1400))),
            (lambda g, x: g.t() @ x.t(), floats((1536, 1540), (1400, 1536))),
        ),
        tolerance=1e-4,
        rounds=True,
    ),
    "rounded_biased_product": Case(
        lambda s, g, x: torch.addmm(s, g.t(), x),
        floats((1400, 1540), (1536, 1400), (1536, 1540)),
        ((lambda s, g, x: torch.addmm(s, g.t(), x), floats((1540,), (1536, 1024), (1536, 1540))),),
        tolerance=1e-4,
        rounds=True,
    ),
    "product_in_parts": Case(
        lambda x, w: (x @ w).relu(),
        floats((16, 512), (512, 48)),
        (
            (lambda x, w: (x @ w).relu(), floats((16, 384), (384, 48))),
            (lambda x, w: (x @ w).relu(), floats((200, 512), (512, 48))),
            (lambda x, w: (x @ w) @ w.t(), floats((16, 512), (512, 48))),
            (lambda x, w: (x @ w).relu(), floats((16, 512), (512, 48), dtype=torch.bfloat16)),
            (lambda x, w: (x.t() @ w).relu(), floats((512, 16), (512, 48))),
            (lambda x, w: (x @ aten.slice.Tensor(w.exp(), 1, 0, 96, 2)).relu(), floats((16, 512), (512, 96))),
        ),
        tolerance=1e-5,
    ),
    "relu_of_a_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).relu(),
        LINEAR,
        (
            (lambda b, x, w: (lambda y: y.relu() + y)(torch.addmm(b, x, w)), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b.expand(4, 16), x, w).relu(), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), [x.double() for x in LINEAR]),
            (lambda b, x, w: (x @ w).relu(), LINEAR),
            (lambda b, x, w: (lambda y: y.view(2, 2, 16).relu() + y.sum())(torch.addmm(b, x, w)), LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w).t().relu(), LINEAR),
        ),
    ),
    "gelu_of_a_product": Case(
        lambda b, x, w: F.gelu(torch.addmm(b, x, w), approximate="tanh"),
        LINEAR,
        ((lambda b, x, w: F.gelu(torch.addmm(b, x, w)), LINEAR),),
        options={"numerics": "fast"},
        tolerance=2e-3,
    ),
}  # fmt: skip
