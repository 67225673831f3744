"""Shapes that a program declares for the parameters of what it compiles: `flambeau.compile(f, shapes_spec=...)`.

In: torch's specification (`torch.fx.experimental.dynamic_spec`) and the callable; then, for each trace, inputs with their sources. Out: which sizes and
ints are symbolic, in which range. Everything else is a constant. What the declaration says of an input is checked when it is traced, and is a guard
of what is compiled: a call for which it does not hold finds no entry, and is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_qualname
from ..errors import DynamicShapeError, OptionError
from ..library import functools, inspect
from ..sources.source import Attribute, InstanceDict, Item, Local, Source, StoredItem, steps
from .dimension_marks import Mark
from .shapes import symbol_value

if TYPE_CHECKING:
    from types import CodeType

    from ..frame import FrameInfo
    from .builder import GraphBuilder

_TABLES = ("_parameters", "_buffers", "_modules")
_CALLS = ("Module._wrapped_call_impl", "Module._call_impl")
"""Frames of a module's call: in the last, the arguments of `forward` are a closure's `args` and `kwargs`."""
_Parameter = inspect.Parameter
_BY_PLACE = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (_Parameter.POSITIONAL_OR_KEYWORD, _Parameter.KEYWORD_ONLY)


class DeclaredShapes:
    """What is declared for one callable.

    Args:
        spec: a `ShapesSpec` or `ParamsSpec` of torch, or the dict that is given to these.
        function: what is called; for a module's call, its `forward` says which parameters there are, for a wrapper what it wraps.
        module_call: the code of a module's call, whose own parameters are `*args` and `**kwargs`.

    Raises:
        OptionError: for a declaration that says nothing of this callable, or where nothing tells which function of Python a call of it runs.
    """

    def __init__(self, spec: Any, function: Callable[..., Any], module_call: CodeType) -> None:
        self._types = _types_of(spec)
        whole = spec if isinstance(spec, self._types.ShapesSpec) else self._types.ShapesSpec(spec)
        params = whole._params or self._types.ParamsSpec()
        self._named: dict[str, Any] = params._named_args
        self._more: list[Any] = params._varargs or []
        self._keywords: dict[str, Any] = params._varkw or {}
        #: Conditions on the variables, as terms of sympy.
        self.assumptions = tuple(told.node.expr for told in whole.assumptions)
        called = _entered(function)
        self._owner = getattr(called, "__self__", None)
        self._module_call = module_call
        if isinstance(self._owner, torch.nn.Module) and called.__code__ is module_call:
            called = _entered(self._owner.forward)
        #: Of a module: of its `forward`, which is a frame of its own where the module has no hooks.
        self._code = called.__code__
        self._is_bound = isinstance(called, MethodType)
        self._bound_to = getattr(called, "__self__", None)
        self._parameters = self._parameters_of(called)
        self._placed = [name for name, one in self._parameters.items() if one.kind in _BY_PLACE]
        self._check_names()
        self._check_variables()

    def _parameters_of(self, called: Any) -> dict[str, inspect.Parameter]:
        """As `help` shows them."""
        try:
            return dict(inspect.signature(called).parameters)
        except (TypeError, ValueError):  # a wrapper of what is written in C
            if self._named:
                raise OptionError(
                    f"shapes_spec names {', '.join(self._named)}, and nothing tells the parameters of {called.__qualname__}",
                    hint="declare them by their places: {'*args': [...]}",
                ) from None
            return dict(inspect.signature(called, follow_wrapped=False).parameters)

    def _check_names(self) -> None:
        """Refuse what no parameter has: it would be a constant without a word."""
        kinds = {one.kind for one in self._parameters.values()}
        known = {*self._parameters, "self"}
        unknown = [] if _Parameter.VAR_KEYWORD in kinds else [name for name in self._named if name not in known]
        if self._more and _Parameter.VAR_POSITIONAL not in kinds:
            unknown.append("*args")
        if self._keywords and _Parameter.VAR_KEYWORD not in kinds:
            unknown.append("**kwargs")
        if unknown:
            raise OptionError(
                f"shapes_spec names {', '.join(unknown)}, and the parameters are {', '.join(self._parameters) or 'none'}"
            )

    def _check_variables(self) -> None:
        """Refuse relations with a variable that no size and no number is alone: nothing would say what it is."""
        given: set[Any] = set()
        used: set[Any] = set()
        for leaf in self._leaves((*self._named.values(), *self._more, *self._keywords.values())):
            (given if isinstance(leaf, self._types.IntVar) else used).update(leaf.node.expr.free_symbols)
        used.update(*(told.free_symbols for told in self.assumptions))
        if missing := sorted(_plain(symbol) for symbol in used - given):
            raise OptionError(
                f"shapes_spec relates {', '.join(missing)} to others, and no dimension and no number is declared to be that",
                hint="put the variable by itself where its value is found: TensorSpec([variable, None])",
            )

    def _leaves(self, specs: Any) -> Iterator[Any]:
        """The variables and terms in a specification."""
        types = self._types
        for spec in specs:
            if isinstance(spec, torch.SymInt):
                yield spec
            elif isinstance(spec, types.TensorSpec):
                yield from self._leaves(spec)
            elif isinstance(spec, (types.ObjectSpec, types.DictSpec)):
                yield from self._leaves(inner for _, inner in spec.items())
            elif isinstance(spec, types.SeqSpec):
                yield from self._leaves(spec._entries)

    def begin(self, info: FrameInfo, builder: GraphBuilder) -> Declared | None:
        """What is declared for one trace of a frame; None for a frame of other code, which learns by itself which sizes change."""
        code = info.code
        if code is self._code:
            has_own = self._is_bound and code.co_argcount
            is_its_own = not has_own or info.locals.get(code.co_varnames[0]) is self._bound_to
            return Declared(self, builder, False, code) if is_its_own else None
        within_call = code.co_filename == self._module_call.co_filename and code.co_qualname.startswith(_CALLS)
        if within_call and isinstance(self._owner, torch.nn.Module) and info.locals.get("self") is self._owner:
            return Declared(self, builder, True, code)
        return None

    def of(self, source: Source, *, within_call: bool, code: CodeType) -> Any:
        """What is declared of the input from a source; None: nothing, so that it is a constant."""
        path = _path_of(source)
        if path is None:
            return None
        (_, root), *rest = path
        many, more = ("args", "kwargs") if within_call else _variadic_names(code)
        before = 0 if within_call else code.co_argcount - self._is_bound
        if rest and rest[0][0] == "item" and root == many:
            spec = self._placed_at(before + rest.pop(0)[1])
        elif rest and rest[0][0] == "item" and root == more:
            spec = self._given_as(rest.pop(0)[1])
        elif within_call:
            spec = self._named.get("self") if root == "self" else None
        else:
            spec = self._argument(root, code)
        return self._walk(spec, rest, source)

    def _argument(self, name: str, code: CodeType) -> Any:
        """What is declared for a local of the frame: for an argument, which a wrapper may call otherwise than what it wraps does."""
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if name not in arguments:
            return None
        place = arguments.index(name) - self._is_bound
        if name in self._parameters or place >= code.co_argcount - self._is_bound:
            return self._named.get(name)
        return self._placed_at(place)

    def _placed_at(self, place: int) -> Any:
        """What is declared for a call's argument at a place: the frame may have it in its `*args`, and what it wraps by a name."""
        if place < 0:
            return self._named.get("self")
        if place < len(self._placed):
            return self._named.get(self._placed[place])
        place -= len(self._placed)
        return self._more[place] if place < len(self._more) else None

    def _given_as(self, name: Any) -> Any:
        """What is declared for an argument that is given by its name, and that the frame has in its `**kwargs`."""
        known = self._parameters.get(name)
        if known is None:
            return self._keywords.get(name, self._named.get(name))
        return self._named.get(name) if known.kind in _BY_NAME else self._keywords.get(name)

    def _walk(self, spec: Any, rest: list[tuple[str, Any]], source: Source) -> Any:
        types = self._types
        for kind, key in rest:
            if spec is None or isinstance(spec, (int, torch.SymInt, types.TensorSpec)):
                return None  # an attribute of a tensor, such as its gradient
            if isinstance(spec, types.ObjectSpec) and kind == "attribute":
                spec = spec._fields.get(key)
            elif isinstance(spec, types.DictSpec) and kind == "item":
                spec = spec._entries.get(key)
            elif isinstance(spec, types.SeqSpec) and kind == "item" and type(key) is int:
                spec = spec._entries[key] if 0 <= key < len(spec) else None
            else:
                raise DynamicShapeError(f"{source.name} is declared as part of {_words(spec)}, which it is not")
        return spec


