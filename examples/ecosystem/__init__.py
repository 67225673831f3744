"""Libraries on top of PyTorch, each as its users write it, with tiny random weights.

Each module has ``make(compile)``: in goes what compiles a callable (``flambeau.compile``, ``torch.compile``, or the identity for eager); out comes a step, to be
called again and again, that returns tensors to compare. Everything is seeded. `nox -s ecosystem` runs each beside eager and torch.compile.
"""
