"""What can be seen of a call: printed text, result or exception, arguments afterwards, as data that compares exactly."""

from __future__ import annotations

import contextlib
import copy
import io

import torch


def outcome(function, args, show=repr):
    """Printed text, the result (or the chain of exceptions), and the arguments afterwards; `show` makes values comparable."""
    args = copy.deepcopy(args)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = show(function(*args))
        except Exception as error:
            result = _chain(error)
    return out.getvalue(), result, show(args)


def _chain(error):
    chain = []
    while error is not None and len(chain) < 5:
        cause = error.__cause__
        chain.append((type(error).__name__, str(error), type(cause).__name__))
        error = error.__context__
    return chain


def plain(value):
    """Plain data instead of objects; tensors as type, shape and elements."""
    if isinstance(value, torch.nn.Module):
        return {name: plain(v) for name, v in (*value.state_dict().items(), ("calls", value.calls))}
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.requires_grad, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return {k: plain(v) for k, v in vars(value).items()} if hasattr(value, "__dict__") else value
