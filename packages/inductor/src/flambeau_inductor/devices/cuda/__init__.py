"""CUDA devices: ``device.py`` is the record, ``gpus.py`` the facts of the processors."""

from .device import CUDA

__all__ = ["CUDA"]
