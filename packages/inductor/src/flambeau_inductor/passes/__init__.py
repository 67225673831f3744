"""Rewrites of the FX graph before lowering. ``order.py`` lists them, ``runner.py`` runs them."""
