"""The callable around the compiled halves: native, its twin in Python, written inputs, views, double backward."""
