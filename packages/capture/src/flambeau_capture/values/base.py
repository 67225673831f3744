"""`Value`: what the interpreter keeps on its stack in place of a real object.
In: nothing (this is the bottom of the layer). Out: the base class every value derives from, and the few values that carry no Python object at all. A value
knows its Python type, where it came from (`source`, `None`: the trace made it) and how to make the object again; what it may ask meanwhile: `Tracer`, at the end.

Rebuilding has two steps, so that aliases and cycles survive: `rebuild(e)` leaves the object on the stack, `fill(e)` (called by `e.value` right after it was
stored in its temporary, only when it was rebuilt rather than loaded) adds contents that may refer back to it, and leaves the stack as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..class_names import class_name
from ..signals import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import CodeType

    import torch.fx

    from ..config import Config
    from ..graph.builder import GraphBuilder
    from ..guards.collect import GuardCollector
    from ..signals import TracedRaise
    from ..sources.source import Source

    Emitter = Any


class Value:
    """Abstract: a symbolic stand-in for one Python object. Equality is identity."""

    __slots__ = ("source",)

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def python_type(self) -> type:
        """The exact type of the object this stands for."""
        raise NotImplementedError(type(self).__name__)

    def is_constant(self) -> bool:
        """Whether `constant()` answers."""
        return False

    def constant(self) -> Any:
        """The real, immutable object; only when `is_constant()`."""
        raise TypeError(f"{type(self).__name__} has no constant")

    def real(self) -> Any:
        """The real object that existed before the frame ran, or `MISSING`."""
        return MISSING

    def rebuild(self, e: Emitter) -> None:
        """Leave the real object on the stack of the code being written."""
        if self.source is None:
            raise NotImplementedError(f"{type(self).__name__} cannot be rebuilt")
        e.source(self.source)

    def fill(self, e: Emitter) -> None:
        """Add contents that may refer to this value itself."""

    def describe(self) -> str:
        """A few words for messages."""
        return class_name(self.python_type())

    def hashed_parts(self) -> Iterable[Value] | None:
        """Of a container that has a hash, the parts whose hashes make it up."""
        return None

    def how_many(self, t: Tracer) -> None:
        """What a list or a tuple that is made of the value asks first, to make room; the answer does not matter, a failure does."""

    def realise(self, t: Tracer) -> Value:
        """The value itself; of an object that nobody has looked at yet, the value for it, wrapped and guarded now."""
        return self

    # What a value answers. Each default is a graph break; `t` is the tracer of the frame.

    def get_attribute(self, t: Tracer, name: str) -> Value:
        """`self.name`; a missing attribute is a traced AttributeError."""
        raise GraphBreak("unsupported-attribute", f"attribute {name!r} of {self.describe()}")

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        """`self.name = value`."""
        raise GraphBreak("unsupported-store", f"storing attribute {name!r} of {self.describe()}")

    def delete_attribute(self, t: Tracer, name: str) -> None:
        """`del self.name`."""
        raise GraphBreak("unsupported-store", f"deleting attribute {name!r} of {self.describe()}")

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`self(*args, **kwargs)`."""
        raise GraphBreak("unsupported-call", f"calling {self.describe()}")

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`self.name(*args, **kwargs)` for a method implemented by the value itself."""
        raise GraphBreak("unsupported-call", f"method {name!r} of {self.describe()}")

    def get_item(self, t: Tracer, key: Value) -> Value:
        """`self[key]`."""
        raise GraphBreak("unsupported-operation", f"indexing {self.describe()}")

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        """`self[key] = value`."""
        raise GraphBreak("unsupported-store", f"storing an item of {self.describe()}")

    def delete_item(self, t: Tracer, key: Value) -> None:
        """`del self[key]`."""
        raise GraphBreak("unsupported-store", f"deleting an item of {self.describe()}")

    def contains(self, t: Tracer, item: Value) -> bool:
        """`item in self`."""
        raise GraphBreak("unsupported-operation", f"membership in {self.describe()}")

    def length(self, t: Tracer) -> Value:
        """`len(self)`."""
        raise GraphBreak("unsupported-operation", f"len() of {self.describe()}")

    def truth(self, t: Tracer) -> bool:
        """`bool(self)`."""
        raise GraphBreak("unsupported-operation", f"the truth of {self.describe()}")

    def iterate(self, t: Tracer) -> Value:
        """`iter(self)`."""
        raise GraphBreak("unsupported-operation", f"iterating over {self.describe()}")

    def next(self, t: Tracer) -> Value | None:
        """`next(self)`; None at the end."""
        raise GraphBreak("unsupported-operation", f"next() of {self.describe()}")

    def advance(self, t: Tracer) -> Value:
        """`next(self)`; at the end the program's StopIteration."""
        found = self.next(t)
        if found is None:
            raise t.exceptions.raised(StopIteration())
        return found


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING: Any = _Missing()


