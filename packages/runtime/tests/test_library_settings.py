"""Settings of torch's libraries are read, and taken over by another process."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: where torch's test utilities are loaded, some switches may not be changed.
PROGRAM = """
import torch
from flambeau_runtime import library_settings

def changed(value):
    return not value if isinstance(value, bool) else "ieee" if value != "ieee" else "tf32"

before = library_settings.current()
wanted = {name: changed(value) for name, value in before.items()}
library_settings.apply(wanted)
assert library_settings.current() == wanted
assert torch.backends.cuda.matmul.fp32_precision == wanted["cuda.matmul.fp32_precision"]
assert torch.backends.cudnn.benchmark is wanted["cudnn.benchmark"]
library_settings.apply(before)
assert library_settings.current() == before

# Reading does not fail after old switches and new ones were used.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.fp32_precision = "tf32"
assert library_settings.current()["cuda.matmul.fp32_precision"] == "tf32"
print(len(wanted))
"""


def test_every_setting_is_taken_over():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15
