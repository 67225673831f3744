"""Methods of arrays that have no rule: they break the graph.

In: the modules that have rules. Out: a replacement for each of the other methods.
"""

from __future__ import annotations

from ...numpy_classes import ARRAY
from ...replacements import find
from ...values.members import NATIVE_METHODS
from . import constants, contents, exchange, products, reductions, shapes, ufuncs
from .calls import only_folds

__all__ = ["constants", "contents", "exchange", "products", "reductions", "shapes", "ufuncs"]

only_folds(*(member for member in vars(ARRAY).values() if isinstance(member, NATIVE_METHODS) and find(member) is None))
