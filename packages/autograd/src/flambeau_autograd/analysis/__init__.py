"""What a traced graph writes and what its results alias: the `Signature` that the wrappers follow."""
