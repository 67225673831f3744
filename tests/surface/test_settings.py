"""Settings as torch.compile's configuration modules have them: read, assigned, patched, and seen in what is compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau import inductor, without_effect
from flambeau.compiler import config
from flambeau.errors import InvalidOption, NotHereYet, UnknownName

from .rows import calls


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Assignments are taken back."""
    yield
    for view in (config, inductor.config):
        for name in view.names():
            view._taken_back(name)


def kernels(function: Callable[..., Any], *inputs: Any, **arguments: Any) -> int:
    """Kernels of the forward."""
    return int(flambeau.explain(function, **arguments)(*inputs).programs[0].kernels)


def six(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.sin(x + k) for k in range(6))


# ---- the two modules ------------------------------------------------------------------------------------------------------------


def test_an_assignment_is_the_default_of_later_calls() -> None:
    """And a call's own options go before it."""
    x = torch.randn(8, 9)
    assert kernels(six, x) == 1
    inductor.config.max_fusion_size = 3
    assert inductor.config.max_fusion_size == 3
    assert kernels(six, x) == 2
    assert kernels(six, x, options={"max_fusion_size": 1}) == 6
    del inductor.config.max_fusion_size
    assert kernels(six, x) == 1


@pytest.mark.parametrize(
    "patch",
    [
        lambda: inductor.config.patch({"max_fusion_size": 2}),
        lambda: inductor.config.patch(max_fusion_size=2),
        lambda: inductor.config.patch("max_fusion_size", 2),
    ],
)
def test_a_patch_counts_where_a_graph_is_compiled(patch: Callable[[], Any]) -> None:
    """Around the call that compiles, around `flambeau.compile`, and as a decorator; outside of it nothing is left."""
    x = torch.randn(8, 9)
    with patch():
        assert kernels(six, x) == 3
    assert kernels(six, x) == 1
    assert patch()(lambda: kernels(six, x))() == 3
    compiled = flambeau.compile(six)
    found = []
    with patch():
        found.append(inductor.config.max_fusion_size)
        compiled(x)
    assert found == [2] and inductor.config.max_fusion_size == 64


def test_names_with_a_dot_are_attributes() -> None:
    assert inductor.config.triton.cudagraphs is False
    inductor.config.triton.cudagraphs = True
    assert inductor.config.triton.cudagraphs is True is inductor.config.get_config_copy()["triton.cudagraphs"]
    with inductor.config.patch({"triton.cudagraphs": False}):
        assert inductor.config.triton.cudagraphs is False
    assert {"triton", "cpp", "max_autotune"} <= set(dir(inductor.config))


def test_settings_are_saved_and_loaded() -> None:
    inductor.config.max_fusion_size = 5
    kept = inductor.config.save_config()
    del inductor.config.max_fusion_size
    inductor.config.load_config(kept)
    assert inductor.config.max_fusion_size == 5
    inductor.config.load_config({"max_fusion_size": 6})
    assert inductor.config.max_fusion_size == 6


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("max_fusion_size", 0, InvalidOption),
        ("max_fusion_sizes", 3, UnknownName),
        ("fx_passes_numeric_check", True, NotHereYet),
        ("memory_planning", True, InvalidOption),
        ("triton.cudagraph_trees", False, InvalidOption),
    ],
)
def test_wrong_names_and_values_are_errors(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name), inductor.config.patch({name: value}):
        pass


def test_what_has_no_meaning_can_be_read_and_says_why() -> None:
    """Each of its accepted values is taken; another one is an error whose hint is the reason."""
    for view, table in ((inductor.config, without_effect.OPTIONS), (config, without_effect.SETTINGS)):
        for name, (accepted, reason) in table.items():
            for value in accepted:
                with view.patch({name: value}):
                    pass
            with pytest.raises(InvalidOption) as told, view.patch({name: "something else"}):
                pass
            assert told.value.hint == reason
    assert inductor.config.memory_planning is False and config.donated_buffer is True


