"""Which kernel computes what several could: by a model, or by measurement. ``choice.py`` is the entry."""
