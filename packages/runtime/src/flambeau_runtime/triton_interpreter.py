"""What Triton's interpreter lacks, so that interpreted kernels compute what compiled ones do.

In: an interpreting Triton, already imported. Out: the same, with
- ``libdevice`` for CPU arrays: the functions of the device library computed by torch's own kernels;
- float32 to bfloat16 rounded to nearest even, as hardware does (the interpreter cuts bits off), and exact back;
- float8_e4m3fn rounded to nearest even, no further than its largest number (the interpreter's carry goes astray), and exact back;
- products of bfloat16 and float8 blocks (the interpreter multiplies their bits, or halves);
- float32's fused multiply-add with one rounding, also where a Triton has two;
- comparisons as truth values also where a scalar's is spread over a block;
- inline assembly that names itself in its first line (``// name number ...``), done by the function of that name here;
- reductions and scans with a function of the kernel's own done on whole arrays, not element by element;
- ``device_assert`` as an ``IndexError`` with the kernel's message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from attrs import frozen

#: libdevice's name -> torch's function.
_UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log1p": torch.log1p,
    "log10": torch.log10, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin,
    "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh,
    "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf, "erfc": torch.erfc, "erfinv": torch.erfinv,
    "lgamma": torch.lgamma, "rint": torch.round, "sqrt": torch.sqrt, "fast_log2f": torch.log2,
}  # fmt: skip
_BINARY = {
    "atan2": torch.atan2, "hypot": torch.hypot, "copysign": torch.copysign, "nextafter": torch.nextafter, "pow": torch.pow,
    "fmod": torch.fmod, "fast_dividef": torch.div,
}  # fmt: skip


class Libdevice:
    """Stands in for ``triton.language.extra.libdevice`` in the namespace of an interpreted kernel."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = _UNARY.get(name) or _BINARY.get(name)
        if function is None:
            raise AttributeError(f"libdevice.{name} has no stand-in for the interpreter")

        def call(*operands: Any) -> Any:
            block = next(operand for operand in operands if not isinstance(operand, float))
            return _like(block, function(*map(_tensor, operands)))

        return call


def _tensor(operand: Any) -> torch.Tensor:
    """The values of a block, or a number of the kernel's text."""
    if isinstance(operand, float):
        return torch.tensor(operand)
    return torch.from_numpy(np.ascontiguousarray(operand.handle.data))


def _like(block: Any, result: torch.Tensor) -> Any:
    """A block with the element type of ``block`` holding ``result``."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    scalar = block.dtype.scalar
    data = result.numpy()
    kind = tl.block_type(scalar, list(data.shape)) if block.type.is_block() else scalar
    return tl.core.tensor(TensorHandle(data, scalar), kind)


def _reduce_large_angles(
    largest: float, angle: torch.Tensor, rest: torch.Tensor, quarters: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Finite angles beyond ``largest`` in quarter turns and a rest of at most π/4, the others' as they are given."""
    sine, cosine = angle.double().sin(), angle.double().cos()
    count = torch.atan2(sine, cosine).div(math.pi / 2).nan_to_num().round().to(torch.int32)
    # By the function that is small there: its error is relative to the rest.
    small = torch.stack([sine, -cosine, -sine, cosine]).gather(0, (count % 4).long()[None])[0]
    large = (angle.abs() > largest) & angle.isfinite()
    return torch.where(large, small.asin().float(), rest), torch.where(large, count, quarters)


def _flushed(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], tuple[torch.Tensor]]:
    """``function`` with zeros for results, and arguments, that are no normal numbers."""

    def flush(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs() < torch.finfo(torch.float32).tiny, x * 0.0, x)

    return lambda x: (flush(function(flush(x))),)


#: The name of an assembly -> what it computes of the numbers beside its name and of tensors.
_ASSEMBLY: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "reduce_large_angles": _reduce_large_angles,
    "flushed_exp2": _flushed(torch.exp2),
    "flushed_reciprocal": _flushed(torch.reciprocal),
}


#: The largest number of float8_e4m3fn.
_LARGEST_FLOAT8 = 448.0


@frozen
class _Results:
    """What the builder gives back for an operation of several results."""

    handles: list[Any]

    def get_result(self, number: int) -> Any:
        """One of them."""
        return self.handles[number]


