"""Parts of a CUDA graph that a value on the device decides: the driver's conditional nodes (CUDA 12.4 and later).

In: the stream that is being captured, a condition in device memory, a stream for the part. Out: a node in the captured graph, whose own graph is
captured within; a kernel in front of it reads the condition whenever the graph is replayed.
See the CUDA driver API's "Graph Management", `cuGraphConditionalHandleCreate`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from attrs import frozen

from .cuda import CudaError, Driver, load_image

#: The first driver whose graphs may have conditional nodes.
FIRST_DRIVER = 12_040

_CONDITIONAL = 13  # CU_GRAPH_NODE_TYPE_CONDITIONAL
_IF, _WHILE = 0, 1  # CUgraphConditionalNodeType
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_SET_DEPENDENCIES = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES

_ENTRY = "decide"
KERNEL = b"""
.version 8.0
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry decide(.param .u64 handle, .param .u64 condition, .param .u32 wanted)
{
    .reg .pred %same;
    .reg .b16 %byte;
    .reg .b32 %value, %wanted, %set;
    .reg .b64 %handle, %place, %global;
    ld.param.u64 %handle, [handle];
    ld.param.u64 %place, [condition];
    ld.param.u32 %wanted, [wanted];
    cvta.to.global.u64 %global, %place;
    ld.global.u8 %byte, [%global];
    cvt.u32.u16 %value, %byte;
    setp.ne.u32 %same, %value, 0;
    selp.u32 %value, 1, 0, %same;
    setp.eq.u32 %same, %value, %wanted;
    selp.u32 %set, 1, 0, %same;
    {
        .param .b64 to;
        .param .b32 what;
        st.param.b64 [to], %handle;
        st.param.b32 [what], %set;
        call.uni cudaGraphSetConditional, (to, what);
    }
    ret;
}
"""
"""Sets a node's condition to whether a bool in memory is the wanted one. Only code on the device can; the driver links the function."""


class _Conditional(ctypes.Structure):
    """CUDA_CONDITIONAL_NODE_PARAMS."""

    _fields_ = (
        ("handle", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("graphs", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
    )


class _Union(ctypes.Union):
    _fields_ = (("reserved", ctypes.c_longlong * 29), ("conditional", _Conditional))


class _NodeParams(ctypes.Structure):
    """CUgraphNodeParams."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("of", _Union),
        ("reserved_last", ctypes.c_longlong),
    )


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether the driver of this process has conditional nodes, on a device that torch calls CUDA's."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return False
    version = ctypes.c_int()
    try:
        Driver.get().call("cuDriverGetVersion", ctypes.byref(version))
    except CudaError:
        return False
    return version.value >= FIRST_DRIVER


@frozen(eq=False)
class Condition:
    """What a node of a graph under capture asks. ``decide`` has a bool in memory decide it, from where the current stream is."""

    handle: ctypes.c_uint64
    ordinal: int

    def decide(self, condition: torch.Tensor, wanted: bool = True) -> None:
        """Queue on the current stream: the node's graph runs (again) if ``condition``, one bool, is ``wanted``."""
        driver, function = Driver.get(), _kernel(self.ordinal)
        values = (self.handle, ctypes.c_uint64(condition.data_ptr()), ctypes.c_uint32(wanted))
        pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
        queue = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, queue, pointers, None)


@contextmanager
def decided(
    condition: torch.Tensor, wanted: bool, inner: torch.cuda.Stream, *, again: bool = False
) -> Iterator[Condition]:
    """What is queued within is done at a replay where ``condition``, one bool on the device, is ``wanted`` (``again``: as long as it is).

    The current stream is being captured, and is ``inner`` within. Who wants it done ``again`` asks the ``Condition`` to decide anew at the end.
    Raises ``CudaError``.
    """
    driver, ordinal = Driver.get(), condition.device.index
    driver.enter(ordinal)
    outer = torch.cuda.current_stream().cuda_stream
    graph, _, _ = _capture(driver, outer)
    context = ctypes.c_void_p()
    driver.call("cuCtxGetCurrent", ctypes.byref(context))
    asked = Condition(ctypes.c_uint64(), ordinal)
    driver.call("cuGraphConditionalHandleCreate", ctypes.byref(asked.handle), graph, context, 0, 0)
    asked.decide(condition, wanted)
    graph, dependencies, count = _capture(driver, outer)
    node, params = ctypes.c_void_p(), _NodeParams(type=_CONDITIONAL)
    params.of.conditional = _Conditional(asked.handle, _WHILE if again else _IF, 1, None, context)
    driver.call("cuGraphAddNode", ctypes.byref(node), graph, dependencies, count, ctypes.byref(params))
    driver.call("cuStreamUpdateCaptureDependencies", ctypes.c_void_p(outer), ctypes.byref(node), 1, _SET_DEPENDENCIES)
    part = ctypes.c_void_p(params.of.conditional.graphs[0])
    with torch.cuda.stream(inner):
        stream = ctypes.c_void_p(inner.cuda_stream)
        driver.call("cuStreamBeginCaptureToGraph", stream, part, None, None, 0, _THREAD_LOCAL)
        try:
            yield asked
        finally:
            driver.call("cuStreamEndCapture", stream, ctypes.byref(part))


def _capture(driver: Driver, stream: int) -> tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]:
    """The graph that a stream is captured to, and what the next node of it depends on."""
    status, number = ctypes.c_int(), ctypes.c_uint64()
    graph, dependencies, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    driver.call(
        "cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number),
        ctypes.byref(graph), ctypes.byref(dependencies), ctypes.byref(count),
    )  # fmt: skip
    if not graph:
        raise CudaError("a part that data decides is queued on a stream that is not being captured")
    return graph, dependencies, count


@lru_cache
def _kernel(ordinal: int) -> ctypes.c_void_p:
    return load_image(KERNEL, _ENTRY, ordinal)[0]
