"""Normalised instructions to code object: the way back from `normalise.py`.

In: normalised instructions (or drafts with labels, see `link`) and the `CodeSpec` of the code to make; names and constants are
added to the spec as the instructions need them. Out: a code object for the running CPython.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any

from attrs import evolve

from ..library import inspect
from .behaviour import BEHAVIOUR, BINARY_OPERATORS, COMPARE_OPERATORS, INTRINSICS_1
from .encode import CodeSpec, EncodingError, encode
from .flow import falls_through
from .model import NOWHERE, Draft, Handler, Instruction, Label, Position
from .normalise import UnsupportedCodeError
from .stack_depth import stack_size

_NEVER_WRITTEN = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SLOT = frozenset(
    {
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_AND_CLEAR",
        "STORE_FAST",
        "DELETE_FAST",
        "LOAD_DEREF",
        "STORE_DEREF",
        "DELETE_DEREF",
        "LOAD_CLOSURE",
        "LOAD_CLASSDEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "MAKE_CELL",
    }
)
_NAMED = {
    "STORE_GLOBAL": 0,
    "DELETE_GLOBAL": 0,
    "LOAD_NAME": 0,
    "STORE_NAME": 0,
    "DELETE_NAME": 0,
    "STORE_ATTR": 0,
    "DELETE_ATTR": 0,
    "IMPORT_NAME": 0,
    "IMPORT_FROM": 0,
    "LOAD_FROM_DICT_OR_GLOBALS": 0,
    "LOAD_GLOBAL": 1,
    "LOAD_ATTR": 0 if BEHAVIOUR.precall else 1,
}
"""Opcodes that name something, with the number of (clear) flag bits below the name's index."""
_OPPOSITE = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}
_AS_INTRINSIC = {
    name.removeprefix("INTRINSIC_"): number for name, number in INTRINSICS_1.items() if name != "INTRINSIC_PRINT"
}
_SHARED_BY_VALUE = (int, str, bool, bytes, type(None), type(Ellipsis))


def link(drafts: Iterable[Draft | Label]) -> tuple[Instruction, ...]:
    """Place drafts: labels become indices. A label stands for the instruction that follows it."""
    items = list(drafts)
    places: dict[Label, int] = {}
    index = 0
    for item in items:
        if isinstance(item, Label):
            places[item] = index
        else:
            index += 1
    handlers: dict[int, Handler] = {}
    out = []
    for item in items:
        if isinstance(item, Label):
            continue
        handler = None
        if item.protect is not None:
            handler = handlers.get(id(item.protect))
            if handler is None:
                handler = Handler(places[item.protect.target], item.protect.depth, item.protect.lasti)
                handlers[id(item.protect)] = handler
        target = None if item.target is None else places[item.target]
        out.append(Instruction(item.name, item.arg, item.value, target, handler, item.position))
    return tuple(out)


def write_code(instructions: Sequence[Instruction], spec: CodeSpec) -> CodeType:
    """The code object that runs `instructions`; its stack size is computed.

    Raises UnsupportedCodeError for generators and coroutines, EncodingError for instructions that cannot be written.
    """
    if spec.flags & _NEVER_WRITTEN:
        raise UnsupportedCodeError(f"{spec.name} is a generator or coroutine, whose code is never written anew")
    return _Lowering(instructions, spec).run()


