"""How a wrapper tensor (a subclass with `__tensor_flatten__`) is made of plain tensors.

In: a wrapper, real or fake. Out: its `Form`, by which wrappers of its kind are taken apart and put together; `TakenApart` and `Assembled` do so as
autograd sees it: the gradient of a wrapper is a wrapper of the same form, and the parts have gradients that are plain tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from attrs import frozen
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import UnsupportedGraph, WrappedGradient

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
#: Dtype and shape of a tensor.
Layout = tuple[torch.dtype, torch.Size]


def is_wrapper_class(cls: type) -> bool:
    """Whether tensors of this class hold others and say which."""
    return cls not in _PLAIN and hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def is_wrapper(value: Any) -> bool:
    """Whether a value is a tensor that holds others."""
    return isinstance(value, torch.Tensor) and is_wrapper_class(type(value))


def plain_parts(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor itself, or the plain tensors that it holds."""
    if not is_wrapper(value):
        yield value
        return
    for name in value.__tensor_flatten__()[0]:
        part = getattr(value, name)
        if isinstance(part, torch.Tensor):
            yield from plain_parts(part)


@frozen(eq=False)
class Part:
    """Something inside of a wrapper: a plain tensor, a wrapper with a `form`, or, where `fixed` is set, another object that is always the same."""

    name: str
    form: Form | None = None
    fixed: Any = None

    def is_tensor(self) -> bool:
        """Whether it is a plain tensor."""
        return self.form is None and self.fixed is None


@frozen(eq=False)
class Form:
    """A class of wrappers, what its objects tell of themselves besides their tensors, and where their sizes and strides come from.

    `like`: the name of a part that has the same sizes and strides, or "" where they are `sizes` and `strides`; `ragged`: the dimension of a jagged
    tensor whose size only the tensor itself knows, or -1.
    """

    cls: Any
    context: Any
    parts: tuple[Part, ...]
    like: str
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    ragged: int = -1

    def take_apart(self, wrapper: Any) -> list[torch.Tensor]:
        """The plain tensors inside, in order."""
        found: list[torch.Tensor] = []
        for part in self.parts:
            if part.fixed is None:
                inner = getattr(wrapper, part.name)
                found += [inner] if part.form is None else part.form.take_apart(inner)
        return found

    def assemble(self, tensors: Iterator[torch.Tensor]) -> Any:
        """A wrapper of the next tensors."""
        held: dict[str, Any] = {}
        for part in self.parts:
            if part.fixed is not None:
                held[part.name] = part.fixed
            else:
                held[part.name] = next(tensors) if part.form is None else part.form.assemble(tensors)
        sizes, strides = self._layout(held)
        return self.cls.__tensor_unflatten__(held, self.context, sizes, strides)

    def have_gradients(self, tensors: Sequence[torch.Tensor]) -> list[bool]:
        """Of which of these parts a gradient consists: of the values of a jagged tensor, else of all that are no whole numbers. The others are the
        same in a wrapper and in its gradient."""
        if self.ragged >= 0:
            return [part.name == "_values" for part in self.parts]
        return [part.is_floating_point() or part.is_complex() for part in tensors]

    def _layout(self, held: dict[str, Any]) -> tuple[Any, Any]:
        if self.like:
            return held[self.like].shape, held[self.like].stride()
        if self.ragged < 0:
            return torch.Size(self.sizes), self.strides
        counted = held.get("_lengths", held["_offsets"])
        if not isinstance(counted, FakeTensor):
            return None, None
        return [counted.get_nested_int() if dim == self.ragged else 0 for dim in range(self.ragged + 1)], None

    def fits(self, wrapper: Any) -> bool:
        """Whether a wrapper is taken apart as those of this form are, and tells the same of itself."""
        if type(wrapper) is not self.cls:
            return False
        names, context = _as_leaf(wrapper).__tensor_flatten__()
        if list(names) != [part.name for part in self.parts] or not _same_context(context, self.context):
            return False
        for part in self.parts:
            inner = getattr(wrapper, part.name)
            if part.fixed is not None and inner is not part.fixed and inner != part.fixed:
                return False
            if part.form is not None and not part.form.fits(inner):
                return False
        return True


