"""What torch.compile's graphs bring along, where the stages below look for it."""

from __future__ import annotations

import pytest
from torch import fx

from flambeau.torch_backend import _keep_positions

CALLED = '  File "/their/main.py", line 3, in <module>\n    run(x)\n'


@pytest.mark.parametrize(
    ("trace", "position"),
    [
        ('  File "/their/model.py", line 12, in forward\n    return x.sin()\n', ("/their/model.py", 12, "forward")),
        (CALLED + '  File "/their/model.py", line 7, in a_b, as c\n    y = x\n', ("/their/model.py", 7, "a_b")),
        ('  File "/their/model.py", line 12\n    return x.sin()\n', ("/their/model.py", 12, "")),
        ('  File "<string>", line ?, in f\n', ("<string>", 0, "f")),
    ],
)
def test_the_innermost_line_is_kept(trace: str, position: tuple[str, int, str]) -> None:
    """And one that is known already stays."""
    gm = fx.symbolic_trace(lambda x: x.sin().cos())
    x, sin, cos, output = gm.graph.nodes
    sin.meta["stack_trace"] = cos.meta["stack_trace"] = trace
    cos.meta["stack"] = known = (("mine.py", 1, "g"),)
    _keep_positions(gm)
    assert sin.meta["stack"] == (position,)
    assert cos.meta["stack"] is known
    assert "stack" not in x.meta and "stack" not in output.meta
