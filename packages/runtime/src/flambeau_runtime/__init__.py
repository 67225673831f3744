"""Load, cache and run compiled artifacts."""
