"""ATen graph → loop IR. ``run.py`` walks the graph; every other module is one family of rules, loaded here."""

from . import (
    activations,
    copies,
    factories,
    indexing,
    joins,
    losses,
    normalise,
    pointwise,
    random,
    reductions,
    scatters,
    views,
)

#: Importing a rule module registers its rules; naming them here keeps the imports from looking unused.
RULES_LOADED = (
    activations,
    copies,
    factories,
    indexing,
    joins,
    losses,
    normalise,
    pointwise,
    random,
    reductions,
    scatters,
    views,
)
