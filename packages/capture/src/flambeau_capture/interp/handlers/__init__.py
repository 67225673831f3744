"""One module a family of instructions; importing this package fills the table in `interp.registry`."""

from . import (
    attributes,
    branches,
    calling,
    containers,
    contexts,
    exceptions,
    functions,
    generators,
    matching,
    operators,
    stack,
    variables,
)

__all__ = [
    "attributes", "branches", "calling", "containers", "contexts", "exceptions", "functions", "generators", "matching", "operators",
    "stack", "variables",
]  # fmt: skip
