"""The loop IR: scalars (``scalar.py``), operations (``loops.py``), graphs (``graph.py``), fused kernels
(``kernel.py``)."""