class NullValue(Value):
    """The NULL that calls push beside a callable."""

    __slots__ = ()

    def python_type(self) -> type:
        return type(None)

    def rebuild(self, e: Emitter) -> None:
        raise TypeError("NULL is not an object: the rewriter pushes it itself")


NULL = NullValue()


# What a value may ask of the tracer.
class Frames(Protocol):
    """The frames being traced."""

    break_at: int | None
    caught: bool
    depth: int
    frame: Any
    left_out: Any
    root: Any
    stamped: Any

    def locate(self, error: GraphBreak) -> None:
        """Note where a break happened, once."""

    def note_handlers(self) -> None:
        """Called for every operation of the graph: whether a handler of the program covers it."""

    def step(self, frame: Any) -> None:
        """Called before every instruction."""

    def user_position(self) -> tuple[str, int, str] | None:
        """The innermost traced line."""

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """`(file, line, function)` of every frame being traced, innermost last."""


class Wraps(Protocol):
    """Values for real objects, and objects for values."""

    fake_owner: dict[int, Value]
    keep_alive: list[Any]
    numbers: Any
    real_cells: dict[int, Any]
    rehearsing: bool
    tensor_inputs: list[Any]
    wrapped: dict[int, Value]
    wrapper_tensors: Any

    def cell_of(self, cell: Any, source: Source) -> Any:
        """The value of a closure cell, one for each real cell."""

    def from_constant(self, value: Any) -> Value:
        """What LOAD_CONST pushes."""

    def from_python(self, obj: Any) -> Value:
        """A value for an object that the trace computed from constants."""

    def hashable(self, value: Value) -> Any:
        """What a value hashes to as a dict key."""

    def is_foldable(self, value: Value) -> bool:
        """Whether `to_python` answers."""

    def new_dict(self, items: dict[str, Value]) -> Value:
        """A fresh dict with string keys."""

    def sequence(self, items: Sequence[Value], cls: type) -> Value:
        """A fresh list or tuple."""

    def to_python(self, value: Value, within: tuple[Value, ...] = ()) -> Any:
        """The real object of a value that is constant through and through. Raises NotConstant."""

    def wrap(self, obj: Any, source: Source) -> Value:
        """A value for an object that existed before the frame, guarded."""

    def wrap_pinned(self, obj: Any) -> Value:
        """A value for an object that the entry keeps alive: nothing to guard."""


