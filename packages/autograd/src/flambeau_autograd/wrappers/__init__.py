"""Stage: wrappers."""