class _Lowering:
    """One pass; targets are normalised indices until the end, then looked up in `first` (or `loop_end` for FOR_ITER)."""

    def __init__(self, instructions: Sequence[Instruction], spec: CodeSpec) -> None:
        self.instructions = instructions
        self.spec = spec
        self.slots = {name: index for index, name in enumerate(spec.slots)}
        self.names = {name: index for index, name in enumerate(spec.names)}
        self.constants = list(spec.constants)
        self.constant_at: dict[Any, int] = {}
        for index, constant in enumerate(spec.constants):
            self.constant_at.setdefault(_constant_key(constant), index)
        self.out: list[Instruction] = []
        self.first: list[int] = []
        self.loop_end: dict[int, int] = {}
        self.skip = 0

    def run(self) -> CodeType:
        self._prologue()
        loops = {i.target: i for i in self.instructions if i.name == "FOR_ITER"}
        for index, instruction in enumerate(self.instructions):
            if index in loops:
                self._end_loop(index, loops[index])
            self.first.append(len(self.out))
            if self.skip:
                self.skip -= 1
                continue
            self._one(index, instruction)
        raw = tuple(self._retarget(i) for i in self.out)
        spec = evolve(self.spec, names=tuple(self.names), constants=tuple(self.constants), stack_size=stack_size(raw))
        return encode(raw, spec)

    def _prologue(self) -> None:
        spec = self.spec
        if spec.free:
            self._put(NOWHERE, None, "COPY_FREE_VARS", len(spec.free))
        for slot in sorted(self.slots[name] for name in spec.cells):
            self._put(NOWHERE, None, "MAKE_CELL", slot)
        self._put(Position(spec.first_line, spec.first_line, 0, 0), None, "RESUME", 0)

    def _end_loop(self, index: int, loop: Instruction) -> None:
        if not BEHAVIOUR.end_for_length:
            return
        if index and falls_through(self.instructions[index - 1]):
            before = self.instructions[index - 1]
            self._put(before.position, before.handler, "JUMP_FORWARD", target=index)
        self.loop_end[index] = len(self.out)
        self._put(loop.position, None, "END_FOR")
        if BEHAVIOUR.end_for_length == 2:
            self._put(loop.position, None, "POP_TOP")

    def _retarget(self, i: Instruction) -> Instruction:
        if i.target is None and i.handler is None:
            return i
        target, handler = i.target, i.handler
        if target is not None and target >= 0:
            target = self.loop_end.get(target, self.first[target]) if i.name == "FOR_ITER" else self.first[target]
        elif target is not None:
            target = ~target
        if handler is not None:
            handler = Handler(self.first[handler.target], handler.depth, handler.lasti)
        return evolve(i, target=target, handler=handler)

    def _put(
        self, position: Position, handler: Handler | None, name: str, arg: int = 0, target: int | None = None
    ) -> None:
        self.out.append(Instruction(name, arg, None, target, handler, position))

    def _constant(self, value: Any) -> int:
        key = _constant_key(value)
        index = self.constant_at.get(key)
        if index is None:
            index = self.constant_at[key] = len(self.constants)
            self.constants.append(value)
        return index

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _one(self, index: int, i: Instruction) -> None:
        def put(name: str, arg: int = 0, target: int | None = None) -> None:
            self._put(i.position, i.handler, name, arg, target)

        name = i.name
        if name in _SLOT:
            self._slot(i)
        elif name in _NAMED:
            put(name, self._name(i.value) << _NAMED[name])
        elif name in _SPECIAL:
            _SPECIAL[name](self, index, i)
        elif name in _OPPOSITE:
            self._conditional(index, i)
        else:
            put(name, i.arg, i.target)

    def _slot(self, i: Instruction) -> None:
        name = i.name
        if (name == "LOAD_CLOSURE" and BEHAVIOUR.closure_by_load_fast) or (
            name == "LOAD_FAST_CHECK" and BEHAVIOUR.load_fast_is_checked
        ):
            name = "LOAD_FAST"
        self._put(i.position, i.handler, name, self.slots[i.value])

    def _conditional(self, index: int, i: Instruction) -> None:
        test = i.name.removeprefix("POP_JUMP_IF_")
        target = i.target
        assert target is not None
        boolean = BEHAVIOUR.tests_need_bool and test in ("TRUE", "FALSE")
        if boolean and not self._fold_comparison(index):
            self._put(i.position, i.handler, "TO_BOOL")
        if BEHAVIOUR.precall:
            way = "FORWARD" if target > index else "BACKWARD"
            self._put(i.position, i.handler, f"POP_JUMP_{way}_IF_{test}", target=target)
        elif target > index:
            self._put(i.position, i.handler, i.name, target=target)
        else:
            self._put(i.position, i.handler, _OPPOSITE[i.name], target=~(len(self.out) + 2))
            self._put(i.position, i.handler, "JUMP_BACKWARD", target=target)

    def _fold_comparison(self, index: int) -> bool:
        """Whether the value tested is a comparison just made, which can yield a bool itself."""
        if not index or self.instructions[index - 1].name != "COMPARE_OP":
            return False
        last = self.out[-1]
        if last.name != "COMPARE_OP" or self.first[index] != len(self.out):
            return False
        self.out[-1] = evolve(last, arg=last.arg | BEHAVIOUR.compare_bool_bit)
        return True

    def _load_const(self, _: int, i: Instruction) -> None:
        self._put(i.position, i.handler, "LOAD_CONST", self._constant(i.value))

    def _method(self, _: int, i: Instruction) -> None:
        index = self._name(i.value)
        if BEHAVIOUR.precall:
            self._put(i.position, i.handler, "LOAD_METHOD", index)
        else:
            self._put(i.position, i.handler, "LOAD_ATTR", index << 1 | 1)

    def _super(self, _: int, i: Instruction) -> None:
        bits = (i.arg & 1) << 1 | (i.name == "LOAD_SUPER_METHOD")
        self._put(i.position, i.handler, "LOAD_SUPER_ATTR", self._name(i.value) << 2 | bits)

    def _compare(self, _: int, i: Instruction) -> None:
        self._put(i.position, i.handler, "COMPARE_OP", _compare_argument(i.value))

    def _binary(self, _: int, i: Instruction) -> None:
        self._put(i.position, i.handler, "BINARY_OP", BINARY_OPERATORS.index(i.value))

    def _jump(self, index: int, i: Instruction) -> None:
        target = i.target
        assert target is not None
        backward = "JUMP_BACKWARD_NO_INTERRUPT" if i.name == "JUMP_NO_INTERRUPT" else "JUMP_BACKWARD"
        self._put(i.position, i.handler, "JUMP_FORWARD" if target > index else backward, target=target)

    def _loop(self, index: int, i: Instruction) -> None:
        if i.target is None or i.target <= index:
            raise EncodingError("FOR_ITER must jump forward")
        self._put(i.position, i.handler, "FOR_ITER", target=i.target)

    def _call(self, _: int, i: Instruction) -> None:
        names = i.name == "CALL_KW"
        if names:
            index = self._constant(i.value)
            self._put(i.position, i.handler, "LOAD_CONST" if BEHAVIOUR.keyword_names_on_stack else "KW_NAMES", index)
        if BEHAVIOUR.precall:
            self._put(i.position, i.handler, "PRECALL", i.arg)
        self._put(i.position, i.handler, "CALL_KW" if names and BEHAVIOUR.keyword_names_on_stack else "CALL", i.arg)

    def _not(self, index: int, i: Instruction) -> None:
        if BEHAVIOUR.tests_need_bool and not self._fold_comparison(index):
            self._put(i.position, i.handler, "TO_BOOL")
        self._put(i.position, i.handler, "UNARY_NOT")

    def _to_bool(self, _: int, i: Instruction) -> None:
        if BEHAVIOUR.tests_need_bool:
            self._put(i.position, i.handler, "TO_BOOL")
            return
        self._put(i.position, i.handler, "UNARY_NOT")
        self._put(i.position, i.handler, "UNARY_NOT")

    def _intrinsic(self, _: int, i: Instruction) -> None:
        if BEHAVIOUR.intrinsics:
            self._put(i.position, i.handler, "CALL_INTRINSIC_1", _AS_INTRINSIC[i.name])
        else:
            self._put(i.position, i.handler, i.name)

    def _prep_reraise(self, _: int, i: Instruction) -> None:
        if BEHAVIOUR.intrinsics:
            self._put(i.position, i.handler, "CALL_INTRINSIC_2", 1)
        else:
            self._put(i.position, i.handler, i.name)

    def _function(self, _: int, i: Instruction) -> None:
        if not BEHAVIOUR.function_attributes_separate:
            self._put(i.position, i.handler, "MAKE_FUNCTION", i.arg)
            return
        self._put(i.position, i.handler, "MAKE_FUNCTION")
        for flag in (8, 4, 2, 1):
            if i.arg & flag:
                self._put(i.position, i.handler, "SET_FUNCTION_ATTRIBUTE", flag)

    def _swap(self, index: int, i: Instruction) -> None:
        """A conversion below a format spec, which older CPythons do in one FORMAT_VALUE, starts with a SWAP."""
        following = self.instructions[index : index + 4]
        names = [f.name for f in following]
        if BEHAVIOUR.format_value and names == ["SWAP", "CONVERT_VALUE", "SWAP", "FORMAT_WITH_SPEC"]:
            self.skip = 3
            self._put(i.position, i.handler, "FORMAT_VALUE", following[1].arg | 4)
        else:
            self._put(i.position, i.handler, "SWAP", i.arg)

    def _convert(self, index: int, i: Instruction) -> None:
        if not BEHAVIOUR.format_value:
            self._put(i.position, i.handler, "CONVERT_VALUE", i.arg)
            return
        following = self.instructions[index + 1].name if index + 1 < len(self.instructions) else ""
        if following == "FORMAT_SIMPLE":
            self.skip = 1
        self._put(i.position, i.handler, "FORMAT_VALUE", i.arg)

    def _format(self, _: int, i: Instruction) -> None:
        if BEHAVIOUR.format_value:
            self._put(i.position, i.handler, "FORMAT_VALUE", 4 if i.name == "FORMAT_WITH_SPEC" else 0)
        else:
            self._put(i.position, i.handler, i.name)


