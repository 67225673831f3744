"""Stage: decompose."""
