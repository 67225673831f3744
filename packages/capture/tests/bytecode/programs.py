"""Code objects of other people's modules: every function in a slice of the standard library and of torch.nn."""

from __future__ import annotations

import importlib.util
from types import CodeType

LIBRARY = (
    "argparse",
    "asyncio.base_events",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "json.decoder",
    "tarfile",
    "traceback",
    "typing",
    "unittest.mock",
)
TORCH = ("torch.nn.modules.module", "torch.nn.modules.activation", "torch.nn.modules.rnn")


def codes_of(module: str) -> list[CodeType]:
    """All code objects of a module's source, compiled now."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        top = compile(file.read(), spec.origin, "exec", dont_inherit=True)
    found = [top]
    for code in found:
        found.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return found
