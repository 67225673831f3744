"""`TensorValue`: a tensor in the graph: an FX node and a fake.

In: node, fake and, for inputs, the real tensor and its source. Out: attributes that are constants of the fake, methods that become
nodes, shape queries that become constants or symbols.
"""

from __future__ import annotations

from operator import getitem, setitem
from types import FunctionType, GetSetDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from ..graph.bodies import hides, varies
from ..graph.inner_tensors import is_wrapper
from ..refusal import CannotCapture
from ..signals import GraphBreak
from ..sources.source import Attribute, InstanceDict, Item, TensorSize
from .base import MISSING, Value
from .constants import ConstantValue
from .inner import inner_attribute
from .open_index import window
from .read_out import item, to_list
from .sequences import ListValue, TupleValue
from .symbolic import SymbolicValue, formula_of_input
from .written_out import WRITTEN_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch.fx

    from ..sources.source import Source
    from .base import Tracer

_FACTS = frozenset((
    "ndim", "dtype", "device", "layout", "is_cuda", "is_cpu", "is_meta", "is_xpu", "is_mps", "is_sparse", "is_nested", "is_quantized",
    "is_mkldnn", "is_sparse_csr", "itemsize", "names", "is_leaf", "requires_grad", "is_xla", "is_mtia", "is_hpu", "is_vulkan", "is_ipu",
    "is_maia", "retains_grad", "nbytes",
))  # fmt: skip
_FACT_METHODS = frozenset((
    "dim", "ndimension", "is_floating_point", "is_complex", "element_size", "get_device", "is_contiguous", "is_conj", "is_neg",
    "is_inference", "is_signed", "storage_offset", "numel", "nelement", "has_names", "is_same_size", "is_nonzero_static",
    "_is_view", "is_pinned", "is_shared", "is_coalesced",
))  # fmt: skip
_OF_THE_REAL_ONE = frozenset((
    "is_leaf", "retains_grad", "_is_view", "is_pinned", "is_shared", "storage_offset", "is_inference",
))  # fmt: skip
"""What two tensors of one layout can differ in: an input answers itself, and a guard remembers what."""
_ANSWERED = _FACT_METHODS | {
    "size",
    "stride",
    "requires_grad_",
    "type",
    "__len__",
    "__iter__",
    "__bool__",
    "__setitem__",
}
"""Methods that make no node of their own name."""
_VIEWS_BY_ATTRIBUTE = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))
_REPLACED = ("backward", "register_hook", "register_post_accumulate_grad_hook")
"""Methods that `lookaside` does something else for."""
_NEVER = {
    "item": "data-dependent-value", "_nnz": "data-dependent-value", "coalesce": "data-dependent-value",
    "const_data_ptr": "data-dependent-value", "tolist": "data-dependent-value", "numpy": "numpy", "__array__": "numpy", "data_ptr": "data-dependent-value",
    "retain_grad": "autograd-call", "untyped_storage": "unsupported-call", "storage": "unsupported-call", "storage_type": "unsupported-call", "set_": "unsupported-call",
    "__reduce_ex__": "unsupported-call", "__deepcopy__": "unsupported-call", "share_memory_": "unsupported-call", "dlpack": "unsupported-call",
    "__dlpack__": "unsupported-call", "_typed_storage": "unsupported-call", "is_set_to": "unsupported-call", "detach_": "autograd-call",
    "unsafe_chunk": "unsupported-call", "unsafe_split": "unsupported-call", "unsafe_split_with_sizes": "unsupported-call",
    "__str__": "data-dependent-value", "__repr__": "data-dependent-value", "__format__": "data-dependent-value", "__hash__": "unsupported-call",
    "__getstate__": "unsupported-call", "__setstate__": "unsupported-call", "__reduce__": "unsupported-call", "_reduce_ex_internal": "unsupported-call", "__sizeof__": "unsupported-call", "__dir__": "unsupported-call",
}  # fmt: skip
_READ_OUT = {"item": item, "tolist": to_list}


