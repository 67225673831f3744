"""A graph with wrapper tensors as one of plain tensors, and the way between the two.

In: a captured graph, some of whose inputs or results are wrappers. Out: `flatten`, a graph of plain tensors that assembles wrappers where it begins and
takes them apart where it ends (`Flattened`): what traces, cuts, compiles and joins it knows plain tensors alone. `Flattened.around` gives what was
made of it the calling convention of the captured graph: at each call wrappers are taken apart, and those that leave are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import evolve, frozen
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_arg

from ..errors import InternalError, UnsupportedGraph, WrappedGradient
from .forms import (
    Carried,
    Carrying,
    Form,
    Layout,
    Viewed,
    are_laid_out,
    assembled,
    carriers,
    form_of,
    form_of_gradient,
    is_view_of_function,
    is_wrapper,
    plain_parts,
    taken_apart,
    unviewed,
)


@frozen(eq=False)
class Assemble:
    """In a graph: the wrapper that is input `place`, of its parts; `gradient`: the form of its gradient."""

    form: Form
    place: int
    gradient: Form

    @property
    def __name__(self) -> str:
        return f"assemble_{self.form.cls.__name__}"

    def __call__(self, *parts: torch.Tensor) -> Any:
        return assembled(self.form, parts, gradient=self.gradient, place=self.place)


@frozen(eq=False)
class TakeApart:
    """In a graph: the plain tensors of its argument; `gradient`: the form of its gradient."""

    form: Form
    gradient: Form

    @property
    def __name__(self) -> str:
        return f"take_apart_{self.form.cls.__name__}"

    def __call__(self, wrapper: Any) -> tuple[torch.Tensor, ...]:
        return tuple(taken_apart(self.form, wrapper, gradient=self.gradient))


@frozen(eq=False)
class Carry:
    """In a graph: its first argument, whose gradient is a wrapper; that one's parts are the gradients of the others."""

    form: Form

    @property
    def __name__(self) -> str:
        return f"carry_{self.form.cls.__name__}"

    def __call__(self, tensor: torch.Tensor, *parts: torch.Tensor) -> Any:
        return Carrying.apply(self.form, tensor, *parts)


@frozen(eq=False)
class Gradient:
    """The gradient of an input, where it is a wrapper and the input is none, or one of another form. layouts: of the gradient's parts."""

    form: Form
    layouts: tuple[Layout, ...]

    def of(self, tensor: Any, watch: bool) -> tuple[Any, Sequence[torch.Tensor]]:
        """The tensor without its history, and carriers of its gradient."""
        if tensor.requires_grad and torch.is_grad_enabled():
            plain, *found = Carried.apply(self.form, self.layouts, watch, tensor)
            return plain, found
        return tensor.detach(), carriers(next(plain_parts(tensor)), self.layouts)


@frozen(eq=False)
class Given:
    """An input: its form, None for what is no wrapper; its gradient, where that has another form, and whether it has carriers, being made of other tensors;
    which of its parts are inputs of their own; whether the graph writes it, and whether a later write is an error."""

    form: Form | None = None
    gradient: Gradient | None = None
    carried: bool = False
    kept: tuple[int, ...] = ()
    written: bool = False
    watch: bool = False

    @property
    def count(self) -> int:
        """How many inputs of the plain graph it is."""
        own = 1 if self.form is None else len(self.kept)
        return own + (len(self.gradient.layouts) if self.carried and self.gradient is not None else 0)


@frozen(eq=False)
class Result:
    """A result. kind: "plain" (the next result of the plain graph), "viewed" (a view of that, to which nobody may write), "wrapper" (of its next results), "input" (`index`), "same" (as result `index`).
    gradient: the form of a wrapper's gradient."""

    kind: str
    index: int = -1
    form: Form | None = None
    gradient: Form | None = None
    count: int = 1
    watch: bool = False


