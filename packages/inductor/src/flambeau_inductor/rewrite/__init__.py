"""Rewrites that trade one library call for a better one, or move its work into generated kernels. ``passes/order.py`` runs them."""