_LAID_OUT = ("shape", "stride", "dtype")
"""What a distributed tensor tells of how it is laid out: its sizes and strides are those of the wrapper itself."""


def _same_context(one: Any, other: Any) -> bool:
    """Whether two wrappers tell the same of themselves, but for their sizes and strides."""
    if type(one) is not type(other):
        return False
    if getattr(type(one), "_fields", None) == _LAID_OUT:
        return bool(one.dtype == other.dtype)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same_context, one, other))
    return bool(one == other)


def _has_symbol(context: Any) -> bool:
    if getattr(type(context), "_fields", None) == _LAID_OUT:
        return False
    if isinstance(context, dict):
        return any(map(_has_symbol, context.values()))
    if isinstance(context, (tuple, list, set, frozenset)):
        return any(map(_has_symbol, context))
    return isinstance(context, (torch.SymInt, torch.SymFloat, torch.SymBool))


def form_of(wrapper: Any) -> Form:
    """The form of a wrapper. Raises `UnsupportedGraph` where its sizes are symbols that no part has."""
    names, context = _as_leaf(wrapper).__tensor_flatten__()
    if _has_symbol(context):
        raise UnsupportedGraph(f"a {type(wrapper).__name__} that tells of a symbolic number")
    parts = []
    like = ""
    for name in names:
        inner = getattr(wrapper, name)
        if not isinstance(inner, torch.Tensor):
            parts.append(Part(name, fixed=inner))
            continue
        parts.append(Part(name, form_of(inner) if is_wrapper(inner) else None))
        if not like and not wrapper.is_nested and _lies_as(inner, wrapper):
            like = name
    if wrapper.is_nested:
        ragged = getattr(wrapper, "_ragged_idx", None)
        if ragged is None:
            raise UnsupportedGraph(f"a nested {type(wrapper).__name__}")
        return Form(type(wrapper), context, tuple(parts), "", ragged=ragged)
    if like:
        return Form(type(wrapper), context, tuple(parts), like)
    numbers = (*wrapper.shape, *wrapper.stride())
    if not all(isinstance(number, int) for number in numbers):
        raise UnsupportedGraph(f"a {type(wrapper).__name__} of a symbolic size")
    return Form(type(wrapper), context, tuple(parts), "", tuple(wrapper.shape), tuple(wrapper.stride()))


def _as_leaf(wrapper: Any) -> Any:
    """The wrapper without its history, which is no part of what its gradients tell of themselves."""
    if not wrapper.requires_grad:
        return wrapper
    fakes = [part.fake_mode for part in plain_parts(wrapper) if isinstance(part, FakeTensor)]
    try:
        with fakes[0] if fakes else nullcontext():
            return wrapper.detach()
    except (RuntimeError, TypeError) as error:
        raise UnsupportedGraph(f"a {type(wrapper).__name__} cannot be detached: {error}") from error


def form_of_gradient(wrapper: Any, form: Form) -> Form:
    """The form of the gradient of a result: the result's own, or that of what its class makes of it for that, as gradients of parts of a sum are whole.

    Raises `UnsupportedGraph` where that is made of other tensors.
    """
    if not (wrapper.requires_grad and hasattr(wrapper, "__coerce_tangent_metadata__")):
        return form
    parts = form.take_apart(wrapper)
    fakes = [part.fake_mode for part in parts if isinstance(part, FakeTensor)]
    with fakes[0] if fakes else nullcontext(), torch.no_grad():
        tangent = _as_leaf(wrapper).__coerce_tangent_metadata__()
    found = form_of(tangent)
    if not are_laid_out(found.take_apart(tangent), [(part.dtype, part.shape) for part in parts]):
        raise UnsupportedGraph(f"a gradient of a {form.cls.__name__} is made of other tensors than that")
    return found


def _lies_as(inner: torch.Tensor, wrapper: torch.Tensor) -> bool:
    if inner.is_nested or inner.dim() != wrapper.dim():
        return False
    pairs = zip((*inner.shape, *inner.stride()), (*wrapper.shape, *wrapper.stride()))
    return all(_same(one, other) for one, other in pairs)


def are_laid_out(parts: Sequence[torch.Tensor], layouts: Sequence[Layout]) -> bool:
    """Whether tensors have these dtypes and shapes: no guard is made."""
    return len(parts) == len(layouts) and all(
        part.dtype == dtype and len(part.shape) == len(shape) and all(map(_same, part.shape, shape))
        for part, (dtype, shape) in zip(parts, layouts)
    )


