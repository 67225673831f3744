"""The stream of CUDA's Philox generator inside a kernel, word for word what eager's kernels draw.

In: nothing. Out: ``SOURCES``, the helper functions by name, each with those that it calls; see ``ops/table.py`` for the operands.
curand keeps the draw in the low half of the counter and the thread in the high half, and makes a float of a word x as
``x / 2**32 + 1 / 2**33``: both steps are exact up to the final rounding, so that the value does not depend on contraction.

One draw gives four words. Where four neighbours of a block take the four words of one draw (``philox_neighbours``, which adds two
dimensions of two), it is made once for them; elsewhere (``philox_uniform``) each element makes the whole draw and takes its word.
"""

from __future__ import annotations

#: Reads an int64 whose address is an integer, in halves: Triton zeroes the result of a load before it loads, and a 64-bit result may
#: be given the register of the address.
_READ = """
def philox_read(address):
    words = address.to(tl.pointer_type(tl.int32))
    low, high = tl.load(words), tl.load(words + 1)
    return (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
"""

_WORDS = """
def philox_words(seed, offset, base, call, thread):
    if base >= 0:
        seed = philox_read(seed)
        offset = philox_read(offset) + base
    counter = (offset >> 2) + call.to(tl.int64)
    low = (counter & 0xFFFFFFFF).to(tl.uint32)
    high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    sequence = thread.to(tl.int32).to(tl.uint32, bitcast=True)
    zero = sequence * 0
    return tl.philox(seed, low + zero, high + zero, sequence, zero)
"""

_FLOAT = """
def philox_float(word):
    return word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
"""

_UNIFORM = """
def philox_uniform(seed, offset, base, call, thread, lane):
    r0, r1, r2, r3 = philox_words(seed, offset, base, call, thread)
    return philox_float(tl.where(lane == 0, r0, tl.where(lane == 1, r1, tl.where(lane == 2, r2, r3))))
"""

_NEIGHBOURS = """
def philox_neighbours(seed, offset, base, call, thread):
    r0, r1, r2, r3 = philox_words(seed, offset, base, call, thread)
    return philox_float(tl.join(tl.join(r0, r2), tl.join(r1, r3)))
"""

#: Name -> (helpers it calls, source), callees first.
SOURCES: dict[str, tuple[tuple[str, ...], str]] = {
    "philox_read": ((), _READ),
    "philox_words": (("philox_read",), _WORDS),
    "philox_float": ((), _FLOAT),
    "philox_uniform": (("philox_words", "philox_float"), _UNIFORM),
    "philox_neighbours": (("philox_words", "philox_float"), _NEIGHBOURS),
}
