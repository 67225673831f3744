"""Every op of torch's op database through lowering, against eager."""

import warnings

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from tracing import TABLE

from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.verify import verify
from flambeau_inductor.lowering.run import lower_graph

#: Contents are undefined, or the op draws from a seed of its own, or results are sparse.
UNCOMPARABLE = ("empty", "new_empty", "sparse", "to_sparse", "resize")
#: Written in place by composites that this test's tracer does not make functional (autograd's does).
NOT_FUNCTIONAL = (
    "combinations", "diff", "diagonal_scatter", "stft", "matmul", "quantile", "nanquantile", "isclose", "linear_cross_entropy",
    "cosine_similarity", "instance_norm", "rms_norm", "pad", "margin_ranking_loss", "linear", "rrelu",
    "scaled_dot_product_attention", "__rmatmul__", "nanmean", "cosine_embedding_loss", "hinge_embedding_loss",
    "poisson_nll_loss", "matrix_power", "matrix_rank", "bernoulli", "normal", "multi_head_attention_forward",
)  # fmt: skip
#: Reads other storage than its argument's (``clone`` below gives it another), or sizes from sympy's Piecewise; has a size that torch bounds too low
#: where the mask is larger than the input.
OTHER = ("as_strided", "narrow", "item", "masked_select")
QUICK = frozenset(
    {
        "add", "sub", "mul", "div", "exp", "where", "clamp", "sum", "mean", "var", "softmax", "log_softmax", "cumsum", "gather", "cat",
        "index_select", "flip", "roll", "tril", "argmax", "amax", "nn.functional.gelu", "native_layer_norm", "scatter_add", "pow",
        "nn.functional.nll_loss", "nn.functional.mse_loss", "logsumexp", "masked_fill", "permute", "nn.functional.embedding",
    }
)  # fmt: skip


def skipped(op):
    """True for ops that cannot be compared here."""
    last = op.name.rpartition(".")[2]
    return op.name.startswith(UNCOMPARABLE) or last in NOT_FUNCTIONAL or last in OTHER or op.name == "normal"


def cases():
    """(op, dtype), quick ones unmarked."""
    for op in op_db:
        if skipped(op):
            continue
        for dtype in (torch.float32, torch.int64):
            if dtype in op.supported_dtypes("cpu"):
                marks = () if op.name in QUICK else (pytest.mark.slow,)
                name = f"{op.name}-{op.variant_test_name}-{str(dtype)[6:]}"
                yield pytest.param(op, dtype, id=name, marks=marks)


def over_tensors(op, sample):
    """The op over the sample's tensors alone, and those tensors."""
    flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [n for n, value in enumerate(flat) if isinstance(value, torch.Tensor)]

    def function(*tensors):
        filled = list(flat)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return pytree.tree_flatten(op(first, *args, **kwargs))[0]

    return function, [flat[n] for n in places]


@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_equals_eager(op, dtype):
    """Values, dtypes and strides of up to four samples."""
    warnings.simplefilter("ignore")
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=False))[:4]:
        function, tensors = over_tensors(op, sample)
        torch.manual_seed(42)
        try:
            wanted = function(*[t.clone() for t in tensors])
            gm = make_fx(
                torch.func.functionalize(function, remove="mutations"), decomposition_table=TABLE, tracing_mode="fake"
            )(*tensors)
        except Exception as error:
            pytest.skip(f"cannot be traced: {type(error).__name__}")
        graph = lower_graph(gm, tensors)
        verify(graph)
        torch.manual_seed(42)
        for got, want in zip(run_graph(graph, tensors), wanted, strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)
            if isinstance(want, torch.Tensor) and want.numel() > 1 and want.layout is torch.strided:
                assert got.stride() == want.stride()
