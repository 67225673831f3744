"""Operators that call a function of the program's, whatever it does: what compiled code has for calls of what `leaf_function` decorates.

In: a `LeafCall` for each call that was captured, known to the operators by its number, and the tensors and numbers that it is given. Out: `leaf`, which runs the function
in plain Python on real tensors and gives its new tensors, and a token; `leaf_backward`, which runs the function's own backward; `leaf_hook`, which calls a hook with gradients.
What the function saves for its backward lives as long as the memory of the token: whoever keeps that between forward and backward keeps it. Compiled code writes over memory
that nobody needs any more, and does not see what a function keeps: it is given copies of all but parameters, and gives copies of results that somebody holds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field, frozen
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import get_gradient_edge
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .leaf_places import tensors_written
from .library import contextlib, functools, itertools, threading, weakref
from .signals import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TAGS = (torch.Tag.cudagraph_unsafe, torch.Tag.needs_exact_strides)
_CALLS: weakref.WeakValueDictionary[int, LeafCall] = weakref.WeakValueDictionary()
_KEYS = itertools.count()
_GRAPHS: dict[int, _LocalGraph] = {}
"""By the number in a token."""
_TOKENS = itertools.count(1)
_MOST_PROMISES = 256
_HOLDERS = 2
"""Of a tensor that nobody else has: a name, and who counts. Of its memory: the tensor, and Python's object for its storage."""

Kind = tuple[int, torch.dtype, torch.device]
"""Of a tensor: its rank, type and device."""


class Place(int):
    """A tensor among the leaves of a result: an argument's place, or -1 for the first new tensor, -2 for the second."""


@frozen(eq=False)
class Outcome:
    """A result, or what a fake implementation says of it. `leaves` are constants and places; `new` are the tensors that are no arguments, in order;
    `written` are the places of the arguments that a call writes to, where a fake implementation was asked."""

    spec: pytree.TreeSpec
    leaves: tuple[Any, ...]
    new: list[torch.Tensor]
    written: Sequence[int] = ()

    def shown(self) -> str:
        """As text, for messages."""
        return repr(pytree.tree_unflatten([self._leaf(leaf) for leaf in self.leaves], self.spec))

    def _leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, Place):
            return leaf
        return f"argument {int(leaf)}" if leaf >= 0 else facts(self.new[-1 - leaf])


def facts(tensor: torch.Tensor) -> str:
    """What of a tensor its fake must tell."""
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"


def kind_of(tensor: torch.Tensor) -> Kind:
    """What its gradients have too."""
    return tensor.dim(), tensor.dtype, tensor.device


def outcome_of(name: str, result: Any, tensors: Sequence[torch.Tensor], written: Sequence[int] = ()) -> Outcome:
    """Of a call with these tensors.

    Raises:
        RuntimeError: for new tensors that lie in one memory, or in that of an argument, and those of other layouts.
    """
    leaves, spec = pytree.tree_flatten(result)
    places = {id(tensor): place for place, tensor in reversed(list(enumerate(tensors)))}
    memories = {_memory(tensor) for tensor in tensors if tensor.layout is torch.strided and tensor.numel()}
    new: list[torch.Tensor] = []
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        if id(leaf) not in places:
            if leaf.layout is not torch.strided:
                raise RuntimeError(
                    f"{name} returns a tensor of layout {leaf.layout}: a leaf_function returns dense ones"
                )
            if leaf.numel() and _memory(leaf) in memories:
                raise RuntimeError(
                    f"{name} returns a tensor in the memory of an argument or of another result: "
                    "return the argument itself, or a clone"
                )
            memories.add(_memory(leaf))
            new.append(leaf)
            places[id(leaf)] = -len(new)
        leaves[place] = Place(places[id(leaf)])
    return Outcome(spec, tuple(leaves), new, written)


def _is_floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@define(eq=False)
class _LocalGraph:
    """The function's own autograd graph of one call: where its results and its arguments are in it."""

    ends: list[Any]
    begins: list[torch.Tensor]


