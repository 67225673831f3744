"""Sweeps of random programs: a seed gives the text of a program, which must do compiled what it does in plain Python.

`python -m tests.sweeps tensors --seed 100 --count 500` runs fresh ones; `nox -s sweep` runs all three. Read `program.py`, then `run.py`.
"""
