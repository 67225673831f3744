"""Cases of the rules for attention, written out or of the library."""

import math

import torch

from .case import Case, floats

aten = torch.ops.aten


def attention(kind, copied):
    """A call of a library's attention in which the operand ``copied`` is a copy of a transposed view."""

    def function(*operands, swapped=True):
        names = ("query", "key", "value")
        views = {
            n: aten.transpose(x, 1, 2) if n == copied and swapped else x for n, x in zip(names, operands, strict=True)
        }
        views[copied] = aten.clone(views[copied], memory_format=torch.contiguous_format)
        more = {"efficient": (None, False), "flash": (), "cudnn": (None, False)}[kind]
        return getattr(aten, f"_scaled_dot_product_{kind}_attention")(*views.values(), *more)[0]

    return function


def attention_case(kind, copied):
    """Heads of 16 are read where they lie, heads of 12 are not aligned."""

    def inputs(width):
        shapes = {n: (2, 8, 4, width) for n in ("query", "key", "value")}
        return [torch.randn((2, 4, 8, width) if n == copied else shape).half() for n, shape in shapes.items()]

    others = [(attention(kind, copied), inputs(12))]
    if kind != "efficient":
        others.append(
            (attention(kind, "query"), [x.half() for x in floats((2, 4, 8, 16), (2, 8, 4, 16), (2, 8, 4, 16))])
        )
    return Case(attention(kind, copied), inputs(16), tuple(others), runs=False)


def written_attention(q, k, v):
    """A softmax over keys, of products in float16."""
    return torch.softmax(q @ k.mT * 0.3, -1) @ v


def attention_with_empty_rows(lowest, dim=2, other=0.0):
    """As torch takes the library's apart."""

    def function(q, k, v):
        scores = q @ k.mT
        shares = torch.softmax(scores, 2)
        return torch.where((scores == lowest).all(dim, keepdim=True), torch.full_like(shares, other), shares) @ v

    return function


def masked_attention(dropped=0.0):
    """Of the library, under a mask that follows from positions, and what is added to it."""

    def function(q, k, v, *bias):
        n = torch.arange(q.shape[2], device=q.device)
        mask = sum(bias, torch.where(n <= n.unsqueeze(-1), 0.0, -torch.inf).to(q.dtype)).expand(1, 2, -1, -1)
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, False, dropped)[0]

    return function


LIBRARY_HEADS = [x.half() for x in floats((1, 2, 32, 16), (1, 2, 32, 16), (1, 2, 32, 16))]
HEADS = [x.half() for x in floats((2, 32, 16), (2, 32, 16), (2, 32, 16))]
SINGLE_HEADS = floats((2, 32, 16), (2, 32, 16), (2, 32, 16))

CASES = {
    "attention_written_out": Case(
        written_attention,
        HEADS,
        (
            (lambda q, k, v: torch.softmax(q @ k.mT, 0) @ v, HEADS),
            (lambda q, k, v: torch.softmax((q @ k.mT).cumsum(-1), -1) @ v, HEADS),
            (lambda q, k, v: (lambda shares: shares @ v + shares.sum())(torch.softmax(q @ k.mT, -1)), HEADS),
            (written_attention, [HEADS[0][:, :8], *HEADS[1:]]),
            (written_attention, [x.float() for x in HEADS]),
            (written_attention, [HEADS[0], *floats((2, 128 * 17, 16), (2, 128 * 17, 16), dtype=torch.float16)]),
        ),
        runs=False,
    ),
    "attention_with_empty_rows": Case(
        attention_with_empty_rows(-math.inf),
        SINGLE_HEADS,
        (
            (attention_with_empty_rows(0.0), SINGLE_HEADS),
            (attention_with_empty_rows(-math.inf, 1), SINGLE_HEADS),
            (attention_with_empty_rows(-math.inf, other=1.0), SINGLE_HEADS),
            (attention_with_empty_rows(-math.inf), [SINGLE_HEADS[0][:, :8], *SINGLE_HEADS[1:]]),
        ),
        cuda=False,
        runs=False,
    ),
    "masked_attention": Case(
        masked_attention(),
        LIBRARY_HEADS,
        (
            (masked_attention(), [*LIBRARY_HEADS, torch.randn(32, 32).half()]),
            (masked_attention(0.1), LIBRARY_HEADS),
            (lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, False, 0.0, True)[0], LIBRARY_HEADS),
            (masked_attention(), [x[:, :, :8] for x in LIBRARY_HEADS]),
        ),
        runs=False,
    ),
    **{
        f"_scaled_dot_product_{kind}_attention_reads_{name}": attention_case(kind, name)
        for kind, names in {"flash": ("key", "value"), "efficient": ("query", "key", "value"), "cudnn": ("key", "value")}.items()
        for name in names
    },
}  # fmt: skip