class Records(Protocol):
    """What becomes a node of the graph."""

    def argument(self, value: Value) -> tuple[Any, Any]:
        """What a value is in the graph, and on fakes."""

    def arguments(self, args: Sequence[Value]) -> tuple[list[Any], list[Any]]:
        """"""

    def decided(self, value: Value) -> Value:
        """The constant for a symbolic truth value whose inputs are known, by a guard."""

    def has_tensor(self, args: Sequence[Value], kwargs: Mapping[str, Value]) -> bool:
        """Whether a tensor or a symbol is among the arguments, containers looked into."""

    def node_of(self, value: Any) -> torch.fx.Node:
        """The node of a tensor, lifted to an input on first use."""

    def wrap_result(self, result: Any, node: torch.fx.Node) -> Value:
        """A value for what an operation returned."""

    def number(self, symbol: Any, node: Any) -> Value:
        """A value for a number that may be symbolic; `node` makes the node that computes it."""

    def record(self, kind: str, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Run an operation on fakes, add its node, wrap its result."""


class Folds(Protocol):
    """What is computed for real."""

    def ask(self, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`fold` of a function whose answer depends on state that no other guard watches: every call asks again."""

    def assumed(self, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        """What a function gives that the program marks as a constant, or None."""

    def concrete(self, value: Value) -> Any:
        """A Python number or other constant; a symbol is specialised."""

    def flag(self, value: Value) -> bool:
        """`reverse=` of a sort: a truth value, or in older CPythons a C int."""

    def fold(self, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call a pure function for real; its exceptions are raised in the traced program."""

    def fold_method(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`owner.name(...)` of a constant; an error names the class that has the method, as it does where Python calls it."""

    def integer(self, value: Value) -> int:
        """A real integer for an argument that has to be one (`operator.index`)."""

    def real_error(
        self,
        function: Callable[..., Any],
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
        failed: Exception | None = None,
    ) -> NoReturn:
        """Raise, in the traced program, what Python raises for a call that is known to fail; a break where it is not constant."""

    def run_method(
        self,
        owner: Any,
        methods: Mapping[str, Callable[..., Value | None]],
        name: str,
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
    ) -> Value:
        """A method of a container by its model. Where that does not take the arguments, Python itself says what it makes of them."""


class Computes(Protocol):
    """Arithmetic of symbolic numbers."""

    def computed(self, function: Callable[..., Any], values: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A pure function of numbers, some symbolic, that the arithmetic of sizes has not: Python computes it, or the numbers are fixed."""

    def symbolic(self, function: Callable[..., Any], values: Sequence[Value]) -> Value:
        """"""

    def watch(self, formula: Any) -> None:
        """A guard that a number is what it is now."""


class Operates(Protocol):
    """Python's generic operations."""

    def binary(self, symbol: str, left: Value, right: Value) -> Value:
        """`left symbol right`; `symbol` may be an in-place one."""

    def collect(self, value: Value) -> list[Value]:
        """The elements for a list or a tuple that is made."""

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        """`left symbol right`."""

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`."""

    def index_or_slice(self, key: Value) -> Any:
        """The real index of a Python sequence."""

    def iterate_all(self, value: Value, limit: int | None = None) -> Iterator[Value]:
        """Every element, none lazy; at most `limit`."""

    def iterate_for_a_list(self, value: Value) -> Iterator[Value]:
        """Every element for a list or a tuple: how many there are is asked first."""

    def make_slice(self, parts: Sequence[Value]) -> Value:
        """`slice(...)`."""

    def mapping_items(self, mapping: Value) -> Iterator[tuple[Value, Value]]:
        """Keys and values of a mapping or of an iterable of pairs, each asked for when it is wanted."""

    def negate(self, value: Value) -> Value:
        """`not value`."""

    def same_or_equal(self, left: Value, right: Value) -> bool:
        """What containers compare with: `left is right or left == right`."""

    def sort(self, items: Sequence[Value], key: Value | None, reverse: bool) -> list[Value]:
        """`sorted`, by constant keys."""

    def unary(self, symbol: str, value: Value) -> Value:
        """`-value`, `+value`, `~value`."""


class Writes(Protocol):
    """Texts of values."""

    def format(self, value: Value, spec: Value) -> Value:
        """`format(value, spec)`."""

    def to_text(self, value: Value, how: str) -> Value:
        """`str`, `repr` or `ascii` of a value."""


class LooksUp(Protocol):
    """Attributes by Python's rules."""

    def attribute_of_object(self, value: Value, obj: Any, name: str) -> Value:
        """An attribute of a real function, method or other object, read for real."""

    def bind_class_attribute(self, value: Value, cls: type, name: str, found: Any, where: type | None = None) -> Value:
        """What `value.name` is when the class has `found` under that name; `where` is the class a `super()` search found it in."""

    def class_attribute(self, value: Any, name: str) -> Value:
        """`cls.name`."""

    def delete_object_attribute(self, value: Any, name: str) -> None:
        """`del value.name`."""

    def forget_attribute(self, value: Any, name: str) -> None:
        """`object.__delattr__(value, name)` of an attribute that is there."""

    def get_attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""

    def load_global(self, namespace: dict[str, Any], name: str) -> Value:
        """A global or builtin name as a frame with these globals sees it."""

    def missing_attribute(self, value: Value, name: str, check: Source | None = None) -> Any:
        """Raise the traced AttributeError; `check` is the path to an object that may get the attribute later."""

    def is_registered(self, value: Any, name: str) -> bool:
        """Whether it is a parameter, a buffer or a submodule, or the name of one that is None."""

    def module_getattr(self, value: Any, name: str) -> Value:
        """`nn.Module.__getattr__(value, name)`: a parameter, buffer or submodule."""

    def native_attribute(self, value: Value, name: str) -> Value:
        """An attribute of an object of a native class: its methods are bound, what its class holds is constant, what it computes is not known."""

    def object_attribute(self, value: Any, name: str) -> Value:
        """`value.name` for an instance of a Python class."""

    def plain_attribute(self, value: Any, name: str, *, hook: bool = True) -> Value:
        """`object.__getattribute__(value, name)`, then (with `hook`) `__getattr__`."""

    def plain_delete(self, value: Any, name: str) -> None:
        """`object.__delattr__(value, name)`."""

    def plain_store(self, value: Any, name: str, new: Value) -> None:
        """`object.__setattr__`, or `nn.Module.__setattr__` of what is in none of its tables."""

    def special_method(self, value: Any, name: str) -> Value | None:
        """A Python-level special method of the class, bound; None for native or absent ones."""

    def store_cell(self, cell: Any, value: Value) -> None:
        """Give a cell new contents."""

    def store_object_attribute(self, value: Any, name: str, new: Value) -> None:
        """`value.name = new` for an instance of a Python class."""

    def unbound_name(self, error: NameError, name: str) -> TracedRaise:
        """The traced NameError, which tells the name as CPython's does."""


class Raises(Protocol):
    """Exceptions of the traced program."""

    def cause_of(self, value: Value) -> Value:
        """What `raise error from value` notes as the cause: None is one too."""

    def current_exception(self) -> Value | None:
        """The exception being handled, in this frame or a caller."""

    def exception_instance(self, value: Value, what: str = "exceptions") -> Value:
        """What `raise value` raises, or with another word for it in the error what is given as its cause."""

    def make_exception(self, cls: type, args: Sequence[Value]) -> Value:
        """Which class it has (`OSError` goes by the error's number) and what its `args` are, a native class with fields decides."""

    def none_handled_outside(self, what: str) -> None:
        """What goes on holds while no caller of the frame handles an exception, which would be the context of those raised here."""

    def raise_anew(self, error: Value) -> None:
        """Note it for a `raise` of an exception, which may have been raised before: as CPython, with no way back in what it comes after."""

    def raised(self, error: BaseException, value: Value | None = None) -> TracedRaise:
        """The traced counterpart of raising `error`; `raise t.exceptions.raised(...)`."""

    def set_context(self, error: Value) -> None:
        """Note where `error`, made by the trace, was raised first, and which exception was being handled then."""


class Lives(Protocol):
    """How long objects live."""

    def lets_go_of(self, found: Any) -> bool:
        """Whether the frame deletes or overwrites a variable that holds this object, which may then be gone."""

    def reference(self, cls: type, args: Sequence[Value]) -> Value:
        """`weakref.ref(obj, callback)`, of an object that somebody else than a variable of the frame holds."""

    def weakly_held(self, args: Sequence[Value]) -> GraphBreak:
        """The break where a weak reference is made. Plain Python's variable holds the object on, where a cut frame keeps only what it still reads; and what"""


class Calls(Protocol):
    """Calls by Python's rules."""

    def asked_of_class(self, cls: type, classes: Any, check: str = "__instancecheck__") -> None:
        """Guard what a class answers for itself to `isinstance` and `issubclass`: an abstract one may get a subclass later."""

    def call(self, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`function(*args, **kwargs)`."""

    def call_bound(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`owner.name(...)` where the class implements the method in C."""

    def call_builtin(self, value: Value, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call something written in C."""

    def call_function(self, value: Any, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call a Python function that existed before the frame."""

    def class_or_tuple(self, value: Value) -> Any:
        """The real class or tuple of classes."""

    def call_descriptor(self, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """An unbound native method: `list.append(x, 1)`, `dict.__setitem__(self, k, v)`."""

    def call_through(
        self, places: tuple[Any, ...], function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> Value:
        """A call that plain Python makes from these places, in functions that are not traced."""

    def inline_function(self, value: Any, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Trace into the body of a function."""

    def make_instance(self, value: Value, args: Sequence[Value]) -> Value:
        """`cls.__new__(cls, *args)` with nothing initialised."""

    def construct(
        self, value: Any, args: Sequence[Value], kwargs: Mapping[str, Value], *, natively: bool = False
    ) -> Value:
        """`cls(*args, **kwargs)`; `natively`: `type.__call__(cls, *args, **kwargs)`, past what the metaclass has."""

    def generic_method(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Special methods that the interpreter implements for every value, else folding."""

    def inline_closure(self, value: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Trace into a function made while tracing."""

    def run_inlined(
        self, code: CodeType, namespace: dict[str, Any], bound: dict[str, Value], closure: Sequence[Any]
    ) -> Value:
        """A child frame, run to its end (a generator is left suspended at its start)."""


class Inspects(Protocol):
    """What classes have, guarded."""

    def class_lookup(self, cls: type, name: str) -> Any:
        """The raw class attribute, `MISSING` when there is none."""

    def class_member(self, cls: type, name: str, after: type | None = None) -> tuple[Any, Any]:
        """`mro_lookup`, with a guard that the answer stays the same."""

    def note_callees(self, function: Any) -> None:
        """Guard what a function of torch calls by name."""

    def patched_callee(self, function: Any) -> str | None:
        """A name by which a function of torch calls what is the program's own: plain Python calls that, a node does not."""

    def patched_member(self, cls: type, name: str) -> Any:
        """What a program put under this name of one of torch's classes in place of torch's own, else None; guarded either way."""

    def refuse_patched(self, value: Value, name: str) -> None:
        """Break where the tensor's class has a member of the program's, or torch's own calls one; guarded either way."""


class Tracer(Protocol):
    """What a value may ask: the parts of the tracer that traces."""

    info: Any
    config: Config
    scopes: Any
    graph: GraphBuilder
    guards: GuardCollector
    heap: Any
    devices: Any
    overrides: Any
    repeated_calls: Any
    generators: list[Any]
    hit_loops: Any
    initial_grad: bool
    told_compiling: bool

    @property
    def frames(self) -> Frames: ...

    @property
    def wrapper(self) -> Wraps: ...

    @property
    def recorder(self) -> Records: ...

    @property
    def folder(self) -> Folds: ...

    @property
    def arithmetic(self) -> Computes: ...

    @property
    def operators(self) -> Operates: ...

    @property
    def texts(self) -> Writes: ...

    @property
    def attributes(self) -> LooksUp: ...

    @property
    def exceptions(self) -> Raises: ...

    @property
    def lifetimes(self) -> Lives: ...

    @property
    def caller(self) -> Calls: ...

    @property
    def members(self) -> Inspects: ...
