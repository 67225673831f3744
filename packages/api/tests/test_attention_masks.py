"""A mask goes where it says what attention knows without it, and stays everywhere else; results and gradients are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau
from flambeau.attention_masks import drop_known_masks
from flambeau.graph_nodes import name_of

L = 6
INF = float("inf")


def rows() -> tuple[Tensor, Tensor]:
    """Positions of queries, and of keys."""
    return torch.arange(L)[:, None], torch.arange(L)[None, :]


def causal() -> Tensor:
    q, k = rows()
    return k <= q


def additive(out: float) -> Tensor:
    return torch.zeros(L, L).masked_fill(~causal(), out)


def packed() -> Tensor:
    """As transformers asks whether sequences are packed: each position follows the one before it."""
    places = torch.arange(L).unsqueeze(0).expand(2, -1)
    document = (torch.diff(places, prepend=places[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch = torch.arange(2)[:, None, None, None]
    q, k = torch.arange(L)[None, None, :, None], torch.arange(L)[None, None, None, :]
    return (document[batch, q] == document[batch, k]) & (places[batch, k] <= places[batch, q])


KNOWN: dict[str, tuple[Callable[[], Tensor], bool]] = {
    "causal": (causal, True),
    "a triangle": (lambda: torch.ones(L, L, dtype=torch.bool).tril(), True),
    "of every batch": (lambda: causal().expand(2, 1, L, L), True),
    "of positions that are looked up": (packed, True),
    "of another device": (lambda: causal().to("cpu"), True),
    "added": (lambda: additive(-INF), True),
    "the least number added": (lambda: additive(torch.finfo(torch.float32).min), True),
    "all": (lambda: torch.ones(1, L, dtype=torch.bool), False),
    "zeros": (lambda: torch.zeros(L, L), False),
    "all keys of each batch": (lambda: (torch.ones(2, 1, 1, L) != 0).expand(2, 1, L, L), False),
}
OTHER: dict[str, Callable[[], Tensor]] = {
    "a window": lambda: causal() & (rows()[0] - rows()[1] < 3),
    "without the diagonal": lambda: rows()[1] < rows()[0] + (rows()[0] == 0),
    "anti-causal": lambda: rows()[1] >= rows()[0],
    "one batch otherwise": lambda: causal().expand(2, 1, L, L) | (torch.arange(2)[:, None, None, None] > 0),
    "a bias": lambda: additive(-INF) + rows()[1] * 0.1,
    "a large number added": lambda: additive(-1e9),
    "written to": lambda: causal().clone().fill_(True),
}


def attention(mask: Callable[[], Tensor], **more: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin(), attn_mask=mask(), **more)


def calls(function: Callable[..., Any], *inputs: Tensor, dynamic: bool = False) -> list[Any]:
    """The captured calls of attention after the pass: whether they have a mask, and whether they are causal."""
    flambeau.compiler.reset()  # one lambda is the code of many cases
    found: list[Any] = []

    def backend(gm: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        drop_known_masks(gm)
        for node in gm.graph.nodes:
            if name_of(node) == "scaled_dot_product_attention":
                masked = len(node.args) > 3 or node.kwargs.get("attn_mask") is not None
                found.append((masked, node.kwargs.get("is_causal", False)))
        return gm

    result = flambeau.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(*inputs)
    torch.testing.assert_close(result, function(*inputs))
    return found


X = torch.linspace(-2, 2, 2 * 3 * L * 8).reshape(2, 3, L, 8)


@pytest.mark.parametrize("name", KNOWN)
def test_known_masks_go(name: str) -> None:
    mask, is_causal = KNOWN[name]
    assert calls(attention(mask), X) == [(False, is_causal)]


@pytest.mark.parametrize("name", OTHER)
def test_other_masks_stay(name: str) -> None:
    (found,) = calls(attention(OTHER[name], is_causal=False), X)
    assert found == (True, False)


def test_what_decides_by_values_or_sizes_known_later_stays() -> None:
    """A padding mask that is given; sizes that are symbols; another number of keys; a mask for dropout."""
    given = torch.ones(1, L, dtype=torch.bool)
    assert calls(lambda x, m: F.scaled_dot_product_attention(x, x, x, m, 0.0, False), X, given) == [(True, False)]

    def fewer_queries(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x[:, :, 2:], x, x, causal()[2:], is_causal=False)

    assert calls(fewer_queries, X) == [(True, False)]

    def of_any_length(x: Tensor) -> Tensor:
        place = torch.arange(x.shape[2])
        return F.scaled_dot_product_attention(x, x, x, attn_mask=place[None] <= place[:, None], is_causal=False)

    assert calls(of_any_length, X, dynamic=True) == [(True, False)]
    torch.manual_seed(0)
    found = flambeau.compile(attention(causal, dropout_p=0.5), fullgraph=True)(X)
    torch.manual_seed(0)
    torch.testing.assert_close(found, attention(causal, dropout_p=0.5)(X))


def test_a_mask_that_raises_is_left_to_the_program() -> None:
    """A position beyond the end."""
    run = attention(lambda: torch.ones(3, L, dtype=torch.bool)[torch.arange(L)])
    for function in (run, flambeau.compile(run)):
        with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
            function(X)


@pytest.mark.parametrize("name", ["causal", "of positions that are looked up", "all", "the least number added"])
def test_gradients(name: str) -> None:
    mask, _ = KNOWN[name]
    run, results = attention(mask, scale=0.3), []
    for function in (run, flambeau.compile(run, fullgraph=True)):
        x = X.clone().requires_grad_()
        out = function(x)
        out.square().sum().backward()
        results.append((out.detach(), x.grad))
    torch.testing.assert_close(*results)
