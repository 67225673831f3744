"""The validator of the kernel IR names each broken rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from attrs import evolve
from kernel_ir.kernels import BLOCK, F32, IN, MASKS, OUT, PLACES, START, X, index, kernel, opening, sines, sums, value

from flambeau_inductor import kernel_ir as kir
from flambeau_inductor.errors import VerifyError
from flambeau_inductor.kernel_ir.verify import verify

V1, V2 = value("v1"), value("v2")
WHOLE = kir.Load(IN, index("x"))
POSITION = kir.position("p")


def test_good_kernels_pass() -> None:
    """Straight code and a loop."""
    verify(kernel(sines()))
    verify(kernel(sums(), "x", "r"))


def test_an_access_needs_the_mask_of_a_tile_that_stands_out_of_its_range() -> None:
    """Not where every block lies inside, or where a condition says that this one does."""
    with pytest.raises(VerifyError, match="no mask for the lanes outside of x"):
        verify(kernel(sines(load_mask=None)))
    verify(kernel(sines(load_mask=None, inside=True)))
    within = kir.arith("le", kir.position("pid"), kir.Number(3))
    load = kir.Assign((V1,), WHOLE)
    verify(kernel([*opening(), kir.If(within, (load,), whole=X)]))
    with pytest.raises(VerifyError, match="no mask"):
        verify(kernel([*opening(), kir.If(within, (), (load,), whole=X)]))
    part = kir.Variable("half", X, torch.bool)
    some = kir.Assign((part,), kir.arith("lt", PLACES["x"], kir.Number(7)))
    with pytest.raises(VerifyError, match="no mask"):
        verify(kernel([*opening(), some, kir.Assign((V1,), evolve(WHOLE, mask=part))]))
    both = kir.all_of([MASKS["x"], part])
    verify(kernel([*opening(), some, kir.Assign((V1,), evolve(WHOLE, mask=both))]))


def test_what_is_reduced_is_neutral_outside() -> None:
    """The identity, by a mask, in every block that is added."""
    for name, body in {"acc1": sums(neutral=False)}.items():
        # The last block may stand out of the row, and so does what is reduced where it ends.
        walk, (reduced, stored) = body[-3], body[-2:]
        assert isinstance(walk, kir.For)
        straight = [
            *body[:-3],
            kir.Assign((START,), kir.Number(0)),
            *walk.body,
            reduced,
            stored,
        ]
        with pytest.raises(VerifyError, match=f"{name} is not neutral"):
            verify(kernel(straight, "x", "r"))
    walk = sums()[-3]
    assert isinstance(walk, kir.For)
    straight = [*sums()[:-3], kir.Assign((START,), kir.Number(0)), *walk.body, *sums()[-2:]]
    verify(kernel(straight, "x", "r"))


def test_a_loop_carries_what_it_updates() -> None:
    with pytest.raises(VerifyError, match="updates acc1, which it does not carry"):
        verify(kernel(sums(carries=False), "x", "r"))


def after(*statements: kir.Statement) -> list[kir.Statement]:
    """Behind a load of ``v1``."""
    return [*sines()[:5], *statements]


def assigned(node: kir.Node) -> list[kir.Statement]:
    return after(kir.Assign((kir.Variable("v2", node.tiles, node.dtype),), node))


HALF = value("h", X, torch.bfloat16)
HALF_BLOCK = kir.Assign((HALF,), kir.Op("to_dtype", (V1,), torch.bfloat16, X))

BROKEN: list[tuple[list[kir.Statement], str]] = [
    (after(kir.Assign((V2,), value("v9"))), "v9 is read before it is defined"),
    (after(kir.Assign((V1,), V1)), "v1 is defined twice"),
    (after(kir.Assign((V2,), value("v1", dtype=torch.float64))), "v1 is defined as"),
    (after(kir.Assign((value("v2", dtype=torch.int32),), V1)), "holds a value of torch.float32"),
    (after(kir.Assign((value("v2", frozenset()),), V1)), r"holds a value of torch.float32 along \['x'\]"),
    (after(kir.Assign((V2, value("v3")), V1)), "2 results of one expression"),
    (after(kir.Update((V1,), kir.constant(0.0, F32))), r"holds a value of torch.float32 along \[\]"),
    (after(kir.Store(kir.Pointer("out1", F32), index("x"), V1, MASKS["x"])), "no argument, no alias of one"),
    (after(kir.Store(OUT, index("x"), value("v1"))), "no mask for the lanes outside of x"),
    (after(kir.Store(OUT, V1, V1, MASKS["x"])), "an index of type torch.float32"),
    (after(kir.Store(OUT, index("x"), V1, V1)), "does not mask"),
    (after(HALF_BLOCK, kir.Store(OUT, index("x"), HALF, MASKS["x"])), "into elements of torch.float32"),
    (after(kir.Store(OUT, kir.Number(0), kir.constant(0.0, F32))), r"programs along \['x'\] store to the same place"),
    (after(kir.Store(OUT, kir.Number(0), V1)), r"a value along \['x'\] at places along \[\]"),
    (after(kir.Atomic("add", OUT, index("x"), kir.constant(0.0, F32), MASKS["x"])), r"a value along \[\] at places"),
    (after(kir.If(kir.Number(1), ())), "is not one truth value"),
    (after(kir.If(MASKS["x"], ())), "is not one truth value"),
    (after(kir.loop(START, V1, kir.Number(1), [])), "is no bound of a loop"),
    (after(kir.Check(PLACES["x"], PLACES["x"])), "no mask"),
    (after(kir.Alias(IN, OUT)), "in0 is defined twice"),
    (after(kir.Run("part", (kir.position("n0"),))), "n0 is read before"),
    ([*sines()[:3], *sines()[4:]], "in0 is accessed before the kernel waits"),
    (assigned(kir.Op("sin", (V1, V1), F32, X)), "takes 1 operands"),
    (assigned(kir.Op("no_such_op", (V1,), F32, X)), "no scalar op is called"),
    (assigned(kir.Op("add", (V1, PLACES["x"]), F32, X)), "different dtypes"),
    (assigned(kir.Op("lt", (V1, V1), F32, X)), "is torch.bool, not torch.float32"),
    (assigned(kir.Op("sin", (V1,), F32, frozenset())), r"varies along \[\], its operands along \['x'\]"),
    (assigned(kir.Op("sin", (kir.constant(1, torch.int64),), torch.int64, frozenset())), "sin.*on torch.int64"),
    (after(HALF_BLOCK, kir.Assign((value("v3", X, torch.bfloat16),), kir.Op("neg", (HALF,), torch.bfloat16, X))), "narrow type"),
    (assigned(kir.arith("add", V1, kir.Number(1))), "operands of different types"),
    (assigned(kir.Arith("pow", V1, V1, X, F32)), "there is no arithmetic pow"),
    (assigned(kir.Arith("lt", V1, V1, X, F32)), "is no torch.float32"),
    (assigned(kir.All((V1, V1), X)), "no truth value"),
    (assigned(kir.InRange("r", PLACES["x"], kir.Number(3))), "does not vary along r"),
    (assigned(kir.InRange("x", PLACES["x"], V1)), "no position or no size"),
    (assigned(kir.NoLane(V1)), "no mask"),
    (assigned(kir.AlignDown(V1, 4)), "no position"),
    (assigned(kir.Index(index("x").expression, (), X)), "its names are not its symbols"),
    (assigned(evolve(index("x"), names=((index("x").expression, V1),))), "something that is no position"),
    (assigned(kir.Full(V1, F32)), "of a block"),
    (assigned(kir.constant(1, torch.int64).__class__(kir.Number(1, torch.int64), F32)), "holds torch.int64"),
    (assigned(kir.AsIndex(V1)), "is no position"),
    (assigned(kir.Broadcast(V1, frozenset())), "loses"),
    (assigned(kir.Reshape(V1, X, (kir.Extent("x", over=4), kir.Extent(count=2)))), "number of elements"),
    (assigned(kir.Call("f", (kir.constant(0.0, F32),), F32, X)), "no operand does"),
    (assigned(kir.Broadcast(V1, BLOCK)), "which are no tiles of the kernel"),
    (assigned(kir.BlockSize("y")), "no such block"),
    (assigned(kir.AsIndex(kir.Program(POSITION))), "no argument"),
    (assigned(kir.Load(IN, index("x"), MASKS["x"]).__class__(IN, kir.Number(0), None, True)), "fills what no mask"),
    (assigned(kir.Reduce("sum", (V1,))), "no whole block"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), BROKEN)
def test_broken_kernels_are_named(body: Sequence[kir.Statement], message: str) -> None:
    """Each message says what is wrong, and where: the statement is marked."""
    with pytest.raises(VerifyError, match=message) as error:
        verify(kernel(list(body)))
    assert "while checking\n" in str(error.value) and "\n    > " in str(error.value)


def test_a_function_of_a_kernel_that_has_waited_does_not() -> None:
    verify(evolve(kernel([*sines()[:3], *sines()[4:]]), called=True))


def pipelined(**changes: object) -> list[kir.Statement]:
    """Two rounds of a load, the second one's ahead of the first one's work."""
    following = value("v1_next")
    ahead = (kir.Assign((following,), evolve(WHOLE, mask=MASKS["x"])),)
    work = (kir.Store(OUT, index("x"), V1, MASKS["x"]),)
    loop = kir.Pipelined(kir.position("block"), 2, ahead, work, ((V1, following),))
    return after(evolve(loop, **changes))


def test_a_pipelined_loop_moves_what_was_computed_ahead() -> None:
    verify(kernel(pipelined()))
    with pytest.raises(VerifyError, match="v1 is not computed ahead"):
        verify(kernel(pipelined(moves=((V1, V1),))))
    with pytest.raises(VerifyError, match="does nothing else"):
        verify(kernel(pipelined(ahead=(kir.Barrier(),), moves=())))
    with pytest.raises(VerifyError, match="v1_next is read before"):
        verify(kernel(pipelined(body=(kir.Store(OUT, index("x"), value("v1_next"), MASKS["x"]),))))
    counted = (kir.Assign((kir.position("n", "x"),), PLACES["x"]),)
    with pytest.raises(VerifyError, match="another type"):
        verify(kernel(pipelined(ahead=counted, moves=((V1, kir.position("n", "x")),))))
