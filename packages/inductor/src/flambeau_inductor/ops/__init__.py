"""What ops are: ``table.py`` has the scalar ops that loop bodies are made of, ``aten.py`` the record of each ATen op."""

from . import aten_table

#: Importing the table gives the registry of ``aten.py`` its rows.
ROWS_LOADED = aten_table
