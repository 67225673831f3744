"""The passes, in the order they run, and the tables of rules that some of them apply.

A rule is added to the table of rules that it belongs to; rules of one table are applied together until none applies, so that one may make what
another looks for. Rules of one op are tried in the order of the table.
"""

from __future__ import annotations

from ..extensions.replacements import apply_registered
from ..rewrite import (
    attention,
    bias,
    cells,
    depthwise_gradients,
    eight_bit_weights,
    embedding_gradients,
    epilogues,
    folded_scales,
    masked_attention,
    own_products,
    packed_convolutions,
    packed_products,
    pointwise_convolutions,
    rounded_products,
    split_products,
    turned_weights,
    written_attention,
)
from ..rewrite.batch_products import batch_products
from ..rewrite.blocked_losses import blocked_losses
from ..rewrite.channels_last import channels_last
from ..rewrite.engine import RuleSet
from ..rewrite.experts import experts
from ..rewrite.flex_attention import blocked_attention
from ..rewrite.library_attention import library_attention
from ..rewrite.ordered_products import order_products
from ..rewrite.shared_rows import share_rows
from ..rewrite.sum_products import sum_products
from . import remove_noops
from .inline_bodies import inline_bodies
from .remove_dead import remove_dead
from .runner import Pass

#: Fewer nodes that say the same.
TIDYING = RuleSet(remove_noops.RULES)
#: What the library does at once, as what it stands for: before products are counted, whose parts it may read.
OPENING_UP = RuleSet(cells.RULES)
#: What is done to frozen weights; before biases are taken out of convolutions.
FOLDING = RuleSet(folded_scales.RULES)
#: Operands and results of library calls; before layouts are assigned.
LIBRARY_CALLS = RuleSet(
    (
        *embedding_gradients.RULES,
        *masked_attention.RULES,
        *attention.RULES,
        *written_attention.RULES,
        *bias.CONVOLUTIONS,
        *depthwise_gradients.RULES,
    )
)
#: Which products the library does, and what it does with them: last, on what the other passes left, convolutions that are products included.
PRODUCTS = RuleSet(
    (
        *turned_weights.RULES,
        *own_products.RULES,
        *bias.PRODUCTS,
        *split_products.RULES,
        *rounded_products.RULES,
        *epilogues.RULES,
        *eight_bit_weights.RULES,
        *packed_products.RULES,
    )
)
#: Convolutions, in the layout that they were given.
CONVOLUTIONS = RuleSet((*pointwise_convolutions.RULES, *packed_convolutions.RULES))

#: The tables of rules, by the name of the pass that applies them.
TABLES = {
    "tidying": TIDYING,
    "opening_up": OPENING_UP,
    "folding": FOLDING,
    "library_calls": LIBRARY_CALLS,
    "convolutions": CONVOLUTIONS,
    "products": PRODUCTS,
}

#: What makes bodies: comes first, so that the others see these.
OPENING = (
    Pass("library_attention", library_attention, "pattern_matcher"),
    Pass("blocked_attention", blocked_attention, "pattern_matcher"),
)

PASSES = (
    Pass("registered", apply_registered, "pattern_matcher"),
    Pass("inline_bodies", inline_bodies),
    Pass("tidying", TIDYING.run),
    Pass("experts", experts, "pattern_matcher"),
    Pass("remove_dead", remove_dead),
    Pass("blocked_losses", blocked_losses, "pattern_matcher"),
    Pass("opening_up", OPENING_UP.run, "pattern_matcher"),
    Pass("folding", FOLDING.run, "pattern_matcher"),
    Pass("sum_products", sum_products, "pattern_matcher"),
    Pass("batch_products", batch_products, "batch_fusion"),
    Pass("share_rows", share_rows, "pattern_matcher"),
    Pass("library_calls", LIBRARY_CALLS.run, "pattern_matcher"),
    Pass("channels_last", channels_last, "pattern_matcher"),
    Pass("convolutions", CONVOLUTIONS.run, "pattern_matcher"),
    Pass("products", PRODUCTS.run, "pattern_matcher"),
    Pass("ordered_products", order_products, "batch_invariant"),
)
