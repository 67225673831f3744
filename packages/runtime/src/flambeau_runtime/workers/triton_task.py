"""What a worker process does with one Triton source text: compile it for a target, or interpret it on CPU tensors.

In: source text of a module with ``@triton.jit`` functions, the name of one of them, its signature.
Out: a cubin with the facts a launcher needs, or the changed tensors.

Only the standard library is imported at the top: a worker that compiles never pays for importing torch.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import sys
from typing import Any

#: Set for the process that runs kernels under Triton's interpreter; Triton reads it when it is first imported.
INTERPRET_VARIABLE = "TRITON_INTERPRET"
#: The statement of a kernel that waits until the one before it on the stream has ended: such a kernel may be launched early. From compute
#: capability 9.0 on; elsewhere the statement is left out.
WAIT = "tl.extra.cuda.gdc_wait()"
_WAITS_FROM = 90


@functools.lru_cache(maxsize=4096)
def load_entry(source: str, entry: str) -> Any:
    """The jit function ``entry`` of the module text ``source``.

    The text is registered with ``linecache``: Triton reads a function's source to compile it, and tracebacks show its lines.
    """
    name = f"<flambeau-triton-{hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "flambeau_triton_kernel", "__file__": name}
    exec(compile(source, name, "exec"), namespace)
    return namespace[entry]


def without_wait(source: str) -> str:
    """The text without waiting statements."""
    return "".join(line for line in source.splitlines(keepends=True) if line.strip() != WAIT)


def compile_entry(
    source: str,
    entry: str,
    signature: dict[str, str],
    constexprs: dict[str, Any],
    divisible: list[str],
    num_warps: int,
    num_stages: int,
    arch: int,
    asserts: bool = False,
) -> tuple[dict[str, Any], bytes]:
    """Compile for compute capability ``arch`` (90 is sm_90): ``(facts, cubin)``.

    ``signature`` maps every non-constexpr parameter to Triton's type text (``"*fp32"``, ``"i32"``); parameters named in
    ``divisible`` are promised to be multiples of 16 (pointers: bytes). ``asserts`` keeps the kernel's ``device_assert``s.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    waits = arch >= _WAITS_FROM and WAIT in source
    function = load_entry(source if waits else without_wait(source), entry)
    names = list(function.arg_names)
    types = {name: signature.get(name, "constexpr") for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    request = ASTSource(fn=function, signature=types, constexprs=dict(constexprs), attrs=attributes)
    # Fusing a multiply and an add of two separate eager operations into one rounding would change results.
    options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": False}
    if asserts:
        options |= {"debug": True, "sanitize_overflow": False}
    compiled = triton.compile(request, target=GPUTarget("cuda", arch, 32), options=options)
    meta = compiled.metadata
    facts = {
        "name": meta.name,
        "shared": int(meta.shared),
        "num_warps": int(meta.num_warps),
        "global_scratch": int(getattr(meta, "global_scratch_size", 0) or 0),
        "profile_scratch": int(getattr(meta, "profile_scratch_size", 0) or 0),
        "triton": triton.__version__,
        "waits": waits,
    }
    return facts, bytes(compiled.asm["cubin"])


_TINY = """
import triton
import triton.language as tl

@triton.jit
def tiny(out):
    tl.store(out, 1.0)
"""


def preload() -> None:
    """Import Triton and compile a tiny kernel: a process's first compilation takes five times as long as the later ones."""
    try:
        compile_entry(_TINY, "tiny", {"out": "*fp32"}, {}, [], 1, 1, 90)
    except Exception:
        # Whatever is wrong, the first request will say so.
        return


def interpreter_loaded() -> bool | None:
    """Whether Triton in this process interprets kernels: ``None`` when Triton is not imported yet."""
    module = sys.modules.get("triton")
    if module is None:
        return None
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(module.language.standard.sum, InterpretedFunction)


def import_interpreter() -> None:
    """Import Triton so that it interprets; the environment is as before afterwards."""
    before = os.environ.get(INTERPRET_VARIABLE)
    os.environ[INTERPRET_VARIABLE] = "1"
    try:
        import triton
        import triton.language  # noqa: F401
    finally:
        _restore(before)
    from flambeau_runtime import triton_interpreter

    triton_interpreter.install()


def interpret_entry(source: str, entry: str, grid: tuple[int, int, int], args: dict[str, Any]) -> None:
    """Run ``entry`` over ``grid`` under Triton's interpreter; tensors in ``args`` are changed in place.

    Triton must have been imported by :func:`import_interpreter` in this process.
    """
    before = os.environ.get(INTERPRET_VARIABLE)
    os.environ[INTERPRET_VARIABLE] = "1"
    try:
        function = load_entry(without_wait(source), entry)
        if 0 not in grid:
            import numpy

            from flambeau_runtime.triton_interpreter import Libdevice, install

            install()
            function.fn.__globals__["libdevice"] = Libdevice()
            # Lanes outside a mask divide by zero and overflow as they do on a GPU: in silence.
            with numpy.errstate(all="ignore"):
                function[grid](**args)
    except Exception as error:
        # Triton wraps what a kernel raises.
        cause = error.__cause__ or error.__context__
        if isinstance(cause, IndexError):
            raise cause from None
        raise
    finally:
        _restore(before)


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(INTERPRET_VARIABLE, None)
    else:
        os.environ[INTERPRET_VARIABLE] = before
