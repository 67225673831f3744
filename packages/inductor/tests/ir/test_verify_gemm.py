"""Products that break a rule are refused, with the rule that they break."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from tracing import lowered, traced

from flambeau_inductor.errors import VerifyError
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import Gemm, GemmTile, Window
from flambeau_inductor.ir.text import gemm_text
from flambeau_inductor.ir.verify_gemm import verify_gemm
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.gemms import form_gemms


class _Take:
    """Every product gets a kernel."""

    def considers(self, product):
        return True

    def tile(self, candidate):
        return GemmTile(64, 64, 16, 4, 2)


def convolution():
    """Of three by three, with a bias and ReLU."""
    x, w = (torch.ones(n, 16, h, h).to(memory_format=torch.channels_last) for n, h in ((2, 6), (8, 3)))
    graph = lowered(traced(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), x, w, torch.ones(8)))
    names: set[str] = set()
    (gemm,) = form_gemms(schedule(graph, names=names), graph, _Take(), names).steps
    assert isinstance(gemm, Gemm) and isinstance(gemm.left, Window)
    return gemm


def test_what_keeps_the_rules_passes_and_prints():
    gemm = convolution()
    verify_gemm(gemm)
    assert "windows 3 x 3 of x_1<f32[2, 16, 6, 6; 576, 1, 96, 16] +0>, stride 1 1, padding 1 1" in gemm_text(gemm)


def _body(gemm, **changes):
    return evolve(gemm, body=evolve(gemm.body, **changes))


def _value(gemm, value):
    return _body(gemm, statements=(evolve(gemm.body.statements[0], value=value),))


BROKEN = {
    "a product of": lambda g: evolve(g, right=evolve(g.right, dtype=torch.bfloat16)),
    "operands of sizes": lambda g: evolve(g, right=evolve(g.right, sizes=(1, 143, 8))),
    "other points": lambda g: _body(g, outer=g.body.outer[::-1]),
    "does more than": lambda g: _body(g, statements=(evolve(g.body.statements[0], mode="add"),)),
    "which nobody computes": lambda g: _value(g, sc.reduced("m0", torch.float32)),
    "16 channels in 3 groups": lambda g: evolve(g, left=evolve(g.left, image=g.left.image, groups=3), right=evolve(g.right, sizes=(3, 45, 8))),
    "6 points, where the image has 4": lambda g: evolve(g, left=evolve(g.left, padding=(1, 0))),
}  # fmt: skip


@pytest.mark.parametrize("message", BROKEN)
def test_rules(message):
    broken = BROKEN[message](convolution())
    if "groups" in message:
        broken = _body(broken, outer=tuple(evolve(axis, size=axis.size * n) for axis, n in zip(broken.body.outer, (3, 1), strict=True)))  # fmt: skip
    with pytest.raises(VerifyError, match=message):
        verify_gemm(broken)


def gated():
    """A grouped product of which both halves of the columns are multiplied with each other."""
    given = (torch.ones(8, 16, dtype=torch.bfloat16), torch.ones(3, 48, 16, dtype=torch.bfloat16), torch.ones(3).int())

    def function(x, w, ends):
        gate, up = torch._grouped_mm(x, w.transpose(1, 2), offs=ends).chunk(2, -1)
        return gate * up

    graph = lowered(traced(function, *given))
    names: set[str] = set()
    (gemm,) = form_gemms(schedule(graph, names=names), graph, _Take(), names).steps
    verify_gemm(gemm)
    return gemm


BROKEN_GROUPS = {
    "a second right operand without groups": lambda g: evolve(
        g, offsets=None, right=evolve(g.right, sizes=(1, 16, 24))
    ),
    "3 groups with offsets": lambda g: evolve(g, offsets=evolve(g.offsets, dtype=torch.int64)),
    "terms are in parts": lambda g: evolve(g, tile=evolve(g.tile, parts=2)),
    "right operands that lie otherwise": lambda g: evolve(g, second=evolve(g.second, sizes=(3, 16, 8))),
    "operands of sizes": lambda g: evolve(g, right=evolve(g.right, sizes=(3, 8, 24)), second=None),
    "which nobody computes": lambda g: evolve(g, second=None),
}


@pytest.mark.parametrize("message", BROKEN_GROUPS)
def test_rules_of_groups(message):
    with pytest.raises(VerifyError, match=message):
        verify_gemm(BROKEN_GROUPS[message](gated()))
