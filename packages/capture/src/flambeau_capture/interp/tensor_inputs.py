"""Tensors that a frame is given: an input of the graph each.

In: a tensor that existed before the frame, and its source. Out: its value, with a fake some of whose sizes are symbolic, and guarded. What wraps other
tensors: `wrapper_tensors.py`; classes whose tensors are the program's own objects: `tensor_classes.py`.
"""

from __future__ import annotations

import types
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from ..class_names import class_module, class_name
from ..errors import DynamicShapeError
from ..graph import shapes
from ..graph.dimension_marks import Mark, address_mark, marks_of, named
from ..graph.inner_tensors import is_wrapper_class
from ..guards.spec import TensorMatch
from ..signals import GraphBreak
from ..sources.arguments import is_open
from ..sources.source import Attribute, CallResult, Item, Source
from ..values.tensor import TensorValue
from .part import Part
from .tensor_classes import wrap_subclass

if TYPE_CHECKING:
    from ..graph.declared_shapes import Declared
    from ..graph.dynamics import Dynamics
    from ..values.base import Tracer, Value


class TensorInputs(Part):
    """The tensors of one trace that existed before the frame.

    Args:
        dynamics: what earlier compiles of the code taught.
        declared: what the program declares of their sizes.
    """

    def __init__(self, t: Tracer, dynamics: Dynamics, declared: Declared | None) -> None:
        super().__init__(t)
        self._dynamics = dynamics
        self._declared = declared

    def wrap(self, obj: torch.Tensor, source: Source) -> Value:
        """The value of a tensor that existed before the frame, guarded."""
        kind, wrapper = type(obj), self.t.wrapper
        if isinstance(obj, torch.nn.parameter.UninitializedTensorMixin):
            raise GraphBreak("unsupported-tensor", "a parameter or buffer of a lazy module that has not run yet")
        if is_wrapper_class(kind):
            if self._declared is not None and self._declared.of(source) is not None:
                raise DynamicShapeError(
                    f"{source.name} is declared, and wraps other tensors: mark its dimensions instead"
                )
            return wrapper.wrapper_tensors.wrap(obj, source)
        if not (kind in (torch.Tensor, torch.nn.Parameter) or _is_kind_of_parameter(kind) or _is_buffer(kind)):
            # Its attributes may be the program's own code (`__torch_function__`), which sees the program's calls alone.
            return wrap_subclass(self.t, obj, source)
        if obj.layout is not torch.strided or obj.is_nested or obj.is_quantized or obj.is_mkldnn:
            raise GraphBreak("unsupported-tensor", f"a {class_name(kind)} with layout {obj.layout}")
        if torch._C._functorch.is_functorch_wrapped_tensor(obj):
            raise GraphBreak("unsupported-tensor", "a tensor of a function transform")
        if obj.requires_grad and not (obj.dtype.is_floating_point or obj.dtype.is_complex):
            # A write gave it a history (`mask.eq_(x)`), which torch allows nobody else to do.
            raise GraphBreak("unsupported-tensor", "a tensor of whole numbers that requires grad")
        static = isinstance(obj, torch.nn.Parameter) or _is_module_state(source)
        sized = static and self.t.config.force_parameter_static_shapes
        changed, marks, symbolic = self._said_of(obj, source, sized=sized)
        dynamic, unbacked = shapes.dynamic_dims_for(obj, symbolic, changed, marks)
        outside = torch._C._InferenceMode(False) if self.t.graph.open_inference else nullcontext()  # it existed before
        with self.t.graph.unpatched, outside:
            fake = shapes.fake_of(self.t.graph, obj, source, dynamic, unbacked, marks)
            if self._declared is not None:
                self._declared.tensor(obj, fake, source)
        free = dynamic | unbacked
        free_strides = range(obj.ndim) if free else ()
        self.t.guards.add(
            TensorMatch.of(
                source,
                obj,
                dynamic_sizes=free,
                dynamic_strides=[d for d in free_strides if isinstance(fake.stride(d), torch.SymInt)],
                behind=shapes.behind(obj) if free else {},
                position=self.t.frames.user_position(),
            )
        )
        if address_mark(obj) == "guarded":
            self.t.guards.constant(CallResult(Attribute(source, "data_ptr")), obj.data_ptr())
        made = TensorValue(fake, None, source, obj)
        made.static = static
        wrapper.fake_owner[id(fake)] = made
        wrapper.tensor_inputs.append((obj, fake, source))
        return made

    def _said_of(
        self, obj: torch.Tensor, source: Source, *, sized: bool
    ) -> tuple[frozenset[int], dict[int, Mark], bool | None]:
        """Of an input: the dimensions that have changed, what is said of them, and whether those without a word are symbolic (None: if they changed)."""
        if self._declared is not None:
            return frozenset(), self._declared.marks(obj, source), False
        learn = self.t.frames.break_at is None and not sized
        changed = self._dynamics.see_sizes(source.name, tuple(obj.shape), learn=learn) if not sized else frozenset()
        if is_open(source) and obj.ndim:
            changed |= {0}
        return changed, self._marks_of(obj, source), False if sized else self.t.config.symbolic

    def _marks_of(self, obj: torch.Tensor, source: Source) -> dict[int, Mark]:
        """What the program says of the dimensions of an input, on the tensor or in the settings."""
        config = self.t.config
        said = named(config.dynamic_sources, config.unbacked_sources, config.dynamic_values)
        return marks_of(obj) if said is None else {**said.marks(source.name, obj.shape), **marks_of(obj)}


#: What a class of the program's own must leave to torch for its objects to be traced as tensors.
_OF_TENSORS = frozenset(
    name
    for cls in torch.Tensor.__mro__
    for name, found in vars(cls).items()
    if isinstance(found, (types.GetSetDescriptorType, property)) and not name.startswith("__")
) | {"__torch_function__", "__torch_dispatch__"}


def _is_kind_of_parameter(kind: type) -> bool:
    """Whether a class adds to `Parameter` without answering in its place what a tensor is or what torch's functions do with it."""
    if not issubclass(kind, torch.nn.Parameter):
        return False
    own = kind.__mro__[: kind.__mro__.index(torch.nn.Parameter)]
    return all(_OF_TENSORS.isdisjoint(vars(cls)) for cls in own)


def _is_buffer(kind: type) -> bool:
    return class_name(kind) == "Buffer" and class_module(kind).startswith("torch.nn")


def _is_module_state(source: Source) -> bool:
    base = getattr(source, "base", None)
    return isinstance(source, Item) and isinstance(base, Item) and base.key in ("_parameters", "_buffers")
