"""Lowering, fusion and code generation: an ATen graph goes in, a ``flambeau_runtime`` artifact comes out."""
