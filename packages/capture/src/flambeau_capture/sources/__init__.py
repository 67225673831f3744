"""Where a value came from: the vocabulary of paths from a frame to an object."""
