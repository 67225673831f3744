"""The extension module ``_C``, and the check that it fits this torch.

In: nothing. Out: ``extension()``, the module with the configuration's limits set.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from .config import Config
from .errors import ExtensionError


@functools.cache
def extension() -> Any:
    """The module ``_C``. Raises ``ExtensionError`` when it is missing or was built for another torch."""
    try:
        module: Any = importlib.import_module("._C", __package__)
    except ImportError as error:
        raise ExtensionError(f"flambeau_runtime._C cannot be imported: {error}") from error
    if torch.__version__ != module.TORCH_VERSION:
        raise ExtensionError(
            f"flambeau_runtime._C was built for torch {module.TORCH_VERSION}, this is {torch.__version__}"
        )
    config = Config.from_environment()
    module.set_idle_memory_limit(config.idle_memory_bytes)
    module.set_cuda_driver(config.cuda_driver)
    return module
