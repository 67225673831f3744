"""The body of a worker process: frames in, frames out, until it is told to stop or the stream closes.

It is run by path, not as a module of the package, so that it starts without importing torch. Requests carry ``method``
(``"compile"``, ``"interpret"`` or ``"time"``); answers carry ``ok`` and either the result or ``error``. A worker serves stdin and stdout.
With the argument ``nursery`` the process makes Triton's compiler ready and forks a worker for each socket that comes on stdin.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import sys
import traceback
from types import ModuleType
from typing import Any, BinaryIO


def _sibling(name: str) -> ModuleType:
    """Load a module of this folder by path: importing the package would import torch."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"flambeau_worker_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


protocol = _sibling("protocol")
triton_task = _sibling("triton_task")


def _compile(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    facts, cubin = triton_task.compile_entry(blobs[0].decode(), **header["arguments"])
    return facts, [cubin]


def _interpret(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    import torch

    if triton_task.interpreter_loaded() is None:
        triton_task.import_interpreter()
    storages = []
    for data in blobs[1:]:
        # Two extra bytes' worth is never read: an empty storage still needs an address.
        flat = torch.empty(max(len(data), 1), dtype=torch.uint8)
        if data:
            flat[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        storages.append(flat)
    args: dict[str, Any] = {}
    for name, spec in header["arguments"].items():
        if isinstance(spec, dict):
            base = torch.empty(0, dtype=getattr(torch, spec["dtype"]))
            storage = storages[spec["storage"]].untyped_storage()
            args[name] = base.set_(storage, spec["offset"], spec["sizes"], spec["strides"])
        else:
            args[name] = spec
    triton_task.interpret_entry(blobs[0].decode(), header["entry"], tuple(header["grid"]), args)
    return {}, [bytes(s.numpy().tobytes())[: len(d)] for s, d in zip(storages, blobs[1:], strict=True)]


def _time(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    import torch

    from flambeau_runtime import library_settings
    from flambeau_runtime.artifact import Artifact
    from flambeau_runtime.timing import time_artifacts

    library_settings.apply(header["settings"])
    artifacts = [Artifact.from_bytes(blob) for blob in blobs]
    return {"seconds": time_artifacts(artifacts, torch.device(header["device"]))}, []


_METHODS = {"compile": _compile, "interpret": _interpret, "time": _time}


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer frames until told to stop."""
    while (frame := protocol.read_frame(requests)) is not None:
        header, blobs = frame
        if header["method"] == protocol.STOP:
            return
        try:
            result, out = _METHODS[header["method"]](header, blobs)
            answer: tuple[dict[str, Any], list[bytes]] = ({"ok": True, "result": result}, out)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            answer = ({"ok": False, "error": text, "trace": traceback.format_exc()}, [])
        protocol.write_frame(answers, *answer)


def rear(control: socket.socket) -> None:
    """Fork a worker for each socket handed over; at the end, wait for all of them."""
    triton_task.preload()
    while True:
        message, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if message != protocol.NEW:
            break
        if os.fork() == 0:
            control.close()
            with socket.socket(fileno=sockets[0]) as connection:
                serve(connection.makefile("rb"), connection.makefile("wb"))
            os._exit(0)
        os.close(sockets[0])
        _reap(os.WNOHANG)
    _reap(0)


def _reap(flags: int) -> None:
    try:
        while os.waitpid(-1, flags)[0] != 0:
            pass
    except ChildProcessError:
        return


def main() -> None:
    # An interrupt is for the process that waits for the answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not end up between frames.
    os.dup2(2, 1)
    if sys.argv[1:] == ["nursery"]:
        rear(socket.socket(fileno=0))
    else:
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
