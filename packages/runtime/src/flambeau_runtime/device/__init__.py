"""Triton kernels on a GPU: the kernels of a program, and the CUDA driver from Python."""