def test_patches_are_a_threads_own() -> None:
    seen: list[int] = []
    with inductor.config.patch(max_fusion_size=2):
        thread = threading.Thread(target=lambda: seen.append(inductor.config.max_fusion_size))
        thread.start()
        thread.join()
    assert seen == [64]


# ---- caches and switches ------------------------------------------------------------------------------------------------------------


@calls("settings", "cache_key_tag")
def test_a_tag_is_part_of_every_key() -> None:
    def tagged(x: Tensor) -> Tensor:
        return torch.cos(x) * 31

    def is_cached() -> bool:
        return bool(flambeau.explain(tagged)(torch.ones(3)).programs[0].cached)

    assert [is_cached(), is_cached()] == [False, True]
    with config.patch(cache_key_tag="other"):
        assert [is_cached(), is_cached()] == [False, True]


@calls("settings", "force_disable_caches")
def test_no_caches() -> None:
    def uncached(x: Tensor) -> Tensor:
        return torch.cos(x) * 37

    with config.patch(force_disable_caches=True):
        found = [flambeau.explain(uncached)(torch.ones(3)).programs[0].cached for _ in range(2)]
    assert found == [False, False]


def test_nothing_is_compiled_where_that_is_switched_off() -> None:
    def function(x: Tensor) -> Tensor:
        return x + 1

    config.disable = True
    assert flambeau.compile(function) is function
    config.disable = False
    compiled = flambeau.compile(function)
    assert compiled is not function and compiled(torch.ones(2)).tolist() == [2, 2]


# ---- autograd ------------------------------------------------------------------------------------------------------------------------


def saved(function: Callable[..., Any], *inputs: Tensor) -> int:
    """Bytes that the forward keeps for the backward, but for its inputs."""
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    compiled = flambeau.compile(function)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(*inputs).backward()
    own = {tensor.data_ptr() for tensor in inputs}
    return sum(tensor.nbytes for tensor in packed if tensor.data_ptr() not in own)


def gradients_are_right(function: Callable[..., Any], *inputs: Tensor) -> None:
    eager, ours = (torch.autograd.grad(run(*inputs), inputs) for run in (function, flambeau.compile(function)))
    for left, right in zip(eager, ours, strict=True):
        torch.testing.assert_close(left, right)


def products(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(x @ w) @ w).exp().sum()


OPERANDS = (torch.randn(64, 64, requires_grad=True), (torch.randn(64, 64) / 8).requires_grad_())


@pytest.mark.parametrize(
    "change",
    [{"activation_memory_budget": 0.0}, {"ban_recompute_not_in_allowlist": False}, {"aggressive_recomputation": True}],
)
@calls("settings", "activation_memory_budget", "ban_recompute_not_in_allowlist", "aggressive_recomputation")
def test_products_may_be_computed_again(change: dict[str, Any]) -> None:
    """Less is saved, and the gradients are the same."""
    plain = saved(products, *OPERANDS)
    with config.patch(change):
        assert saved(products, *OPERANDS) < plain
        gradients_are_right(products, *OPERANDS)


@calls("settings", "ban_recompute_reductions")
def test_reductions_may_be_computed_again() -> None:
    def scaled(x: Tensor) -> Tensor:
        sums = x.cos().sum(1)
        return (sums * sums.sin()).sum()

    x = torch.randn(256, 4, requires_grad=True)
    plain = saved(scaled, x)
    with config.patch(ban_recompute_reductions=False):
        assert saved(scaled, x) < plain
        gradients_are_right(scaled, x)


@calls("settings", "ban_recompute_long_fusible_chains")
def test_long_chains_may_be_computed_again() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(40):
            x = torch.sin(x) + x
        return x.sum()

    x = torch.randn(64, requires_grad=True)
    plain = saved(chain, x)
    with config.patch(ban_recompute_long_fusible_chains=False):
        assert saved(chain, x) < plain
        gradients_are_right(chain, x)