@frozen(eq=False)
class Flattened:
    """A graph of plain tensors in place of one with wrappers. `inputs`: fakes, as for the graph; `source`: what it was made of."""

    graph: GraphModule
    inputs: list[Any]
    given: tuple[Given, ...]
    results: tuple[Result, ...]
    source: tuple[GraphModule, list[Any], dict[int, Gradient]]

    def compiled_with(self, compiler: Callable[[GraphModule, list[Any]], Callable[..., Any]]) -> Callable[..., Any]:
        """The captured graph compiled: what `compiler` makes of the plain graph, which it may be given anew (`carrying`)."""
        flattened = self
        while True:
            try:
                compiled = compiler(flattened.graph, flattened.inputs)
                break
            except WrappedGradient as error:
                flattened = flattened.carrying(error)
        rescue = flattened.graph.meta.get("rescue")
        gm = self.source[0]
        gm.meta.update((name, value) for name, value in flattened.graph.meta.items() if name != "wrappers")
        if rescue is not None:
            gm.meta["rescue"] = flattened.answering(rescue)
        return flattened.around(compiled)

    def carrying(self, error: WrappedGradient) -> Flattened:
        """The same with one more plain input whose gradient is a wrapper, as tracing found."""
        gm, inputs, known = self.source
        place = error.index if error.outer else self._place_of(error.index)
        form = form_of(error.gradient)
        parts = form.take_apart(error.gradient)
        layouts = tuple((part.dtype, part.shape) for part in parts)
        carried = all(form.have_gradients(parts)) and all(
            isinstance(size, int) for _, shape in layouts for size in shape
        )
        alike = error.outer and are_laid_out(form_of(inputs[place]).take_apart(inputs[place]), layouts)
        if place in known or not (alike or carried):
            raise error
        return _flatten(gm, inputs, {**known, place: Gradient(form, layouts)})

    def _watched(self) -> tuple[tuple[Given, ...], tuple[Result, ...]]:
        """Inputs and results, with those marked that eager saves for the backward, as a trace has found (`meta["eager_saves"]`)."""
        inputs, outputs = self.graph.meta.get("eager_saves", ((), ()))
        given, results = [], []
        at = 0
        for item in self.given:
            given.append(evolve(item, watch=any(place in inputs for place in range(at, at + item.count))))
            at += item.count
        at = 0
        for result in self.results:
            count = result.count if result.kind in ("plain", "viewed", "wrapper") else 0
            results.append(evolve(result, watch=any(place in outputs for place in range(at, at + count))))
            at += count
        return tuple(given), tuple(results)

    def _place_of(self, index: int) -> int:
        """The place among the inputs of the one that is input `index` of the plain graph."""
        for place, item in enumerate(self.given):
            index -= item.count
            if index < 0:
                return place
        raise InternalError("an input that the graph does not have")

    def around(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """What was made of the plain graph, called as the captured one is."""
        given, results = self._watched()

        def call(*args: Any) -> tuple[Any, ...]:
            found = _call(compiled, _plain(given, args))
            for item, arg in zip(given, args):
                if item.written:
                    torch.autograd.graph.increment_version(arg)
            return _made(results, args, found)

        return call

    def answering(self, rescue: Callable[..., Any]) -> Callable[..., Any]:
        """The same of what answers an error (`error, *inputs`)."""
        given, results = self.given, self.results

        def answer(error: Exception, *args: Any) -> tuple[Any, ...]:
            return _made(results, args, rescue(error, *_plain(given, args)))

        return answer


def _call(compiled: Callable[..., Any], args: list[Any]) -> Sequence[Any]:
    return compiled(args) if getattr(compiled, "_boxed_call", False) else compiled(*args)


def _plain(given: tuple[Given, ...], args: tuple[Any, ...]) -> list[Any]:
    plain: list[Any] = []
    for item, arg in zip(given, args):
        carried: Sequence[torch.Tensor] = ()
        gradient = None if item.gradient is None else item.gradient.form
        if item.carried and item.gradient is not None:
            arg, carried = item.gradient.of(arg, item.watch)
        if item.form is None:
            plain.append(arg)
        else:
            parts = taken_apart(item.form, arg, gradient=gradient, watch=item.watch and not item.carried)
            # Writes are counted for the wrapper, as its dispatch hides them from the tensors inside.
            plain += [parts[place].data if item.written else parts[place] for place in item.kept]
        plain += carried
    return plain


def _made(results: tuple[Result, ...], args: tuple[Any, ...], found: Sequence[Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    at = 0
    for result in results:
        if result.kind == "wrapper":
            assert result.form is not None
            parts = found[at : at + result.count]
            made.append(assembled(result.form, parts, gradient=result.gradient, watch=result.watch))
        elif result.kind in ("plain", "viewed"):
            viewed = result.kind == "viewed" and torch.is_grad_enabled() and found[at].requires_grad
            made.append(Viewed.apply(found[at]) if viewed else found[at])
        else:
            made.append((args if result.kind == "input" else made)[result.index])
            continue
        at += result.count
    return tuple(made)


def has_wrappers(gm: GraphModule) -> bool:
    """Whether a captured graph makes, takes or gives a wrapper."""
    return any(is_wrapper(part) for node in gm.graph.nodes if node.op != "output" for part in _parts(_seen(node)))


def _seen(node: Node) -> Any:
    """What a node gives on fakes; another compiler that captured the graph has other names for it."""
    return node.meta.get("val", node.meta.get("example_value"))


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def flatten(gm: GraphModule, inputs: list[Any]) -> Flattened | None:
    """The graph of plain tensors, None where no wrapper is in the graph, or it is such a graph already. Raises `UnsupportedGraph` for what cannot be told apart from plain memory."""
    if gm.meta.get("wrappers") or not has_wrappers(gm):
        return None
    return _flatten(gm, inputs, {})


def _flatten(gm: GraphModule, inputs: list[Any], gradients: dict[int, Gradient]) -> Flattened:
    if any(isinstance(getattr(gm, str(node.target), None), GraphModule) for node in gm.graph.find_nodes(op="get_attr")):
        raise UnsupportedGraph("an operator over bodies in a graph of wrapper tensors")
    graph = Graph()
    env: dict[Node, Node] = {}
    plain, given = _inputs(gm, inputs, graph, env, gradients)
    results: list[Result] = []
    outputs: list[Any] = []
    placeholders = gm.graph.find_nodes(op="placeholder")
    for node in gm.graph.nodes:
        if node.op == "output":
            leaving = node.args[0]
            for place, out in enumerate(leaving):
                results.append(_result(graph, env, placeholders, leaving, place, outputs, out))
        elif node.op != "placeholder":
            args, kwargs = map_arg(node.args, env.__getitem__), map_arg(node.kwargs, env.__getitem__)
            env[node] = graph.create_node(node.op, node.target, args, kwargs, node.name)
            env[node].meta = dict(node.meta)
    graph.output(tuple(outputs))
    flat = _LazyGraphModule(gm, graph)
    flat.meta.update(gm.meta, wrappers=True)
    return Flattened(flat, plain, given, tuple(results), (gm, inputs, gradients))


def _inputs(
    gm: GraphModule, inputs: list[Any], graph: Graph, env: dict[Node, Node], gradients: dict[int, Gradient]
) -> tuple[list[Any], tuple[Given, ...]]:
    made = _Inputs(graph)
    for index, (node, value) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), inputs)):
        gradient = gradients.get(index)
        if is_wrapper(value):
            made.wrapper(node, value, index, gradient)
        else:
            env[node] = made.plain(node, value, gradient)
    for node, call, nodes in made.later:
        env[node] = graph.call_function(call, (*(env[node] for _ in range(node in env)), *nodes))
        env[node].meta = dict(node.meta)
    return made.fakes, tuple(made.given)


