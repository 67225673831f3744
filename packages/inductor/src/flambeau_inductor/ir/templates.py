"""What the kinds of ``Template`` compute.

The three of attention take queries ``q`` (batch, heads, m, width), keys ``k`` and values ``v`` (batch or 1, heads that several of the queries' may share, n,
width) in one type of 16 bits. Bodies are evaluated at (b, h, m, n): ``score`` of the value "score" (products times the fact ``scale``), ``mask``, a
truth value, and in gradients ``slope``, the gradient of what ``score`` takes, of the values "score" and "slope".

A block mask says where ``mask`` has to be asked: of ``query_block`` by ``key_block`` pairs, for each block of queries ``kv_num`` blocks of keys, by number
in ``kv_at``; ``full_kv_num`` and ``full_kv_at``, where they are given, name blocks in which all pairs take part. What is in no such block takes no part. ``q_num``
and so on say the same for each block of keys.

In its place there may be the fact ``window``: least and greatest distances from m to n (None: no end), of which all pairs take part, with ``inner`` for
``score`` and ``inner_slope`` for ``slope``; the fact ``precision`` then says how products of float32 are computed, ``far`` that
scores may be of a size that no factor leaves finite, a row of which nothing takes part is NaN unless ``empty_is_zero``, and results may have other shapes, of
the same elements in the same order. Gradients then take ``total`` and ``peak`` in the place of ``lse``, and are of each head if ``apart``, also where
several share keys.

With the fact ``parts``, each result is one of that many, whose number is the first dimension, and each part is of other keys; a part of which nothing takes part is 0. ``packed``:
programs have the queries of all heads that share keys, of which block masks then say the same.

The fact ``aligned`` names operands whose buffers start at multiples of 16 bytes.
"""

from __future__ import annotations

#: -> ``out``; ``lse``, the logarithm to the base 2 of each row's sum of exponentials; ``peak``, each row's largest score times log2(e), or as it is if ``far``;
#: ``total``, the logarithm to the base 2 of the sum of the exponentials of scores less the largest.
ATTENTION = "attention"
#: ``grad`` is the result's gradient, ``less`` the gradient of ``lse`` over ln(2), less each row's sum of result times gradient. -> ``dq``.
ATTENTION_QUERY_GRADIENT = "attention_query_gradient"
#: The same operands, with the block mask by keys. -> ``dk``, ``dv``.
ATTENTION_KEY_GRADIENTS = "attention_key_gradients"


#: Keys of a row of scores that a kernel keeps whole (in C++): a group's rows are in the second cache.
MOST_KEPT_KEYS = 8192
#: The widest head of attention, and the smallest side of a block that products take.
WIDEST_HEAD, LEAST_SIDE = 256, 16
