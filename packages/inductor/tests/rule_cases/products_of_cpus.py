"""Cases of the rules for products by what a CPU has for them."""

import torch

from .case import HALVES, LARGE, LINEAR, Case, floats


def integers(rows, terms, columns, dtype=torch.bfloat16):
    """An operand and a weight of 8 bits."""
    return [*floats((rows, terms), dtype=dtype), torch.randint(-128, 128, (columns, terms), dtype=torch.int8)]


WIDE = floats((512,), (16, 256), (256, 512))
ROWS_OF_WEIGHT = floats((512,), (16, 512), (512, 512))

CASES = {
    "scale_of_a_biased_product": Case(
        lambda b, x, w: torch.addmm(b, x, w).view(2, 2, 16) * b,
        LINEAR,
        (
            (lambda b, x, w: torch.addmm(b, x, w).view(4, 4, 4) * b[:4], LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w).t() * b[:4], LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2) * b, LINEAR),
            (lambda b, x, w: torch.addmm(b, x, w) * (b + x[0, 0]), LINEAR),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(0, 2),
    ),
    "scale_of_a_product": Case(
        lambda b, x, w: (x @ w) / (b + 3),
        LINEAR,
        ((lambda b, x, w: (b + 3) / (x @ w), LINEAR), (lambda b, x, w: (x @ w) * b[:1], LINEAR)),
        tolerance=1e-5,
        cuda=False,
        frozen=(0, 2),
    ),
    "biased_product_by_our_kernel": Case(
        lambda b, x, w: torch.addmm(b, x, w.t()),
        ROWS_OF_WEIGHT,
        (
            (lambda b, x, w: torch.addmm(b, x[:4], w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, torch.cat([x] * 5), w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b[:31], x, w[:31].t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x[:, :511], w[:, :511].t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x, w.t(), alpha=2), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b.expand(len(x), len(b)), x, w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x.t().contiguous().t(), w.t()), ROWS_OF_WEIGHT),
            (lambda b, x, w: torch.addmm(b, x, w.t().contiguous()), ROWS_OF_WEIGHT),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=False,
        kernel=True,
    ),
    "product_by_our_kernel": Case(
        lambda b, x, w: x @ w.exp().t(),
        ROWS_OF_WEIGHT,
        ((lambda b, x, w: x.double() @ w.double().t(), ROWS_OF_WEIGHT),),
        tolerance=1e-5,
        cuda=False,
        slow=False,
        kernel=True,
    ),
    "biased_product_with_a_packed_weight": Case(
        lambda b, x, w: torch.addmm(b, x, w),
        WIDE,
        (
            (lambda b, x, w: torch.addmm(b, x[:3], w), WIDE),
            (lambda b, x, w: torch.addmm(b[:255], x, w[:, :255]), WIDE),
            (lambda b, x, w: torch.addmm(b, x, w, alpha=2), WIDE),
            (lambda b, x, w: torch.addmm(b, x, w * x[0, 0]), WIDE),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(0, 2),
        slow=False,
    ),
    "product_with_a_packed_weight": Case(
        lambda b, x, w: x @ w.exp(),
        WIDE,
        ((lambda b, x, w: x.double() @ w.double(), WIDE), (lambda b, x, w: x @ (w + b.sum()), WIDE)),
        tolerance=1e-5,
        cuda=False,
        frozen=(2,),
        slow=False,
    ),
    "biased_product_by_onednn": Case(
        lambda b, x, w: torch.addmm(b, x, w),
        LARGE,
        (
            (lambda b, x, w: torch.addmm(b, x[:3], w), LARGE),
            (lambda b, x, w: torch.addmm(b[:64], x[:128], w[:, :64]), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w, beta=2), LARGE),
            (lambda b, x, w: torch.addmm(b.expand(1024, 512), x, w), LARGE),
            (lambda b, x, w: torch.addmm(b, x, w), [x.double() for x in LARGE]),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=True,
    ),
    "product_by_onednn": Case(
        lambda b, x, w: x @ w.t().contiguous().t(),
        LARGE,
        ((lambda b, x, w: x[:127].t().contiguous().t() @ w, LARGE),),
        tolerance=1e-5,
        cuda=False,
        slow=True,
    ),
    "biased_product_of_bfloat16": Case(
        lambda b, x, w: torch.addmm(b, x, w.t().contiguous().t()),
        HALVES,
        (
            (lambda b, x, w: torch.addmm(b, x, w), HALVES),
            (lambda b, x, w: torch.addmm(b[:4], x[:4], w[:, :4].t().contiguous().t()), HALVES),
        ),
        tolerance=2e-2,
        cuda=False,
    ),
    "product_of_bfloat16": Case(
        lambda b, x, w: x @ w.t().contiguous().t(),
        HALVES,
        ((lambda b, x, w: x.t().contiguous().t() @ w.t().contiguous().t(), HALVES),),
        tolerance=2e-2,
        cuda=False,
    ),
    "biased_product_with_a_turned_weight": Case(
        lambda b, x, w: torch.addmm(b, x, w.t()),
        floats((64,), (16, 64), (64, 64)),
        (
            (lambda b, x, w: torch.addmm(b, x, w), floats((64,), (16, 64), (64, 64))),
            (lambda b, x, w: torch.addmm(b, x, w.t()), floats((256,), (64, 256), (256, 256))),
            # One result a row has nothing beside it.
            (lambda b, x, w: torch.addmm(b, x, w.t()), floats((1,), (16, 64), (1, 64))),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(2,),
    ),
    "product_with_a_turned_weight": Case(
        lambda x, w: torch.mm(x, w.t()),
        floats((16, 64), (64, 64)),
        ((lambda x, w: torch.mm(x, (w * x.sum()).t()), floats((16, 64), (64, 64))),),
        tolerance=1e-5,
        cuda=False,
        frozen=(1,),
    ),
    "product_with_a_weight_of_eight_bits": Case(
        lambda x, w: x @ w.to(x.dtype).t(),
        integers(4, 160, 512),
        (
            (lambda x, w: x @ w.to(x.dtype).t(), integers(9, 160, 512)),
            # The library would read past the end.
            (lambda x, w: x @ w.to(x.dtype).t(), integers(4, 136, 512)),
            (lambda x, w: x @ w.to(x.dtype).t(), integers(4, 160, 64)),
            (lambda x, w: x @ w.to(x.dtype).t(), integers(4, 160, 512, torch.float32)),
            (lambda x, w: x @ w.to(x.dtype), integers(4, 512, 512)),
            (lambda x, w: x @ w.to(x.dtype).t(), [x.t().contiguous().t() for x in integers(4, 160, 512)]),
            (lambda x, w: x @ (w.to(x.dtype) * 2).t(), integers(4, 160, 512)),
        ),
        tolerance=1e-2,
        cuda=False,
    ),
}  # fmt: skip
