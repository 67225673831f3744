"""Blocks in turn: what is loaded ahead is there twice, everything else once."""

from __future__ import annotations

from kernel_ir.kernels import F32, IN, MASKS, OUT, PLACES, X, index, kernel, opening, value

from flambeau_inductor import kernel_ir as kir
from flambeau_inductor.kernel_ir.pipelining import pipelined
from flambeau_inductor.kernel_ir.verify import verify


def blocks(count: int) -> kir.Kernel:
    """``out0[x] = sin(in0[x])``, ``count`` blocks a program."""
    program, place, mask, wait = opening()
    assert isinstance(place, kir.Assign) and isinstance(mask, kir.Assign)
    loads = (kir.Assign((value("v1"),), kir.Load(IN, index("x"), MASKS["x"], True)),)
    work = (
        kir.Assign((value("v2"),), kir.Op("sin", (value("v1"),), F32, X)),
        kir.Store(OUT, index("x"), value("v2"), MASKS["x"]),
    )
    return kernel([program, wait, *pipelined([place, mask], loads, work, kir.BlockSize("x"), count)])


def test_the_next_block_is_loaded_before_this_one_is_worked_on() -> None:
    """Its position, mask and load have names of their own, inside the index expression too; the work is there once."""
    found = blocks(3)
    verify(found)
    loop = found.body[-1]
    assert isinstance(loop, kir.Pipelined) and loop.count == 3
    following, mask, load = loop.ahead
    assert isinstance(following, kir.Assign) and isinstance(mask, kir.Assign) and isinstance(load, kir.Assign)
    assert [part.targets[0].name for part in (following, mask, load)] == ["xi_next", "xmask_next", "v1_next"]
    assert following.value == kir.arith("add", PLACES["x"], kir.BlockSize("x"))
    assert isinstance(load.value, kir.Load) and isinstance(load.value.index, kir.Index)
    assert load.value.mask == mask.targets[0]
    assert [node for _, node in load.value.index.names] == [following.targets[0]]
    assert [type(part) for part in loop.body] == [kir.Assign, kir.Store]
    assert [(target.name, source.name) for target, source in loop.moves] == [
        ("xi", "xi_next"),
        ("xmask", "xmask_next"),
        ("v1", "v1_next"),
    ]