class _Inputs:
    """Inputs of the plain graph as they are made: their fakes, what is told of each of the captured graph's, and the calls that make those of them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.fakes: list[Any] = []
        self.given: list[Given] = []
        self.later: list[tuple[Node, Assemble | Carry, list[Node]]] = []
        self._known: dict[int, Node] = {}

    def plain(self, node: Node, value: Any, gradient: Gradient | None) -> Node:
        """One that is no wrapper."""
        carried = gradient is not None
        made = self._input(node, node.name, _without_history(value) if carried else value)
        if gradient is None:
            made.meta = dict(node.meta)
        else:
            self._carried(node, value, gradient)
        self.given.append(Given(gradient=gradient, carried=carried))
        return made

    def wrapper(self, node: Node, value: Any, index: int, gradient: Gradient | None) -> None:
        """One that is a wrapper."""
        form = form_of(value)
        parts = form.take_apart(value)
        carried = gradient is not None and not are_laid_out(parts, gradient.layouts)
        nodes, kept = [], []
        for place, (part, has_gradient) in enumerate(zip(parts, form.have_gradients(parts))):
            if part.requires_grad:
                raise UnsupportedGraph(f"a {form.cls.__name__} around a tensor that requires grad")
            wants = value.requires_grad and has_gradient and not carried
            if wants or carried or id(part) not in self._known:
                made = self._input(node, f"{node.name}_{place}", _leaf(part, value) if wants else part)
                kept.append(place)
                self._known.setdefault(id(part), made)
            else:
                made = self._known[id(part)]
            nodes.append(made)
        self.later.append((node, Assemble(form, index, form if gradient is None else gradient.form), nodes))
        if carried and gradient is not None:
            self._carried(node, value, gradient)
        written = not value.is_inference() and value._version > 0
        self.given.append(Given(form, gradient, carried, tuple(kept), written))

    def _input(self, node: Node, name: str, fake: Any) -> Node:
        made = self.graph.placeholder(name)
        made.meta = {**node.meta, "val": fake}
        self.fakes.append(fake)
        return made

    def _carried(self, node: Node, value: Any, gradient: Gradient) -> None:
        """Carriers of the gradient of an input, and the call that gives it that gradient."""
        like = next(plain_parts(value))
        with like.fake_mode:
            fakes = [carrier.requires_grad_() for carrier in carriers(like.detach(), gradient.layouts)]
        nodes = [self._input(node, f"{node.name}_gradient_{place}", fake) for place, fake in enumerate(fakes)]
        self.later.append((node, Carry(gradient.form), nodes))


def _without_history(value: Any) -> torch.Tensor:
    tensor: torch.Tensor = value.detach()
    if isinstance(value, torch.nn.Parameter):
        tensor._is_param = True
    return tensor


def _leaf(part: torch.Tensor, wrapper: torch.Tensor) -> torch.Tensor:
    leaf = part.detach().requires_grad_()
    if isinstance(wrapper, torch.nn.Parameter):
        leaf._is_param = True
    return leaf


def _result(
    graph: Graph,
    env: dict[Node, Node],
    placeholders: Sequence[Node],
    leaving: Sequence[Any],
    place: int,
    outputs: list[Any],
    out: Any,
) -> Result:
    value = _seen(out) if isinstance(out, Node) else None
    if not is_wrapper(value):
        viewed = is_view_of_function(value) and out.op != "placeholder"
        plain = graph.call_function(unviewed, (env[out],)) if viewed else env[out] if isinstance(out, Node) else out
        if viewed:
            plain.meta["val"] = value
        outputs.append(plain)
        return Result("viewed" if viewed else "plain")
    for index, node in enumerate(placeholders):
        if node is out or _seen(node) is value:
            return Result("input", index)
    first = next(at for at, other in enumerate(leaving) if isinstance(other, Node) and _seen(other) is value)
    if first < place:
        return Result("same", first)
    _refuse_view(value, placeholders, leaving)
    form = form_of(value)
    gradient = form_of_gradient(value, form)
    apart = graph.call_function(TakeApart(form, gradient), (env[out],))
    parts = form.take_apart(value)
    apart.meta["val"] = tuple(parts)
    for at, part in enumerate(parts):
        item = graph.call_function(getitem, (apart, at))
        item.meta["val"] = part
        outputs.append(item)
    return Result("wrapper", form=form, gradient=gradient, count=len(parts))


def _refuse_view(value: torch.Tensor, placeholders: Sequence[Node], leaving: Sequence[Any]) -> None:
    """Raise `UnsupportedGraph` for a wrapper that is a view of another that the caller sees: what is made for the caller is none."""
    if not value._is_view():
        return
    base = value._base
    seen = [*placeholders, *(out for out in leaving if isinstance(out, Node))]
    for node in seen:
        other = _seen(node)
        if is_wrapper(other) and other is not value and (other is base or other._base is base):
            raise UnsupportedGraph(f"a result is a {type(value).__name__} that is a view of another")
