"""Every instruction on both executors: the same results, the same errors."""

from __future__ import annotations

import gc
import math
import threading

import pytest
import torch

from flambeau_runtime import ArtifactError, InputError, load
from flambeau_runtime import artifact as a

S0 = a.Scalar(0)
OUT = a.OutputSpec("tensor", 1)


def test_alloc_launch_and_symbolic_sizes(artifact, executor, store) -> None:
    run = load(artifact, executor=executor, store=store)
    for rows in (3, 1, 0, 1000):
        x = torch.randn(rows, 4)
        y, size = run(x, rows)
        assert torch.equal(y, x * 2 + 1) and size == rows * 4
        assert not y.requires_grad


def test_parallel_launch_covers_the_extent(make, tensor_input, executor) -> None:
    """More iterations than the grain: every element is written exactly once, whatever the thread count."""
    n = 100_003
    run = make([a.Alloc(1, (n,), (1,), torch.float32), a.Launch(0, (0, 1), (3.0, -1.0), n, 1000)],
               [tensor_input(0, (n,))], [OUT], executor=executor)  # fmt: skip
    x = torch.arange(n, dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            assert torch.equal(run(x)[0], x * 3 - 1)
    finally:
        torch.set_num_threads(before)


def test_a_status_becomes_an_index_error_with_the_position(make, tensor_input, executor) -> None:
    run = make([a.Alloc(2, (3,), (1,), torch.float32), a.Launch(1, (0, 1, 2), (5,), 3, 64)],
               [tensor_input(0, (5,)), tensor_input(1, (3,), torch.int64)], [a.OutputSpec("tensor", 2)],
               executor=executor)  # fmt: skip
    x = torch.randn(5)
    assert torch.equal(run(x, torch.tensor([4, 0, 2]))[0], x[[4, 0, 2]])
    with pytest.raises(IndexError, match="index out of range in gather") as caught:
        run(x, torch.tensor([0, 5, 1]))
    assert caught.value.__notes__ == ["while running kernel cpp_gather from model.py:12 in forward"]


def test_a_status_of_one_slice_is_seen(make, tensor_input) -> None:
    n = 10_000
    run = make([a.Alloc(2, (n,), (1,), torch.float32), a.Launch(1, (0, 1, 2), (5,), n, 100)],
               [tensor_input(0, (5,)), tensor_input(1, (n,), torch.int64)], [a.OutputSpec("tensor", 2)])  # fmt: skip
    index = torch.zeros(n, dtype=torch.int64)
    index[-1] = -1
    with pytest.raises(IndexError):
        run(torch.randn(5), index)


def test_view_reinterprets_storage(make, tensor_input, executor) -> None:
    run = make([a.View(1, 0, (2, 3), (1, 2), 1), a.View(2, 0, (4,), (1,), 2, torch.int32)],
               [tensor_input(0, (8,))], [OUT, a.OutputSpec("tensor", 2)], executor=executor)  # fmt: skip
    x = torch.randn(8)
    first, second = run(x)
    assert torch.equal(first, x.as_strided((2, 3), (1, 2), 1))
    assert torch.equal(second, x.view(torch.int32)[2:6])
    assert first.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_an_empty_view_may_begin_anywhere(make, tensor_input, executor) -> None:
    """As a column of no rows does in eager, behind the end of a storage of no bytes."""
    run = make([a.View(1, 0, (0,), (4,), 3)], [tensor_input(0, (0, 4))], [OUT], executor=executor)
    (found,) = run(torch.empty(0, 4))
    assert found.shape == (0,) and found.storage_offset() == 3


def test_a_view_outside_its_storage_is_refused(make, tensor_input, executor) -> None:
    run = make([a.View(1, 0, (9,), (1,), 0)], [tensor_input(0, (8,))], [OUT], executor=executor)
    with pytest.raises(RuntimeError):
        run(torch.randn(8))


def test_none_where_an_operator_wants_a_tensor(make, executor) -> None:
    """It is handed on as an undefined tensor, as eager's own calls do; for an optional one it stays None."""
    run = make(
        [a.Call("aten::cudnn_is_acceptable", "", (None,), {}, (a.Scalar(0),))],
        [],
        [a.OutputSpec("scalar", a.Scalar(0))],
        executor=executor,
    )
    assert run() == (False,)


def test_calls_through_the_dispatcher(make, tensor_input, executor) -> None:
    """Positional, keyword, list, optional and default arguments; several outputs and scalars."""
    t, s = a.Reg, a.Scalar
    run = make(
        [
            a.Call("aten::mm", "", (t(0), t(0)), {}, (1,)),
            a.Call("aten::cat", "", ((t(0), t(1)), 1), {}, (2,)),
            a.Call("aten::sum", "dim_IntList", (t(2), (0,), True), {"dtype": torch.float64}, (3,)),
            a.Call("aten::max", "dim", (t(0), 1), {}, (4, 5)),
            a.Call("aten::split", "Tensor", (t(2), 4, 1), {}, (6, None)),
            a.Call("aten::index", "Tensor", (t(0), (None, t(5))), {}, (7,)),
            a.Call("aten::add", "Tensor", (t(0), 1.5), {"alpha": 2}, (8,)),
            a.Call("aten::full", "", ((2, s(0)), 3.0), {"dtype": torch.int32, "device": torch.device("cpu")}, (9,)),
            a.Call("aten::_to_copy", "", (t(0),), {"memory_format": torch.preserve_format, "dtype": torch.half}, (10,)),
            a.Call("aten::constant_pad_nd", "", (t(0), (1, s(0)), 0.5), {}, (11,)),
            a.Call("aten::sym_size", "int", (t(2), 1), {}, (s(1),)),
            a.Call("aten::native_layer_norm", "", (t(0), (4,), None, None, 1e-5), {}, (12, None, None)),
            a.Call("aten::gelu", "", (t(0),), {"approximate": "tanh"}, (13,)),
            a.Call("aten::mul_", "Tensor", (t(1), 2), {}, ()),
        ],
        [tensor_input(0, (4, 4)), a.InputSpec("scalar", 0)],
        [a.OutputSpec("tensor", i) for i in range(1, 14)] + [a.OutputSpec("scalar", s(1))],
        executor=executor,
    )  # fmt: skip
    x = torch.randn(4, 4)
    got = run(x, 3)
    mm = x @ x
    cat = torch.cat([x, mm], 1)
    values, indices = x.max(1)
    assert torch.equal(got[0], mm * 2) and torch.equal(got[1], cat)
    assert torch.equal(got[2], cat.sum(0, True, dtype=torch.float64))
    assert torch.equal(got[3], values) and torch.equal(got[4], indices) and torch.equal(got[5], cat[:, :4])
    assert (
        torch.equal(got[6], x[:, indices])
        and got[7].equal(x + 3.0)
        and got[8].tolist() == [[3] * 3] * 2
        and got[9].dtype == torch.half
    )
    assert torch.equal(got[10], torch.nn.functional.pad(x, (1, 3), value=0.5))
    assert torch.equal(got[11], torch.nn.functional.layer_norm(x, (4,)))
    assert torch.equal(got[12], torch.nn.functional.gelu(x, approximate="tanh")) and got[13] == 8


def test_an_operators_error_keeps_its_class_and_gains_a_note(make, tensor_input, executor) -> None:
    run = make(
        [a.Call("aten::mm", "", (a.Reg(0), a.Reg(0)), {}, (1,))], [tensor_input(0, (2, 3))], [OUT], executor=executor
    )
    with pytest.raises(RuntimeError) as caught:
        run(torch.randn(2, 3))
    assert "instruction 0: t1 = call aten::mm(t0, t0)" in caught.value.__notes__[-1]


def test_calls_make_no_autograd_graph_and_ignore_autocast(make, tensor_input, executor) -> None:
    run = make(
        [a.Call("aten::mm", "", (a.Reg(0), a.Reg(0)), {}, (1,))], [tensor_input(0, (4, 4))], [OUT], executor=executor
    )
    x = torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = run(x)[0]
    assert y.dtype == torch.float32 and not y.requires_grad and y.grad_fn is None


def test_inference_mode(artifact, executor, store) -> None:
    run = load(artifact, executor=executor, store=store)
    with torch.inference_mode():
        x = torch.randn(2, 4)
        assert torch.equal(run(x, 2)[0], x * 2 + 1)


def test_size_item_check_free_copy(make, tensor_input, executor) -> None:
    run = make(
        [
            a.Size(0, 0, 1), a.Size(1, 0, 0, "stride"), a.Size(2, 0, 0, "offset"), a.Item(3, 1),
            a.Compute(4, "gt", (a.Scalar(3), 0)), a.Check(a.Scalar(4), "must be positive"),
            a.Alloc(2, (2, 3), (3, 1), torch.float64), a.Copy(2, 0), a.Free((0, 1)),
        ],
        [a.InputSpec("tensor", 0, torch.float32, "cpu", (2, 3)), tensor_input(1, ())],
        [a.OutputSpec("tensor", 2), *(a.OutputSpec("scalar", a.Scalar(i)) for i in range(4))],
        executor=executor,
    )  # fmt: skip
    base = torch.randn(3, 3)
    copy, *numbers = run(base[1:], torch.tensor(2.5))
    assert copy.dtype == torch.float64 and torch.equal(copy, base[1:].double()) and numbers == [3, 3, 3, 2.5]
    with pytest.raises(RuntimeError, match="must be positive"):
        run(base[1:], torch.tensor(-1.0))


def test_python_functions(make, tensor_input, executor) -> None:
    seen = []

    def hook(x, number, items, none):
        seen.append((number, items, none))
        return x + 1, 7

    run = make([a.Python("hook", (a.Reg(0), S0, (1, a.Reg(0)), None), (1, a.Scalar(1))), a.Python("hook", (a.Reg(0), 2, (), 0))],
               [tensor_input(0, (3,)), a.InputSpec("scalar", 0)], [OUT, a.OutputSpec("scalar", a.Scalar(1))],
               executor=executor, python_functions={"hook": hook})  # fmt: skip
    x = torch.randn(3)
    y, number = run(x, 2.5)
    assert torch.equal(y, x + 1) and number == 7
    assert seen[0][0] == 2.5 and seen[0][1][0] == 1 and seen[0][1][1] is x and seen[0][2] is None


def test_a_python_functions_exception_passes_through(make, executor) -> None:
    def hook():
        raise KeyError("mine")

    run = make([a.Python("hook", ())], [], [], executor=executor, python_functions={"hook": hook})
    with pytest.raises(KeyError, match="mine") as caught:
        run()
    assert "python hook" in caught.value.__notes__[-1]


def nested(instructions, outputs, count=1):
    return a.Program(instructions, 4, 4, [a.InputSpec("tensor", i) for i in range(count)], outputs)


def test_cond(make, tensor_input, executor) -> None:
    double = nested([a.Call("aten::mul", "Tensor", (a.Reg(0), 2), {}, (1,))], [OUT])
    negate = nested([a.Call("aten::neg", "", (a.Reg(0),), {}, (1,))], [OUT])
    run = make([a.Subprogram("cond", (double, negate), (a.Reg(1), a.Reg(0)), (2,))],
               [tensor_input(0, (3,)), tensor_input(1, (), torch.bool)], [a.OutputSpec("tensor", 2)],
               executor=executor)  # fmt: skip
    x = torch.randn(3)
    assert torch.equal(run(x, torch.tensor(True))[0], x * 2)
    assert torch.equal(run(x, torch.tensor(False))[0], -x)


def test_while_carries_values_and_extra(make, tensor_input, executor) -> None:
    inputs = [a.InputSpec("scalar", 0), a.InputSpec("tensor", 0), a.InputSpec("tensor", 1)]
    condition = a.Program([a.Compute(1, "lt", (S0, 5))], 2, 2, inputs, [a.OutputSpec("scalar", a.Scalar(1))])
    body = a.Program(
        [a.Compute(1, "add", (S0, 1)), a.Call("aten::add", "Tensor", (a.Reg(0), a.Reg(1)), {}, (2,))],
        3, 2, inputs, [a.OutputSpec("scalar", a.Scalar(1)), a.OutputSpec("tensor", 2)],
    )  # fmt: skip
    run = make([a.Subprogram("while", (condition, body), (0, a.Reg(0)), (a.Scalar(0), 2), (a.Reg(1),))],
               [tensor_input(0, (3,)), tensor_input(1, (3,))],
               [a.OutputSpec("scalar", S0), a.OutputSpec("tensor", 2)], executor=executor)  # fmt: skip
    x, y = torch.zeros(3), torch.randn(3)
    count, total = run(x, y)
    assert count == 5 and torch.allclose(total, 5 * y)
    assert torch.equal(x, torch.zeros(3))


def test_constants_by_reference_and_inside(make, tensor_input, executor) -> None:
    specs = [a.ConstantSpec(5, torch.float32, (2,), name="w"),
             a.ConstantSpec(6, torch.int64, (2,), data=torch.tensor([7, 8]).numpy().tobytes())]  # fmt: skip
    run = make([a.Call("aten::add", "Tensor", (a.Reg(5), a.Reg(6)), {}, (1,))], [], [OUT], executor=executor,
               constants=(torch.tensor([0.5, 1.5]),), parts={"constants": specs})  # fmt: skip
    assert run()[0].tolist() == [7.5, 9.5]


def test_wrong_constants_are_refused(make) -> None:
    parts = {"constants": [a.ConstantSpec(5, torch.float32, (2,))]}
    for given, message in [((), "needs 1 constants"), ((torch.zeros(3),), "must be"), ((torch.zeros(2),) * 2, "more")]:
        with pytest.raises(ArtifactError, match=message):
            make([], [], [], constants=given, parts=parts)


def test_a_missing_python_function_is_refused(make) -> None:
    with pytest.raises(ArtifactError, match="hook"):
        make([a.Python("hook", ())], [], [])


def test_an_input_is_handed_back_as_the_same_object(make, tensor_input, executor) -> None:
    run = make([], [tensor_input(0, (2,))], [a.OutputSpec("input", 0), a.OutputSpec("none"), a.OutputSpec("scalar", 3)],
               executor=executor)  # fmt: skip
    x = torch.nn.Parameter(torch.randn(2))
    assert run(x)[0] is x and run(x)[1:] == (None, 3)


def test_a_mutated_input_bumps_its_version(make, tensor_input, executor) -> None:
    run = make([a.Launch(0, (0, 0), (2.0, 0.0), 2, 64)], [tensor_input(0, (2,), mutated=True)], [], executor=executor)
    x = torch.ones(2)
    before = x._version
    run(x)
    assert x.tolist() == [2, 2] and x._version == before + 1


def test_a_mutated_input_that_the_program_frees_bumps_its_version_too(make, tensor_input, executor) -> None:
    code = [a.Launch(0, (0, 0), (2.0, 0.0), 2, 64), a.Free((0,))]
    run = make(code, [tensor_input(0, (2,), mutated=True)], [], executor=executor)
    x = torch.ones(2)
    before = x._version
    run(x)
    assert x.tolist() == [2, 2] and x._version == before + 1


BAD_INPUTS = {
    "dtype": (lambda: torch.randn(2, 3).double(), "dtype torch.float32, got torch.float64"),
    "rank": (lambda: torch.randn(6), "2 dimensions, got 1"),
    "size": (lambda: torch.randn(2, 4), r"sizes \[2, 3\], got \[2, 4\]"),
    "type": (lambda: [1, 2], "must be a tensor, got list"),
    "device": (lambda: torch.empty(2, 3, device="meta"), "must be on cpu, got meta"),
    "sparse": (lambda: torch.ones(2, 3).to_sparse(), "plain strided tensor"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_wrong_inputs_are_named(name: str, make, tensor_input, executor) -> None:
    run = make([], [tensor_input(0, (2, 3), name="x")], [a.OutputSpec("tensor", 0)], executor=executor)
    value, message = BAD_INPUTS[name]
    with pytest.raises(InputError, match=message) as caught:
        run(value())
    assert "input 0 (x)" in str(caught.value)


def test_wrong_count_and_keywords(make, tensor_input, executor) -> None:
    run = make([], [tensor_input(0, (2,))], [], executor=executor)
    for inputs in ((), (torch.zeros(2), torch.zeros(2))):
        with pytest.raises(InputError, match=f"takes 1 inputs, got {len(inputs)}"):
            run(*inputs)
    with pytest.raises(TypeError):
        run(x=torch.zeros(2))


def test_fake_tensors_are_refused(make, tensor_input, executor) -> None:
    from torch._subclasses import FakeTensorMode

    run = make([], [a.InputSpec("tensor", 0, torch.float32, "cpu")], [], executor=executor)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.zeros(2))
    with pytest.raises(InputError, match="plain strided"):
        run(fake)


def test_other_strides_are_copied_unless_written_to(make, tensor_input, executor) -> None:
    code = [a.Alloc(1, (2, 3), (3, 1), torch.float32), a.Launch(0, (0, 1), (1.0, 0.0), 6, 64)]
    run = make(code, [tensor_input(0, (2, 3))], [OUT], executor=executor)
    x = torch.randn(3, 2, requires_grad=True).t()
    assert torch.equal(run(x)[0], x) and not run(x)[0].requires_grad
    strict = make(code, [tensor_input(0, (2, 3), mutated=True)], [OUT], executor=executor)
    with pytest.raises(InputError, match="writes to it"):
        strict(x)


def test_storage_offsets_and_lazy_bits(make, tensor_input, executor) -> None:
    code = [a.Alloc(1, (3,), (1,), torch.float32), a.Launch(0, (0, 1), (1.0, 0.0), 3, 64)]
    run = make(code, [tensor_input(0, (3,))], [OUT], executor=executor)
    x = torch.randn(6)
    assert torch.equal(run(x[2:5])[0], x[2:5])
    negated = torch.randn(3, dtype=torch.complex64).conj().imag
    assert negated.is_neg() and torch.equal(run(negated[:])[0], negated)


def test_symbolic_sizes_are_compared(artifact, executor, store) -> None:
    run = load(artifact, executor=executor, store=store)
    with pytest.raises(InputError, match=r"sizes \[3, 4\], got \[2, 4\]"):
        run(torch.randn(2, 4), 3)
    with pytest.raises(InputError, match="must be a number"):
        run(torch.randn(2, 4), "2")


def test_threads_share_an_executor(artifact, store) -> None:
    run = load(artifact, store=store)
    failures = []

    def work(seed: int) -> None:
        x = torch.full((seed + 1, 4), float(seed))
        for _ in range(300):
            if not torch.equal(run(x, seed + 1)[0], x * 2 + 1):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_program_may_call_itself_through_python(make, tensor_input) -> None:
    holder = {}

    def hook(x, depth):
        return holder["run"](x + 1, depth - 1)[0] if depth > 0 else x

    holder["run"] = make([a.Python("hook", (a.Reg(0), S0), (1,))], [tensor_input(0, (2,)), a.InputSpec("scalar", 0)], [OUT],
                         python_functions={"hook": hook})  # fmt: skip
    assert holder["run"](torch.zeros(2), 5)[0].tolist() == [5, 5]


def test_an_unreachable_executor_is_collected(make) -> None:
    import weakref

    class Box:
        pass

    box = Box()
    box.run = make([a.Python("hook", ())], [], [], python_functions={"hook": lambda box=box: None})
    gone = weakref.ref(box)
    del box
    gc.collect()
    assert gone() is None


def test_unknown_executor(artifact, store) -> None:
    with pytest.raises(ValueError, match="native"):
        load(artifact, executor="fast", store=store)


def test_unknown_operator_is_an_error_at_load(make) -> None:
    with pytest.raises((RuntimeError, LookupError), match="frobnicate"):
        make([a.Call("aten::frobnicate", "", (), {}, ())], [], [])


def test_nan_extent_free_launch(make, tensor_input, executor) -> None:
    """An empty extent runs nothing."""
    run = make([a.Launch(0, (0, 0), (math.nan, 0.0), 0, 64)], [tensor_input(0, (2,))], [a.OutputSpec("input", 0)],
               executor=executor)  # fmt: skip
    assert run(torch.ones(2))[0].tolist() == [1, 1]
