"""Passes over the joint graph: no-ops folded, equal nodes merged, dead ones removed. `runner.py` runs them."""
