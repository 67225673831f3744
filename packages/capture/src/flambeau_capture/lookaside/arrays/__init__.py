"""NumPy's functions and methods: importing this package fills the table in `replacements`; without NumPy, with nothing."""

from ...numpy_classes import numpy

if numpy is not None:
    from . import rest as rest
