"""The stream of CUDA's Philox generator inside a kernel, word for word what eager's kernels draw.

In: nothing. Out: ``SOURCE``, the helper function ``philox_uniform``, and ``READ_SOURCE``, which it calls;
see ``ops/table.py`` for the operands.
curand keeps the draw in the low half of the counter and the thread in the high half, and makes a float of a word x as
``x / 2**32 + 1 / 2**33``: both steps are exact up to the final rounding, so that the value does not depend on contraction.
"""

from __future__ import annotations

#: Reads an int64 whose address is an integer, in halves: Triton zeroes the result of a load before it loads, and a 64-bit result may
#: be given the register of the address.
READ_SOURCE = """
def philox_read(address):
    words = address.to(tl.pointer_type(tl.int32))
    low, high = tl.load(words), tl.load(words + 1)
    return (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
"""

SOURCE = """
def philox_uniform(seed, offset, base, call, thread, lane):
    if base >= 0:
        seed = philox_read(seed)
        offset = philox_read(offset) + base
    counter = (offset >> 2) + call.to(tl.int64)
    low = (counter & 0xFFFFFFFF).to(tl.uint32)
    high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    sequence = thread.to(tl.int32).to(tl.uint32, bitcast=True)
    zero = sequence * 0
    r0, r1, r2, r3 = tl.philox(seed, low + zero, high + zero, sequence, zero)
    word = tl.where(lane == 0, r0, tl.where(lane == 1, r1, tl.where(lane == 2, r2, r3)))
    return word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
"""