class Declared:
    """What is declared, in one trace.

    Args:
        shapes: the declaration.
        builder: of the trace's graph.
        within_call: whether the frame is a module's call, whose `*args` and `**kwargs` are the arguments of `forward`.
        code: the frame's code.
    """

    def __init__(self, shapes: DeclaredShapes, builder: GraphBuilder, within_call: bool, code: CodeType) -> None:
        self._shapes, self._builder, self._code, self._within = shapes, builder, code, within_call
        #: Variable -> what it is in this call, and the symbol that it is in the graph.
        self._actual: dict[Any, int] = {}
        self._symbols: dict[Any, Any] = {}
        self._waiting: list[tuple[Any, Any, str]] = [(told, told, "") for told in shapes.assumptions]
        self._numbers: list[tuple[torch.SymInt, str]] = []

    def of(self, source: Source) -> Any:
        """What is declared of an input."""
        return self._shapes.of(source, within_call=self._within, code=self._code)

    def marks(self, obj: torch.Tensor, source: Source) -> dict[int, Mark]:
        """The declaration of a tensor as marks of its dimensions; those without one are constants."""
        spec = self.of(source)
        if spec is None:
            return {}
        if not isinstance(spec, self._shapes._types.TensorSpec):
            raise DynamicShapeError(f"{source.name} is declared as {_words(spec)}, and is a tensor")
        if len(spec) != obj.ndim:
            raise DynamicShapeError(f"{source.name} has {obj.ndim} dimensions, and {len(spec)} are declared")
        found = {}
        for dim, leaf in enumerate(spec):
            if isinstance(leaf, torch.SymInt):
                hint = getattr(leaf, "optimization_hint", None)
                found[dim] = Mark("unbacked", getattr(leaf, "min", None), getattr(leaf, "max", None), hint)
            elif leaf is not None and leaf != obj.shape[dim]:
                raise DynamicShapeError(
                    f"dimension {dim} of {source.name} is {obj.shape[dim]}, and declared to be {leaf}"
                )
        return found

    def tensor(self, obj: torch.Tensor, fake: torch.Tensor, source: Source) -> None:
        """Note the sizes of a tensor whose fake has symbols where that is declared."""
        spec = self.of(source)
        for dim, leaf in enumerate(spec if spec is not None else ()):
            if isinstance(leaf, torch.SymInt):
                self._note(leaf, fake.shape[dim], obj.shape[dim], f"dimension {dim} of {source.name}")

    def is_symbolic(self, number: float, source: Source) -> bool:
        """Whether a number is declared to be an input of the graph."""
        spec = self.of(source)
        if isinstance(spec, torch.SymInt):
            if type(number) is not int:
                raise DynamicShapeError(f"{source.name} is declared as {_words(spec)}, and is {number!r}")
            return True
        if spec is not None and spec != number:
            raise DynamicShapeError(f"{source.name} is {number!r}, and declared to be {_words(spec)}")
        return False

    def number(self, number: int, symbolic: torch.SymInt, source: Source) -> None:
        """Note an int that is an input of the graph."""
        leaf = self.of(source)
        least, most = getattr(leaf, "min", None), getattr(leaf, "max", None)
        if least is not None:
            if number < least:
                raise DynamicShapeError(f"{source.name} is {number}, and declared to be at least {least}")
            torch._check(symbolic >= least)
        if most is not None:
            if number > most:
                raise DynamicShapeError(f"{source.name} is {number}, and declared to be at most {most}")
            torch._check(symbolic <= most)
        self._note(leaf, symbolic, number, source.name)
        self._numbers.append((symbolic, source.name))

    def _note(self, leaf: Any, symbolic: Any, actual: int, words: str) -> None:
        import sympy

        term = leaf.node.expr
        if not isinstance(leaf, self._shapes._types.IntVar):
            self._waiting.append((sympy.Eq(sympy.Integer(actual), term), sympy.Eq(symbol_value(symbolic), term), words))
        elif term in self._actual:
            if self._actual[term] != actual:
                raise DynamicShapeError(f"{words} is {actual}, and {_plain(term)} is {self._actual[term]} elsewhere")
            self._require(sympy.Eq(symbol_value(symbolic), self._symbols[term]))
        else:
            self._actual[term], self._symbols[term] = actual, symbol_value(symbolic)
        self._settle()

    def _settle(self) -> None:
        """Check the relations all of whose variables are known by now, and have them guarded."""
        waiting, self._waiting = self._waiting, []
        for relation in waiting:
            told, in_graph, words = relation
            if not told.free_symbols <= self._actual.keys():
                self._waiting.append(relation)
                continue
            if not told.subs(self._actual):
                values = ", ".join(
                    f"{_plain(name)} = {self._actual[name]}" for name in sorted(told.free_symbols, key=str)
                )
                about = (
                    f"{words} is {told.lhs}, and declared to be {_plain(told.rhs)}"
                    if words
                    else f"{_plain(told)} is assumed"
                )
                raise DynamicShapeError(f"{about}, with {values}")
            self._require(in_graph.xreplace(self._symbols))

    def _require(self, condition: Any) -> None:
        self._builder.need_shape_env().guard_or_defer_runtime_assert(condition, "shapes_spec")
        self._builder.note_guards()

    def check(self) -> None:
        """Raise DynamicShapeError where the program made a constant of a number that is declared to change."""
        for symbolic, name in self._numbers:
            if (fixed := symbolic.node.maybe_as_int()) is not None:
                raise DynamicShapeError(
                    f"{name} is declared to change, but the program needs it to be {fixed}",
                    hint="declare it as the number that it is, or remove the code that fixes it",
                )


