"""Settings of torch's libraries are read, and taken over by another process."""

from __future__ import annotations

import pytest
import torch

from flambeau_runtime import library_settings


@pytest.fixture
def as_before():
    before = library_settings.current()
    yield before
    library_settings.apply(before)


def changed(value):
    if isinstance(value, bool):
        return not value
    return "ieee" if value != "ieee" else "tf32"


def test_every_setting_is_taken_over(as_before):
    wanted = {name: changed(value) for name, value in as_before.items()}
    library_settings.apply(wanted)
    assert library_settings.current() == wanted
    assert torch.backends.cuda.matmul.fp32_precision == wanted["cuda.matmul.fp32_precision"]
    library_settings.apply(as_before)
    assert library_settings.current() == as_before


def test_settings_are_read_after_old_and_new_switches_were_used(as_before):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert library_settings.current()["cuda.matmul.fp32_precision"] == "tf32"
