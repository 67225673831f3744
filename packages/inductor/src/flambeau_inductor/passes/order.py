"""The passes, in the order they run."""

from __future__ import annotations

from ..rewrite.attention import strided_operands
from ..rewrite.batch_products import batch_products
from ..rewrite.bias import split_bias, split_product_bias
from ..rewrite.cells import open_cells
from ..rewrite.channels_last import channels_last
from ..rewrite.embedding_gradients import embedding_gradients
from ..rewrite.epilogues import activation_epilogues
from ..rewrite.flex_attention import blocked_attention
from ..rewrite.split_products import split_products
from ..rewrite.sum_products import sum_products
from .inline_bodies import inline_bodies
from .remove_dead import remove_dead
from .remove_noops import remove_noops
from .runner import Pass

#: What makes bodies: comes first, so that the others see these.
OPENING = (Pass("blocked_attention", blocked_attention),)

PASSES = (
    Pass("inline_bodies", inline_bodies),
    Pass("remove_noops", remove_noops),
    Pass("remove_dead", remove_dead),
    Pass("open_cells", open_cells),
    Pass("sum_products", sum_products),
    Pass("batch_products", batch_products),
    Pass("embedding_gradients", embedding_gradients),
    Pass("strided_operands", strided_operands),
    Pass("split_bias", split_bias),
    Pass("channels_last", channels_last),
    Pass("split_product_bias", split_product_bias),
    Pass("split_products", split_products),
    Pass("activation_epilogues", activation_epilogues),
)
