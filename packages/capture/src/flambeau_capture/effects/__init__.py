"""Changes that the traced program makes outside the graph: recorded while tracing, replayed after the graph."""
