"""Stage: partition."""