_NAMED_OTHERWISE = {
    found: name for name, found in vars(torch.Tensor).items() if type(found) is FunctionType and found.__name__ != name
}
"""Methods of tensors in Python by whose own name nothing is found (`Tensor.__pow__`, which is called `pow`): a graph's code names methods."""


def method_name(function: Any) -> str | None:
    """By which name a function of torch is called as a method of its first argument; None for one that is a node under its own."""
    name: str = function.__name__
    if (name in _NEVER or name in _ANSWERED) and function is torch.Tensor.__dict__.get(name):
        return name
    return _NAMED_OTHERWISE.get(function)


class TensorValue(Value):
    """A tensor. `tensor` is the real one for inputs, `MISSING` for what the graph computes; `number` the one number in it, where that is known."""

    __slots__ = ("attrs", "fake", "node", "number", "static", "tensor", "tensor_type")

    def __init__(
        self, fake: torch.Tensor, node: torch.fx.Node | None, source: Source | None = None, tensor: Any = MISSING
    ) -> None:
        super().__init__(source)
        self.fake = fake
        self.node = node
        self.tensor = tensor
        own = type(fake) if is_wrapper(fake) else torch.Tensor
        self.tensor_type: type = type(tensor) if tensor is not MISSING else own
        self.static = False
        self.number: int | bool | None = None
        self.attrs: dict[str, Value | None] = {}

    def python_type(self) -> type:
        return self.tensor_type

    def real(self) -> Any:
        return self.tensor

    def describe(self) -> str:
        return f"a tensor {str(self.fake.dtype).removeprefix('torch.')}{list(self.fake.shape)}"

    def rebuild(self, e: Any) -> None:
        if self.source is None:
            raise NotImplementedError("a computed tensor is an output of the graph")
        e.source(self.source)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        self._refuse_hidden(t, name)
        own = t.members.patched_member(self.tensor_type, name)
        if own is not None:
            return t.attributes.bind_class_attribute(self, self.tensor_type, name, own)
        if t.overrides.listens and isinstance(getattr(torch.Tensor, name, None), GetSetDescriptorType):
            answer: Value = t.overrides.read(self, name)
            return answer
        return self.plain_attribute(t, name)

    def plain_attribute(self, t: Tracer, name: str) -> Value:
        """`self.name`, where no mode is asked."""
        from .bound import BoundBuiltin

        if name == "shape":
            return self.shape(t)
        if name in _FACTS and hasattr(torch.Tensor, name):
            if name in ("requires_grad", "is_leaf"):
                t.graph.refuse_question(name)
            if name == "nbytes" and any(isinstance(s, torch.SymInt) for s in self.fake.shape):
                raise GraphBreak("unsupported-attribute", "nbytes of a tensor with symbolic sizes")
            if name in _OF_THE_REAL_ONE and self.tensor is not MISSING:
                return self._real_fact(t, name)
            if name == "requires_grad" and self._is_view_of_outside(t):
                raise GraphBreak("unsupported-attribute", "requires_grad of a view that is taken in inference mode")
            return t.wrapper.from_python(self._told(name))
        if name in self.attrs:
            return self.attrs[name] or t.attributes.missing_attribute(self, name, check=None)
        if name in _VIEWS_BY_ATTRIBUTE:
            return t.recorder.record("call_function", getattr, [self, ConstantValue(name)], {})
        if name == "grad":
            return self.gradient(t)
        if name == "grad_fn":
            t.graph.refuse_question(name)
            if self.tensor is not MISSING:
                self._real_fact(t, "is_leaf")
            if self._told(name) is None and (
                self.source is None or self.tensor is MISSING or self.tensor.grad_fn is None
            ):
                return ConstantValue(None)
            raise GraphBreak("unsupported-attribute", "grad_fn of a tensor")
        if name in ("_version", "_base"):
            self._refuse_counting_or_base(name)
        if name == "__class__":
            return t.wrapper.wrap_pinned(self.tensor_type)
        if name == "__dict__":
            raise GraphBreak("unsupported-attribute", "__dict__ of a tensor")
        if self.tensor is not MISSING and name in getattr(self.tensor, "__dict__", {}):
            assert self.source is not None
            return t.wrapper.wrap(self.tensor.__dict__[name], Item(InstanceDict(self.source), name))
        if (inner := inner_attribute(t, self, name)) is not None:
            return inner
        static = getattr(self.tensor_type, name, MISSING)
        if static is MISSING:
            return t.attributes.missing_attribute(self, name, check=self.source)
        if callable(static):
            return BoundBuiltin(self, name)
        raise GraphBreak("unsupported-attribute", f"attribute {name!r} of a tensor")

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        if name == "requires_grad":
            if not self._may_become_leaf(t) or value.realise(t).constant() is not True:
                raise GraphBreak("autograd-call", f"requires_grad of {self.describe()} is set")
            self._require_grad(t, True)
            return
        if is_wrapper(self.fake):
            raise GraphBreak("unsupported-store", f"storing {name!r} of a wrapper tensor")
        if name == "grad":
            self._set_gradient(t, value.realise(t))
            return
        if name == "data" or hasattr(torch.Tensor, name):
            reason = GraphBreak("unsupported-store", f"storing {name!r} of a tensor")
            if name == "data" and (self.fake.requires_grad if self.tensor is MISSING else self._may_be_saved(t)):
                # What eager saved of it for the backward changes as well, what the graph saves does not: eager computes it all.
                raise CannotCapture(reason, recursive=True)
            raise reason
        t.heap.store_attribute(self, name, value)
        self.attrs[name] = value

    def _told(self, name: str) -> Any:
        """An attribute of the fake; eager raises for the history of some views whose memory was written since they were taken."""
        try:
            return getattr(self.fake, name)
        except RuntimeError as error:
            raise GraphBreak("operator-error", f"{name} of a tensor raised: {error}") from error

    def _refuse_hidden(self, t: Tracer, name: str) -> None:
        if hides(t.graph.bodies, self.node, name):
            raise GraphBreak("unsupported-attribute", f"{name} of a tensor within a transformed function")

    def _is_view_of_outside(self, t: Tracer) -> bool:
        """Whether inference mode is or was on, where fakes have no history, and the memory is that of an input which requires grad."""
        if self.tensor is not MISSING or self.fake.requires_grad:
            return False
        from .inference import ENTER

        if not self.fake.is_inference() and not t.graph.root.find_nodes(op="call_function", target=ENTER):
            return False
        memory = self.fake.untyped_storage()._cdata
        return any(
            real.requires_grad and fake.untyped_storage()._cdata == memory for real, fake, _ in t.wrapper.tensor_inputs
        )

    def _may_be_saved(self, t: Tracer) -> bool:
        """Whether something was computed of this input, and something of the graph has a gradient."""
        return self.node is not None and bool(self.node.users) and t.graph.has_history()

    def delete_attribute(self, t: Tracer, name: str) -> None:
        if is_wrapper(self.fake) or (
            self.attrs.get(name) is None and (name in self.attrs or name not in getattr(self.tensor, "__dict__", {}))
        ):
            raise GraphBreak("unsupported-store", f"deleting {name!r} of a tensor")
        t.heap.store_attribute(self, name, None)
        self.attrs[name] = None

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        answer: Value | None = t.overrides.instead("call_method", name, [self, *args], kwargs)
        if answer is not None:
            return answer
        if name == "as_subclass":
            made: Value = t.overrides.as_subclass(self, args, kwargs)
            return made
        if name == "detach_":
            self._refuse_detached()
        if name == "retain_grad":
            self.refuse_history(name)
        if name in _REPLACED:
            return t.caller.call(t.wrapper.wrap_pinned(getattr(torch.Tensor, name)), [self, *args], kwargs)
        if name == "numpy":
            t.members.refuse_patched(self, name)
            return t.caller.call(t.wrapper.wrap_pinned(torch.Tensor.numpy), [self, *args], kwargs)
        if name == "item" and self.number is not None and not args and not kwargs:
            t.members.refuse_patched(self, name)
            return ConstantValue(self.number)
        if name in _READ_OUT and t.config.capture_scalar_outputs and not args and not kwargs:
            return _READ_OUT[name](t, self)
        if name in _NEVER:
            raise GraphBreak(_NEVER[name], f"Tensor.{name}()")
        self._refuse_hidden(t, name)
        if name in _ANSWERED:
            # By asking the tensor, whose class may have another by now: torch's own was called by itself.
            t.members.refuse_patched(self, name)
        if name in ("size", "stride"):
            return _size_or_stride(t, self, name, args, kwargs)
        if name == "requires_grad_":
            wanted = [t.folder.concrete(value) for value in (*args, *kwargs.values())] or [True]
            if len(wanted) > 1 or not isinstance(wanted[0], bool) or not {"requires_grad"}.issuperset(kwargs):
                raise GraphBreak("unsupported-call", "Tensor.requires_grad_() of what torch may refuse")
            self._require_grad(t, wanted[0])
            return self
        if name in _OF_THE_REAL_ONE and self.tensor is not MISSING and not args and not kwargs:
            return self._real_fact(t, name)
        if name in ("is_inference", "_is_view") and any(
            tensor.is_inference() != self.fake.is_inference() for tensor, _, _ in t.wrapper.tensor_inputs
        ):
            broken = GraphBreak("unsupported-call", f"{name}() of what may be a view of an inference tensor")
            # A graph hands on no view of what was detached in inference mode.
            raise broken if name == "is_inference" else CannotCapture(broken, always=False)
        if name == "is_coalesced" and self.fake.layout is torch.sparse_coo:
            raise GraphBreak("data-dependent-value", "is_coalesced() of a sparse tensor that the graph computes")
        if name in _FACT_METHODS:
            return self._query(t, name, args, kwargs)
        if name == "type" and not args and not kwargs and self.fake.layout is torch.strided:
            return ConstantValue(
                torch.empty(0, dtype=self.fake.dtype, device="meta").type().replace("torch.meta.", "torch.")
                if self.fake.device.type == "cpu"
                else f"torch.{self.fake.device.type}.{_type_name(self.fake.dtype)}"
            )
        if name in ("__len__", "__iter__", "__bool__") and (args or kwargs):
            raise GraphBreak("unsupported-call", f"Tensor.{name}() with arguments")
        if name == "__len__":
            return self.length(t)
        if name == "__iter__":
            return self.iterate(t)
        if name == "__bool__":
            return ConstantValue(self.truth(t))
        if name == "__setitem__" and len(args) == 2 and not kwargs:
            self.set_item(t, args[0], args[1])
            return ConstantValue(None)
        if name == "new":
            return t.caller.call(t.wrapper.wrap_pinned(torch.Tensor.new), [self, *args], kwargs)
        if kwargs:
            found = _with_tensor_for_scalar(t, name, [self, *args], kwargs)
            if found is not None:
                return found
        return t.recorder.record("call_method", name, [self, *args], dict(kwargs))

    def _real_fact(self, t: Tracer, name: str) -> Value:
        """An answer of the real tensor, guarded."""
        from ..sources.source import Attribute, CallResult

        if t.overrides.outer:  # a guard would ask the mode
            raise GraphBreak("unsupported-attribute", f"{name} of a tensor, within a mode of __torch_function__")
        answer = getattr(self.tensor, name)
        source: Source | None = None
        if self.source is not None:
            source = Attribute(self.source, name)
        if callable(answer):
            answer, source = answer(), CallResult(source) if source is not None else None
        t.guards.constant(source, answer)
        # A write can end a tensor's being a leaf; nothing makes it one.
        return ConstantValue(answer and self.fake.is_leaf if name == "is_leaf" else answer)

    def _refuse_detached(self) -> None:
        """What a graph hands on to a break need not be a view any more, which eager refuses to detach: the frame runs in plain Python.

        So it does where something saved the tensor: eager's backward raises then, a compiled one does not hold what eager's saved.
        """
        reason = GraphBreak("autograd-call", f"detach_() of {self.describe()} that the frame computed")
        if self.tensor is MISSING and self.fake.requires_grad and self.node is not None and self.node.users:
            raise CannotCapture(reason, recursive=True)
        if self.tensor is MISSING and self.fake._is_view():
            raise CannotCapture(reason, always=False)

    def _refuse_counting_or_base(self, name: str) -> None:
        """End the graph where a tensor is asked for its writes, or for what it is a view of. Of what the graph wrote or viewed, plain Python alone
        knows it: a graph counts fewer or more writes, and hands on new tensors for views of what it computed."""
        broken = GraphBreak("unsupported-attribute", f"{name} of a tensor")
        computed = self.tensor is MISSING and self.fake._is_view()
        if computed if name == "_base" else not self.fake.is_inference() and self.fake._version > 0:
            raise CannotCapture(broken)
        raise broken

    def refuse_history(self, name: str) -> None:
        """Leave the frame to plain Python where `name` asks for the gradient of what the frame computed, and something was computed of that already:
        results of one graph lead to its inputs, none through another."""
        if self.tensor is MISSING and self.fake.requires_grad and self.node is not None and self.node.users:
            broken = GraphBreak("autograd-call", f"{name} of {self.describe()} that the frame computed with")
            raise CannotCapture(broken, recursive=True)

    def _require_grad(self, t: Tracer, wanted: Any) -> None:
        """Eager makes a tensor a leaf that requires grad, or one that does not any more; what is so already is no change. But a view that was taken
        without grad of what requires some says so, and gathers none before it is told to."""
        unheld = self.fake.requires_grad and self._is_leaf_and_view(t)
        if wanted is True and self._may_become_leaf(t):
            t.recorder.record("call_method", "requires_grad_", [self], {})
            t.graph.has_leaves = True
            return
        if bool(wanted) != self.fake.requires_grad or unheld:
            raise GraphBreak("autograd-call", f"requires_grad of {self.describe()} becomes {wanted}")

    def _may_become_leaf(self, t: Tracer) -> bool:
        """Whether the graph makes it, without a history and of a type that can have one: it is a leaf of the graph's own from then on."""
        fake = self.fake
        return (
            self.tensor is MISSING
            and t.graph.may_make_leaves
            and not t.graph.bodies
            and not fake.requires_grad
            and not fake.is_inference()
            and (fake.dtype.is_floating_point or fake.dtype.is_complex)
        )

    def _is_leaf_and_view(self, t: Tracer) -> bool:
        if isinstance(self.tensor, torch.Tensor):
            given = self._real_fact(t, "is_leaf"), self._real_fact(t, "_is_view")
            return all(t.folder.concrete(fact) for fact in given)
        return self.fake._is_view() and bool(self._told("is_leaf"))

    def get_item(self, t: Tracer, key: Value) -> Value:
        if t.graph.bodies:
            places = key.items if isinstance(key, TupleValue) else [key]
            if all(isinstance(place, TensorValue) and not place.fake.ndim for place in places) and (
                t.graph.bodies[-1].indexes_by_tensors or all(_is_place_in_a_sample(t, place) for place in places)
            ):
                return t.recorder.record("call_function", torch.ops.aten.index.Tensor, [self, ListValue(places)], {})
        key = _with_numbers(key.realise(t))
        found: Value | None = window(t, self, self.fake.ndim, key)
        if found is not None:
            return found
        part = t.recorder.record("call_function", getitem, [self, key], {})
        if self.number is not None and isinstance(part, TensorValue) and part.fake.ndim < self.fake.ndim:
            part.number = self.number
        return part

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        found = window(t, self, self.fake.ndim, key)
        target, key = (self, key) if found is None else (found, ConstantValue(...))
        t.recorder.record("call_function", setitem, [target, key, value], {})

    def length(self, t: Tracer) -> Value:
        t.members.refuse_patched(self, "__len__")
        if t.overrides.listens:
            counted: Value = t.overrides.method(self, "__len__", (), {})
            return counted
        if self.fake.ndim == 0:
            raise t.exceptions.raised(TypeError("len() of a 0-d tensor"))
        return self.size(t, 0)

    def truth(self, t: Tracer) -> bool:
        if self.number is not None:
            t.members.refuse_patched(self, "__bool__")
            return bool(self.number)
        raise GraphBreak("data-dependent-branch", f"the truth of {self.describe()}")

    def contains(self, t: Tracer, item: Value) -> bool:
        raise GraphBreak("data-dependent-branch", "membership in a tensor")

    def how_many(self, t: Tracer) -> None:
        if t.overrides.listens:
            self.length(t)

    def iterate(self, t: Tracer) -> Value:
        from .iterators import SequenceIterator

        t.members.refuse_patched(self, "__iter__")
        if t.overrides.listens:
            iterator: Value = t.overrides.method(self, "__iter__", (), {})
            return iterator
        if self.fake.ndim == 0:
            raise t.exceptions.raised(TypeError("iteration over a 0-d tensor"))
        parts = t.recorder.record("call_method", "unbind", [self, ConstantValue(0)], {})
        return SequenceIterator(list(t.operators.iterate_all(parts)))

    # sizes, strides, gradient

    def size(self, t: Tracer, dim: int) -> Value:
        """`tensor.size(dim)`."""
        size = self.fake.shape[dim]
        made = t.recorder.number(
            size, lambda: t.graph.derive("size", (t.recorder.node_of(self), dim), size, "call_method")
        )
        if isinstance(made, SymbolicValue) and self.source is not None and self.tensor is not MISSING:
            if size.node.has_hint() and not _is_written(self.fake):
                made.formula = formula_of_input(TensorSize(self.source, dim), self.tensor.shape[dim])
        return made

    def stride(self, t: Tracer, dim: int) -> Value:
        """`tensor.stride(dim)`."""
        stride = self.fake.stride(dim)
        return t.recorder.number(
            stride, lambda: t.graph.derive("stride", (t.recorder.node_of(self), dim), stride, "call_method")
        )

    def shape(self, t: Tracer) -> Value:
        """`tensor.shape`."""
        return t.wrapper.sequence([self.size(t, d) for d in range(self.fake.ndim)], torch.Size)

    def strides(self, t: Tracer) -> Value:
        """`tensor.stride()`."""
        return t.wrapper.sequence([self.stride(t, d) for d in range(self.fake.ndim)], tuple)

    def _query(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A query of a tensor that computes nothing."""
        nodes, fakes = t.recorder.arguments(args)
        keyword = {k: t.recorder.argument(v)[1] for k, v in kwargs.items()}
        result = t.graph.run("call_method", name, [self.fake, *fakes], keyword)
        if isinstance(result, (torch.SymInt, torch.SymBool)):
            return t.recorder.number(
                result, lambda: t.graph.derive(name, (t.recorder.node_of(self), *nodes), result, "call_method")
            )
        return t.wrapper.from_python(result)

    def gradient(self, t: Tracer) -> Value:
        """`tensor.grad`."""
        if self.source is None or self.tensor is MISSING:
            if self.fake.grad is None and (self.fake.is_leaf or not self.fake.requires_grad):
                return ConstantValue(None)
            raise GraphBreak("autograd-call", "grad of a tensor made in the function")
        if t.overrides.outer:  # a guard would ask the mode
            raise GraphBreak("unsupported-attribute", "grad of a tensor, within a mode of __torch_function__")
        if self.tensor.requires_grad and not self.tensor.is_leaf and not self.tensor.retains_grad:
            raise GraphBreak("input-output", "the grad of a tensor that does not keep it, which warns")
        return t.wrapper.wrap(self.tensor.grad, Attribute(self.source, "grad"))

    def keep_gradient(self, t: Tracer, gradient: Value) -> None:
        """Have it hold this gradient from here on: a tensor as it has to be, or None."""
        t.heap.store_attribute(self, "grad", gradient)
        self.attrs["grad"] = gradient

    def _set_gradient(self, t: Tracer, gradient: Value) -> None:
        """`tensor.grad = gradient`, where eager takes it."""
        if isinstance(gradient, TensorValue):
            mine, other = self.fake, gradient.fake
            fits = gradient is not self and (mine.dtype, mine.device, mine.ndim) == (
                other.dtype,
                other.device,
                other.ndim,
            )
            if not fits or not all(t.graph.decide(a == b) for a, b in zip(mine.shape, other.shape, strict=True)):
                raise GraphBreak("unsupported-store", f"storing {gradient.describe()} as the grad of {self.describe()}")
        elif not gradient.is_constant() or gradient.constant() is not None:
            raise GraphBreak("unsupported-store", f"storing {gradient.describe()} as the grad of a tensor")
        if not self.fake.is_leaf:
            raise GraphBreak("unsupported-store", "storing the grad of a tensor that is no leaf")
        self.keep_gradient(t, gradient)


def _type_name(dtype: torch.dtype) -> str:
    return torch.empty(0, dtype=dtype).type().removeprefix("torch.")


def _with_tensor_for_scalar(t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The result of a tensor method whose scalar argument is a tensor; None where it is none of these, or eager takes no such
    tensor for a number of that kind."""
    found = WRITTEN_OUT.get(name)
    if found is None or set(kwargs) != {found[0]}:
        return None
    number = kwargs[found[0]].realise(t)
    operands = [value.fake for value in (arg.realise(t) for arg in args) if isinstance(value, TensorValue)]
    if not isinstance(number, TensorValue) or len(operands) != len(args):
        return None
    fits = all(torch.can_cast(number.fake.dtype, operand.dtype) for operand in operands)
    if not fits or not number.fake.is_floating_point() or number.fake.dim() or number.fake.requires_grad:
        return None
    return t.caller.call(t.wrapper.wrap_pinned(found[1]), [*args, number], {})


def _size_or_stride(
    t: Tracer, tensor: TensorValue, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value:
    if len(args) + len(kwargs) > 1 or not {"dim"}.issuperset(kwargs):
        raise GraphBreak("unsupported-call", f"Tensor.{name}() with arguments that torch may refuse")
    dim = args[0] if args else kwargs.get("dim")
    if dim is None or (dim.is_constant() and dim.constant() is None):
        return tensor.shape(t) if name == "size" else tensor.strides(t)
    index = t.folder.concrete(dim)
    if type(index) is not int or not tensor.fake.ndim:
        raise GraphBreak("unsupported-call", f"Tensor.{name}() of a dimension that torch may refuse")
    if not -tensor.fake.ndim <= index < tensor.fake.ndim:
        raise t.exceptions.raised(
            IndexError(
                f"Dimension out of range (expected to be in range of [{-tensor.fake.ndim}, {tensor.fake.ndim - 1}], but got {index})"
            )
        )
    return tensor.size(t, index % tensor.fake.ndim) if name == "size" else tensor.stride(t, index % tensor.fake.ndim)


def _with_numbers(key: Value) -> Value:
    """A key with the numbers in the place of tensors that hold a known one: torch takes a tensor without dimensions for its number."""
    if isinstance(key, TupleValue) and key.cls is tuple:
        items = [_with_numbers(item) for item in key.items]
        return (
            key if all(one is other for one, other in zip(items, key.items, strict=True)) else TupleValue(items, tuple)
        )
    if not isinstance(key, TensorValue) or type(key.number) is not int or key.fake.ndim > 1:
        return key
    number = ConstantValue(key.number)
    return ListValue([number]) if key.fake.ndim else number


def _is_written(fake: torch.Tensor) -> bool:
    return not fake.is_inference() and fake._version > 0


def _is_place_in_a_sample(t: Tracer, place: Value) -> bool:
    """Whether it is a whole number that may be another for each sample, which torch does not read out as a number."""
    own = place.fake.dtype if isinstance(place, TensorValue) else None
    return (
        own in (torch.int64, torch.int32)
        and isinstance(place, TensorValue)
        and varies(t.graph.bodies, t.recorder.node_of(place))
    )
