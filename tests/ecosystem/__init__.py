"""Libraries on top of PyTorch: the programs of `examples/ecosystem`, compiled beside eager."""