@define(eq=False)
class _Watch:
    """Calls the operator of a hook at the end of a backward that is traced. torch's own for several tensors asks what the engine will reach, which it does not tell then."""

    key: int
    count: int
    came: dict[int, torch.Tensor] = field(factory=dict)

    def register(self, tensors: Sequence[torch.Tensor]) -> None:
        """Be told of the gradients of these."""
        for place, tensor in enumerate(tensors):
            tensor.register_hook(functools.partial(self._come, place))

    def _come(self, place: int, gradient: torch.Tensor) -> None:
        if not self.came:
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        self.came[place] = gradient

    def _end(self) -> None:
        gradients = [self.came.get(place) for place in range(self.count)]
        self.came.clear()
        present = [gradient for gradient in gradients if gradient is not None]
        torch.ops.flambeau_capture.leaf_hook(self.key, present, [gradient is not None for gradient in gradients])


@define(eq=False)
class LeafCall:
    """A call in captured code. `made` gives its arguments around tensors and numbers, which `kinds` tells apart: it has None for numbers.

    The graph has it, and the compiled code of the frame: what autograd keeps of a forward has the graph."""

    name: str
    function: Callable[..., Any]
    fake: Callable[..., Any]
    hook: Callable[..., Any] | None
    mutates: tuple[str, ...]
    made: Callable[[Sequence[Any]], Any]
    kinds: list[Kind | None]
    grad: bool
    autocast: list[tuple[str, torch.dtype]]
    key: int = field(factory=lambda: next(_KEYS), init=False)
    _promises: dict[Any, Outcome] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        _operators()
        _CALLS[self.key] = self

    def split(self, leaves: Sequence[Any]) -> tuple[list[torch.Tensor], list[Any]]:
        """The tensors and the numbers among leaves."""
        pairs = list(zip(leaves, self.kinds, strict=True))
        return [leaf for leaf, kind in pairs if kind is not None], [leaf for leaf, kind in pairs if kind is None]

    def together(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Any]) -> list[Any]:
        """The leaves again."""
        tensors_left, numbers_left = iter(tensors), iter(numbers)
        return [next(numbers_left) if kind is None else next(tensors_left) for kind in self.kinds]

    def said(self, mode: FakeTensorMode, tensors: Sequence[torch.Tensor], numbers: Sequence[Any]) -> Outcome:
        """What the fake implementation says, of fakes; nobody sees its operations."""
        given = self.made(self.together(tensors, numbers))
        with _disable_current_modes(), mode, torch.no_grad(), given as (args, kwargs):
            written = tensors_written(self.function, self.mutates, args, kwargs, tensors)
            return outcome_of(f"the fake of {self.name}", self.fake(*args, **kwargs), tensors, written)

    def kinds_of_gradients(self, wanted: Sequence[bool]) -> list[Kind]:
        """Those of the tensors that want a gradient."""
        kinds = [kind for kind in self.kinds if kind is not None]
        return [kind for kind, wants in zip(kinds, wanted, strict=True) if wants]

    def watch(self, tensors: Sequence[torch.Tensor]) -> None:
        """Have the operator call the hook when the gradients of these are there."""
        watched = [tensor for tensor in tensors if tensor.requires_grad]
        if self.hook is not None and watched and torch.is_grad_enabled():
            _Watch(self.key, len(watched)).register(watched)

    def differentiated(self, tensors: list[torch.Tensor], numbers: list[Any]) -> list[torch.Tensor]:
        """New tensors and the new contents of written ones, with the function's gradients, from the operators."""
        wanted = [tensor.requires_grad and torch.is_grad_enabled() for tensor in tensors]
        if any(wanted):
            return list(_Differentiated.apply(self.key, numbers, *tensors))
        return list(torch.ops.flambeau_capture.leaf(self.key, tensors, numbers, wanted)[:-1])

    def run(
        self, tensors: Sequence[torch.Tensor], numbers: Sequence[Any], wanted: Sequence[bool]
    ) -> list[torch.Tensor]:
        """The function on real tensors: new tensors, new contents of written ones, the token."""
        said = self.promise(tensors, numbers)
        with self._as_captured(any(wanted)):
            begins = _begins(tensors, wanted, said.written)
            given = [
                begin.clone() if place in said.written and wanted[place] else begin
                for place, begin in enumerate(begins)
            ]
            versions = [tensor._version for tensor in given]
            with self.made(self.together(given, numbers)) as (args, kwargs):
                result = self.function(*args, **kwargs)
            refuse_undeclared(self.name, given, versions, said.written)
            found = outcome_of(self.name, result, given)
            del result, args, kwargs
            refuse_different(self.name, found, said)
            ends: list[Any] = [*found.new, *(given[place] for place in said.written)]
            token = self._kept(ends, begins, wanted)
            layouts = [like.stride() for like in (*said.new, *(given[place] for place in said.written))]
            del found, given, begins
            return [*(_given_away(ends, place, layout) for place, layout in enumerate(layouts)), token]

    def _kept(self, ends: list[torch.Tensor], begins: list[torch.Tensor], wanted: Sequence[bool]) -> torch.Tensor:
        """A token, whose memory keeps the local graph. It is a number for Python: on no other device, which would have to be waited for."""
        number = next(_TOKENS) if any(wanted) else 0
        token = torch.full((1,), number, dtype=torch.int64, device="cpu")
        edges = [get_gradient_edge(end) if end.requires_grad else None for end in ends if _is_floating(end)]
        wanting = [begin for begin in begins if begin.requires_grad]
        _refuse_escaped(self.name, edges, wanting)
        if number:
            _GRAPHS[number] = _LocalGraph(edges, wanting)
            weakref.finalize(token.untyped_storage(), _GRAPHS.pop, number, None)
        return token

    def promise(self, tensors: Sequence[torch.Tensor], numbers: Sequence[Any]) -> Outcome:
        """What the fake says for tensors like these."""
        kinds = (*((tuple(x.shape), x.stride(), x.dtype, x.device) for x in tensors), *numbers)
        found = self._promises.get(kinds)
        if found is None:
            if len(self._promises) >= _MOST_PROMISES:
                self._promises.clear()
            mode = FakeTensorMode()
            with mode, torch.no_grad():
                fakes = [_empty_like(x, x.stride()) for x in tensors]
            found = self._promises[kinds] = self.said(mode, fakes, numbers)
        return found

    @contextlib.contextmanager
    def _as_captured(self, wanted: bool) -> Iterator[None]:
        """The modes in which the program calls."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch._C._ForceDispatchKeyGuard(*_outside()))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(self.grad or wanted))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            yield


@functools.cache
def _outside() -> tuple[Any, Any]:
    """What the dispatcher does outside of everything, as it does in a new thread: compiled code leaves out what counts writes, and autograd."""
    found: list[tuple[Any, Any]] = []
    thread = threading.Thread(
        target=lambda: found.append(
            (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())
        )
    )
    thread.start()
    thread.join()
    return found[0]


def _begins(tensors: Sequence[torch.Tensor], wanted: Sequence[bool], written: Sequence[int]) -> list[torch.Tensor]:
    """What the function is given: parameters themselves where a local graph can begin at them, so that modules stay as they are."""
    begins: list[torch.Tensor] = []
    for place, (tensor, wants) in enumerate(zip(tensors, wanted, strict=True)):
        if not isinstance(tensor, torch.nn.Parameter) or place in written or tensor.is_inference():
            begins.append(_copied(tensor).requires_grad_(wants))
            continue
        # Its hooks are for the gradient that the whole graph gives.
        is_begin = tensor.is_leaf and not tensor._backward_hooks
        if is_begin and (tensor.requires_grad == wants or not any(wanted)):
            begins.append(tensor)
        else:
            begins.append(tensor.detach().requires_grad_(wants))
    return begins


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies like it, which the function may keep."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if not tensor.numel() or torch._debug_has_internal_overlap(tensor) == 0:
        return _empty_like(tensor, tensor.stride()).copy_(tensor)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


def _empty_like(tensor: torch.Tensor, layout: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, layout, dtype=tensor.dtype, device=tensor.device)


def _given_away(ends: list[Any], place: int, layout: Sequence[int]) -> torch.Tensor:
    """A result in the layout that was promised, in memory that nobody else has: the list forgets it."""
    end, ends[place] = ends[place], None
    shared = sys.getrefcount(end) > _HOLDERS or torch._C._storage_Use_Count(_memory(end)) > _HOLDERS
    end = end.detach().resolve_conj().resolve_neg()
    if not shared and end.stride() == tuple(layout):
        return end
    return _empty_like(end, layout).copy_(end)


def call_hook(name: str, hook: Callable[..., Any], gradients: Sequence[torch.Tensor | None]) -> None:
    """Raise RuntimeError where it returns something."""
    if hook(*gradients) is not None:
        raise RuntimeError(f"the hook of {name} returns something: it must return None")


def refuse_undeclared(
    name: str, tensors: Sequence[torch.Tensor], versions: Sequence[int], written: Sequence[int]
) -> None:
    """Raise RuntimeError for a write to an argument that `mutates_args` does not tell of."""
    for place, (tensor, version) in enumerate(zip(tensors, versions, strict=True)):
        if place not in written and tensor._version != version:
            raise RuntimeError(
                f"{name} writes to its argument {place} ({facts(tensor)}) in place: "
                "say so with leaf_function(mutates_args=...), or write to a clone"
            )


def refuse_shared(name: str, tensors: Sequence[torch.Tensor], written: Sequence[int]) -> None:
    """Raise RuntimeError for a written tensor in the memory of another argument."""
    if not written:
        return
    memories = [_memory(tensor) for tensor in tensors]
    if any(memories.count(memories[place]) > 1 for place in written):
        raise RuntimeError(f"{name} writes to an argument that shares memory with another: give it a clone")


def refuse_different(name: str, found: Outcome, said: Outcome) -> None:
    """Raise RuntimeError where a result is not what the fake says."""
    same = found.spec == said.spec and len(found.leaves) == len(said.leaves) and len(found.new) == len(said.new)
    same = same and all(type(a) is type(b) and a == b for a, b in zip(found.leaves, said.leaves, strict=True))
    if not same or any(facts(a) != facts(b) for a, b in zip(found.new, said.new, strict=True)):
        raise RuntimeError(
            f"{name} returns {found.shown()}, and its fake says {said.shown()}: "
            "what is registered with register_fake must return the same structure, constants, shapes, types and devices"
        )


def _refuse_escaped(name: str, edges: Sequence[Any], begins: Sequence[torch.Tensor]) -> None:
    """Raise RuntimeError where a local graph leads to tensors that require grad and are no arguments: they would get no gradient."""
    known = {get_gradient_edge(begin).node for begin in begins}
    left = [edge.node for edge in edges if edge is not None]
    seen = set(left)
    while left:
        node = left.pop()
        if node in known:
            continue
        if hasattr(node, "variable"):
            raise RuntimeError(
                f"{name} uses a tensor that requires grad and is not among its arguments: it would get no gradient"
            )
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                left.append(following)


class _Differentiated(torch.autograd.Function):
    """The gradients of `leaf`."""

    @staticmethod
    def forward(ctx: Any, key: int, numbers: list[Any], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wanted = list(ctx.needs_input_grad[2:])
        *new, token = torch.ops.flambeau_capture.leaf(key, list(tensors), numbers, wanted)
        ctx.save_for_backward(token)
        ctx.key, ctx.wanted = key, wanted
        ctx.sizes = [size for tensor, wants in zip(tensors, wanted, strict=True) if wants for size in tensor.shape]
        ctx.floating = [_is_floating(tensor) for tensor in new]
        return tuple(new)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise GraphBreak(
                "autograd-call",
                f"create_graph through {_call(ctx.key).name}, a leaf_function: its gradients have no history",
            )
        (token,) = ctx.saved_tensors
        tangents = [tangent for tangent, floating in zip(given, ctx.floating, strict=True) if floating]
        found = iter(torch.ops.flambeau_capture.leaf_backward(ctx.key, token, tangents, ctx.sizes, ctx.wanted))
        return None, None, *(next(found) if wants else None for wants in ctx.wanted)


def _call(key: int) -> LeafCall:
    call = _CALLS.get(key)
    if call is None:
        raise RuntimeError("the leaf_function that compiled code calls is gone")
    return call


def _programs(function: Callable[..., Any]) -> Callable[..., Any]:
    """What it raises is the program's own, and not repeated in eager: the function has run."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            error.raised_in_hook = True  # type: ignore[attr-defined]
            raise

    return call


