"""Seeded faults, and whether the tests notice them: `python -m tools.mutants`, or `nox -s mutants`.

In: the sources of the five packages. Out: each fault with "noticed" or "survived". `operators.py` makes faults out of syntax trees,
`stages.py` says where and with which tests, `hand.py` holds those chosen by hand, `run.py` runs them; `survivors.json` lists those that no
test can notice, each with its reason.
"""
