"""Functions that are computed where everything is known: facts of dtypes, arrays made of numbers, tables.

In: a call. Out: what NumPy gives. Such an array is the trace's own as long as no tensor is written to it (`values/ndarrays.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...numpy_classes import DTYPES, numpy
from ...replacements import replaces
from ...values.constants import ConstantValue
from ...values.ndarrays import ArrayValue
from ...values.sequences import SequenceValue
from ...values.symbolic import SymbolicValue
from ...values.tensor import TensorValue
from .calls import only_folds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...values.base import Tracer, Value

_NAMES = (
    "arange", "linspace", "logspace", "geomspace", "zeros", "ones", "full", "empty", "eye", "identity", "tri", "indices", "hanning", "hamming", "blackman",
    "bartlett", "kaiser", "interp", "result_type", "promote_types", "can_cast", "min_scalar_type", "issubdtype", "iscomplexobj", "isrealobj",
    "unravel_index", "ravel_multi_index", "broadcast_shapes", "diag_indices", "tril_indices", "triu_indices", "polyval", "vander", "array_equal", "allclose",
    "isclose", "cross", "kron", "digitize", "histogram", "bincount", "unique", "nonzero", "flatnonzero", "argwhere", "setdiff1d", "union1d", "intersect1d",
    "isin", "median", "percentile", "quantile", "nansum", "nanmean", "nanmax", "nanmin", "cov", "corrcoef", "convolve", "gradient", "sinc", "fix",
    "nan_to_num", "angle", "unwrap", "meshgrid", "ix_", "pad", "average", "append", "base_repr", "binary_repr", "common_type", "correlate", "delete", "ediff1d",
    "histogram_bin_edges", "i0", "insert", "iscomplex", "isdtype", "isneginf", "isposinf", "isreal", "lexsort", "mintypecode", "nanargmax", "nanargmin", "nancumprod",
    "nancumsum", "nanmedian", "nanprod", "nanstd", "nanvar", "poly", "polyadd", "polyder", "polyfit", "polyint", "polymul", "polysub", "roots", "searchsorted",
    "setxor1d", "trapezoid", "tril_indices_from", "triu_indices_from", "vdot",
)  # fmt: skip
_LINEAR_ALGEBRA = (
    "cholesky", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_power", "matrix_rank", "multi_dot", "pinv", "qr", "slogdet", "solve",
    "svd", "tensorinv", "tensorsolve",
)  # fmt: skip
only_folds(*(getattr(numpy, name) for name in _NAMES), *(getattr(numpy.linalg, name) for name in _LINEAR_ALGEBRA))


@replaces(numpy.isscalar)
def is_scalar(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """A question about the class: no number is looked at."""
    value = args[0]
    if isinstance(value, ArrayValue):
        return ConstantValue(value.is_scalar)
    if isinstance(value, (TensorValue, SequenceValue)):
        return ConstantValue(False)
    if isinstance(value, SymbolicValue):
        return ConstantValue(True)
    return t.folder.fold(numpy.isscalar, args, kwargs)


only_folds(numpy.dtype, numpy.finfo, numpy.iinfo, *(dtype.type for dtype in DTYPES))
