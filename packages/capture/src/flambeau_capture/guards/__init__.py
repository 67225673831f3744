"""Assumptions about a frame: plain specs, the native tree that checks them, its Python twin, and words for failures."""
