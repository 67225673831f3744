"""ATen graph → loop IR. ``run.py`` walks the graph; every other module is one family of rules, loaded here."""

from importlib import import_module

_FAMILIES = (
    "activations", "copies", "depthwise", "factories", "indexing", "joins", "losses", "normalise", "pointwise", "pooling", "random", "reductions",
    "scatters", "views",
)  # fmt: skip
#: Importing a rule module registers its rules.
RULES_LOADED = tuple(import_module(f".{family}", __name__) for family in _FAMILIES)
