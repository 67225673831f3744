"""Random tensor programs: views of views, writes through them, arguments that share memory, modules with buffers, gradients, changing sizes.

In: a seed. Out: a `Program`. Steps are drawn from the tables of `tensor_steps.py`, tried in eager as they are drawn, and set into blocks of
control flow and grad contexts; then come two to four calls with sizes that stay or change, with gradients or without.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import torch
from attrs import Factory, define
from torch import Tensor

from .names import NAMES, whole
from .program import Program
from .tensor_steps import FAMILIES, INEXACT

FLOATS = [
    "torch.float64",
    "torch.float64",
    "torch.float32",
    "torch.float32",
    "torch.float32",
    "torch.bfloat16",
    "torch.float16",
]
DTYPES = [
    *FLOATS,
    *FLOATS,
    "torch.int64",
    "torch.int32",
    "torch.uint8",
    "torch.int8",
    "torch.bool",
    "torch.complex64",
    "torch.complex128",
]
LAYOUTS = ["", "", "", "t", "gaps", "expand", "late", "last"]
#: How often each backend is taken when none is named.
MIX = {"aot_eager": 5, "lowered": 4, "inductor": 1}
_MOST_ELEMENTS = 3000
#: Larger numbers may not be exact, in this format and in what sums of them make.
_LARGEST = {torch.float64: 2.0**44, torch.float32: 2.0**18, torch.float16: 2.0**7, torch.bfloat16: 2.0**5}
_TRIES = 50


@define
class _Draw:
    """A program being drawn.

    Attributes:
        chance: every decision.
        inputs: name -> the text that makes an argument of the first call.
        attributes: name -> the text of a buffer or parameter; empty for a function.
        lines: the steps taken.
        names: the values made.
        exact: whether every step is.
    """

    chance: random.Random
    inputs: dict[str, str]
    attributes: dict[str, str] = Factory(dict)
    lines: list[str] = Factory(list)
    names: list[str] = Factory(list)
    exact: bool = True


def program(seed: int, backend: str | None = None) -> Program:
    """The program of a seed."""
    chance = random.Random(f"tensors {seed}")
    chosen = chance.choices(list(MIX), list(MIX.values()))[0]
    shapes = _shapes(chance)
    dtypes = [chance.choice(DTYPES) for _ in shapes]
    if chance.random() < 0.6:
        dtypes = [dtypes[0]] * len(dtypes)
    layouts = [chance.choice(LAYOUTS) for _ in shapes]
    names = "abc"[: len(shapes)]
    made = [(dtype, chance.randrange(99), layout) for dtype, layout in zip(dtypes, layouts, strict=True)]
    draw = _Draw(
        chance, {n: _maker(s, *m) for n, s, m in zip(names, shapes, made, strict=True)}, exact=chance.random() < 0.7
    )
    if chance.random() < 0.25:
        draw.attributes = {
            "self.s": _maker(shapes[0], *made[0]),
            "self.w": f"parameter({shapes[0]}, {chance.choice(FLOATS)}, 7)",
        }
    _take_steps(draw)
    source = "\n".join([*_definition(draw), "", *_driver(draw, shapes, made)]) + "\n"
    return Program("tensors", seed, source, backend or chosen, draw.exact)


def _maker(shape: tuple[int, ...], dtype: str, seed: int, layout: str) -> str:
    return f"whole({shape}, {dtype}, {seed}" + (f", {layout!r})" if layout else ")")


def _shapes(chance: random.Random) -> list[tuple[int, ...]]:
    """One to three, alike mostly, so that they broadcast."""
    sizes = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17]
    dims = chance.choice([1, 2, 2, 2, 2, 3, 3, 4])
    first = tuple(chance.choice(sizes if dims < 3 else sizes[:5]) for _ in range(dims))
    if chance.random() < 0.06:
        first = tuple(0 if place == chance.randrange(dims) else size for place, size in enumerate(first))
    others = []
    for _ in range(chance.choice([0, 1, 1, 1, 2])):
        kind = chance.random()
        if kind < 0.55:
            others.append(first)
        elif kind < 0.8:
            others.append(tuple(1 if chance.random() < 0.4 else size for size in first))
        elif kind < 0.9:
            others.append(first[1:])
        else:
            others.append(tuple(chance.choice(sizes[:6]) for _ in range(chance.choice([1, 2, 3]))))
    return [first, *others]


def _take_steps(draw: _Draw) -> None:
    chance = draw.chance
    draw.names = [*draw.inputs, *draw.attributes]
    wanted, families = chance.randint(2, 9), [*FAMILIES, *([] if draw.exact else [("value", INEXACT, 6)])]
    for number in range(_TRIES):
        if len(draw.lines) >= wanted:
            break
        ((kind, steps, _),) = chance.choices(families, [weight for *_, weight in families])
        step = chance.choice(steps).replace("D", str(chance.choice([0, -1, -1, 1])))
        operands = {"x": chance.choice(draw.names[-5:]), "y": chance.choice(draw.names)}
        text = _with_operands(step, operands)
        name = f"v{number}"
        line = (
            _in_a_block(chance, text, name, operands) if kind == "value" else _write_in_a_block(chance, text, operands)
        )
        verdict = _tried(draw, line, name if kind == "value" else operands["x"])
        # An error is part of a program now and then.
        if verdict == "fine" or (verdict == "raises" and chance.random() < 0.01):
            draw.lines.append(line)
            draw.names += [name] if kind == "value" else []


def _with_operands(step: str, operands: Mapping[str, str]) -> str:
    return re.sub(r"\b[xy]\b", lambda match: operands[match[0]], step)


def _in_a_block(chance: random.Random, text: str, name: str, operands: Mapping[str, str]) -> str:
    """`name = text`, alone or inside something."""
    x = operands["x"]
    plain = f"{name} = {text}"
    of_t = re.sub(rf"(?<![\w.]){re.escape(x)}(?!\w)", "t", text)
    return {
        0: f"with torch.no_grad():\n    {plain}",
        1: f"with torch.enable_grad():\n    {plain}",
        2: f"if {x}.shape[0] > 2:\n    {plain}\nelse:\n    {name} = {x} * 2",
        3: f"{name} = {x}\nfor _ in range(min({x}.shape[-1], 3)):\n    {name} = {_with_operands(text, {})}",
        4: f"try:\n    {plain}\nexcept (RuntimeError, IndexError):\n    {name} = {x} + 0",
        5: f"with torch.set_grad_enabled(not torch.is_grad_enabled()):\n    {plain}",
        6: f"{name} = [{text} for _ in range(2)][-1]",
        7: f"if {x}.numel() % 2 == 0 or {x}.dim() > 2:\n    {plain}\nelse:\n    {name} = {x}.clone()",
        8: f"{name} = (lambda t: {of_t})({x})",
    }.get(chance.randrange(90), plain)


def _write_in_a_block(chance: random.Random, text: str, operands: Mapping[str, str]) -> str:
    x = operands["x"]
    return {
        0: f"with torch.no_grad():\n    {text}",
        1: f"if {x}.shape[0] > 2:\n    {text}",
        2: f"for _ in range(2):\n    {text}",
        3: f"try:\n    {text}\nexcept (RuntimeError, IndexError):\n    pass",
        4: f"with torch.no_grad():\n    {text}",
        5: f"with torch.no_grad():\n    {text}",
    }.get(chance.randrange(40), text)


def _tried(draw: _Draw, line: str, result: str) -> str:
    """What eager makes of the steps so far and this one: `fine`, `raises`, or `useless` (too large, no tensor, not exact any more)."""

    class Holder:
        pass

    holder = Holder()
    values: dict[str, Any] = {**NAMES, "self": holder}
    try:
        torch.manual_seed(0)
        for name, text in {**draw.inputs, **draw.attributes}.items():
            made = eval(text, values)
            if name.startswith("self."):
                setattr(holder, name[5:], made.detach() if name == "self.w" else made)
            else:
                values[name] = made
        exec("\n".join([*draw.lines, line]), values)
        value = eval(result, values)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AttributeError):
        return "raises"
    if not isinstance(value, Tensor) or value.numel() > _MOST_ELEMENTS or value.layout is not torch.strided:
        return "useless"
    return "fine" if _is_small(value) or not draw.exact else "useless"


def _is_small(value: Tensor) -> bool:
    if value.is_complex():
        return _is_small(torch.view_as_real(value.resolve_conj()))
    small = value.detach().to(torch.float64).abs() < _LARGEST.get(value.dtype, 2.0**40)
    return bool(small.all())


def _definition(draw: _Draw) -> list[str]:
    """The function or the module."""
    kept = draw.chance.sample(draw.names, min(draw.chance.randint(1, 3), len(draw.names)))
    results = list(dict.fromkeys([*kept, draw.names[-1]]))
    shape = draw.chance.choice(["{}", "{}", "[{}]", "dict(p={})"])
    answer = (
        shape.format(", ".join(results)) if shape != "dict(p={})" else f"dict(p={results[0]}, q=[{', '.join(results)}])"
    )
    body = [part for line in draw.lines for part in line.split("\n")]
    arguments = ", ".join(draw.inputs)
    if not draw.attributes:
        return [f"def f({arguments}):", *(f"    {line}" for line in body), f"    return {answer}"]
    made = [f"        self.s = nn.Buffer({draw.attributes['self.s']})", f"        self.w = {draw.attributes['self.w']}"]
    head = ["class M(nn.Module):", "    def __init__(self):", "        super().__init__()", *made, ""]
    return [
        *head,
        f"    def forward(self, {arguments}):",
        *(f"        {line}" for line in body),
        f"        return {answer}",
    ]


def _driver(draw: _Draw, shapes: list[tuple[int, ...]], made: list[tuple[str, int, str]]) -> list[str]:
    """The calls."""
    chance = draw.chance
    dynamic = chance.choice([None, None, True, False])
    gradients = chance.choice(["none", "leaf", "inner", "inner"])
    changing = chance.random() < 0.45
    # Drawn apart, so that what else a seed makes stays as it was.
    parts = random.Random(f"losses of {draw.lines}")
    hooks = random.Random(f"hooks of {draw.lines}")
    lines = [
        "def drive(compile, call, show, backward):",
        f"    g = compile({'f' if not draw.attributes else 'M()'}, dynamic={dynamic})",
    ]
    if draw.attributes:
        lines[1:] = ["    m = M()", *_hooks(chance), f"    g = compile(m, dynamic={dynamic})"]
    for number in range(chance.choice([1, 2, 2, 3, 4])):
        now = [_changed(chance, shape) for shape in shapes] if changing and number else shapes
        if changing and number and len(shapes) > 1:
            now = _together(chance, shapes)
        arguments = []
        for name, shape, (dtype, seed, layout) in zip(draw.inputs, now, made, strict=True):
            wants = gradients != "none" and ("float" in dtype or "complex" in dtype)
            asked = ".requires_grad_()" if wants and chance.random() < 0.85 else ""
            lines.append(f"    {name} = {_maker(shape, dtype, seed + number, layout)}{asked}")
            if asked and hooks.random() < 0.15:
                lines.append(f"    {name}.{hooks.choice(_HOOKS_OF_LEAVES)}")
            arguments.append(f"{name} * 1" if asked and gradients == "inner" else name)
        arguments = _aliased(chance, arguments)
        lines.append(f"    r = call(g, {', '.join(arguments)})")
        if gradients != "none":
            lines += [*_backward(parts), f"    show({', '.join(draw.inputs)})"]
    return [*lines, "    show(m)"] if draw.attributes else lines


#: They change what they are given: in which order hooks of several leaves run, and how a gradient lies before it is kept, is not promised.
_HOOKS_OF_LEAVES = (
    "register_hook(lambda g: g * 2)", "register_hook(lambda g: None)", "register_post_accumulate_grad_hook(lambda t: t.grad.mul_(2))",
)  # fmt: skip


def _backward(chance: random.Random) -> list[str]:
    """Gradients of all results at once mostly, else of one alone, or of one after another."""
    part = chance.randrange(4)
    return {
        0: [f"    backward(r, part={part})"],
        1: [f"    backward(r, part={part})"],
        2: [f"    backward(r, part={part}, again=True)", f"    backward(r, part={part + 1})"],
        3: ["    backward(r, again=True)", "    backward(r)"],
    }.get(chance.randrange(12), ["    backward(r)"])


def _hooks(chance: random.Random) -> list[str]:
    kind = chance.randrange(12)
    if kind == 0:
        return ["    m.register_forward_hook(lambda m, args, r: None)"]
    if kind == 1:
        return ["    m.register_forward_pre_hook(lambda m, args: tuple(t + 1 for t in args))"]
    if kind == 2:
        return ["    m.register_forward_hook(lambda m, args, r: (r, args[0]))"]
    return ["    m.eval()"] if kind == 3 else []


def _changed(chance: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(size + chance.choice([-1, 0, 0, 1, 2]), 0) if chance.random() < 0.7 else size for size in shape)


def _together(chance: random.Random, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Sizes that were equal stay equal."""
    known: dict[int, int] = {1: 1}
    for shape in shapes:
        for size in shape:
            known.setdefault(size, max(size + chance.choice([-1, 0, 0, 1, 2, 5]), 0))
    return [tuple(known[size] for size in shape) for shape in shapes]


def _aliased(chance: random.Random, arguments: list[str]) -> list[str]:
    """Now and then an argument is another one, or a window on it."""
    if len(arguments) < 2 or chance.random() > 0.12:
        return arguments
    first = arguments[0].split(" ")[0]
    other = chance.choice(
        [first, f"{first}[:1]", f"{first}.view({first}.shape)", f"{first}.transpose(0, -1)", f"{first}.detach()"]
    )
    return [arguments[0] if chance.random() < 0.5 else first, other, *arguments[2:]]


__all__ = ["program", "whole"]
