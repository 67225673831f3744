"""What to do instead of calling a function whose body is not to be traced: importing this package fills the table in `registry`."""

from . import (
    autograd,
    builtins,
    containers,
    context_managers,
    control_flow,
    devices,
    flex_attention,
    iteration,
    messages,
    normalisation,
    operators,
    optimizers,
    sizes,
    stdlib,
    supers,
    torch_state,
)

__all__ = [
    "autograd",
    "builtins",
    "containers",
    "context_managers",
    "control_flow",
    "devices",
    "flex_attention",
    "iteration",
    "messages",
    "normalisation",
    "operators",
    "optimizers",
    "sizes",
    "stdlib",
    "supers",
    "torch_state",
]
