"""The languages that kernels are written in, as far as the stages before code generation know them.

In: nothing. Out: ``Language`` records. Who writes them stands in ``codegen/languages.py``.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Language:
    """``name`` is that of ``flambeau_runtime``'s ``Library.language``. ``combines``: independent small kernels are written as one, because a launch
    costs more than their work. ``templates``: there are templates for library-sized operations (``ir/templates.py``); ``gemms``: matrix products with epilogues. ``in_grid``: a launch names
    a grid of programs, not a range of iterations that the executor cuts up. ``eighths``: kernels hold floats of 8 bits, on processors that convert them.
    ``exact_products``: templates multiply float32 as float32."""

    name: str
    combines: bool = False
    templates: bool = False
    gemms: bool = False
    in_grid: bool = False
    eighths: bool = False
    exact_products: bool = False


CPP = Language("cpp", templates=True, exact_products=True)
TRITON = Language("triton", combines=True, templates=True, gemms=True, in_grid=True, eighths=True)