def _same(one: Any, other: Any) -> bool:
    """Whether two sizes are the same number or the same symbol: no guard is made."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return isinstance(one, torch.SymInt) and isinstance(other, torch.SymInt) and one.node.expr == other.node.expr


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a wrapper that leaves it: the same memory, and nobody's view."""
    value = getattr(tensor, "_flambeau", None)
    return tensor.detach() if value is None else value.owner.on_its_own(tensor)


class TakenApart(torch.autograd.Function):
    """A wrapper as its plain tensors. `watch`: a write to the wrapper is an error in the backward, since eager saves it; it is not counted for its
    tensors. `gradient`: the form of its gradient."""

    @staticmethod
    def forward(ctx: Any, form: Form, gradient: Form, watch: bool, wrapper: Any) -> tuple[torch.Tensor, ...]:
        """As `Function` defines it."""
        ctx.set_materialize_grads(False)
        if watch:
            ctx.save_for_backward(wrapper)
        parts = form.take_apart(wrapper)
        have = form.have_gradients(parts)
        ctx.form, ctx.parts = gradient, [None if given else part for part, given in zip(parts, have)]
        ctx.layouts = [(part.shape, part.dtype, part.device) for part in parts]
        outs = tuple(map(_apart, parts))
        ctx.mark_non_differentiable(*(out for out, given in zip(outs, have) if not given))
        return outs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        if all(grad is None for grad in grads):
            return None, None, None, None
        _ = ctx.saved_tensors
        given = []
        for grad, fixed, (shape, dtype, device) in zip(grads, ctx.parts, ctx.layouts):
            absent = fixed is None and grad is None
            given.append(torch.zeros(shape, dtype=dtype, device=device) if absent else fixed if grad is None else grad)
        return None, None, None, assembled(ctx.form, given)


class Assembled(torch.autograd.Function):
    """A wrapper of plain tensors; `gradient`, `watch` as for `TakenApart`. `place`: of the input, in a graph, else -1."""

    @staticmethod
    def forward(ctx: Any, form: Form, gradient: Form, watch: bool, place: int, *parts: torch.Tensor) -> Any:
        """As `Function` defines it."""
        ctx.set_materialize_grads(False)
        ctx.form, ctx.place = gradient, place
        ctx.places = [given and needed for given, needed in zip(form.have_gradients(parts), ctx.needs_input_grad[4:])]
        ctx.layouts = [(part.dtype, part.shape) for part in parts]
        made = form.assemble(part.detach() for part in parts)
        made = made.detach() if made.requires_grad else made
        if watch:
            ctx.save_for_backward(made)
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        (grad,) = grads
        if grad is None:
            return (None,) * (4 + len(ctx.places))
        _ = ctx.saved_tensors
        return (None,) * 4 + tuple(_parts_of_gradient(ctx.form, grad, ctx.places, ctx.layouts, ctx.place))


