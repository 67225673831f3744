"""Triton source text to something that runs: a cubin for a GPU, or Triton's interpreter on CPU tensors.

In: the source of a ``Library`` whose language is ``"triton"`` and the ``meta`` of its kernels (``signature``,
``constexprs``, ``divisible``, ``num_warps``, ``num_stages``). Out: ``Cubin`` records, or changed tensors.

Triton is imported only where a kernel is interpreted. Kernels are compiled by the worker processes of ``workers/compilers.py``,
even one alone: the first compilation in a process takes long, and one process holds either the compiler or the interpreter.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import torch
from attrs import Factory, asdict, evolve, frozen

from flambeau_runtime.artifact import Artifact
from flambeau_runtime.cache import CacheKey, Store
from flambeau_runtime.triton_source import alone
from flambeau_runtime.workers import Answer, Pool, Request, WorkerFailed, triton_task
from flambeau_runtime.workers.compilers import shared

#: Compute capability that kernels are compiled for when no GPU says otherwise (sm_90).
DEFAULT_ARCH = 90
#: The statement of a kernel that comes before its first access to memory: with it, the kernel is launched while the one before it ends.
WAIT = triton_task.WAIT

#: What kernels are in the store.
_KIND = "cubin"


#: A constexpr of this name is True in the version of a kernel whose promised arguments are multiples of 16, and False in the one without promises.
ALIGNED = "ALIGNED"


class TritonCompileError(RuntimeError):
    """A kernel that Triton refused; the message names the kernel, ``source`` is its text, ``trace`` Triton's traceback."""

    def __init__(self, entry: str, message: str, source: str, trace: str = "") -> None:
        super().__init__(f"Triton could not compile {entry}: {message}")
        self.source = source
        self.trace = trace


@frozen
class Cubin:
    """A compiled kernel: ``binary`` holds the function ``name`` for compute capability ``arch``.

    ``shared`` is the dynamic shared memory in bytes; ``global_scratch`` and ``profile_scratch`` are the sizes behind the two
    trailing pointer parameters that Triton adds to every kernel (null pointers where the size is 0). ``waits``: it waits itself for
    what was queued before it, and may be launched early.
    """

    name: str
    arch: int
    shared: int
    num_warps: int
    global_scratch: int
    profile_scratch: int
    triton: str
    binary: bytes
    waits: bool = False


@frozen
class CompileRequest:
    """One kernel to compile: see :func:`compile_kernel`."""

    source: str
    entry: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = Factory(dict)
    divisible: tuple[str, ...] = ()
    num_warps: int = 4
    num_stages: int = 1
    arch: int = DEFAULT_ARCH
    asserts: bool = False

    @classmethod
    def from_meta(cls, source: str, entry: str, meta: Mapping[str, Any], arch: int = DEFAULT_ARCH) -> CompileRequest:
        """The request of a kernel in an artifact, from its ``meta``; equal kernels give equal requests."""
        source, entry = alone(source, entry)
        return cls(
            source=source,
            entry=entry,
            signature=dict(meta["signature"]),
            constexprs=dict(meta.get("constexprs", {})),
            divisible=tuple(meta.get("divisible", ())),
            num_warps=int(meta.get("num_warps", 4)),
            num_stages=int(meta.get("num_stages", 1)),
            arch=arch,
            asserts=bool(meta.get("asserts", False)),
        )

    def without_promises(self) -> CompileRequest:
        """The version for arguments that are no multiples of 16."""
        constexprs = {name: False if name == ALIGNED else value for name, value in self.constexprs.items()}
        return evolve(self, divisible=(), constexprs=constexprs)

    def arguments(self) -> dict[str, Any]:
        return {
            "entry": self.entry,
            "signature": dict(self.signature),
            "constexprs": dict(self.constexprs),
            "divisible": list(self.divisible),
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "arch": self.arch,
            "asserts": self.asserts,
        }


def compile_kernel(
    source: str,
    entry: str,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any] | None = None,
    num_warps: int = 4,
    target: int = DEFAULT_ARCH,
    *,
    num_stages: int = 1,
    divisible: Sequence[str] = (),
) -> Cubin:
    """Compile one kernel for compute capability ``target``.

    ``signature`` maps each run-time parameter to Triton's type text, ``constexprs`` each other one to its value; those in
    ``divisible`` are promised to be multiples of 16. Raises ``TritonCompileError``.
    """
    request = CompileRequest(
        source, entry, signature, constexprs or {}, tuple(divisible), num_warps, num_stages, target
    )
    return compile_kernels([request])[0]


