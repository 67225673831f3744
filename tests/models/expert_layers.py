"""The layers of experts of transformers, made small: each class that loops over the experts that have tokens.

In: the form in which experts are computed (`eager`, the loop; `grouped_mm`; `batched_mm`). Out: `layers`, a layer for each class, with random weights; `scores` of tokens of which
`topk` chooses so that each expert has some, one has none, or one has all.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from tools.capture_sweep.transformers_models import _small
from torch import Tensor, nn

FORMS = ("eager", "grouped_mm", "batched_mm")
ROUTINGS = ("some", "none", "one")
_TOKENS = 12
#: What experts call the numbers that they are given with the tokens.
_CHOSEN = ("top_k_index", "router_indices")


class Layer(nn.Module):
    """Experts behind a choice."""

    def __init__(self, experts: Any, ranks: int) -> None:
        super().__init__()
        self.experts, self.ranks = experts, ranks

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        weights, chosen = torch.topk(scores, self.ranks, dim=-1)
        found: Tensor = self.experts(x, chosen, weights)
        return found

    @property
    def sizes(self) -> tuple[int, int]:
        """How many experts, and how wide a token is."""
        experts = self.experts
        width = getattr(experts, "hidden_size", None) or getattr(experts, "hidden_dim", None) or 32
        return experts.num_experts, width


def kinds() -> list[str]:
    """The names of models whose experts loop so."""
    from transformers import models

    found = sorted(info.name for info in pkgutil.iter_modules(models.__path__) if info.ispkg)
    return [kind for kind in found if (module := _modeling(kind)) is not None and _classes(module)]


def layers(kind: str, form: str, ranks: int) -> Iterator[Layer]:
    """A layer of each class of experts of this kind of model that a small configuration makes."""
    module = _modeling(kind)
    for cls in [] if module is None else _classes(module):
        made = next((experts for config in _configurations(kind) if (experts := _made(cls, config, form))), None)
        if made is not None:
            layer = Layer(made, ranks)
            for parameter in layer.parameters():
                nn.init.normal_(parameter, std=0.2)
            if layer.sizes[0] >= ranks:
                yield layer


def operands(layer: Layer, routing: str) -> tuple[Tensor, Tensor]:
    """Tokens and scores."""
    experts, width = layer.sizes
    scores = torch.randn(_TOKENS, experts).softmax(-1)
    if routing != "some":
        scores[:, 0] = -1 if routing == "none" else 2
    return torch.randn(_TOKENS, width), scores


def _modeling(kind: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    except ImportError:
        return None


def _classes(module: ModuleType) -> list[Any]:
    own = [cls for cls in vars(module).values() if inspect.isclass(cls) and cls.__module__ == module.__name__]
    experts = [cls for cls in own if issubclass(cls, nn.Module) and cls.__name__.endswith("Experts")]
    sources = {cls: inspect.getsource(cls) for cls in experts}
    return [cls for cls, text in sources.items() if "hit:" in text and any(name in text for name in _CHOSEN)]


def _configurations(kind: str) -> Iterator[Any]:
    from transformers import CONFIG_MAPPING, PretrainedConfig

    for cls in [each for each in CONFIG_MAPPING.values() if each.__module__.split(".")[2] == kind]:
        try:
            small = _small(cls, {})
        except Exception:
            continue
        yield small
        yield from (part for part in vars(small).values() if isinstance(part, PretrainedConfig))


def _made(cls: Any, config: Any, form: str) -> Any:
    try:
        config._experts_implementation = form
        return cls(config)
    except (AttributeError, TypeError):
        return None
