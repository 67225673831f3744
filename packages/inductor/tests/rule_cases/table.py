"""Graphs for the rules of `rewrite/`: for each rule one that it rewrites, and others like it that it must leave alone.

In: the families, a module each. Out: `CASES`, by the name of the rule. `rewrite/test_rules.py` runs them.
"""

from . import attention, cells, convolutions, embedding_gradients, layouts, products, products_of_cpus

FAMILIES = (attention, cells, convolutions, embedding_gradients, layouts, products, products_of_cpus)
CASES = {name: case for family in FAMILIES for name, case in family.CASES.items()}
assert len(CASES) == sum(len(family.CASES) for family in FAMILIES), "a rule has its case in two families"