def compile_kernels(requests: Sequence[CompileRequest], *, pool: Pool | None = None) -> list[Cubin]:
    """Compile kernels in worker processes. Raises ``TritonCompileError`` for the first kernel that fails."""
    return [cubin.result() for cubin in submit_kernels(requests, pool=pool)]


def submit_kernels(requests: Sequence[CompileRequest], *, pool: Pool | None = None) -> list[Future[Cubin]]:
    """``compile_kernels`` while the caller goes on; the futures raise ``TritonCompileError``."""
    work = [Request("compile", {"arguments": r.arguments()}, (r.source.encode(),)) for r in requests]
    answers = (pool or shared()).submit(work) if work else []
    cubins: list[Future[Cubin]] = []
    for request, answer in zip(requests, answers, strict=True):
        cubin: Future[Cubin] = Future()
        answer.add_done_callback(partial(_hand_on, request, cubin))
        cubins.append(cubin)
    return cubins


def _hand_on(request: CompileRequest, cubin: Future[Cubin], answer: Future[Answer | WorkerFailed]) -> None:
    try:
        made = _cubin(request, answer.result())
    except BaseException as error:
        cubin.set_exception(error)
    else:
        cubin.set_result(made)


def warm_up(store: Store | None = None) -> None:
    """Start worker processes that get Triton ready while this process traces. Call it when kernels will be compiled soon.

    With a ``store``, only where that holds no kernel at all: else the wanted ones may be there. Returns at once; without Triton it
    does nothing.
    """
    if importlib.util.find_spec("triton") is not None and not (store is not None and store.holds(_KIND)):
        shared().warm_up()


def _cubin(request: CompileRequest, answer: Answer | WorkerFailed) -> Cubin:
    if isinstance(answer, WorkerFailed):
        raise TritonCompileError(request.entry, str(answer), request.source, answer.trace) from answer
    facts, blobs = answer
    return Cubin(arch=request.arch, binary=blobs[0], **facts)


def compile_stored(requests: Sequence[CompileRequest], store: Store) -> list[Cubin]:
    """``compile_kernels``, taking from ``store`` what it holds and putting there what it lacked."""
    return [cubin.result() for cubin in submit_stored(requests, store)]


def submit_stored(requests: Sequence[CompileRequest], store: Store) -> list[Future[Cubin]]:
    """``compile_stored`` while the caller goes on; what is made goes to ``store`` whether or not anybody asks for it.

    A kernel that is being compiled already is waited for and not compiled again.
    """
    keys = [_cache_key(request) for request in requests]
    cubins: dict[str, Future[Cubin]] = {}
    missing: list[tuple[CompileRequest, CacheKey]] = []
    place = str(store.folder or id(store))
    with _IN_FLIGHT_LOCK:
        for request, key in zip(requests, keys, strict=True):
            if key.digest in cubins:
                continue
            running = _IN_FLIGHT.get((place, key.digest))
            found = _unpack(store.get(key)) if running is None else None
            cubins[key.digest] = running or Future()
            if found is not None:
                cubins[key.digest].set_result(found)
            elif running is None:
                missing.append((request, key))
                _IN_FLIGHT[place, key.digest] = cubins[key.digest]
    try:
        fresh = submit_kernels([request for request, _ in missing])
    except BaseException:
        with _IN_FLIGHT_LOCK:
            for _, key in missing:
                _IN_FLIGHT.pop((place, key.digest)).cancel()
        raise
    for (_, key), cubin in zip(missing, fresh, strict=True):
        cubin.add_done_callback(partial(_keep, store, key, place, cubins[key.digest]))
    return [cubins[key.digest] for key in keys]


#: Kernels being compiled, by where they will be kept and the digest of their key.
_IN_FLIGHT: dict[tuple[str, str], Future[Cubin]] = {}
_IN_FLIGHT_LOCK = threading.Lock()


