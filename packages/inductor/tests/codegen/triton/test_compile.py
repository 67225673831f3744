"""Generated kernels compile for sm_90 with Triton's compiler, on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import harness
import test_kernels
import test_ops

from flambeau_inductor import expr as ex
from flambeau_inductor.codegen.triton import Config
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import KernelBody, Reduce, ScanStep, Store
from flambeau_inductor.ir.loops import make_axes
from flambeau_inductor.ops.table import scalar_op
from flambeau_runtime.triton_kernels import compile_kernels

F32, I64, BOOL = torch.float32, torch.int64, torch.bool


def ops_body(dtype: torch.dtype) -> KernelBody:
    """One kernel that stores the result of every op on ``dtype``."""
    axes = make_axes((ex.Int(1000),))
    x = axes[0].symbol
    tensors = {"a": torch.empty(1000, dtype=dtype), "b": torch.empty(1000, dtype=dtype)}
    operands = [sc.load("a", x, dtype), sc.load("b", x, dtype)]
    stores = []
    for name in [n for n, d in test_ops.cases() if d is dtype]:
        value = sc.op(name, *operands[: scalar_op(name).arity])
        tensors[f"o_{name}"] = torch.empty(1000, dtype=value.dtype)
        stores.append(Store(f"o_{name}", x, value))
    return harness.make_body(tensors, axes, (), stores)


def reductions_body(dtype: torch.dtype, kinds: list[str]) -> KernelBody:
    """One kernel with every reduction kind."""
    outer, inner, at = test_kernels.rows()
    tensors = {"a": torch.empty(5, 50, dtype=dtype)}
    statements = []
    for kind in kinds:
        result = I64 if kind.startswith("arg") else dtype
        tensors[f"o_{kind}"] = torch.empty(5, dtype=result)
        statements.append(Reduce(kind, kind, sc.load("a", at, dtype), result))
        statements.append(Store(f"o_{kind}", outer[0].symbol, sc.reduced(kind, result)))
    return harness.make_body(tensors, outer, inner, statements)


def scans_body() -> KernelBody:
    outer, inner, at = test_kernels.rows()
    tensors = {"a": torch.empty(5, 50)}
    statements = []
    for kind in ("sum", "prod", "max", "logaddexp"):
        tensors[f"o_{kind}"] = torch.empty(5, 50)
        statements.append(ScanStep(kind, kind, sc.load("a", at, F32), F32))
        statements.append(Store(f"o_{kind}", at, sc.reduced(kind, F32), level="inner"))
    return harness.make_body(tensors, outer, inner, statements)


def scatter_body(dtype: torch.dtype, mode: str) -> KernelBody:
    axes = make_axes((ex.Int(600),))
    x = axes[0].symbol
    at = sc.indirect(sc.load("index", x, I64), ex.Int(30))
    tensors = {
        "index": torch.empty(600, dtype=I64),
        "source": torch.empty(600, dtype=dtype),
        "out": torch.empty(30, dtype=dtype),
    }
    return harness.make_body(tensors, axes, (), [Store("out", at, sc.load("source", x, dtype), mode=mode)])


def conversions_body() -> KernelBody:
    axes = make_axes((ex.Int(100),))
    x = axes[0].symbol
    tensors = {f"a{n}": torch.empty(100, dtype=d) for n, d in enumerate(test_ops.DTYPES)}
    stores = []
    for n, source in enumerate(test_ops.DTYPES):
        for m, target in enumerate(test_ops.DTYPES):
            if source is not target:
                tensors[f"o{n}_{m}"] = torch.empty(100, dtype=target)
                stores.append(Store(f"o{n}_{m}", x, sc.op("to_dtype", sc.load(f"a{n}", x, source), dtype=target)))
    return harness.make_body(tensors, axes, (), stores)


def transpose_body() -> KernelBody:
    axes = make_axes((ex.Int(50), ex.Symbol("s0", 2)))
    i, j = (axis.symbol for axis in axes)
    size = axes[1].size
    buffers = tuple(harness.buffer(n, torch.empty(50)) for n in ("a", "out"))
    return KernelBody(
        "test", axes, (), (Store("out", i * size + j, sc.load("a", j * 50 + i, F32)),), buffers, (size,), harness.CPU
    )


SOFTMAX = {"a": torch.empty(5, 50), "out": torch.empty(5, 50)}
FLOAT_KINDS = ["sum", "prod", "max", "min", "argmax", "argmin"]


def bodies() -> list[tuple[KernelBody, Config | None]]:
    persistent, looped = test_kernels.PERSISTENT, test_kernels.LOOPED
    embedding, _ = test_kernels.embedding()
    return [
        (ops_body(F32), None),
        (ops_body(torch.int32), None),
        (conversions_body(), None),
        (reductions_body(F32, FLOAT_KINDS), looped),
        (scans_body(), looped),
        (test_kernels.softmax_body(SOFTMAX), persistent),
        (embedding, None),
        (transpose_body(), None),
    ]


def more_bodies() -> list[tuple[KernelBody, Config | None]]:
    persistent, looped = test_kernels.PERSISTENT, test_kernels.LOOPED
    return [
        *((ops_body(dtype), None) for dtype in (torch.float64, I64, torch.uint8, BOOL)),
        (reductions_body(F32, FLOAT_KINDS), persistent),
        (reductions_body(torch.float64, FLOAT_KINDS), looped),
        (reductions_body(I64, [*FLOAT_KINDS, "xor_sum"]), looped),
        (reductions_body(BOOL, ["any", "all"]), looped),
        (reductions_body(BOOL, ["any", "all"]), persistent),
        (scans_body(), persistent),
        (test_kernels.softmax_body(SOFTMAX), looped),
        *(
            (scatter_body(d, "add"), None)
            for d in (F32, torch.float64, torch.bfloat16, torch.float16, I64, torch.int32)
        ),
        *((scatter_body(I64, mode), None) for mode in ("min", "max", "set")),
        (scatter_body(torch.bfloat16, "mul"), None),
    ]


def test_kernels_compile_for_sm_90() -> None:
    """Each becomes a cubin that names its entry."""
    requests = [harness.request(*pair) for pair in bodies()]
    for request, cubin in zip(requests, compile_kernels(requests)):
        assert cubin.name == request.entry and cubin.binary.startswith(b"\x7fELF")


@pytest.mark.slow
def test_more_kernels_compile_for_sm_90() -> None:
    """Every dtype, reduction kind and scatter mode."""
    requests = [harness.request(*pair) for pair in more_bodies()]
    assert len(compile_kernels(requests)) == len(requests)
