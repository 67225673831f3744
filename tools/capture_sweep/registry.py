"""All architectures of the libraries that are installed, by name."""

from __future__ import annotations

import importlib.util

from . import timm_models, transformers_models
from .architecture import Architecture

_LIBRARIES = {"transformers": transformers_models, "timm": timm_models}


def all_architectures() -> dict[str, Architecture]:
    """Those of `transformers`, then those of `timm`."""
    here = [module for name, module in _LIBRARIES.items() if importlib.util.find_spec(name)]
    return {each.name: each for module in here for each in module.architectures()}
