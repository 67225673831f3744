"""`flambeau.inductor`: what programs reach under `torch._inductor`.

In: names and values of options. Out: `config`, whose assignments and patches are the defaults of `options={...}`, and the listings.
"""

from __future__ import annotations

from .defaults import inductor_config as config
from .options import list_mode_options, list_options

__all__ = ["config", "list_mode_options", "list_options"]
