"""Stage: joint."""
