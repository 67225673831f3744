"""Hand-made artifacts and isolated stores for the runtime's tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flambeau_runtime import Store, load
from flambeau_runtime import artifact as a

SOURCE = r"""
#include <cstdint>
#include <cstring>
extern "C" int64_t affine(void* const* b, const int64_t* s, int64_t begin, int64_t end) {
  const float* x = static_cast<const float*>(b[0]);
  float* y = static_cast<float*>(b[1]);
  double scale, shift;
  std::memcpy(&scale, s + 0, 8);
  std::memcpy(&shift, s + 1, 8);
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * static_cast<float>(scale) + static_cast<float>(shift);
  return 0;
}
extern "C" int64_t gather(void* const* b, const int64_t* s, int64_t begin, int64_t end) {
  const float* x = static_cast<const float*>(b[0]);
  const int64_t* index = static_cast<const int64_t*>(b[1]);
  float* y = static_cast<float*>(b[2]);
  for (int64_t i = begin; i < end; ++i) {
    if (index[i] < 0 || index[i] >= s[0]) return 1;
    y[i] = x[index[i]];
  }
  return 0;
}
"""


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for the session, so that the kernels are compiled once."""
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def make(store: Store) -> Any:
    """``make(instructions, inputs, outputs, executor=...)`` -> callable; kernels 0 ``affine`` and 1 ``gather``."""

    def build(instructions: Any, inputs: Any, outputs: Any, *, executor: str = "native", **options: Any) -> Any:
        return load(artifact_of(instructions, inputs, outputs, **options.pop("parts", {})),
                    executor=executor, store=store, **options)  # fmt: skip

    return build


@pytest.fixture(params=["native", "python"])
def executor(request: pytest.FixtureRequest) -> str:
    """Both executors."""
    return request.param


@pytest.fixture
def artifact() -> a.Artifact:
    """``y = x * 2 + 1`` over a symbolic number of rows."""
    s0 = a.Scalar(0)
    return artifact_of(
        [
            a.Compute(1, "mul", (s0, 4)),
            a.Alloc(1, (s0, 4), (4, 1), torch.float32),
            a.Launch(0, (0, 1), (2.0, 1.0), a.Scalar(1), 1024),
        ],
        [a.InputSpec("tensor", 0, torch.float32, "cpu", (s0, 4), (4, 1), name="x"), a.InputSpec("scalar", 0)],
        [a.OutputSpec("tensor", 1), a.OutputSpec("scalar", a.Scalar(1))],
        symbols=[a.Symbol("s0", 0, 8)],
        meta={"name": "affine", "limits": [1.5, float("inf")]},
    )


@pytest.fixture
def tensor_input() -> Any:
    """``tensor_input(register, sizes, dtype)`` -> contiguous ``InputSpec``."""

    def make_input(
        register: int, sizes: tuple[int, ...], dtype: torch.dtype = torch.float32, **options: Any
    ) -> a.InputSpec:
        strides, step = [], 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= size
        return a.InputSpec("tensor", register, dtype, "cpu", sizes, strides, **options)

    return make_input


def artifact_of(instructions: Any, inputs: Any, outputs: Any, **parts: Any) -> a.Artifact:
    """An artifact with as many registers as its instructions name, and the two kernels."""
    stack = [["model.py", 12, "forward"]]
    kernels = [
        a.Kernel("cpp_affine", 0, "affine", 2, 2, (torch.float32, torch.float32), "ff", meta={"stack": stack}),
        a.Kernel("cpp_gather", 0, "gather", 3, 1, checks=("index out of range in gather",), meta={"stack": stack}),
    ]
    program = a.Program(instructions, 16, 16, inputs, outputs)
    return a.Artifact(program, [a.Library("kernels", "cpp", SOURCE)], kernels, **parts)
