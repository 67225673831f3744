"""Which ops are taken apart while a graph is recorded: one table, under the caller's own entries."""
