"""Compiled functions are pickled and copied by what they were made from, and are compiled again where they arrive."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau
from flambeau_capture import Config, Region, make_region

X = torch.linspace(-1, 1, 6)


def plain(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


@flambeau.compile(backend="eager")
def decorated(x: Tensor) -> Tensor:
    return x + 1


beside = flambeau.compile(plain, backend="eager", fullgraph=True, name="beside")


class Owner:
    def __init__(self, by: float) -> None:
        self.by = by

    def method(self, x: Tensor) -> Tensor:
        return x * self.by

    @flambeau.compile(backend="eager")
    def compiled_method(self, x: Tensor) -> Tensor:
        return x - self.by


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    """The very object arrives in the same process."""
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated
    owner = Owner(3.0)
    arrived = pickle.loads(pickle.dumps(owner.compiled_method))
    assert torch.equal(arrived(X), X - 3)


@pytest.mark.parametrize("transport", [lambda f: pickle.loads(pickle.dumps(f)), copy.deepcopy, copy.copy])
@pytest.mark.parametrize(
    "function",
    [beside, flambeau.compile(Owner(3.0).method, backend="eager"), flambeau.compile(functools.partial(plain, by=5.0))],
)
def test_another_is_made_of_the_function_and_the_arguments(function: Any, transport: Any) -> None:
    """A region of its own, with the same settings."""
    arrived = transport(function)
    assert isinstance(arrived, Region) and arrived is not function
    assert arrived.strict == function.strict and arrived.limit == function.limit
    assert torch.equal(arrived(X), function(X))


def test_a_region_that_is_not_ours_says_so() -> None:
    region = make_region(lambda x: x, lambda gm, inputs: gm.forward, config=Config())
    with pytest.raises(TypeError, match="flambeau.compile did not make"):
        pickle.dumps(region)


def test_a_model_that_holds_a_compiled_function_is_copied_and_saved(tmp_path: Path) -> None:
    """In another process it is compiled again and gives the same."""
    model = nn.Linear(6, 2)
    model.activation = beside
    twin = copy.deepcopy(model)
    assert torch.equal(twin.activation(X), X * 2)
    (tmp_path / "user.py").write_text(
        textwrap.dedent(
            """
            import flambeau, torch
            def double(x): return x * 2
            @flambeau.compile
            def step(x): return x + 1
            made = flambeau.compile(double)
            model = flambeau.compile(torch.nn.Linear(3, 2))
            """
        )
    )
    write = "import pickle, user; open('f', 'wb').write(pickle.dumps((user.step, user.made, user.model)))"
    read = textwrap.dedent(
        """
        import pickle, torch, flambeau_capture
        step, made, model = pickle.load(open('f', 'rb'))
        x = torch.ones(1, 3)
        assert torch.equal(step(x), x + 1) and torch.equal(made(x), x * 2)
        assert torch.equal(model(x), torch.nn.functional.linear(x, model.weight, model.bias))
        assert isinstance(made, flambeau_capture.Region) and made.codes()
        """
    )
    for program in (write, read):
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
