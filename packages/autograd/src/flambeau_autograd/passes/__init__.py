"""Stage: passes."""
