"""Both ways of a candidate are programs that compute the same from the same inputs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from tracing import lowered, traced

from flambeau_inductor.autotune import measure
from flambeau_inductor.config import Config
from flambeau_inductor.ir.kernel import GemmTile
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.gemms import form_gemms
from flambeau_runtime import Store, load

TILES = [GemmTile(16, 64, 32, 4, 2), GemmTile(64, 64, 32, 4, 2)]


class Measured:
    """Measures every product, and leaves it to the library."""

    def __init__(self, config):
        self.config, self.found = config, []

    def considers(self, product):
        return True

    def tile(self, candidate):
        self.found.append(measure.measured_tile(candidate, TILES, self.config))


def test_programs(monkeypatch):
    programs, config = [], Config(cpu_backend="triton")

    def time_apart(given, *, device, store):
        programs.extend(given)
        return [3.0, 2.0, 1.0]

    store = Store(None)
    monkeypatch.setattr(measure, "time_apart", time_apart)
    monkeypatch.setattr(measure, "default_store", lambda: store)
    x, w, b, y = torch.randn(20, 32), torch.randn(24, 32), torch.randn(24), torch.randn(20, 24)
    graph = lowered(traced(lambda x, w, b, y: F.gelu(F.linear(x, w, b)) + y, x, w, b, y))
    names: set[str] = set()
    choose = Measured(config)
    form_gemms(schedule(graph, names=names), graph, choose, names)
    found = choose.found
    assert found == [TILES[1]]
    values = {"x_1": x, "w_1": w, "b_1": b, "y_1": y}
    results = [load(program)(*(values[spec.name] for spec in program.program.inputs)) for program in programs]
    assert len(results) == 3
    for (result,) in results:
        torch.testing.assert_close(result, F.gelu(F.linear(x, w, b)) + y, rtol=1e-4, atol=1e-4)
