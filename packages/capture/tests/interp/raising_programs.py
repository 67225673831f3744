"""Programs that raise for what tensors hold, in a module whose asserts pytest leaves as they are."""

from __future__ import annotations


def asserted(x):
    assert (x > 0).all(), f"{x.min()} is not positive"
    return x.log()


def raised(x):
    if x.isnan().any():
        raise ValueError(f"nan in {x}")
    if not x.sum().item():
        raise ZeroDivisionError
    return x / x.sum().item()


def after(x):
    if x[x > 0].numel():
        return x + 1
    raise ValueError("nothing is positive")


def caught(x):
    try:
        if x.min().item() < 0:
            raise ValueError("negative")
        return x.sqrt()
    except ValueError as error:
        return str(error)


def in_a_loop(x):
    for i in range(3):
        x = x * 2
        if x.max() > 100:
            raise OverflowError(i)
    return x