def install() -> None:
    """Patch the interpreter of this process, once."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if getattr(builder, "flambeau_installed", False):
        return
    builder.flambeau_installed = True
    original_binary, original_fma = builder.binary_op, builder.create_fma

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        result = original_binary(self, lhs, rhs, op)
        # The interpreter leaves a comparison the type of its operands, and spreads it over a block in that type.
        return interpreter.TensorHandle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if z.data.dtype != np.float32:
            return original_fma(self, x, y, z)
        # The product of two float32 is exact in float64.
        with np.errstate(all="ignore"):
            return interpreter.TensorHandle((x.data.astype(np.float64) * y.data + z.data).astype(np.float32), z.dtype)

    def create_inline_asm(self: Any, text: str, constraints: str, args: list[Any], *rest: Any) -> _Results:
        _, name, *numbers = text.split("\n", 1)[0].split()
        if name not in _ASSEMBLY:
            raise AttributeError(f"assembly {name} has no stand-in for the interpreter")
        tensors = (torch.from_numpy(np.ascontiguousarray(arg.data)) for arg in args)
        results = _ASSEMBLY[name](*map(float, numbers), *tensors)
        kinds = {torch.float32: tl.float32, torch.int32: tl.int32}
        return _Results([interpreter.TensorHandle(result.numpy(), kinds[result.dtype]) for result in results])

    def create_assert(self: Any, condition: Any, message: str, *rest: Any) -> None:
        if not np.all(condition.data):
            raise IndexError(message)

    # Assertions exist in debug mode only.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    _install_narrow_types()
    builder.binary_op = binary_op
    builder.create_fma = create_fma
    builder.create_inline_asm = create_inline_asm
    builder.create_assert = create_assert
    interpreter.ReduceOps.generic_reduce = _generic_reduce
    interpreter.ScanOps.generic_scan = _generic_scan


def _install_narrow_types() -> None:
    """Conversions from and to bfloat16 and float8, and products of them."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    original_cast, original_dot, original_convert = builder.cast_impl, builder.create_dot, builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
            return interpreter.TensorHandle(_round_to_bfloat16(src.data), tl.bfloat16)
        if src.dtype.scalar == tl.bfloat16 and dst_type.scalar == tl.float32:
            # A bfloat16 is the upper half of a float32, subnormal or not.
            data = (np.asarray(src.data).astype(np.uint32) << np.uint32(16)).view(np.float32)
            return interpreter.TensorHandle(data, tl.float32)
        return original_cast(self, src, dst_type)

    def widened(self: Any, x: Any) -> Any:
        if x.dtype.scalar == tl.float8e4nv:
            return create_fp_to_fp(self, x, tl.float32, None)
        return cast_impl(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        # The product of two bfloat16, or of two float8, is exact in float32.
        sides = [widened(self, x) for x in (a, b)]
        return original_dot(self, *sides, *rest)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == tl.float32 and target == tl.float8e4nv:
            return interpreter.TensorHandle(_round_to_float8(src.data), tl.float8e4nv)
        if source == tl.float8e4nv:
            values = torch.from_numpy(np.ascontiguousarray(src.data)).view(torch.float8_e4m3fn).float()
            wide = interpreter.TensorHandle(values.numpy().reshape(src.data.shape), tl.float32)
            return wide if target == tl.float32 else cast_impl(self, wide, dst_type)
        return original_convert(self, src, dst_type, rounding)

    builder.cast_impl = cast_impl
    builder.create_dot = create_dot
    builder.create_fp_to_fp = create_fp_to_fp


def _round_to_bfloat16(data: np.ndarray) -> np.ndarray:
    values = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32)).to(torch.bfloat16)
    return values.view(torch.int16).numpy().view(np.uint16).reshape(data.shape)


def _round_to_float8(data: np.ndarray) -> np.ndarray:
    values = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32)).clamp(-_LARGEST_FLOAT8, _LARGEST_FLOAT8)
    return values.to(torch.float8_e4m3fn).view(torch.uint8).numpy().reshape(data.shape)


def _combine(op: Any, left: list[np.ndarray], right: list[np.ndarray], inputs: Any) -> list[np.ndarray]:
    blocks = [
        op.to_tensor(np.ascontiguousarray(part), block.dtype)
        for part, block in zip([*left, *right], [*inputs, *inputs])
    ]
    answer = op.combine_fn.fn(*blocks)
    parts = answer if isinstance(answer, tuple) else (answer,)
    return [np.broadcast_to(part.handle.data, left[0].shape) for part in parts]


def _generic_reduce(self: Any, inputs: Any) -> list[Any]:
    """Halve the axis until one element is left, as a GPU's tree does."""
    axis = self.axis
    flat = axis is None
    parts = [block.handle.data.reshape(-1) if flat else np.moveaxis(block.handle.data, axis, -1) for block in inputs]
    while parts[0].shape[-1] > 1:
        size = parts[0].shape[-1]
        half = size // 2
        joined = _combine(self, [p[..., :half] for p in parts], [p[..., half : 2 * half] for p in parts], inputs)
        parts = [np.concatenate([j, p[..., 2 * half :]], axis=-1) for j, p in zip(joined, parts)]
    results = []
    for part, block in zip(parts, inputs):
        data = part[..., 0]
        if flat:
            data = data.reshape([1] * len(block.shape)) if self.keep_dims else data.item()
        elif self.keep_dims:
            data = np.expand_dims(data, axis)
        results.append(self.to_tensor(data, block.dtype))
    return results


def _generic_scan(self: Any, inputs: Any) -> list[Any]:
    """Combine each element with the one 1, 2, 4, … before it."""
    parts = [np.moveaxis(block.handle.data, self.axis, -1) for block in inputs]
    distance, size = 1, parts[0].shape[-1]
    while distance < size:
        # Blocks are powers of two long: combine whole rows and keep the start, which has nothing before it.
        joined = _combine(self, [np.roll(p, distance, axis=-1) for p in parts], parts, inputs)
        parts = [np.concatenate([p[..., :distance], j[..., distance:]], axis=-1) for j, p in zip(joined, parts)]
        distance *= 2
    moved = (np.ascontiguousarray(np.moveaxis(part, -1, self.axis)) for part in parts)
    return [self.to_tensor(data, block.dtype) for data, block in zip(moved, inputs)]