def _types_of(spec: Any) -> Any:
    """Torch's module of specifications."""
    try:
        from torch.fx.experimental import dynamic_spec
    except ImportError:
        raise OptionError(
            f"the installed torch, {torch.__version__}, has no types to declare shapes with",
            hint="torch 2.13 or later; mark_dynamic and mark_unbacked are there in all versions",
        ) from None
    if not isinstance(spec, (dict, dynamic_spec.ShapesSpec, dynamic_spec.ParamsSpec)):
        raise OptionError(f"shapes_spec takes a ShapesSpec, a ParamsSpec or a dict, not {spec!r}")
    return dynamic_spec


def _entered(function: Any) -> Any:
    """The function of Python that a call of `function` runs first, as a method where it is bound."""
    inner = function
    while not isinstance(inner.__func__ if isinstance(inner, MethodType) else inner, FunctionType):
        call = inspect.getattr_static(type(inner), "__call__", None)
        if isinstance(inner, functools.partial):
            inner = inner.func
        elif isinstance(call, FunctionType):
            inner = MethodType(call, inner)
        elif not isinstance(inner, type) and callable(getattr(inner, "__wrapped__", None)):
            inner = inner.__wrapped__  # written in C, as what `lru_cache` gives is
        else:
            told = getattr(function, "__qualname__", None) or class_qualname(type(function))
            raise OptionError(
                f"shapes_spec declares parameters of {told}, and nothing tells which function of Python a call of it runs",
                hint="compile that function",
            )
    return inner