def _leaf(key: int, tensors: list[torch.Tensor], numbers: list[int], wanted: list[bool]) -> list[torch.Tensor]:
    return _call(key).run(tensors, numbers, wanted)


def _leaf_said(key: int, tensors: list[Any], numbers: list[Any], wanted: list[bool]) -> list[torch.Tensor]:
    call = _call(key)
    mode = detect_fake_mode(tensors)
    said = call.said(mode, tensors, numbers)
    written = [_empty_like(x, x.stride()) for x in (tensors[place] for place in said.written)]
    return [*said.new, *written, torch.empty(1, dtype=torch.int64, device="cpu")]


def _backward(
    key: int, token: torch.Tensor, tangents: list[torch.Tensor], sizes: list[int], wanted: list[bool]
) -> list[torch.Tensor]:
    local = _GRAPHS.get(int(token))
    if local is None:
        raise RuntimeError(f"what {_call(key).name} saved for its backward is gone")
    pairs = [(end, _copied(tangent)) for end, tangent in zip(local.ends, tangents, strict=True) if end is not None]
    found: list[Any] = [None] * len(local.begins)
    seen: set[int] = set()  # of a parameter that comes twice, one place has the gradient
    with torch._C._ForceDispatchKeyGuard(*_outside()), torch.inference_mode(False):
        if pairs:
            ends, owned = zip(*pairs, strict=True)
            found[:] = torch.autograd.grad(ends, local.begins, owned, retain_graph=True, allow_unused=True)
        for place, begin in enumerate(local.begins):
            if found[place] is None or id(begin) in seen:
                found[place] = torch.zeros_like(begin, memory_format=torch.contiguous_format)
            elif found[place].layout is not torch.strided:
                found[place] = found[place].to_dense()
            seen.add(id(begin))
        return [_given_away(found, place, _dense_layout(begin)) for place, begin in enumerate(local.begins)]


