"""Methods of arrays and ufuncs that have no rule: they are computed where everything is known, and break the graph elsewhere.

In: the modules that have rules. Out: a replacement for each of the others.
"""

from __future__ import annotations

from ...numpy_classes import ARRAY, numpy
from ...replacements import find
from ...values.members import NATIVE_METHODS
from . import constants, contents, exchange, products, reductions, shapes, ufuncs
from .calls import only_folds

__all__ = ["constants", "contents", "exchange", "products", "reductions", "shapes", "ufuncs"]

only_folds(*(member for member in vars(ARRAY).values() if isinstance(member, NATIVE_METHODS) and find(member) is None))
only_folds(*{found for found in vars(numpy).values() if isinstance(found, numpy.ufunc) and find(found) is None})
