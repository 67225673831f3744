"""The table of scalar ops that loop bodies are made of."""