def _dense_layout(tensor: torch.Tensor) -> Sequence[int]:
    return torch.empty(tensor.shape, device="meta").stride()


def _backward_said(
    key: int, token: torch.Tensor, tangents: list[torch.Tensor], sizes: list[Any], wanted: list[bool]
) -> list[torch.Tensor]:
    left = iter(sizes)
    return [
        torch.empty([next(left) for _ in range(rank)], dtype=dtype, device=device)
        for rank, dtype, device in _call(key).kinds_of_gradients(wanted)
    ]


def _hook(key: int, gradients: list[torch.Tensor], present: list[bool]) -> None:
    call, left = _call(key), iter(gradients)
    if call.hook is not None:
        call_hook(call.name, call.hook, [_copied(next(left)) if there else None for there in present])


def _hook_said(key: int, gradients: list[torch.Tensor], present: list[bool]) -> None:
    pass


@functools.cache
def _operators() -> torch.library.Library:
    """Define them, with the first call that is captured: importing leaves torch's dispatcher as it is."""
    library = torch.library.Library("flambeau_capture", "DEF")
    for signature, real, said in (
        ("leaf(int key, Tensor[] tensors, SymInt[] numbers, bool[] wanted) -> Tensor[]", _leaf, _leaf_said),
        (
            "leaf_backward(int key, Tensor token, Tensor[] tangents, SymInt[] sizes, bool[] wanted) -> Tensor[]",
            _backward,
            _backward_said,
        ),
        ("leaf_hook(int key, Tensor[] gradients, bool[] present) -> ()", _hook, _hook_said),
    ):
        name = library.define(signature, tags=_TAGS)
        library.impl(name, _programs(real), "CompositeExplicitAutograd")
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"flambeau_capture::{name}", said, lib=library)
    return library
