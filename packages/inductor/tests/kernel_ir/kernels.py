"""Kernels in the IR, written by hand."""

from __future__ import annotations

import torch

from flambeau_inductor import kernel_ir as kir
from flambeau_inductor.expr import Int, Symbol

F32 = torch.float32
X, BLOCK = frozenset({"x"}), frozenset({"x", "r"})
XI, RI = Symbol("xi", bound=Int(100)), Symbol("ri", bound=Int(50))
IN, OUT = kir.Pointer("in0", F32), kir.Pointer("out0", F32)
PID, START = kir.position("pid"), kir.position("start")
PLACES = {"x": kir.position("xi", "x"), "r": kir.position("ri", "r")}
MASKS = {tile: kir.Variable(f"{tile}mask", frozenset({tile}), torch.bool) for tile in "xr"}


def index(*tiles: str) -> kir.Index:
    """Where a block of ``tiles`` lies."""
    e = {"x": XI, "r": RI, "xr": XI * 50 + RI}["".join(tiles)]
    names = tuple(({"x": XI, "r": RI}[tile], PLACES[tile]) for tile in tiles)
    return kir.Index(e, names, frozenset(tiles))


def opening(inside: bool = False) -> list[kir.Statement]:
    """Positions along ``x``, and their mask."""
    start = kir.arith("mul", PID, kir.BlockSize("x"))
    return [
        kir.Assign((PID,), kir.AsIndex(kir.Program())),
        kir.Assign((PLACES["x"],), kir.total(start, kir.Lanes("x", inside))),
        kir.Assign((MASKS["x"],), kir.InRange("x", PLACES["x"], kir.Number(100))),
        kir.Wait(),
    ]


def value(name: str, tiles: kir.Tiles = X, dtype: torch.dtype = F32) -> kir.Variable:
    return kir.Variable(name, tiles, dtype)


def sines(*, load_mask: kir.Node | None = MASKS["x"], inside: bool = False) -> list[kir.Statement]:
    """``out0[x] = sin(in0[x])``."""
    loaded, result = value("v1"), value("v2")
    return [
        *opening(inside),
        kir.Assign((loaded,), kir.Load(IN, index("x"), load_mask, load_mask is not None)),
        kir.Assign((result,), kir.Op("sin", (loaded,), F32, X)),
        kir.Store(OUT, index("x"), result, MASKS["x"]),
    ]


def sums(*, neutral: bool = True, carries: bool = True) -> list[kir.Statement]:
    """``out0[x] = sum of in0[x, r]``, block by block of the row."""
    acc, loaded, summed, row = value("acc1", BLOCK), value("v2", BLOCK), value("v3", BLOCK), value("red4")
    kept = kir.Op("where", (MASKS["r"], loaded, kir.constant(0.0, F32)), F32, BLOCK)
    mask = kir.all_of([MASKS["x"], MASKS["r"]])
    body = [
        kir.Assign((PLACES["r"],), kir.total(START, kir.Lanes("r", False))),
        kir.Assign((MASKS["r"],), kir.InRange("r", PLACES["r"], kir.Number(50))),
        kir.Assign((loaded,), kir.Load(IN, index("x", "r"), mask, True)),
        kir.Assign((summed,), kept if neutral else kir.Op("neg", (loaded,), F32, BLOCK)),
        kir.Update((acc,), kir.arith("add", acc, summed)),
    ]
    step = kir.BlockSize("r")
    walk = kir.loop(START, kir.Number(50), step, body)
    if not carries:
        walk = kir.For(START, kir.Number(50), step, tuple(body))
    return [
        *opening(),
        kir.Assign((acc,), kir.Full(kir.Number(0.0, F32), F32, BLOCK)),
        walk,
        kir.Assign((row,), kir.Reduce("sum", (acc,))),
        kir.Store(OUT, index("x"), row, MASKS["x"]),
    ]


def kernel(body: list[kir.Statement], *tiles: str) -> kir.Kernel:
    """Around ``body``; blocks of 16."""
    tiles = tiles or ("x",)
    return kir.Kernel(tiles, 32, (IN, OUT), (), tuple((tile, 16) for tile in tiles), tuple(body))
