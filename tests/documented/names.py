"""How a program that was written for torch.compile becomes one for flambeau: its names are replaced, nothing else.

In: the text of a program. Out: the same text under flambeau's names, line for line. The table is that of `docs/guide/migration.md`.
"""

from __future__ import annotations

import re

#: torch's name -> ours. Where one begins another, the longer one counts.
NAMES = {
    "torch.compile": "flambeau.compile",
    "torch.compiler": "flambeau.compiler",
    "torch._dynamo": "flambeau.compiler",
    "torch._dynamo.explain": "flambeau.explain",
    "torch._dynamo.testing": "flambeau.testing",
    "torch._dynamo.utils": "flambeau.compiler",
    "torch._dynamo.exc.Unsupported": "flambeau.errors.GraphBreakError",
    "torch._dynamo.backends.common": "flambeau.backends",
    "torch._inductor": "flambeau.inductor",
    "torch._logging": "flambeau.compiler",
    "TORCH_LOGS": "FLAMBEAU_LOGS",
    "TORCH_TRACE": "FLAMBEAU_TRACE",
    "TORCH_COMPILE_DISABLE": "FLAMBEAU_DISABLE",
    "TORCHDYNAMO_REPRO_AFTER": "FLAMBEAU_REPRO_AFTER",
    "TORCHDYNAMO_REPRO_LEVEL": "FLAMBEAU_REPRO_LEVEL",
    "TORCHINDUCTOR_CACHE_DIR": "FLAMBEAU_CACHE_DIR",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "FLAMBEAU_FORCE_DISABLE_CACHES",
}
_ANY = re.compile(
    r"(?<![\w.])(" + "|".join(re.escape(name) for name in sorted(NAMES, key=len, reverse=True)) + r")(?!\w)"
)
_IMPORT = re.compile(r"^import torch$", re.MULTILINE)


def renamed(text: str) -> str:
    """The program under our names; `import torch` imports flambeau too."""
    return _IMPORT.sub("import torch, flambeau", _ANY.sub(lambda match: NAMES[match[1]], text))
