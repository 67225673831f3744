"""What the compiler makes of the kernels for sm_90: sixteen bytes an access, nothing spilled."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton")

import harness
from tracing import lowered, traced_on_cuda

from flambeau_inductor.expr import as_expr
from flambeau_inductor.ir import scalar
from flambeau_inductor.ir.kernel import Store
from flambeau_inductor.ir.loops import make_axes
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime.artifact import Artifact
from flambeau_runtime.triton_kernels import compile_kernels, kernel_requests

TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="Triton came without cuobjdump")

F32, BF16 = torch.float32, torch.bfloat16
Specs = list[tuple[tuple[int, ...], torch.dtype]]


def artifact_of(function: Callable[..., Any], specs: Specs) -> Artifact:
    """The program for CUDA tensors of these sizes; no GPU is needed."""
    shapes = [torch.empty(sizes, dtype=dtype, device="meta") for sizes, dtype in specs]
    return compile_loops(lowered(traced_on_cuda(function, *shapes))).artifact


def machine_code(function: Callable[..., Any], specs: Specs, folder: Path) -> list[str]:
    """The disassembly of every kernel."""
    texts = []
    for number, cubin in enumerate(compile_kernels(kernel_requests(artifact_of(function, specs), 90))):
        path = folder / f"{number}.cubin"
        path.write_bytes(cubin.binary)
        done = subprocess.run([TOOL, "-sass", str(path)], capture_output=True, text=True, check=True)
        texts.append(done.stdout)
    return texts


def accesses(code: str) -> tuple[set[str], set[str]]:
    """The widths in bits of the loads and of the stores, as the instructions name them."""
    widths = {"LDG": set(), "STG": set()}
    for kind, rest in re.findall(r"\b(LDG|STG)\.([A-Z0-9.]*)", code):
        words = set(rest.split("."))
        widths[kind] |= words & {"128", "64", "U16", "U8"} or {"32"}
    return widths["LDG"], widths["STG"]


CASES: dict[str, tuple[Callable[..., Any], Specs]] = {
    "add": (lambda a, b: a + b, [((1 << 20,), F32)] * 2),
    "add_bf16": (lambda a, b: a + b, [((1 << 20,), BF16)] * 2),
    "bias": (lambda a, b: F.relu(a + b), [((4096, 1024), BF16), ((1024,), BF16)]),
    "cat": (lambda a, b: torch.cat([a, b], 1), [((4096, 512), F32)] * 2),
    "transpose": (lambda a: a.t().clone(memory_format=torch.contiguous_format), [((2048, 2048), F32)]),
    "softmax": (lambda a: a.softmax(-1), [((4096, 1024), BF16)]),
    "layer_norm": (lambda a, w: F.layer_norm(a, (4096,), w), [((4096, 4096), BF16), ((4096,), BF16)]),
}


def _gradient_of_logits(g: Any, x: Any, largest: Any, logarithm: Any, target: Any, total: Any) -> Any:
    """As the backward of a loss computes it from what was saved."""
    found = x.float() - largest - logarithm
    gradient = torch.ops.aten.nll_loss_backward(g, found, target, None, 1, -100, total)
    return torch.ops.aten._log_softmax_backward_data(gradient, found, 1, F32).to(BF16)


@pytest.mark.parametrize("classes", [32000, 50257, 128256])
def test_gradients_of_logits_hold_the_values_of_a_row(classes: int, tmp_path: Path) -> None:
    """One loop, in which the logits are read and written by sixteen bytes; rows that begin anywhere have edges besides."""
    row, number = ((4096, 1), F32), ((), F32)
    specs = [number, ((4096, classes), BF16), row, row, ((4096,), torch.int64), number]
    (code,) = machine_code(_gradient_of_logits, specs, tmp_path)
    edges = {"U16"} if classes % 8 else set()
    assert accesses(code) == ({"128", "64", "32"} | edges, {"128"} | edges)
    assert "STL" not in code


@pytest.mark.parametrize("name", CASES)
def test_every_access_is_sixteen_bytes(name: str, tmp_path: Path) -> None:
    """Contiguous pointwise kernels, both sides of a transpose, rows."""
    for code in machine_code(*CASES[name], tmp_path):
        assert accesses(code) == ({"128"}, {"128"})
        assert "STL" not in code


@pytest.mark.parametrize("name", CASES)
def test_memory_is_touched_after_the_wait(name: str, tmp_path: Path) -> None:
    """Kernels are launched before the one in front of them has ended."""
    for code in machine_code(*CASES[name], tmp_path):
        assert code.count("ACQBULK") == 1
        assert not re.search(r"\b(LDG|STG|RED|ATOM)", code.split("ACQBULK")[0])


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_rows_of_odd_length_are_read_in_vectors(dtype: torch.dtype, tmp_path: Path) -> None:
    """A long row starts anywhere: vectors inside, single elements at its edges."""
    (code,) = machine_code(lambda a: a.softmax(-1), [((1024, 50257), dtype)], tmp_path)
    single = "32" if dtype is F32 else "U16"
    assert accesses(code) == ({"128", single}, {"128", single})
    assert "STL" not in code


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_group_norm_is_one_kernel_that_shares_a_multiprocessor(dtype: torch.dtype, tmp_path: Path) -> None:
    """Many rows of 9,216 elements, read once and kept without padding, with few enough registers for three programs."""

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.group_norm(x, 32, w, b))

    specs = [((16, 128, 48, 48), dtype), ((128,), dtype), ((128,), dtype)]
    artifact = artifact_of(function, specs)
    assert [kernel.name.split("_fused")[0] for kernel in artifact.kernels] == ["triton_per"]
    (code,) = machine_code(function, specs, tmp_path)
    loads, stores = accesses(code)
    assert "128" in loads and stores == {"128"} and "STL" not in code
    used = max(int(number) for number in re.findall(r"\bR(\d+)\b", code))
    assert used < 80
    rows = len(re.findall(r"\bLDG\.\S*128", code))
    assert rows == (9 if dtype is torch.float32 else 5)


@pytest.mark.parametrize("rows", [1 << 10, 1 << 16])
def test_results_leave_room_for_the_table_they_come_from(rows: int, tmp_path: Path) -> None:
    """Stores of more than the cache holds are the first to leave it, where a table is looked up."""

    def function(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.embedding(ids, table), (512,))

    (code,) = machine_code(function, [((rows,), torch.int64), ((10000, 512), F32)], tmp_path)
    stores = re.findall(r"\bSTG\.(\S*)", code)
    assert stores and all((".EF" in store) == (rows == 1 << 16) for store in stores)


def test_few_rows_as_long_stay_in_registers() -> None:
    """One program a multiprocessor is all there is: nothing waits for registers."""
    (kernel,) = artifact_of(lambda x: F.layer_norm(x, (9216,)), [((64, 9216), F32)]).kernels
    assert kernel.name.startswith("triton_per")


def test_an_odd_number_of_elements_is_read_in_vectors(tmp_path: Path) -> None:
    """Only the last block of a pointwise kernel has a mask."""
    (code,) = machine_code(lambda a: a * 2 + 1, [((1000003,), BF16)], tmp_path)
    assert "128" in accesses(code)[0]


def test_few_rows_are_reduced_by_many_programs() -> None:
    """A sum of everything and column sums of a tall matrix take two kernels, and no atomics."""
    for function, sizes in ((lambda a: a.sum(), (1 << 24,)), (lambda a: a.sum(0), (1 << 18, 64))):
        kernels = artifact_of(function, [(sizes, F32)]).kernels
        assert len(kernels) == 2


def test_equal_kernels_are_one() -> None:
    """Layers of a model share their kernels, whatever their buffers are called."""

    def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = F.layer_norm(x @ w, (64,)) * 2
        return x

    kernels = artifact_of(layers, [((512, 64), F32), ((64, 64), F32)]).kernels
    assert len(kernels) == 4 and len({kernel.entry for kernel in kernels}) == 1


@pytest.mark.parametrize("dtype", [F32, BF16, torch.float16])
def test_sums_at_computed_positions_are_vector_atomics(dtype: torch.dtype, tmp_path: Path) -> None:
    """Sixteen bytes of a row at once, in the format of the result."""
    axes = make_axes((512, 1024))
    row, column = (axis.symbol for axis in axes)
    place = scalar.indirect(scalar.load("rows", row, torch.int64), as_expr(64), wrap=False)
    value = scalar.load("values", 1024 * row + column, dtype)
    tensors = {
        "rows": torch.zeros(512, dtype=torch.int64),
        "values": torch.zeros(512, 1024, dtype=dtype),
        "sums": torch.zeros(64, 1024, dtype=dtype),
    }
    store = Store("sums", 1024 * place + column, value, mode="add")
    (cubin,) = compile_kernels([harness.request(harness.make_body(tensors, axes, (), [store]))])
    path = tmp_path / "sums.cubin"
    path.write_bytes(cubin.binary)
    code = subprocess.run([TOOL, "-sass", str(path)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(?:RED|ATOM)\w*\.\S*x([0-9]+)", code)
    assert set(found) == {str(16 // dtype.itemsize)}
