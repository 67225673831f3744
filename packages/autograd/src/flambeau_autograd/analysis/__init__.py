"""Stage: analysis."""