class Carrying(torch.autograd.Function):
    """A tensor whose gradient is a wrapper that is made of other tensors: a plain one, which eager gives such a gradient where it is used beside wrappers,
    or a divided one whose gradient is whole. The gradient's parts are those of `carriers`."""

    @staticmethod
    def forward(ctx: Any, form: Form, tensor: Any, *carriers: torch.Tensor) -> Any:
        """As `Function` defines it."""
        ctx.set_materialize_grads(False)
        ctx.form, ctx.layouts = form, [(part.dtype, part.shape) for part in carriers]
        return _apart(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        (grad,) = grads
        if grad is None:
            return (None,) * (2 + len(ctx.layouts))
        return None, None, *_parts_of_gradient(ctx.form, grad, [True] * len(ctx.layouts), ctx.layouts)


class Carried(torch.autograd.Function):
    """A tensor without its history, and carriers with it: of the parts of its gradient (`layouts`), without memory; `watch` as for `TakenApart`."""

    @staticmethod
    def forward(ctx: Any, form: Form, layouts: Sequence[Layout], watch: bool, tensor: Any) -> tuple[Any, ...]:
        """As `Function` defines it."""
        ctx.set_materialize_grads(False)
        if watch:
            ctx.save_for_backward(tensor)
        ctx.form = form
        ctx.carriers = carriers(next(plain_parts(tensor)), layouts)
        plain = tensor.detach()
        ctx.mark_non_differentiable(plain)
        return plain, *(part.detach() for part in ctx.carriers)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        given = grads[1:]
        if all(grad is None for grad in given):
            return None, None, None, None
        _ = ctx.saved_tensors
        parts = [torch.zeros_like(part) if grad is None else grad for grad, part in zip(given, ctx.carriers)]
        return None, None, None, assembled(ctx.form, parts)


class Unviewed(torch.autograd.Function):
    """A view that a function of the program or of torch's gave, as a tensor of its own."""

    @staticmethod
    def forward(ctx: Any, view: torch.Tensor) -> torch.Tensor:
        """As `Function` defines it."""
        return _apart(view)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        return grads[0]


class Viewed(torch.autograd.Function):
    """Such a view again, to which nobody may write."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        """As `Function` defines it."""
        return tensor.detach().view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        return grads[0]


def unviewed(view: torch.Tensor) -> torch.Tensor:
    """In a graph: see `Unviewed`."""
    return Unviewed.apply(view)


def is_view_of_function(value: Any) -> bool:
    """Whether a tensor is a view that an `autograd.Function` gave, as a distributed tensor gives its local part."""
    if not isinstance(value, torch.Tensor) or is_wrapper(value) or not (value.requires_grad and value._is_view()):
        return False
    try:
        return isinstance(value.grad_fn, torch.autograd.function.BackwardCFunction)
    except RuntimeError:  # of a view whose memory was written since
        return False


def carriers(tensor: torch.Tensor, layouts: Sequence[Layout]) -> list[torch.Tensor]:
    """Tensors of these dtypes and shapes, all of whose elements are one."""
    return [tensor.new_zeros((), dtype=dtype).expand(shape) for dtype, shape in layouts]


def _parts_of_gradient(
    form: Form, grad: Any, wanted: Sequence[bool], layouts: Sequence[Layout], place: int = -1
) -> list[torch.Tensor | None]:
    if not form.fits(grad):
        if place >= 0 and type(grad) is form.cls:
            raise WrappedGradient(place, grad, outer=True)
        grad = _as_expected(form, grad)
    history = grad.requires_grad and torch.is_grad_enabled()
    parts = TakenApart.apply(form, form, False, grad) if history else map(_apart, form.take_apart(grad))
    found = []
    for part, wants, layout in zip(parts, wanted, layouts):
        if wants and (part.dtype, part.shape) != layout:
            raise UnsupportedGraph(f"a gradient of a {form.cls.__name__} is made of other tensors than that")
        found.append(part if wants else None)
    return found


def _as_expected(form: Form, grad: Any) -> Any:
    """A gradient as the class itself makes one that fits, of one in order where the gradient's own strides do not."""
    convert = getattr(grad, "__coerce_same_metadata_as_tangent__", None)
    given = (form.context,) if type(grad) is form.cls else (form.context, form.cls)
    found = grad if convert is None else convert(*given)
    if found is not None and not form.fits(found):
        found = found.clone(memory_format=torch.contiguous_format)
    if found is None or not form.fits(found):
        raise UnsupportedGraph(f"a gradient of a {form.cls.__name__} is a {type(grad).__name__} that is made otherwise")
    return found


def taken_apart(
    form: Form, wrapper: Any, *, gradient: Form | None = None, watch: bool = False
) -> Sequence[torch.Tensor]:
    """The plain tensors of a wrapper, with its history; its gradient is of the form `gradient`, that of the wrapper itself by default."""
    if wrapper.requires_grad and torch.is_grad_enabled():
        return TakenApart.apply(form, gradient or form, watch, wrapper)
    return form.take_apart(wrapper)


def assembled(
    form: Form, parts: Sequence[torch.Tensor], *, gradient: Form | None = None, watch: bool = False, place: int = -1
) -> Any:
    """A wrapper of plain tensors, with their history; `gradient` as for `taken_apart`, `place` as for `Assembled`."""
    if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        return Assembled.apply(form, gradient or form, watch, place, *parts)
    return form.assemble(part.detach() if part.requires_grad else part for part in parts)
