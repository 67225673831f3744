"""Programs of torch's databases, compiled beside eager."""

import os

# Cases run in forked processes: one that is forked after CUDA was initialised cannot use it, and counting GPUs through NVML initialises nothing.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
