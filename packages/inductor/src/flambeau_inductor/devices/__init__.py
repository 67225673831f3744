"""What the compiler knows of devices: a file or folder for each, with one registration.

``device_of(torch.device)`` gives the record that a stage asks; ``device.py`` says what may be asked.
"""

from .cpu import CPU
from .cuda import CUDA
from .device import Device, Eager, Kernels, LastShares, Libraries, Reduced
from .facts import H200, LAUNCH_SECONDS, Facts
from .language import CPP, TRITON, Language
from .registry import device_facts, device_of, has_backend, register, registered, replaced
from .tuning import AttentionShape, AttentionShapes, Tuning

__all__ = [
    "CPP",
    "CPU",
    "CUDA",
    "H200",
    "LAUNCH_SECONDS",
    "TRITON",
    "AttentionShape",
    "AttentionShapes",
    "Device",
    "Eager",
    "Facts",
    "Kernels",
    "Language",
    "LastShares",
    "Libraries",
    "Reduced",
    "Tuning",
    "device_facts",
    "device_of",
    "has_backend",
    "register",
    "registered",
    "replaced",
]