def _compare_argument(symbol: str) -> int:
    index = COMPARE_OPERATORS.index(symbol)
    if not BEHAVIOUR.compare_shift:
        return index
    return index << BEHAVIOUR.compare_shift | _COMPARE_MASK[symbol]


_COMPARE_MASK = {"<": 2, "<=": 2 | 8, "==": 8, "!=": 1 | 2 | 4, ">": 4, ">=": 4 | 8}
"""Low bits of COMPARE_OP since 3.12: the outcomes (unordered 1, less 2, greater 4, equal 8) for which it is true; used by specialised forms."""

_SPECIAL = {
    "LOAD_CONST": _Lowering._load_const,
    "LOAD_METHOD": _Lowering._method,
    "LOAD_SUPER_ATTR": _Lowering._super,
    "LOAD_SUPER_METHOD": _Lowering._super,
    "COMPARE_OP": _Lowering._compare,
    "BINARY_OP": _Lowering._binary,
    "JUMP": _Lowering._jump,
    "JUMP_NO_INTERRUPT": _Lowering._jump,
    "FOR_ITER": _Lowering._loop,
    "CALL": _Lowering._call,
    "CALL_KW": _Lowering._call,
    "UNARY_NOT": _Lowering._not,
    "TO_BOOL": _Lowering._to_bool,
    "UNARY_POSITIVE": _Lowering._intrinsic,
    "LIST_TO_TUPLE": _Lowering._intrinsic,
    "IMPORT_STAR": _Lowering._intrinsic,
    "PREP_RERAISE_STAR": _Lowering._prep_reraise,
    "MAKE_FUNCTION": _Lowering._function,
    "SWAP": _Lowering._swap,
    "CONVERT_VALUE": _Lowering._convert,
    "FORMAT_SIMPLE": _Lowering._format,
    "FORMAT_WITH_SPEC": _Lowering._format,
}


def _constant_key(value: Any) -> Any:
    if type(value) in _SHARED_BY_VALUE:
        return (type(value), value)
    return ("id", id(value))
