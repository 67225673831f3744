"""`GraphBuilder`: the FX graph of one frame while it grows.

In: graph operations on nodes and fakes. Out: nodes with `meta["val"]`, one `FakeTensorMode`, one `ShapeEnv`; `finish` tidies the
graph into a `GraphModule`. Each operation runs once on fakes.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from attrs import frozen
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_leaves

from ..errors import InternalError
from ..library import dataclasses
from ..patches import patches, unpatched
from ..signals import GraphBreak, TensorsAsNumbers
from .assumptions import Assumptions, End, is_checkable
from .bodies import BodyGraph
from .dispatch import dispatcher
from .fake_mode import new_fake_mode
from .foreign import is_differentiated_through
from .inner_tensors import is_fake, is_wrapper
from .module_paths import module_path, module_step
from .nodes import as_given, as_printed, first_line, is_data_dependent, is_pure_read, name_of
from .quiet import Heard, hearing
from .refusals import as_unread, is_total, refused, takes_numbers, writes_shared_elements
from .repeats import Region
from .resizing import rounds_sizes
from .trials import BEYOND_MEMORY, trial_of
from .warned import Kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..config import Config
    from ..sources.source import Source

_DROPS = (torch.dropout, torch.nn.functional.dropout)
"""They give their argument back where nothing is dropped; the formula in Python gives a copy."""
_WANTS_PLAIN = "expected to contain only concrete integers"


@frozen(eq=False)
class Mark:
    """How far a graph had come."""

    last: torch.fx.Node | None
    operations: int
    inputs: int
    constants: int


class GraphBuilder:
    """Owns the graph, the inputs and the fakes of one trace."""

    def __init__(self, config: Config, position: Callable[[], tuple[tuple[str, int, str], ...]]) -> None:
        self.config = config
        self.fake_mode = new_fake_mode()
        self.patches = patches()
        self.unpatched = unpatched(self.patches)
        #: The frame's graph, and the one that grows now: a body's while one is traced.
        self.root = self.graph = torch.fx.Graph()
        self.bodies: list[BodyGraph] = []
        self.modules: dict[str, torch.fx.GraphModule] = {}
        self.has_bodies = False
        self.assumptions = Assumptions()
        self.inputs: list[Source] = []
        self.input_nodes: list[torch.fx.Node] = []
        self.input_values: list[Any] = []
        self.input_reals: list[Any] = []
        self.symbol_sources: dict[str, Source] = {}
        #: How many sizes of inputs have no example.
        self.open_inputs = 0
        #: Unbacked sizes that the program says are one, by the name that it gives them.
        self.sizes_by_name: dict[str, torch.SymInt] = {}
        #: Names of symbols for integers of the caller's that are unusually large.
        self.large_symbols: set[str] = set()
        self.guard_positions: list[tuple[str, int, str] | None] = []
        self.constants: dict[str, Any] = {}
        self.open_modes: list[Any] = []
        #: Whether a node raises in place of a branch of the program.
        self.assumes = False
        #: Guards of inference mode that the program has entered, the innermost last; and whether all of the graph is in that mode.
        self.open_inference: list[Any] = []
        self.in_inference = False
        #: Settings of torch that the program changed, each with what it was before.
        self.settings: dict[Any, Any] = {}
        self.operations = self.runs = 0  # recorded, and tried on fakes
        #: What the last operation warned of, and which of its kernels would have.
        self.heard: list[Heard] = []
        self.kernels = Kernels()
        #: Whether an operation warns at each call, and the frame does so in its place.
        self.warns = False
        #: Whether the graph holds a backward, and whether it makes leaves that require grad.
        self.has_engine = False
        self.has_leaves = False
        #: Whether it may make leaves: not where a result led to one, in an earlier trace.
        self.may_make_leaves = True
        #: Whether a wrapper tensor was met.
        self.wraps = False
        #: Whether a checkpoint is of the reentrant kind, which refuses to be asked for the gradients of some tensors alone.
        self.has_reentrant = False
        #: What has to hold when the trace ends, of what a nested graph was made of and eager reads later.
        self.lasting: list[Callable[[], bool]] = []
        self.region: Region | None = None
        #: The calls of modules and of nested compile regions that the program is in, the outermost first: number, name, whether it is a region, and
        #: where the module is (`module_step`).
        self.calls: tuple[tuple[int, str, bool, str], ...] = ()
        self._module: Source | None = None
        self._calls = 0
        self._checkpoints = 0
        self._names: set[str] = set()
        self._position = position
        self._last_input: torch.fx.Node | None = None

    @property
    def shape_env(self) -> Any:
        """The shape environment, None while every size is a plain int."""
        return self.fake_mode.shape_env

    def need_shape_env(self) -> Any:
        """The shape environment, made on first use: a compile with static shapes pays for neither sympy nor its imports."""
        if self.fake_mode.shape_env is None:
            from .shape_env import new_shape_env

            with self.unpatched:
                self.fake_mode.shape_env = new_shape_env(
                    allow_scalar_outputs=self.config.capture_scalar_outputs,
                    allow_dynamic_output_shape_ops=self.config.capture_dynamic_output_shape_ops,
                    duck_shape=False,
                )
            self.fake_mode.static_shapes = False
        return self.fake_mode.shape_env

    def follow(self, config: Config) -> None:
        """Other settings from here on."""
        self.config = config
        if self.shape_env is not None:
            self.shape_env.settings = dataclasses.replace(
                self.shape_env.settings,
                allow_scalar_outputs=config.capture_scalar_outputs,
                allow_dynamic_output_shape_ops=config.capture_dynamic_output_shape_ops,
            )

    # inputs

    def add_input(self, source: Source, value: Any, real: Any, *, static: bool, hint: str) -> torch.fx.Node:
        """A new placeholder, after those there are; `real` is what it stands for in this call."""
        hint = f"{hint}_{len(self.inputs)}" if hint in self._names else hint
        self._names.add(hint)
        with (
            self.root.inserting_after(self._last_input)
            if self._last_input
            else self.root.inserting_before(self._first())
        ):
            node = self.root.placeholder(hint)
        self._last_input = node
        node.meta["val"] = value
        node.meta["stack"] = self._position()
        if static:
            node.meta["static"] = True
        if isinstance(real, torch.Tensor) and real.is_inference() and not torch.is_inference_mode_enabled():
            node.meta["inference"] = True  # its fake is an ordinary tensor
        self.inputs.append(source)
        self.input_nodes.append(node)
        self.input_values.append(value)
        self.input_reals.append(real)
        return node

    def _first(self) -> torch.fx.Node:
        return next(iter(self.root.nodes), self.root._root)

    # bodies

    @contextmanager
    def body(self) -> Iterator[BodyGraph]:
        """What is recorded within goes to a graph of its own, which takes what it reads of the graphs around it as inputs. Its region tells what
        it wrote to and whether it drew."""
        around, region = self.graph, self.region
        self.region = Region(region.number if region else None, region, region.policy if region else None)
        body = BodyGraph(around, self.region)
        self.has_bodies = True
        self.bodies.append(body)
        self.graph = body.graph
        try:
            yield body
        finally:
            self.bodies.pop()
            self.graph, self.region = around, region

    def attach(self, module: torch.fx.GraphModule) -> torch.fx.Node:
        """The node that names a body in the graph that calls it."""
        modules = self.bodies[-1].modules if self.bodies else self.modules
        name = f"body_{len(modules)}"
        modules[name] = module
        node = self.graph.create_node("get_attr", name, (), {})
        node.meta["stack"] = self._position()
        return node

    def here(self, node: torch.fx.Node, level: int | None = None) -> torch.fx.Node:
        """What stands for a node in the graph that grows now, or in that of the body `level` (0: the frame's)."""
        graphs = (self.root, *(body.graph for body in self.bodies))
        try:
            place = graphs.index(node.graph)
        except ValueError:
            raise GraphBreak("control-flow-operator", "what a body computed is used outside of it") from None
        for body in self.bodies[place:level]:
            node = body.lift(node)
        return node

    def is_here(self, node: torch.fx.Node) -> bool:
        """Whether a node is of the graph that grows now."""
        return node.graph is self.graph

    def _level(self, args: tuple[Any, ...]) -> int:
        """The innermost of the bodies whose nodes are among the arguments."""
        graphs = (self.root, *(body.graph for body in self.bodies))
        found: list[int] = []
        torch.fx.map_arg(args, lambda node: found.append(graphs.index(node.graph) if node.graph in graphs else 0))
        return max(found, default=len(self.bodies))

    # operations

    def call(
        self,
        kind: str,
        target: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        fakes: tuple[Sequence[Any], dict[str, Any]],
    ) -> tuple[torch.fx.Node, Any]:
        """Run one operation on fakes and record it. Returns its node and its fake result.

        Raises `TensorsAsNumbers`, and records nothing, where it reads tensors in the place of numbers.
        """
        before = self.numbers_read()
        with self.unpatched:
            numbers: list[tuple[torch.Tensor, bool]] = []
            self.fake_mode.numbers = numbers
            try:
                result = self._tried(kind, target, fakes)
            finally:
                self.fake_mode.numbers = None
            if numbers and takes_numbers(kind, target, result):
                raise TensorsAsNumbers(as_unread(numbers))
            self._check_assumptions()
        if self.bodies and self.numbers_read() > before:
            raise GraphBreak("data-dependent-value", f"{name_of(target)} gives what depends on values, in a body")
        return self._recorded(kind, target, args, kwargs, result), result

    def call_bodies(
        self, target: Any, args: Sequence[Any], value: Any, kwargs: Mapping[str, Any] | None = None
    ) -> torch.fx.Node:
        """Record an operator that calls bodies (nodes of `attach`), whose result on fakes is known of them."""
        return self._recorded("call_function", target, args, dict(kwargs or {}), value)

    def _recorded(
        self, kind: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any], value: Any
    ) -> torch.fx.Node:
        given, named = torch.fx.map_arg((tuple(args), kwargs), self.here) if self.has_bodies else (tuple(args), kwargs)
        node = self.graph.create_node(kind, as_printed(target, args), given, named)
        self._describe(node, value)
        self._check_assumptions(last=True)
        self.operations += 1
        return node

    def _check_assumptions(self, *, last: bool = False) -> None:
        if self.shape_env is None:
            return
        with self.unpatched:
            if self.bodies:
                if self.assumptions.wait(self.shape_env, self.symbol_sources):
                    raise GraphBreak("data-dependent-branch", "a body assumes something of what depends on values")
            else:
                self.assumptions.write(self.shape_env, End(self.graph, self.derive), self.symbol_sources, last=last)

    def check(self, node: torch.fx.Node, condition: torch.SymBool) -> None:
        """Assume a condition that no example decides: where it fails, plain Python runs the frame."""
        if self.bodies:
            raise GraphBreak("data-dependent-branch", "a body checks what depends on values")
        if not is_checkable(condition.node.expr):
            raise GraphBreak(
                "data-dependent-branch", "a condition on what is computed of a float that comes from a tensor"
            )
        self.run("call_function", torch._check, (condition,), {})
        self.assumptions.settle(self.shape_env)
        self.derive(torch._check, (node,), None)
        self.operations += 1

    @property
    def is_open(self) -> bool:
        """Whether some number of the graph comes out of a tensor: then it may raise for what was assumed of it."""
        return self.numbers_read() > self.open_inputs

    def numbers_read(self) -> int:
        env = self.shape_env
        return 0 if env is None else int(env.unbacked_symint_counter + env.unbacked_symfloat_counter)

    def assumed(self) -> tuple[int, ...]:
        """How much has been assumed of sizes and numbers: equal before and after something that asked nothing of them."""
        env = self.shape_env
        return () if env is None else (len(env.guards), len(env.replacements), len(env.axioms))

    def _tried(self, kind: str, target: Any, fakes: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """The operation on fakes; what eager refuses though fakes do not ends the graph."""
        if writes_shared_elements(kind, target, fakes[0]) and not any(
            fakes[0][0] is known for known in self.input_values
        ):
            raise GraphBreak("operator-error", f"{name_of(target)} writes to elements that share memory")
        if is_differentiated_through(target, *fakes):
            raise GraphBreak(
                "unsupported-call", f"{target} has no rule for its gradient, which eager takes of its kernel"
            )
        trial = None
        # What a wrapper's operation calls in the end its class alone knows.
        asked = not (self.wraps and any(map(is_wrapper, tree_leaves(fakes))))
        if asked and not is_total(kind, target, *fakes):
            if refused(kind, target, *fakes):
                raise GraphBreak("operator-error", f"{name_of(target)} refuses the types of its operands")
            trial = trial_of(kind, target, *fakes)
        if target == "masked_scatter_" and len(fakes[0]) > 1:
            # The run on fakes asks nothing of the mask, which may be large, and is not tried then.
            self.run("call_method", "expand", (fakes[0][1], fakes[0][0].shape), {})
        result = self.run(kind, target, *fakes)
        if trial is not None and trial.refuses(result):
            beyond = f", {BEYOND_MEMORY}" if "as_strided" in name_of(target) else ""
            raise GraphBreak("operator-error", f"{name_of(target)} refuses its operands{beyond}")
        if name_of(target).startswith("_foreach_") and name_of(target).endswith("_"):
            torch.autograd.graph.increment_version(
                fakes[0][0]
            )  # kernels of list ops count their writes, fakes have none
        return result

    def _describe(self, node: torch.fx.Node, value: Any) -> None:
        node.meta["val"] = value
        node.meta["stack"] = self._position()
        if self.calls:
            node.meta["calls"] = self.calls
            node.meta["module"] = module_path(step for *_, step in self.calls)
        if self.region is not None and self.region.number is not None:
            node.meta["checkpoint"] = self.region.number
            if self.region.policy is not None:
                node.meta["policy"] = self.region.policy

    @contextmanager
    def checkpointed(self, policy: Any = None, *, reentrant: bool = False) -> Iterator[Region]:
        """Nodes made inside belong to one more region of activation checkpointing; a region inside of another is part of that."""
        outer = self.region
        if outer is None:
            self._checkpoints += 1
        self.region = Region(self._checkpoints, outer, policy if outer is None else outer.policy)
        self.region.reentrant = reentrant or (outer is not None and outer.reentrant)
        self.has_reentrant = self.has_reentrant or reentrant
        try:
            yield self.region
        finally:
            self.region = outer

    @contextmanager
    def call_of(self, name: str, source: Source | None = None, *, marked: bool = False) -> Iterator[None]:
        """Nodes made inside are of one more call of what has this name, a module at `source` where that is known; `marked`: as a region to compile
        once."""
        outer, module = self.calls, self._module
        self.calls = (*outer, (self.next_call(), name, marked, module_step(source, module)))
        self._module = source or module
        try:
            yield
        finally:
            self.calls, self._module = outer, module

    def next_call(self) -> int:
        """A number for one more call of a module."""
        self._calls += 1
        return self._calls

    def refuse_question(self, what: str) -> None:
        """Break where the program asks about gradients in a reentrant checkpoint, which runs once without and once with them."""
        if self.region is not None and self.region.reentrant:
            raise GraphBreak("unsupported-call", f"{what} in a reentrant checkpoint")

    def mark(self) -> Mark:
        """A place to `rewind` to."""
        return Mark(
            next(iter(reversed(self.graph.nodes)), None), self.operations, len(self.inputs), len(self.constants)
        )

    def rewind(self, mark: Mark) -> bool:
        """Take away every node made since the mark; whether tensors from outside were met meanwhile (these stay)."""
        for node in reversed(list(self.graph.nodes)):
            if node is mark.last:
                break
            if node.op != "placeholder":
                self.assumptions.forget(node)
                self.graph.erase_node(node)
        self.operations = mark.operations
        return len(self.inputs) > mark.inputs or len(self.constants) > mark.constants

    def run(
        self, kind: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any], *, each_time: bool = True
    ) -> Any:
        """The operation on fakes alone; failures become graph breaks. `heard` is then what it warned of (`each_time`: see `hearing`)."""
        self.runs += 1
        try:
            return self._run(kind, target, args, kwargs, each_time=each_time)
        except GraphBreak as error:
            depends = isinstance(error.__cause__, (DataDependentOutputException, DynamicOutputShapeException))
            if not depends or self.shape_env is not None or not self._keeps_numbers():
                raise
        self.need_shape_env()  # made for the first number or size that depends on values
        return self._run(kind, target, args, kwargs, each_time=each_time)

    def _keeps_numbers(self) -> bool:
        return self.config.capture_scalar_outputs or self.config.capture_dynamic_output_shape_ops

    def _run(self, kind: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any], *, each_time: bool) -> Any:
        try:
            # Operators whose C++ reads sizes as plain numbers have decompositions in Python, which keep symbolic ones.
            keeps = self.shape_env is not None and target not in _DROPS and not rounds_sizes(target, args, kwargs)
            self.fake_mode.region, self.fake_mode.has_failed = self.region, False
            self.fake_mode.kernels = self.kernels = Kernels()
            root, dispatched = sys._getframe().f_code, dispatcher(keeps_sizes=keeps)
            with self.unpatched, self.fake_mode, hearing(root, each_time=each_time) as self.heard, dispatched:
                result = (
                    getattr(args[0], target)(*args[1:], **kwargs) if kind == "call_method" else target(*args, **kwargs)
                )
        except DataDependentOutputException as error:
            raise GraphBreak(
                "data-dependent-value", f"{name_of(target)} reads the values of a tensor: {first_line(error)}"
            ) from error
        except DynamicOutputShapeException as error:
            raise GraphBreak(
                "dynamic-output-shape", f"the result shape of {name_of(target)} depends on data"
            ) from error
        except UnsupportedOperatorException as error:
            raise GraphBreak("operator-error", f"{name_of(target)} has no shape rule: {first_line(error)}") from error
        except GraphBreak:
            raise
        except Exception as error:
            if is_data_dependent(error) or (self.is_open and _WANTS_PLAIN in str(error)):
                raise GraphBreak(
                    "data-dependent-value", f"{name_of(target)} reads the values of a tensor: {first_line(error)}"
                ) from error
            if self.fake_mode.has_failed:
                raise InternalError(
                    f"the fakes of {name_of(target)} cannot be corrected: {first_line(error)}"
                ) from error
            raise GraphBreak(
                "operator-error", f"{name_of(target)} raised {type(error).__name__}: {first_line(error)}"
            ) from error
        finally:
            self.fake_mode.region = self.fake_mode.kernels = None
            self.note_guards()
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.wraps = self.wraps or any(map(is_wrapper, tensors))
        if not all(map(is_fake, tensors)):
            raise GraphBreak(
                "unsupported-call", f"{name_of(target)} makes a tensor that torch's dispatcher does not see"
            )
        return result

    def derive(self, target: Any, args: tuple[Any, ...], value: Any, kind: str = "call_function") -> torch.fx.Node:
        """A node whose value is known already: an item of a tuple result, a size, integer arithmetic. It stands where its arguments do: what a body is
        the first to ask of a tensor from outside can be asked again after it."""
        graph = self.graph
        if self.has_bodies:
            level = self._level(args)
            graph = self.bodies[level - 1].graph if level else self.root
            args = torch.fx.map_arg(args, lambda node: self.here(node, level))
        node = graph.create_node(kind, as_printed(target, args), args, {})
        self._describe(node, value)
        return node

    def has_history(self, region: int | None = None) -> bool:
        """Whether some result (of one checkpointed region) has a gradient, so that something may be saved for it."""
        graphs = (self.root, *(body.graph for body in self.bodies))
        every = (node for graph in graphs for node in graph.nodes)
        nodes = (node for node in every if region is None or node.meta.get("checkpoint") == region)
        values = (node.meta.get("val") for node in nodes if node.op != "placeholder")
        parts = (part for value in values for part in (value if isinstance(value, (list, tuple)) else (value,)))
        return any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts)

    def constant(self, tensor: torch.Tensor) -> tuple[torch.fx.Node, FakeTensor]:
        """A tensor that the trace keeps as a constant of the graph module."""
        name = f"_constant_{len(self.constants)}"
        self.constants[name] = tensor
        with self.unpatched:
            fake = self.fake_mode.from_tensor(tensor, static_shapes=True)
        node = self.root.create_node("get_attr", name, (), {})
        node.meta["val"] = fake
        node.meta["stack"] = self._position()
        return node, fake

    def object_constant(self, obj: Any) -> torch.fx.Node:
        """An object that the graph's calls are given, and that no code can be written for."""
        name = next((name for name, held in self.constants.items() if held is obj), None)
        if name is None:
            name = f"_constant_{len(self.constants)}"
            self.constants[name] = obj
        node = self.graph.create_node("get_attr", name, (), {})
        self._describe(node, obj)
        return node

    # symbols

    def note_guards(self) -> None:
        """Give the current position to the shape guards that appeared since."""
        if self.shape_env is None:
            return
        missing = len(self.shape_env.guards) - len(self.guard_positions)
        if missing > 0:
            stack = self._position()
            self.guard_positions.extend([stack[-1] if stack else None] * missing)

    def decide(self, symbol: Any) -> bool:
        """The truth of a symbolic number; becomes a guard."""
        try:
            with self.unpatched:
                return bool(symbol)
        except Exception as error:
            if not is_data_dependent(error):
                raise
            raise GraphBreak("data-dependent-branch", "a branch on a number that comes from a tensor") from error
        finally:
            self.note_guards()

    def specialise(self, symbol: Any) -> Any:
        """The number a symbol stands for in this call; becomes a guard."""
        try:
            with self.unpatched:
                return (
                    int(symbol)
                    if isinstance(symbol, torch.SymInt)
                    else float(symbol)
                    if isinstance(symbol, torch.SymFloat)
                    else bool(symbol)
                )
        except Exception as error:
            if not is_data_dependent(error):
                raise
            raise GraphBreak("data-dependent-value", "a number that comes from a tensor is needed") from error
        finally:
            self.note_guards()

    # the end

    def finish(self, outputs: Sequence[torch.fx.Node]) -> torch.fx.GraphModule:
        """Close the graph: outputs, unused reads away, a module around it."""
        node = self.graph.output(tuple(map(self.here, outputs)))
        node.meta["val"] = tuple(n.meta["val"] for n in outputs)
        node.meta["stack"] = ()
        for n in reversed(list(self.graph.nodes)):
            if not n.users and (n.op == "get_attr" or is_pure_read(n)):
                self.graph.erase_node(n)
        root = torch.nn.Module()
        for name, body in self.modules.items():
            root.add_module(name, body)
        for name, tensor in self.constants.items():
            root.register_buffer(name, tensor) if isinstance(tensor, torch.Tensor) else setattr(root, name, tensor)
        used = [i for i, n in enumerate(self.input_nodes) if n.users]
        for n in self.input_nodes:
            if not n.users:
                self.graph.erase_node(n)
        self.inputs = [self.inputs[i] for i in used]
        self.input_values = [self.input_values[i] for i in used]
        self.input_reals = [self.input_reals[i] for i in used]
        self.input_nodes = [self.input_nodes[i] for i in used]
        for i, node in enumerate(self.input_nodes):
            self.input_values[i] = node.meta["val"] = as_given(self.input_values[i], self.input_reals[i])
        # Its code is made when somebody asks for it: writing and compiling it is a tenth of a small trace.
        module = _LazyGraphModule(root, self.graph, "CapturedGraph")
        if self.warns:
            module.meta["warns"] = True
        if self.assumes:
            module.meta["assumes"] = True
        if self.in_inference:
            module.meta["in_inference"] = True
        return module