def _variadic_names(code: CodeType) -> tuple[str, str]:
    """The names of a code's `*args` and `**kwargs`, "" for what it does not have."""
    at = code.co_argcount + code.co_kwonlyargcount
    has_many, has_more = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    many = code.co_varnames[at] if has_many else ""
    return many, code.co_varnames[at + bool(has_many)] if has_more else ""


def _path_of(source: Source) -> list[tuple[str, Any]] | None:
    """A source as steps from a local, `("attribute", name)` or `("item", key)`; None for what is reached otherwise."""
    root, *rest = steps(source)
    if not isinstance(root, Local):
        return None
    path: list[tuple[str, Any]] = [("local", root.variable)]
    in_dict = False
    for step in rest:
        if isinstance(step, InstanceDict):
            in_dict = True
        elif isinstance(step, Item) and in_dict:
            in_dict = step.key in _TABLES  # of a module: what it names comes next
            if not in_dict:
                path.append(("attribute", step.key))
        elif isinstance(step, (Item, StoredItem)):
            path.append(("item", step.key))
        elif isinstance(step, Attribute):
            path.append(("attribute", step.attribute))
        else:
            return None
    return path


def _plain(term: Any) -> str:
    """A term with the names that the program gave, without the numbers by which torch keeps equal ones apart."""
    import sympy

    return str(term.xreplace({symbol: sympy.Symbol(symbol.name.partition("#")[0]) for symbol in term.free_symbols}))


def _words(spec: Any) -> str:
    return (
        _plain(spec.node.expr)
        if isinstance(spec, torch.SymInt)
        else f"a {type(spec).__name__}"
        if spec is not None and type(spec) is not int
        else str(spec)
    )
