"""From an artifact to a callable: kernels built and bound, constants made, an executor chosen.

``load`` is the package's main function; the rest of this module are its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from . import artifact as a
from .build.compile import build_libraries
from .build.library import entry_address, load_library
from .builtin_languages import CPP
from .cache import Store, default_store
from .config import Config
from .devices import runs_natively
from .errors import ArtifactError
from .executor_py import KernelFunction, PythonExecutor, bind_address
from .languages import language_of
from .native import make_executor
from .profile import count, span


def load(
    artifact: a.Artifact,
    *,
    constants: Sequence[torch.Tensor] = (),
    python_functions: Mapping[str, Callable[..., Any]] | None = None,
    executor: str | None = None,
    store: Store | None = None,
    include_dirs: Sequence[str | Path] = (),
    threads: int | None = None,
    config: Config | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Make ``artifact`` callable: positional tensors and numbers in, a tuple out.

    ``constants`` supplies the ``ConstantSpec``s without data, in order. ``python_functions`` is the table of ``Python``
    instructions. ``config`` (default: the environment's) says what the other arguments leave open. ``executor`` is ``"native"`` (default; not for accelerators
    that the extension does not know) or ``"python"``. C++ libraries without a binary are built
    through ``store`` with headers from ``include_dirs``; ``threads`` is how many threads a C++ kernel uses at most (None:
    ``torch.get_num_threads()`` at the call; the Python executor always uses one); Triton kernels are compiled in the background, the first launch
    of each waits for it (and raises ``TritonCompileError``). Raises ``ArtifactError`` for a malformed artifact or missing
    constants or functions, ``CompilerUnavailable`` and ``BuildError`` from the build.
    """
    config = config or Config.from_environment()
    executor = executor or config.executor
    if executor not in ("native", "python"):
        raise ValueError(f"executor must be 'native' or 'python', not {executor!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1 or None, not {threads}")
    with span("load artifact"):
        artifact.validate()
        functions = dict(python_functions or {})
        _check_functions(artifact.program, functions, set())
        tensors = bind_constants(artifact, constants)
        store = default_store(config) if store is None else store
        artifact = build_libraries(artifact, include_dirs=include_dirs, store=store, config=config)
        others = _other_kernels(artifact, store)
        if executor == "python" or not runs_natively(artifact):
            return PythonExecutor(artifact, bind_kernels(artifact, others), tensors, functions)
        return make_executor(artifact, tensors, functions, others, threads)


def warm_up(store: Store | None = None) -> None:
    """Start the worker processes that compile Triton kernels, so that they are ready when tracing is done. Returns at once.

    For callers who know that a program for a GPU is about to be compiled; those who do not know yet whether its kernels lie in a
    store give that: with any kernel in it nothing is started. Without Triton this does nothing.
    """
    from .triton_kernels import warm_up

    warm_up(store)


def bind_constants(artifact: a.Artifact, constants: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One tensor per ``ConstantSpec``, from its bytes or from ``constants``; dtype and sizes are checked."""
    supplied = iter(constants)
    result = []
    for position, spec in enumerate(artifact.constants):
        if spec.data is not None:
            result.append(_constant_from_bytes(spec))
            continue
        tensor = next(supplied, None)
        if tensor is None:
            wanted = sum(item.data is None for item in artifact.constants)
            raise ArtifactError(f"the artifact needs {wanted} constants, got {len(constants)}", hint="pass constants=")
        if tensor.dtype != spec.dtype or tuple(tensor.shape) != spec.sizes:
            raise ArtifactError(
                f"constant {position} must be {spec.dtype} {list(spec.sizes)}, got {tensor.dtype} {list(tensor.shape)}",
                hint="pass constants= in the order of the specs",
            )
        result.append(tensor.detach())
    if next(supplied, None) is not None:
        raise ArtifactError("more constants were given than the artifact needs", hint="pass one per spec without data")
    return result


def _constant_from_bytes(spec: a.ConstantSpec) -> torch.Tensor:
    assert spec.data is not None
    if len(spec.data) != math.prod(spec.sizes) * spec.dtype.itemsize:
        raise ArtifactError(f"constant t{spec.register} holds {len(spec.data)} bytes, which is not its size")
    if not spec.data:
        return torch.empty(spec.sizes, dtype=spec.dtype, device=spec.device)
    flat = torch.frombuffer(bytearray(spec.data), dtype=spec.dtype)
    return flat.reshape(spec.sizes).to(spec.device)


def bind_kernels(artifact: a.Artifact, others: Mapping[int, KernelFunction]) -> list[KernelFunction]:
    """Every kernel as a function for the Python executor; ``others`` are those that are not C++, by number."""
    return [
        others[number] if number in others else bind_address(kernel_address(artifact, kernel), kernel.scalar_kinds)
        for number, kernel in enumerate(artifact.kernels)
    ]


def _other_kernels(artifact: a.Artifact, store: Store) -> dict[int, KernelFunction]:
    found: dict[int, KernelFunction] = {}
    if all(library.language == CPP.name for library in artifact.libraries):
        return found
    for language in dict.fromkeys(map(language_of, artifact.libraries)):
        if language.bind is not None:
            found |= language.bind(artifact, store)
    return found


def kernel_address(artifact: a.Artifact, kernel: a.Kernel) -> int:
    """The address of a C++ kernel's entry; its library must be built."""
    return entry_address(load_library(artifact.libraries[kernel.library]), kernel.entry)


def _check_functions(program: a.Program, functions: Mapping[str, Any], seen: set[int]) -> None:
    seen.add(id(program))
    for instruction in program.instructions:
        if isinstance(instruction, a.Python):
            count("python instructions loaded")
        if isinstance(instruction, a.Python) and instruction.key not in functions:
            raise ArtifactError(f"no Python function {instruction.key!r} was given", hint="pass python_functions=")
        if isinstance(instruction, a.Subprogram):
            for nested in instruction.programs:
                if id(nested) not in seen:
                    _check_functions(nested, functions, seen)
