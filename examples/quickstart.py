"""The first program: compile a function and a module, look at what happened.

Run it with `python examples/quickstart.py`.
"""

from __future__ import annotations

import torch

import flambeau


@flambeau.compile
def normalise(x: torch.Tensor) -> torch.Tensor:
    """Shape (n, d), rows brought to mean 0 and variance 1: one kernel instead of six operators."""
    x = x - x.mean(dim=-1, keepdim=True)
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


def main() -> None:
    """Compare both with eager and print the report of a compilation."""
    torch.manual_seed(0)
    x = torch.randn(64, 128)
    torch.testing.assert_close(normalise(x), normalise.__wrapped__(x))

    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))
    compiled = flambeau.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    print("same class:", isinstance(compiled, torch.nn.Sequential), "- same keys:", list(compiled.state_dict())[:2])

    print(flambeau.explain(model)(x))


if __name__ == "__main__":
    main()
