"""`flex_attention` that the library has becomes the library's, forward and backward; all other keeps its templates."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from attrs import evolve
from cudnn_formulas import BACKWARD, FORWARD, Library
from flexing import Attention, causal, plain, plain_gradient

from flambeau_inductor import CompileContext, rewrite_joint
from flambeau_inductor.devices import device_of
from flambeau_inductor.rewrite import library_attention
from flambeau_inductor.rewrite.library_attention import use_library

aten, hop = torch.ops.aten, torch.ops.higher_order
ALL, CAUSAL = {"BLOCKS_ALLOW_ALL": True}, {"BLOCKS_ALLOW_CAUSAL": True}


def halved(s, b, h, m, n):
    return s / 2


def halved_gradient(s, b, h, m, n, g):
    return [g / 2, None, None, None, None]


def everything(b, h, m, n):
    return m >= 0


def reversed_causal(b, h, m, n):
    return n - m <= 0


def joined(b, h, m, n):
    """As transformers joins masks, of positions that begin at 0."""
    seen = m.new_ones((), dtype=torch.bool)
    return seen & (n + 0 <= m + 0)


@pytest.fixture(autouse=True)
def _small_ones(monkeypatch):
    """So that problems of a test are large enough."""
    monkeypatch.setattr(library_attention, "is_faster", lambda case, device: True)


def attention(
    mask=causal,
    score=plain,
    joint=plain_gradient,
    options=CAUSAL,
    lengths=(192, 192),
    heads=(2, 2),
    widths=(16, 16),
    **more,
):
    return Attention(2, *heads, lengths, widths, score, mask, joint, device="cuda", options=options, **more)


def use(gm):
    (output,) = gm.graph.find_nodes(op="output")
    results = output.args[0]
    replaced = use_library(gm.graph, list(results), CompileContext(), gm)
    output.args = (tuple(replaced.get(result, result) for result in results),)
    gm.recompile()
    return [node.target for node in gm.graph.nodes if node.target in (FORWARD, BACKWARD)]


TAKEN = {
    "causal": {},
    "the same in other words": {"mask": reversed_causal},
    "several masks": {"mask": joined},
    "all keys": {"mask": everything, "options": ALL, "lengths": (128, 192)},
    "a multiple of the score": {"score": halved, "joint": halved_gradient},
    "heads that share keys": {"heads": (4, 2)},
    "no block mask": {"mask": everything, "options": {**ALL, **CAUSAL}, "block": None},
}


@pytest.mark.parametrize("changes", TAKEN.values(), ids=TAKEN)
def test_forward_and_backward_are_the_librarys(changes):
    a = attention(**changes)
    grad = torch.randn(a.qkv[0].shape).to(a.dtype)
    gm = a.both()
    assert use(gm) == [FORWARD, BACKWARD]
    found = Library(gm).run(*a.qkv, *a.buffers, *a.arrays, grad)
    wanted = [a.wanted()[0], *a.wanted(grad, torch.zeros(grad.shape[:3]))]
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_inference(count):
    """Asks for the sums of scores if they are read; the largest are nothing that the library has."""
    a = attention()
    gm, given = a.forward()
    (output,) = gm.graph.find_nodes(op="output")
    results = output.args[0]
    output.args = (results[:count],)
    for other in results[count:]:
        gm.graph.erase_node(other)
    assert use(gm) == ([] if count == 3 else [FORWARD])
    for node in gm.graph.find_nodes(op="call_function", target=FORWARD):
        assert node.args[4] is (count == 2)
        for got, want in zip(Library(gm).run(*given), a.wanted(), strict=False):
            torch.testing.assert_close(got.double(), want, rtol=1e-9, atol=1e-9)


def documents(b, h, m, n):
    return (m >= n) & (m // 32 == n // 32)


LEFT = {
    "blocks that nobody looked at": {"options": {}},
    "kernels that are asked for": {"options": {**CAUSAL, "BACKEND": "TRITON"}},
    "blocks that allow another mask": {"options": ALL},
    "a mask of other blocks": {"mask": everything},
    "a window": {"mask": lambda b, h, m, n: (m >= n) & (m - n < 64)},
    "a window on the other side": {"mask": lambda b, h, m, n: n >= m},
    "one key more": {"mask": lambda b, h, m, n: m + 1 >= n},
    "documents": {"mask": documents},
    "a mask that differs by head": {"mask": lambda b, h, m, n: (m >= n) | (h == 0)},
    "more keys than queries": {"lengths": (128, 192)},
    "keys of the whole batch": {"shared": True},
    "values of another width": {"widths": (16, 32)},
    "heads that are too wide": {"widths": (256, 256)},
    "a width without a kernel": {"widths": (20, 20)},
    "float32": {"dtype": torch.float32},
    "sizes known at run time": {"symbolic": True},
    "a bias": {"score": lambda s, b, h, m, n: s + (n - m)},
    "another sign": {"score": lambda s, b, h, m, n: s * -2, "joint": lambda s, b, h, m, n, g: [g * -2, None, None, None, None]},
    "another gradient": {"score": halved},
}  # fmt: skip


@pytest.mark.parametrize("changes", LEFT.values(), ids=LEFT)
def test_what_the_library_does_not_have_is_left(changes):
    gm = attention(**changes).both()
    before = str(gm.graph)
    assert not use(gm)
    assert str(gm.graph) == before


SETTINGS = {
    "determinism": partial(torch.use_deterministic_algorithms, True),
    "no cuDNN": partial(torch.backends.cuda.enable_cudnn_sdp, False),
}


@pytest.mark.parametrize("change", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_torch_are_kept(change):
    try:
        change()
        assert not use(attention().both())
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_gradients_of_sums_are_left():
    gm = attention().both()
    (zero,) = gm.graph.find_nodes(op="call_function", target=aten.full.default)
    zero.args = (zero.args[0], 1)
    assert not use(gm)


def test_sums_that_are_returned_beside_gradients():
    a = attention()
    gm = a.both()
    (output,) = gm.graph.find_nodes(op="output")
    lse = next(node for node in gm.graph.nodes if node.name.startswith("getitem") and node.args[1] == 1)
    output.args = ((*output.args[0], lse),)
    assert use(gm) == [FORWARD, BACKWARD]
    found = Library(gm).run(*a.qkv, *a.arrays, torch.zeros(a.qkv[0].shape))
    torch.testing.assert_close(found[-1], a.wanted()[1], rtol=1e-9, atol=1e-9)


def test_strides_that_the_library_does_not_take_are_left():
    """The last dimension is not the innermost, or rows do not begin at multiples of 16 bytes."""
    for change in (lambda x: x.mT.contiguous().mT, lambda x: torch.nn.functional.pad(x, (0, 4))[..., :16]):
        a = attention()
        a.qkv = [change(x) for x in a.qkv]
        assert not use(a.both())


def test_only_from_a_size_on(monkeypatch):
    monkeypatch.undo()
    assert not use(attention().both())
    facts = device_of(torch.device("cuda")).facts(torch.device("cuda"))
    small = evolve(facts, tuning=evolve(facts.tuning, library_attention=0.0))
    monkeypatch.setattr(library_attention, "device_of", lambda device: evolve(device_of(device), facts=lambda _: small))
    assert use(attention().both()) == [FORWARD, BACKWARD]


def test_joint_graphs_are_rewritten():
    """As autograd hands them over: bodies are notes of their nodes."""
    gm = attention().both()
    (output,) = gm.graph.find_nodes(op="output")
    for node in gm.graph.find_nodes(op="get_attr"):
        node.meta["body"] = gm.get_submodule(node.target)
    results = list(output.args[0])
    gm.graph.erase_node(output)
    assert set(rewrite_joint(gm.graph, results)) == set(results)
    assert not gm.graph.find_nodes(op="call_function", target=hop.flex_attention)
