"""Every architecture of `transformers` and every family of `timm`, made tiny with random weights, captured beside eager: `python -m tools.capture_sweep`."""
