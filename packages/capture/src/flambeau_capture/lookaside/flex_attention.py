"""`flex_attention`: one operator over two bodies, the one that changes scores and the one that masks them.

In: calls met while tracing. Out: the operator on query, key and value, with what is known of blocks; each body takes a score and its place
(or the place alone) as tensors without dimensions, then the tensors that it reads. Calls that torch refuses, which differ from version to
version, break the graph: eager tells what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.flex_attention import _permute_strides
from torch.nn.attention import flex_attention as flex

from ..library import math
from ..replacements import replaces
from ..values.base import Value
from ..values.tensor import TensorValue
from ..values.trees import Structure
from .block_masks import known_blocks, known_of_all
from .bodies import bound, broken, call_operator, finished, trace_body

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch.fx

    from ..graph.bodies import BodyGraph
    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_LN2 = math.log(2.0)
#: What the operator is told beside the user's own options. Kernels of torch's read these.
_OPTIONS = {"PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False, "WRITE_DQ": True}
_BACKENDS = ("AUTO", "TRITON", "TRITON_DECODE")
"""Of torch's kernels. That of `FLASH` tells sums of scores in another base."""
_PLACES = 4  # batch, head, query, key
_NO_MASK = 1 << 30
"""The size of a block that stands for no mask at all (`flex_attention._LARGE_SPARSE_BLOCK_SIZE`)."""
_SLICED: Any = getattr(flex, "_sliced_mask_mod_error", None)


