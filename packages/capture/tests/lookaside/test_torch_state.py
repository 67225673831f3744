"""Grad mode, autocast, and questions about torch's state: set in the graph, left as in eager, never leaked by tracing."""

from __future__ import annotations

import typing

import pytest
import torch
from both_ways import assert_equal, eager

from flambeau_capture import assume_constant_result, make_region

FROM_OUTSIDE = torch.autocast("cpu", dtype=torch.bfloat16)


def _from_outside(x):
    with FROM_OUTSIDE:
        y = x @ x.T
    return y, x @ x.T


def _broken_inside(x):
    with FROM_OUTSIDE, torch.no_grad():
        y = x @ x.T
        print(end="")
        z = y @ y
    return y, z, x @ x.T, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


def _entered_by_hand(x):
    context = torch.autocast("cpu", dtype=torch.bfloat16)
    context.__enter__()
    y = x @ x.T
    context.__exit__(None, None, None)
    return y, x @ x.T


def _decorated(x):
    return torch.autocast("cpu", dtype=torch.bfloat16)(lambda v: v @ v.T)(x)


def _device_by_hand(x):
    device = torch.device("meta")
    entered = torch.device.__enter__(device)
    inner = torch.ones(2)
    with torch.device("cpu"):
        innermost = torch.ones(4) + x
    device.__exit__(None, None, None)
    return entered is device, inner.device, innermost, torch.ones(4) * x


def _device_left_by_its_class(x):
    device = torch.device("meta").__enter__()
    y = torch.ones(2)
    torch.device.__exit__(device, None, None, None)
    return y.device, torch.ones(4) + x


@pytest.mark.parametrize("program", [_device_by_hand, _device_left_by_its_class], ids=lambda p: p.__name__)
def test_a_device_is_entered_by_a_call_too(program, check):
    """In one graph; nothing is entered afterwards."""
    check(program)
    assert torch.get_default_device() == torch.device("cpu")


CHECKS = [torch._check, torch._check_value, torch._check_index, torch._check_type, torch._check_not_implemented]


@pytest.mark.parametrize(
    "condition", [lambda x: x.sum() > 0, lambda x: 1, lambda x: None, lambda x: x.shape[0] > 9, lambda x: True]
)
@pytest.mark.parametrize("function", CHECKS, ids=lambda function: function.__name__)
def test_checks_take_bools_and_tell_what_else_they_got(function, condition, check):
    """The error's type and words, caught so that the graph goes on."""

    def program(x):
        y = x + 1
        try:
            function(condition(x), lambda: "too few")
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            return y, type(error), str(error)
        return y

    check(program)


@pytest.mark.parametrize("program", [_from_outside, _entered_by_hand, _decorated], ids=lambda p: p.__name__)
def test_autocast_is_part_of_the_graph(program, check):
    """In one graph, the state around it untouched."""
    check(program)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_across_a_break(broken):
    """The rest of the block runs under it, what comes after does not."""
    assert broken(_broken_inside) == {"input-output"}
    assert not torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled()


def test_questions_are_answered(check):
    """As in eager, except for the one that asks about compiling."""
    check(
        lambda x: (
            torch.is_grad_enabled(),
            torch.get_default_dtype() is torch.float32,
            torch.jit.is_scripting(),
            torch.is_tensor(x),
            torch.promote_types(torch.int8, torch.float16) is torch.float16,
            torch.is_inference_mode_enabled(),
            x + 1,
        )
    )


def test_what_changes_the_state_breaks(broken):
    """It is done for real, between two graphs."""

    def seed(x):
        torch.manual_seed(3)
        return x + torch.rand(4)

    def threads(x):
        torch.set_num_threads(torch.get_num_threads())
        return x + 1

    assert broken(seed) == broken(threads) == {"unsupported-call"}


