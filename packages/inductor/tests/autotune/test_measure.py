"""All ways of a candidate are programs that compute the same from the same inputs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from rounding import with_tf32
from tracing import lowered, traced

from flambeau_inductor.autotune.products import question_of
from flambeau_inductor.config import Config
from flambeau_inductor.ir.kernel import GemmTile
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.gemms import form_gemms
from flambeau_runtime import load

TILES = [GemmTile(16, 64, 32, 4, 2), GemmTile(64, 64, 32, 4, 2)]


class Asked:
    """Asks about every product, and leaves it to the library."""

    def __init__(self):
        self.candidates = []

    def considers(self, product):
        return True

    def tile(self, candidate):
        self.candidates.append(candidate)


def test_programs():
    config, asked = Config(cpu_backend="triton"), Asked()
    x, w, b, y = torch.randn(20, 32), torch.randn(24, 32), torch.randn(24), torch.randn(20, 24)
    graph = lowered(traced(lambda x, w, b, y: F.gelu(F.linear(x, w, b)) + y, x, w, b, y))
    names: set[str] = set()
    form_gemms(schedule(graph, names=names), graph, asked, names)
    (candidate,) = asked.candidates
    question = question_of(candidate, TILES, config)
    assert question.ways == (None, *TILES)
    programs = [question.program(way) for way in question.ways]
    values = {"x_1": x, "w_1": w, "b_1": b, "y_1": y}
    results = [load(program)(*(values[spec.name] for spec in program.program.inputs)) for program in programs]
    assert len(results) == 3
    # The library of the CPU, which stands in here, does not round.
    products = (F.linear(x, w, b), *(with_tf32(F.linear, x, w, b) for _ in TILES))
    for (result,), product in zip(results, products, strict=True):
        torch.testing.assert_close(result, F.gelu(product) + y, rtol=1e-4, atol=1e-4)
