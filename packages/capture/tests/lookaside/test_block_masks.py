"""What is told of a block mask, and that it holds at each call that is not captured anew."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention, noop_mask

from flambeau_capture import make_region
from flambeau_capture.lookaside import block_masks

ALL, CAUSAL = "BLOCKS_ALLOW_ALL", "BLOCKS_ALLOW_CAUSAL"
# What eager says of the operator itself, which is what these tests compare with.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def causal(b, h, q, kv):
    return q >= kv


def sliding(b, h, q, kv):
    return (q >= kv) & (q - kv < 5)


def many(b, h, q, kv):
    return (q >= kv) & (q >= 0) & (kv >= 0) & (q < 100)


def blocks(mask=causal, lengths=(40, 40), size=8):
    return create_block_mask(mask, None, None, *lengths, device="cpu", BLOCK_SIZE=size)


def qkv(lengths=(40, 40)):
    torch.manual_seed(0)
    return [torch.randn(1, 2, n, 8) for n in (lengths[0], lengths[1], lengths[1])]


@pytest.fixture(autouse=True)
def _asked(monkeypatch):
    monkeypatch.setattr(block_masks, "DEVICES", ("cpu",))


class Compiled:
    """`flex_attention` with a mask that each call brings; what each compilation was told."""

    def __init__(self, score=None):
        self.told, self.score = [], score
        self.region = make_region(
            lambda q, k, v, mask: flex_attention(q, k, v, score, mask), self.backend, fullgraph=True
        )

    def backend(self, graph, inputs):
        (node,) = graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention)
        self.told.append({name for name in (ALL, CAUSAL) if node.args[6].get(name)})
        return graph.forward

    def __call__(self, mask, lengths=(40, 40)):
        given = qkv(lengths)
        torch.testing.assert_close(self.region(*given, mask), flex_attention(*given, self.score, mask))
        return self.told


@pytest.mark.parametrize(
    ("mask", "lengths", "told"),
    [
        (None, (40, 40), {ALL, CAUSAL}),
        (blocks(), (40, 40), {CAUSAL}),
        (blocks(lengths=(35, 35)), (35, 35), {CAUSAL}),
        (blocks(size=(16, 8)), (40, 40), {CAUSAL}),
        (blocks(noop_mask), (40, 40), {ALL}),
        (blocks(noop_mask, (40, 24)), (40, 24), {ALL}),
        (blocks(sliding), (40, 40), set()),
        (blocks(many), (40, 40), {CAUSAL}),
    ],
)
def test_what_is_told(mask, lengths, told):
    assert Compiled()(mask, lengths) == [told]


def written(change):
    """A causal block mask with other arrays."""
    mask = blocks()
    parts = [getattr(mask, name) for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")]
    change(*parts)
    return BlockMask.from_kv_blocks(*parts, BLOCK_SIZE=8, mask_mod=causal, seq_lengths=(40, 40))


WRONG = {
    "a block is missing": lambda num, at, full, full_at: full[..., 3].sub_(1),
    "the diagonal is missing": lambda num, at, full, full_at: num[..., 2].zero_(),
    "a block twice": lambda num, at, full, full_at: full_at[..., 3, 1].zero_(),
    "a block as both": lambda num, at, full, full_at: full_at[..., 3, 0].fill_(3),
    "a block behind the query is full": lambda num, at, full, full_at: full[..., 3].add_(2),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_arrays_that_say_something_else(change):
    assert Compiled()(written(change)) == [set()]


def test_more_blocks_than_needed():
    """That are masked, and without what gradients need."""
    mask = written(lambda num, at, full, full_at: (num.fill_(5), at.copy_(torch.arange(5).expand_as(at)), full.zero_()))
    mask.q_num_blocks = mask.q_indices = mask.full_q_num_blocks = mask.full_q_indices = None
    assert Compiled()(mask) == [{ALL, CAUSAL}]


def test_scores_of_many_operations_are_not_asked():
    assert Compiled(lambda s, b, h, q, kv: s + (kv - q) * 2)(blocks())[-1] == set()


def test_another_mask_is_another_compilation_and_the_last():
    compiled = Compiled()
    masks = [blocks() for _ in range(4)]
    for mask in (masks[0], masks[0], *masks[1:], masks[0]):
        compiled(mask)
    assert compiled.told == [{CAUSAL}, set()]


def test_arrays_that_are_written_to_are_looked_at_again():
    compiled, mask = Compiled(), blocks()
    compiled(mask)
    mask.kv_num_blocks.sub_(1)
    assert compiled(mask) == [{CAUSAL}, set()]
