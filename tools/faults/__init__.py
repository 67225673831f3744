"""Seeded faults that `flambeau bisect` has to name and `flambeau minify` has to shrink.

In: `table.py`, small edits of our sources with a program in which each shows. Out: the table of `python -m tools.faults`, and `docs/seeded-faults.md`.
"""
