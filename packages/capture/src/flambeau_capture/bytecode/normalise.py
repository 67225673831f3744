"""One instruction set for every CPython.

In: a code object. Out: `decode_normalised(code)`, a tuple of `Instruction` in the set below. `Instruction.target` and
`Handler.target` are indices into that tuple. `lower.py` is the way back.

What is gone: CACHE, EXTENDED_ARG, NOP, RESUME, PRECALL, END_FOR, KW_NAMES, and everything before RESUME. So at the first
instruction *every name in `co_cellvars` already is a cell* (holding the argument of that name, if there is one) and every name in
`co_freevars` is a cell from the closure. In generators and coroutines the frame starts after RETURN_GENERATOR; POP_TOP.

The set (`value` in brackets; stacks grow to the right):

locals      LOAD_FAST, LOAD_FAST_CHECK [name] (may be unbound: LOAD_FAST_CHECK, and LOAD_FAST too on 3.11), STORE_FAST, DELETE_FAST [name],
            LOAD_FAST_AND_CLEAR [name] (pushes the slot as it is: NULL if unbound, the *cell itself* if the name is a cell; unbinds it;
            a later STORE_FAST puts it back as it was, cell or NULL), MAKE_CELL [name] (only inside inlined comprehensions)
cells       LOAD_CLOSURE [name] (the cell itself; a local where a comprehension has cleared the slot), LOAD_DEREF, STORE_DEREF, DELETE_DEREF [name] (its contents),
            LOAD_CLASSDEREF, LOAD_FROM_DICT_OR_DEREF [name] (class bodies)
names       LOAD_GLOBAL, STORE_GLOBAL, DELETE_GLOBAL, LOAD_NAME, STORE_NAME, DELETE_NAME, LOAD_FROM_DICT_OR_GLOBALS [name], LOAD_LOCALS
constants   LOAD_CONST [object]; LOAD_ASSERTION_ERROR, LOAD_BUILD_CLASS
attributes  LOAD_ATTR, STORE_ATTR, DELETE_ATTR [name]; LOAD_METHOD [name]: `owner -> function self`, or (attribute, NULL) in the order of
            PUSH_NULL's convention; LOAD_SUPER_ATTR, LOAD_SUPER_METHOD [name]: `super class self ->` as LOAD_ATTR, LOAD_METHOD would
            leave (arg 1: `super(class, self)` was written, 0: `super()`)
subscripts  BINARY_SUBSCR, STORE_SUBSCR, DELETE_SUBSCR, BUILD_SLICE (arg 2 or 3; slices written `a[b:c]` use it too)
operators   UNARY_NEGATIVE, UNARY_POSITIVE, UNARY_INVERT, UNARY_NOT (any object), BINARY_OP [symbol, `'+'` or `'+='`],
            COMPARE_OP [symbol] (the result as it is, not made a bool), IS_OP, CONTAINS_OP (arg 1: negated), TO_BOOL (rare: `bool(top)`)
stack       POP_TOP, COPY n, SWAP n, PUSH_NULL
building    BUILD_TUPLE, BUILD_LIST, BUILD_SET, BUILD_MAP, BUILD_STRING, BUILD_CONST_KEY_MAP n; LIST_APPEND, SET_ADD, MAP_ADD,
            LIST_EXTEND, SET_UPDATE, DICT_UPDATE, DICT_MERGE i; LIST_TO_TUPLE; UNPACK_SEQUENCE n, UNPACK_EX (arg: before | after << 8)
strings     CONVERT_VALUE (arg 1 str, 2 repr, 3 ascii), FORMAT_SIMPLE, FORMAT_WITH_SPEC (`value spec ->`)
calls       CALL n: of the two slots below the n arguments, either the lower is NULL and the upper the callable, or the upper is NULL
            and the lower the callable, or the lower is the callable and the upper its first argument. CALL_KW n [names]: the same;
            the last len(names) of the n arguments are keywords, *the names are not on the stack*. CALL_FUNCTION_EX (arg & 1: a
            mapping is on top), below it the same two slots. PUSH_NULL comes before or after the callable is loaded.
functions   MAKE_FUNCTION (arg: 1 defaults, 2 keyword defaults, 4 annotations, 8 closure; on the stack in this order, then the code)
jumps       JUMP, JUMP_NO_INTERRUPT; POP_JUMP_IF_TRUE, POP_JUMP_IF_FALSE (any object), POP_JUMP_IF_NONE, POP_JUMP_IF_NOT_NONE;
            either direction. Value-keeping `and`/`or` are COPY 1; POP_JUMP_IF_x; POP_TOP.
loops       GET_ITER; FOR_ITER: pushes the next item, or *pops the iterator* and jumps
exceptions  RAISE_VARARGS n, RERAISE n, PUSH_EXC_INFO (`exc -> previous exc`), POP_EXCEPT, CHECK_EXC_MATCH, CHECK_EG_MATCH,
            PREP_RERAISE_STAR, BEFORE_WITH (`manager -> exit entered`), WITH_EXCEPT_START; `handler` of every instruction
matching    GET_LEN, MATCH_MAPPING, MATCH_SEQUENCE, MATCH_KEYS, MATCH_CLASS n
imports     IMPORT_NAME, IMPORT_FROM [name], IMPORT_STAR
generators  YIELD_VALUE, SEND, END_SEND, GET_YIELD_FROM_ITER, GET_AWAITABLE, GET_AITER, GET_ANEXT, END_ASYNC_FOR, BEFORE_ASYNC_WITH,
            CLEANUP_THROW, ASYNC_GEN_WRAP, as they are
rest        RETURN_VALUE, SETUP_ANNOTATIONS, CALL_INTRINSIC_1, CALL_INTRINSIC_2, PRINT_EXPR (module and class scope, generics)
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType

from attrs import evolve

from .behaviour import BEHAVIOUR, INTRINSICS_1
from .decode import decode
from .model import Handler, Instruction

_DROPPED = frozenset({"NOP", "RESUME", "PRECALL", "CACHE"})
_RENAMED = {
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_NO_INTERRUPT",
    **{
        f"POP_JUMP_{way}_IF_{test}": f"POP_JUMP_IF_{test}"
        for way in ("FORWARD", "BACKWARD")
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}
_INTRINSIC_NAMES = {
    number: name.removeprefix("INTRINSIC_") for name, number in INTRINSICS_1.items() if name != "INTRINSIC_PRINT"
}
_TESTS = frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"})
_PREP_RERAISE_STAR = 1


class UnsupportedCodeError(ValueError):
    """Bytecode in a shape that no compiler of a supported CPython writes."""


@lru_cache(maxsize=512)
def decode_normalised(code: CodeType) -> tuple[Instruction, ...]:
    """The normalised instructions of `code`. Raises UnsupportedCodeError for shapes no CPython compiler writes."""
    return _Normaliser(code, decode(code)).run()


class _Normaliser:
    """One pass over raw instructions; `self.out` is the result, `self.first` the new index of each raw instruction."""

    def __init__(self, code: CodeType, raw: tuple[Instruction, ...]) -> None:
        self.raw = raw
        self.cells = frozenset((*code.co_cellvars, *code.co_freevars))
        self.out: list[Instruction] = []
        self.first: list[int] = []
        self.keyword_names: tuple[str, ...] = ()
        self.at = 0

    def run(self) -> tuple[Instruction, ...]:
        raw = self.raw
        start = next((at for at, i in enumerate(raw) if i.name == "RESUME"), 0)
        loop_ends = self._loop_ends()
        for at, instruction in enumerate(raw):
            self.at = at
            self.first.append(len(self.out))
            if at <= start and instruction.name != "RESUME" and start:
                continue
            if instruction.name in _DROPPED or at in loop_ends:
                continue
            self._emit_one(instruction)
        self.first.append(len(self.out))
        return tuple(self._retarget(i) for i in self.out)

    def _loop_ends(self) -> frozenset[int]:
        """Raw indices of what ends for loops, which FOR_ITER jumps over itself."""
        length = BEHAVIOUR.end_for_length
        ends = {i.target for i in self.raw if i.name == "FOR_ITER" and i.target is not None}
        if not length:
            return frozenset()
        if any(self.raw[end].name != "END_FOR" for end in ends):
            raise UnsupportedCodeError("a for loop does not end in END_FOR")
        return frozenset(end + step for end in ends for step in range(length))

    def _retarget(self, i: Instruction) -> Instruction:
        target, handler = i.target, i.handler
        if target is None and handler is None:
            return i
        if target is not None:
            if i.name == "FOR_ITER":
                target += BEHAVIOUR.end_for_length
            target = self.first[target]
        if handler is not None:
            handler = Handler(self.first[handler.target], handler.depth, handler.lasti)
        return evolve(i, target=target, handler=handler)

    def _put(self, like: Instruction, name: str, arg: int = 0, value: object = None, target: int | None = None) -> None:
        self.out.append(Instruction(name, arg, value, target, like.handler, like.position, like.offset))

    def _next_name(self) -> str:
        for following in self.raw[self.at + 1 :]:
            if following.name not in _DROPPED:
                return _RENAMED.get(following.name, following.name)
        return ""

    def _emit_one(self, i: Instruction) -> None:
        special = _SPECIAL.get(i.name)
        if special is not None:
            special(self, i)
            return
        renamed = _RENAMED.get(i.name)
        if renamed is None and i.target is None:
            self.out.append(i)
        else:
            self._put(i, renamed or i.name, 0 if i.target is not None else i.arg, i.value, i.target)

    def _two_locals(self, i: Instruction) -> None:
        first, second = i.value
        names = {
            "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
            "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
            "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
        }[i.name]
        for name, variable in zip(names, (first, second), strict=True):
            self._load_fast(Instruction(name, 0, variable, None, i.handler, i.position, i.offset))

    def _load_fast(self, i: Instruction) -> None:
        closure = BEHAVIOUR.closure_by_load_fast and i.name == "LOAD_FAST" and i.value in self.cells
        self._put(i, "LOAD_CLOSURE" if closure else i.name, 0, i.value)

    def _slot(self, i: Instruction) -> None:
        self._put(i, i.name, 0, i.value)

    def _load_const(self, i: Instruction) -> None:
        self._put(i, "LOAD_CONST", 0, i.value)

    def _return_const(self, i: Instruction) -> None:
        self._put(i, "LOAD_CONST", 0, i.value)
        self._put(i, "RETURN_VALUE")

    def _load_global(self, i: Instruction) -> None:
        null = i.arg & 1
        if null and BEHAVIOUR.null_below_callable:
            self._put(i, "PUSH_NULL")
        self._put(i, "LOAD_GLOBAL", 0, i.value)
        if null and not BEHAVIOUR.null_below_callable:
            self._put(i, "PUSH_NULL")

    def _load_attr(self, i: Instruction) -> None:
        method = not BEHAVIOUR.precall and i.arg & 1
        self._put(i, "LOAD_METHOD" if method else "LOAD_ATTR", 0, i.value)

    def _load_super(self, i: Instruction) -> None:
        self._put(i, "LOAD_SUPER_METHOD" if i.arg & 1 else "LOAD_SUPER_ATTR", i.arg >> 1 & 1, i.value)

    def _compare(self, i: Instruction) -> None:
        self._put(i, "COMPARE_OP", 0, i.value)
        if i.arg & BEHAVIOUR.compare_bool_bit and self._next_name() not in _TESTS:
            self._put(i, "TO_BOOL")

    def _to_bool(self, i: Instruction) -> None:
        if self._next_name() not in _TESTS:
            self._put(i, "TO_BOOL")

    def _jump_or_pop(self, i: Instruction) -> None:
        self._put(i, "COPY", 1)
        self._put(i, "POP_JUMP_IF_TRUE" if i.name == "JUMP_IF_TRUE_OR_POP" else "POP_JUMP_IF_FALSE", target=i.target)
        self._put(i, "POP_TOP")

    def _kw_names(self, i: Instruction) -> None:
        self.keyword_names = i.value

    def _call(self, i: Instruction) -> None:
        names, self.keyword_names = self.keyword_names, ()
        self._put(i, "CALL_KW" if names else "CALL", i.arg, names or None)

    def _call_kw(self, i: Instruction) -> None:
        names = self.out.pop() if self.out else None
        if names is None or names.name != "LOAD_CONST":
            raise UnsupportedCodeError("CALL_KW without constant keyword names")
        self.first[-1] = len(self.out)
        self._put(i, "CALL_KW", i.arg, names.value)

    def _binary_slice(self, i: Instruction) -> None:
        self._put(i, "BUILD_SLICE", 2)
        self._put(i, "BINARY_SUBSCR" if i.name == "BINARY_SLICE" else "STORE_SUBSCR")

    def _intrinsic_1(self, i: Instruction) -> None:
        name = _INTRINSIC_NAMES.get(i.arg)
        self._put(i, name or i.name, 0 if name else i.arg)

    def _intrinsic_2(self, i: Instruction) -> None:
        if i.arg == _PREP_RERAISE_STAR:
            self._put(i, "PREP_RERAISE_STAR")
        else:
            self._put(i, i.name, i.arg)

    def _format_value(self, i: Instruction) -> None:
        conversion, spec = i.arg & 3, i.arg & 4
        if conversion and spec:
            self._put(i, "SWAP", 2)
        if conversion:
            self._put(i, "CONVERT_VALUE", conversion)
        if conversion and spec:
            self._put(i, "SWAP", 2)
        self._put(i, "FORMAT_WITH_SPEC" if spec else "FORMAT_SIMPLE")

    def _function_attribute(self, i: Instruction) -> None:
        made = self.out[-1]
        if made.name != "MAKE_FUNCTION":
            raise UnsupportedCodeError("SET_FUNCTION_ATTRIBUTE without MAKE_FUNCTION")
        self.out[-1] = evolve(made, arg=made.arg | i.arg)
        self.first[-1] = len(self.out) - 1

    def _unexpected(self, i: Instruction) -> None:
        raise UnsupportedCodeError(f"{i.name} in an unexpected place")


_SPECIAL = {
    "LOAD_FAST_LOAD_FAST": _Normaliser._two_locals,
    "STORE_FAST_LOAD_FAST": _Normaliser._two_locals,
    "STORE_FAST_STORE_FAST": _Normaliser._two_locals,
    "LOAD_FAST": _Normaliser._load_fast,
    **dict.fromkeys(
        (
            "LOAD_FAST_CHECK",
            "LOAD_FAST_AND_CLEAR",
            "STORE_FAST",
            "DELETE_FAST",
            "LOAD_CLOSURE",
            "LOAD_DEREF",
            "STORE_DEREF",
            "DELETE_DEREF",
            "LOAD_CLASSDEREF",
            "LOAD_FROM_DICT_OR_DEREF",
            "MAKE_CELL",
            "STORE_ATTR",
            "DELETE_ATTR",
            "LOAD_METHOD",
            "STORE_GLOBAL",
            "DELETE_GLOBAL",
            "LOAD_NAME",
            "STORE_NAME",
            "DELETE_NAME",
            "IMPORT_NAME",
            "IMPORT_FROM",
            "LOAD_FROM_DICT_OR_GLOBALS",
            "BINARY_OP",
        ),
        _Normaliser._slot,
    ),
    "LOAD_CONST": _Normaliser._load_const,
    "RETURN_CONST": _Normaliser._return_const,
    "LOAD_GLOBAL": _Normaliser._load_global,
    "LOAD_ATTR": _Normaliser._load_attr,
    "LOAD_SUPER_ATTR": _Normaliser._load_super,
    "COMPARE_OP": _Normaliser._compare,
    "TO_BOOL": _Normaliser._to_bool,
    "JUMP_IF_TRUE_OR_POP": _Normaliser._jump_or_pop,
    "JUMP_IF_FALSE_OR_POP": _Normaliser._jump_or_pop,
    "KW_NAMES": _Normaliser._kw_names,
    "CALL": _Normaliser._call,
    "CALL_KW": _Normaliser._call_kw,
    "BINARY_SLICE": _Normaliser._binary_slice,
    "STORE_SLICE": _Normaliser._binary_slice,
    "CALL_INTRINSIC_1": _Normaliser._intrinsic_1,
    "CALL_INTRINSIC_2": _Normaliser._intrinsic_2,
    "FORMAT_VALUE": _Normaliser._format_value,
    "SET_FUNCTION_ATTRIBUTE": _Normaliser._function_attribute,
    "END_FOR": _Normaliser._unexpected,
    "COPY_FREE_VARS": _Normaliser._unexpected,
}