def _keep(store: Store, key: CacheKey, place: str, kept: Future[Cubin], cubin: Future[Cubin]) -> None:
    try:
        made = cubin.result()
        store.put(key, _pack(made))
    except BaseException as error:
        kept.set_exception(error)
    else:
        kept.set_result(made)
    finally:
        with _IN_FLIGHT_LOCK:
            del _IN_FLIGHT[place, key.digest]


def kernel_requests(artifact: Artifact, arch: int) -> list[CompileRequest]:
    """What compiling every Triton kernel of ``artifact`` takes, in the order of its kernels."""
    return [
        CompileRequest.from_meta(library.text, kernel.entry, kernel.meta, arch)
        for kernel in artifact.kernels
        if (library := artifact.libraries[kernel.library]).language == "triton"
    ]


@functools.cache
def _triton_version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _cache_key(request: CompileRequest) -> CacheKey:
    arguments = {name: json.dumps(value, sort_keys=True) for name, value in request.arguments().items()}
    return CacheKey(_KIND, {"source": request.source, "triton": _triton_version(), **arguments})


def _pack(cubin: Cubin) -> bytes:
    facts = asdict(cubin, filter=lambda attribute, value: attribute.name != "binary")
    return json.dumps(facts).encode() + b"\0" + cubin.binary


def _unpack(payload: bytes | None) -> Cubin | None:
    if payload is None:
        return None
    facts, _, binary = payload.partition(b"\0")
    return Cubin(binary=binary, **json.loads(facts))


def run_interpreted(
    source: str,
    entry: str,
    grid: tuple[int, int, int],
    args: Mapping[str, Any],
    *,
    pool: Pool | None = None,
) -> None:
    """Run ``entry`` over ``grid`` on CPU tensors under Triton's interpreter; the tensors in ``args`` change in place.

    ``args`` maps every parameter, constexprs included, to a tensor, int, float or bool. Where this process has loaded
    Triton's compiler, a worker process interprets instead and the tensors' bytes travel. Raises what the kernel raises.
    """
    if pool is None:
        loaded = triton_task.interpreter_loaded()
        if loaded is None:
            triton_task.import_interpreter()
            loaded = True
        if loaded:
            triton_task.interpret_entry(source, entry, grid, dict(args))
            return
        pool = _interpreter_process()
    _interpret_elsewhere(pool, source, entry, grid, args)


@functools.cache
def _interpreter_process() -> Pool:
    """The one worker that interprets for a process which cannot: started by its first kernel, joined at exit."""
    pool = Pool(1, {triton_task.INTERPRET_VARIABLE: "1"})
    atexit.register(pool.close)
    return pool


def _interpret_elsewhere(
    pool: Pool, source: str, entry: str, grid: tuple[int, int, int], args: Mapping[str, Any]
) -> None:
    storages: dict[int, tuple[int, torch.Tensor]] = {}
    described: dict[str, Any] = {}
    for name, value in args.items():
        if not isinstance(value, torch.Tensor):
            described[name] = value
            continue
        storage = value.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8).set_(storage)
        index, _ = storages.setdefault(storage.data_ptr(), (len(storages), flat))
        described[name] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "sizes": list(value.shape),
            "strides": list(value.stride()),
            "offset": value.storage_offset(),
            "storage": index,
        }
    flats = [flat for _, flat in storages.values()]
    blobs = (source.encode(), *(bytes(flat.numpy().tobytes()) for flat in flats))
    fields = {"entry": entry, "grid": list(grid), "arguments": described}
    answer = pool.run([Request("interpret", fields, blobs)])[0]
    if isinstance(answer, WorkerFailed):
        if str(answer).startswith("IndexError"):
            raise IndexError(str(answer).partition(": ")[2]) from answer
        raise answer
    for flat, data in zip(flats, answer[1], strict=True):
        if len(data):
            flat.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def launch_arguments(meta: Mapping[str, Any], buffers: Sequence[Any], scalars: Sequence[Any]) -> dict[str, Any]:
    """The named arguments of one launch: buffers then scalars in the order of ``meta["signature"]``, then constexprs."""
    names = list(meta["signature"])
    values = [*buffers, *scalars]
    if len(names) != len(values):
        raise ValueError(f"a kernel of {len(names)} parameters was given {len(values)} arguments")
    return {**dict(zip(names, values, strict=True)), **dict(meta.get("constexprs", {}))}
