"""Code generation: one folder per target; ``kernel.py`` and ``writer.py`` are shared."""