@pytest.mark.parametrize(
    ("ask", "change"),
    [
        (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
        (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("high")),
        (torch.backends.cuda.flash_sdp_enabled, lambda: torch.backends.cuda.enable_flash_sdp(False)),
        (lambda: torch._C._get_cudnn_benchmark(), lambda: torch._C._set_cudnn_benchmark(True)),
        (lambda: torch.backends.mkldnn.enabled, lambda: torch._C._set_mkldnn_enabled(False)),
    ],
    ids=["threads", "precision", "attention", "benchmark", "mkldnn"],
)  # fmt: skip
def test_an_answer_that_changes_is_asked_again(ask, change):
    """A program that was compiled under one answer does not keep it under another."""
    before = _settings()
    region = make_region(lambda x: (x + 1, ask()), eager, fullgraph=True)
    x = torch.ones(2)
    try:
        first = ask()
        assert region(x)[1] == first
        assert region(x)[1] == first
        change()
        assert ask() != first
        assert region(x)[1] == ask()
    finally:
        _restore(before)


def _settings():
    return (
        torch.get_num_threads(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch._C._get_cudnn_benchmark(),
        torch._C._get_mkldnn_enabled(),
        [torch._C._get_fp32_precision_getter(backend, "matmul") for backend in ("cuda", "mkldnn")],
    )


def _restore(settings):
    threads, flash, benchmark, mkldnn, precisions = settings
    torch.set_num_threads(threads)
    torch.backends.cuda.enable_flash_sdp(flash)
    torch._C._set_cudnn_benchmark(benchmark)
    torch._C._set_mkldnn_enabled(mkldnn)
    torch.set_float32_matmul_precision("highest")
    for backend, precision in zip(("cuda", "mkldnn"), precisions):
        torch._C._set_fp32_precision_setter(backend, "matmul", precision)


@pytest.mark.parametrize(
    "quantised",
    [
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False),
        lambda x: torch.quantize_per_channel(x, torch.ones(len(x)), torch.zeros(len(x), dtype=torch.long), 0, torch.qint8),
    ],
    ids=["tensor", "dynamic", "channel"],
)  # fmt: skip
def test_quantised_tensors_break_the_graph(quantised, broken):
    """On fakes they are plain numbers, which dequantising gives back as they are."""
    assert broken(lambda x: quantised(x).dequantize() * x) == {"unsupported-call", "unsupported-tensor"}


class _Noted(torch.autocast):
    """One of the program's own."""

    def __init__(self, notes):
        super().__init__("cpu", dtype=torch.bfloat16)
        self.notes = notes

    def __enter__(self):
        self.notes.append("in")
        return super().__enter__()

    def __exit__(self, *raised):
        super().__exit__(*raised)
        self.notes.append("out")
        self.fast_dtype = torch.float16


def _derived_inside(x, context, notes):
    with _Noted(notes):
        y = x @ x.T
    return y, x @ x.T


def _derived_outside(x, context, notes):
    with context:
        y = x @ x.T
    return y, context.fast_dtype


def _derived_decorates(x, context, notes):
    return context(lambda v: v @ v.T)(x), x @ x.T


@pytest.mark.parametrize("program", [_derived_inside, _derived_outside, _derived_decorates], ids=lambda p: p.__name__)
def test_a_class_derived_from_autocast_does_what_it_does_besides(program):
    """Its methods are traced, and the mode is that of its attributes when it is entered."""
    x = torch.linspace(-2, 3, 12).reshape(3, 4)
    sides = []
    for make in (lambda function: make_region(function, eager, fullgraph=True), lambda function: function):
        notes = []
        context, function = _Noted(notes), make(program)
        found = [function(x, context, notes) for _ in range(2)]
        sides.append((found, notes, context.fast_dtype, torch.is_autocast_enabled("cpu")))
    assert_equal(*sides)


def test_a_break_inside_of_a_derived_autocast_enters_it_once():
    """What its class does besides is done by the trace."""

    def program(x, notes):
        with _Noted(notes):
            print(end="")
            return x @ x.T

    x, sides = torch.ones(2, 2), []
    for function in (make_region(program, eager), program):
        notes = []
        sides.append((function(x, notes), notes, torch.is_autocast_enabled("cpu")))
    assert_equal(*sides)


def test_members_of_enums_of_c_are_constants(check):
    """Hashed, compared, converted; another one is another call."""
    kind = torch.nn.attention.SDPBackend

    def program(x, member):
        table = dict.fromkeys([member, kind.MATH, kind.MATH])
        return (
            x * len(table) + int(member),
            member in [kind.MATH],
            member == kind.MATH,
            member.name,
            kind.MATH is member,
        )

    for member in (kind.MATH, kind.FLASH_ATTENTION):
        check(program, torch.ones(2), member)
    region = make_region(program, eager)
    for member in (kind.MATH, kind.FLASH_ATTENTION, kind.MATH):
        assert_equal(region(torch.ones(2), member), program(torch.ones(2), member))


def test_annotate_gives_its_value(check):
    """`torch.jit.annotate` says a type, and does nothing."""
    check(lambda x: torch.jit.annotate(list[int], [x + 1]))
    check(lambda x: torch.jit.annotate(typing.List[torch.Tensor], [x + 1]))  # noqa: UP006 - what older models write
    check(lambda x: torch.jit.annotate(typing.Dict[str, typing.Optional[int]], {"a": x}), typing.Callable[[int], int])  # noqa: UP006, UP045 - the same
    check(lambda x: torch.jit.annotate(the_value=x, the_type=int) + 1)


@pytest.mark.parametrize(
    "constant", [assume_constant_result, torch.compiler.assume_constant_result], ids=["own", "torch"]
)
def test_what_is_marked_as_constant_is_asked_once(constant):
    """With constants as arguments and result; anything else is traced, as the plain function that it is."""
    asked = []

    @constant
    def known(name="a"):
        asked.append(name)
        return len(name) + 1

    @constant
    def refused(name):
        raise ValueError(name)

    @constant
    def of_a_tensor(x):
        return x * 2

    def function(x):
        try:
            refused("words")
        except ValueError as error:
            return x * known() + known(name="abc"), of_a_tensor(x), str(error)

    region = make_region(function, eager, fullgraph=True)
    for _ in range(3):
        assert_equal(region(torch.ones(2)), (torch.full((2,), 6.0), torch.full((2,), 2.0), "words"))
    assert asked == ["a", "abc"]
