"""What a program puts in the place of torch's functions, and the context in which a thread does not see it."""

from __future__ import annotations

import operator
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F

from flambeau_capture.interp.callees import callees
from flambeau_capture.patches import is_as_imported, patches, unpatched


def _ours(*args, **kwargs):
    return "the program's"


def _places():
    """Whose functions are replaced, their names, and by what."""
    return [(patch.owner, patch.name, patch.present) for patch in patches()]


PLACES = [
    (torch.Tensor, "sum", lambda x: x.sum()),
    (torch.Tensor, "norm", lambda x: x.norm()),
    (torch.Tensor, "__add__", lambda x: x + 1),
    (torch.Tensor, "__len__", lambda x: x.__len__()),
    (torch, "relu", lambda x: torch.relu(x)),
    (F, "relu", lambda x: F.relu(x)),
    (torch.linalg, "vector_norm", lambda x: torch.linalg.vector_norm(x)),
    (torch.nn.Module, "train", lambda x: torch.nn.ReLU().train()),
    (operator, "mul", lambda x: operator.mul(x, 2)),
]


@pytest.mark.parametrize(("owner", "name", "call"), PLACES, ids=[name for _, name, _ in PLACES])
def test_within_the_context_torchs_own_is_called(owner, name, call, monkeypatch):
    x = torch.arange(3.0)
    expected = str(call(x))
    # Torch replaces some itself, once its own compiler is imported.
    before = _places()
    monkeypatch.setattr(owner, name, _ours)
    assert (owner, name, _ours) in _places()
    context = unpatched()
    for _ in range(2):
        assert call(x) == "the program's"
        with context, context:
            assert str(call(x)) == expected
    assert vars(owner)[name] is _ours
    monkeypatch.undo()
    assert _places() == before


def test_a_function_of_torch_under_another_name_is_the_programs(monkeypatch):
    own = torch.Tensor.__mro__[1].__dict__["neg"]
    assert is_as_imported(torch.Tensor, "neg", own)
    monkeypatch.setattr(torch.Tensor, "neg", torch.Tensor.abs)
    assert not is_as_imported(torch.Tensor, "neg", vars(torch.Tensor)["neg"])
    with unpatched():
        assert torch.tensor(2.0).neg() == -2


def test_an_attribute_that_can_be_set(monkeypatch):
    """A stand-in for a property is one itself: writing goes where it went."""
    monkeypatch.setattr(torch.Tensor, "data", property(lambda self: "read", lambda self, value: None))
    x = torch.zeros(2)
    with unpatched():
        x.data = torch.ones(2)
        assert x.data.tolist() == [1, 1]
    assert x.data == "read"


def test_other_threads_see_what_the_program_put_there(monkeypatch):
    monkeypatch.setattr(torch, "relu", _ours)
    inside, seen = threading.Event(), threading.Event()
    answers = []

    def other():
        inside.wait(10)
        answers.append(torch.relu(torch.ones(1)))
        with unpatched():
            answers.append(torch.relu(torch.ones(1)).item())
        answers.append(torch.relu(torch.ones(1)))
        seen.set()

    thread = threading.Thread(target=other)
    thread.start()
    with unpatched():
        inside.set()
        assert seen.wait(10)
        assert torch.relu(torch.ones(1)).item() == 1
    thread.join()
    assert answers == ["the program's", 1.0, "the program's"]
    assert torch.relu is _ours


def test_what_the_program_writes_meanwhile_stays(monkeypatch):
    monkeypatch.setattr(torch, "relu", _ours)
    with unpatched():
        torch.relu = abs
    assert torch.relu is abs


def test_an_error_leaves_the_programs_function_there(monkeypatch):
    monkeypatch.setattr(torch, "relu", _ours)
    with pytest.raises(RuntimeError), unpatched():
        raise RuntimeError
    assert torch.relu is _ours


def test_what_torch_does_to_itself_is_no_patch():
    """Importing torch's compiler, its optimizers and its distributed part replaces nothing of what is looked at."""
    program = (
        "import torch, flambeau_capture.patches as p, torch._dynamo, torch.optim, torch.distributed, torch.testing;"
        "assert p.patches() == (), [x.name for x in p.patches()]"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120)


def test_callees():
    """A name in the code, one in what that calls, an operator; nothing of what asks about overriding classes."""
    names = callees(F.normalize).names
    assert {
        (torch.Tensor, "norm"),
        (torch.linalg, "vector_norm"),
        (torch.Tensor, "__truediv__"),
        (torch, "div"),
    } <= names
    assert not any("torch_function" in name for _, name in names)
    assert (torch, "max_pool2d") in callees(F.max_pool2d).names, "one of two functions that it closes over"
    assert callees(_ours).names == frozenset()
