"""The tables of what is known to differ from eager in torch's databases: a row for each, with its reason.

A row is found by `database:name:dtype`, with `*` for any run of characters. A case that has a row must differ: one that no longer does is a
fault of the table (`full.py` says so, `test_slices.py` fails).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

#: The type of what this loop gives depends on whether it takes a step: it carries whole numbers in, of which a step makes floating-point numbers.
_TYPE_DEPENDS_ON_DATA = "breaks the graph: the loop gives another type where it takes no step"

KNOWN: dict[str, str] = {
    "higher:while_loop_stack_output.simple:[iu]*": _TYPE_DEPENDS_ON_DATA,
    "higher:while_loop_stack_output.simple:bool*": _TYPE_DEPENDS_ON_DATA,
}

#: What differs on CUDA beside that.
KNOWN_ON_CUDA: dict[str, str] = {
    "op:_batch_norm_with_update:f[36]*": "cuDNN refuses weights with gaps in eager; the compiled program normalises by itself",
    "op:_softmax_backward_data:f32": "computes where eager's kernel refuses float16 gradients of a float32 softmax",
    "op:prod:complex32": "torch's gradient for values that are not known yet takes a cumulative product, which CUDA lacks in this type",
}

#: Cases of which a graph runs in eager, or that have none -> a part of the reason that must be given ("": no graph, none told).
IN_EAGER: dict[str, str] = {
    "op:resize_*:*": "changes a tensor's storage",
    # The sizes of its results are read out of a tensor in the first samples.
    "op:tensor_split:*": "",
    "op:index_put:*": "DynamicOutputShapeException: aten.nonzero",
    "op:index_fill:*": "DynamicOutputShapeException: aten._unique",
    # The database calls it within a guard of torch's dispatch (2.11).
    "op:nn.functional.multi_head_attention_forward:*": "",
    "error:as_strided_scatter:*": "as_strided_scatter refuses its operands",
    "op:sparse.*:*": "layout torch.sparse",
    "op:to_sparse:*": "layout torch.sparse",
    "custom:NumpyNonzero*:*": "",
    "op:nn.functional.feature_alpha_dropout*:*": "",
    "higher:scan*:*": "",
    # Nothing but a hook on a tensor from outside, which is registered after the call.
    "higher:register_hook.simple:*": "",
    "custom:NumpySplitCopy*:*": "returns lists of tensors",
    "module:nn.Lazy*:*": "a lazy module that has not run yet",
    "function:*AutogradFunction:*": "",
    "error:__rpow__:*": "",
    "error:kthvalue:*": "a tensor whose elements share memory is written",
}

#: Cases that cannot be run twice alike, or not at all here, in eager itself.
NOT_RUN: dict[str, str] = {
    "custom:NumpyNonzeroCustomOp:bool": "torch's own samples cannot be made",
    "higher:register_hook.simple:[biu]*": "torch's own samples cannot be made: they ask for gradients of whole numbers",
    "op:torch.ops.aten._*_attention_forward:*": "eager leaves the seed and offset of no dropout uninitialised",
    "op:linalg.eig*:*": "eigenvectors are determined up to a phase; eager's backward looks at the data to refuse a loss that depends on it",
}


def reason(table: dict[str, str], identity: str) -> str | None:
    """The row that speaks of a case."""
    return next((why for pattern, why in table.items() if fnmatchcase(identity, pattern)), None)