@replaces(flex.flex_attention)
def flex_attention(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`flex_attention(query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options, *, return_aux)`."""
    return t.caller.call(t.wrapper.wrap_pinned(_checked), args, kwargs)


def _checked(
    query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: Any = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
) -> Any:  # fmt: skip
    """Traced in place of torch's function: what is asked of the arguments in Python, and how the results are handed on."""
    batch, heads, length, width = query.shape
    if key.shape[-1] != width or key.shape[:-1] != value.shape[:-1] or key.ndim != 4 or key.shape[0] != batch:
        _refuse("shapes of query, key and value that do not go together")
    if heads % key.shape[1] if enable_gqa else heads != key.shape[1]:
        _refuse("numbers of heads that do not go together")
    if score_mod is None:
        score_mod = flex._identity
    is_whole = block_mask is None
    if block_mask is None:
        block_mask = _one_block(query, length, key.shape[2])
    if block_mask.mask_mod is _SLICED and _SLICED is not None:
        _refuse("the mask of a sliced BlockMask")
    if block_mask.BLOCK_SIZE != (_NO_MASK, _NO_MASK) and tuple(block_mask.shape[-2:]) != (length, key.shape[2]):
        _refuse("a block mask for other lengths")
    if return_lse and return_aux is not None:
        _refuse("return_lse beside return_aux")
    own = kernel_options or {}
    if own.get("BACKEND", "AUTO") not in _BACKENDS or "OUTPUT_LOGSUMEXP" in own or "OUTPUT_MAX" in own:
        _refuse("kernel options that it does not take")
    options = {"BACKEND": "AUTO", **_OPTIONS, **own}
    wants_lse = return_lse if return_aux is None else return_aux.lse
    wants_max = return_aux is not None and return_aux.max_scores
    if wants_max and query.device.type == "cpu":
        _refuse("a request for the largest scores on a CPU")
    options["OUTPUT_LOGSUMEXP"] = wants_lse or (torch.is_grad_enabled() and query.device.type != "cpu")
    options["OUTPUT_MAX"] = wants_max
    scale = width**-0.5 if scale is None else scale
    out, lse, most = _operator(query, key, value, score_mod, block_mask.as_tuple(), scale, options, is_whole)
    lse = lse * _LN2 if wants_lse else None
    if return_aux is not None:
        return out, flex.AuxOutput(lse=lse, max_scores=most * _LN2 if wants_max else None)
    return (out, lse) if return_lse else out


def _one_block(query: Any, length: Any, keys: Any) -> Any:
    """What no mask is: one block of all queries and keys."""
    count = torch.ones([1, 1, 1], dtype=torch.int32, device=query.device)
    first = torch.zeros([1, 1, 1, 1], dtype=torch.int32, device=query.device)
    return flex.BlockMask(
        seq_lengths=(length, keys), kv_num_blocks=count, kv_indices=first, full_kv_num_blocks=None, full_kv_indices=None, q_num_blocks=count,
        q_indices=first, full_q_num_blocks=None, full_q_indices=None, BLOCK_SIZE=(_NO_MASK, _NO_MASK), mask_mod=flex.noop_mask,
    )  # fmt: skip


def _refuse(what: str) -> None:
    """Stands for a call that torch refuses."""


@replaces(_refuse)
def refuse(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """End the graph before the call."""
    raise broken(f"flex_attention is given {args[0].constant()}")


def _operator(*args: Any) -> Any:
    """Stands for the operator in `_checked`."""


@replaces(_operator)
def operator(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The operator itself: its results are the attention, the logarithms (base 2) of sums of scores, and the largest scores."""
    tensors = [arg.realise(t) for arg in args[:3]]
    fakes = [value.fake for value in tensors if isinstance(value, TensorValue)]
    if len(fakes) < len(tensors) or not _are_taken(fakes):
        raise broken("flex_attention is given tensors that it does not take")
    score_mod, block_mask, scale, options, is_whole = args[3:]
    *blocks, mask_mod = t.operators.iterate_all(block_mask)
    query, _, value = fakes

    def places(graph: BodyGraph) -> list[Value]:
        graph.indexes_by_tensors = True
        like = torch.empty((), dtype=torch.int32, device=query.device)
        return [bound(t, graph, like, (), ()) for _ in range(_PLACES)]

    scored = trace_body(t, score_mod, lambda graph: [bound(t, graph, query, (), ()), *places(graph)], copied=True)
    masked = trace_body(t, mask_mod, places, copied=True)
    for body in (scored, masked):
        if body.structure != Structure() or body.fakes[0].ndim:
            raise broken("score_mod or mask_mod of flex_attention returns no single number")
    (score_name,), score_reads = finished(t, scored, asks=scored)
    (mask_name,), mask_reads = finished(t, masked, asks=masked)
    known = tuple(t.recorder.argument(part)[0] for part in blocks)
    if is_whole.constant():
        said = known_of_all(query.device)
    else:
        said = known_blocks(t, blocks, (scored, masked), (query.shape[2], fakes[1].shape[2]), (known[-2], known[-1]))
    nodes = [t.recorder.node_of(tensor) for tensor in tensors if isinstance(tensor, TensorValue)]
    with t.graph.unpatched, t.graph.fake_mode, torch.no_grad():
        out = _permute_strides(query.new_empty((*query.shape[:-1], value.shape[-1])), query.stride())
        lse = query.new_empty(query.shape[:-1], dtype=torch.float32)
    made = call_operator(
        t,
        torch.ops.higher_order.flex_attention,
        (
            *nodes,
            score_name,
            (*known, mask_name),
            t.recorder.argument(scale)[0],
            {**t.recorder.argument(options)[0], **said},
            tuple(score_reads),
            tuple(mask_reads),
        ),
        (out, lse, lse),
        differentiable=(True, True, False),
    )
    return t.wrapper.sequence(made, tuple)


def _are_taken(fakes: Sequence[torch.Tensor]) -> bool:
    """Whether torch takes query, key and value: one floating type of at least 16 bits, one device, and no gradients on a CPU."""
    first = fakes[0]
    return (
        all((fake.dtype, fake.device) == (first.dtype, first.device) and fake.ndim == 4 for fake in fakes)
        and first.dtype.is_floating_point
        and first.dtype.itemsize > 1
        and not (first.device.type == "cpu" and any(fake.requires_grad for fake in fakes))
    )
