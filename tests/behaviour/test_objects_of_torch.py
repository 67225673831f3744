"""Objects of torch that a program makes, passes on, changes or enters: sizes, devices, numbers, generators, attributes of tensors, checks.

Each program is run in eager and compiled, some with sizes that change from call to call; results, errors and torch's own state
afterwards are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

import flambeau
from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from ..comparison import run_as_it_is

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {}
pause = flambeau.compiler.graph_break


def case(*rows: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a program; it is called with a tensor of each of these numbers of rows."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = (function, rows or (3, 3))
        return function

    return add


@case(4, 3, 2)
def sizes_made_and_returned(x: Tensor) -> Any:
    made = torch.Size([x.shape[0], 2])
    pause()
    return made, made.numel(), torch.Size(list(x.shape)), torch.zeros(made), torch.Size(), torch.Size((3,))


@case(4, 3, 2)
def sizes_added_and_cut(x: Tensor) -> Any:
    size = x.shape
    one = (1,)
    return size + one, one + size, size + torch.Size([4]), size * 2, size[:1], torch.Size([2])[:1] + size, x + 1


@case()
def kinds_of_objects(x: Tensor) -> Any:
    limits, device, dtype = torch.finfo(x.dtype), torch.device(x.device.type), torch.float64
    pause()
    return limits.eps, limits.dtype, device, dtype, x.to(dtype), torch.iinfo(torch.int8).max, torch.strided


@case()
def generators(x: Tensor) -> Any:
    made = torch.Generator()
    made.manual_seed(3)
    return torch.randn(3, generator=made), torch.rand(2, generator=made), made.initial_seed(), x + 1


@case()
def complex_numbers(x: Tensor) -> Any:
    z = torch.complex(x + 1, x)
    return x * 2j, torch.exp(1j * x), z * (1 + 2j), z - complex(1, 2), 1j / z, z.abs(), abs(2j), z + 1j


@case()
def makes_on_a_device(x: Tensor) -> Any:
    with torch.device("meta"):
        y = torch.empty(3)
        with torch.device("cpu"):
            z = torch.ones(2)
        where = torch.get_default_device()
    return y, z, where, torch.zeros(2), x * 2


@case()
def pauses_on_a_device(x: Tensor) -> Any:
    with torch.device("meta"):
        y = torch.empty(3)
        pause()
        z = torch.ones(2)
    return y, z, torch.zeros(2), x * 2


@case()
def sets_the_device(x: Tensor) -> Any:
    torch.set_default_device("meta")
    try:
        y = torch.ones(3)
        pause()
        z = torch.ones(2)
    finally:
        torch.set_default_device(None)
    return y, z, torch.zeros(2), x + 1


@case()
def sets_the_dtype(x: Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3)
    finally:
        torch.set_default_dtype(torch.float32)
    return y, torch.zeros(2), x * 1.5


@case()
def module_on_a_device(x: Tensor) -> Any:
    with torch.device("meta"):
        module = nn.Linear(4, 4)
    return module.weight.device, module(x.to("meta")).shape, x * 2


@case()
def parametrized(x: Tensor) -> Any:
    module = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    return module(x)


@case()
def attributes(x: Tensor) -> Any:
    y, lost = x * 2, x * 3
    y.note, y.other, lost.note = 1, [x + 1], 2  # type: ignore[attr-defined]
    x.note = "in"  # type: ignore[attr-defined]
    del y.other  # type: ignore[attr-defined]
    pause()
    return y, y.note, hasattr(y, "other"), getattr(y, "none", 5), x.note, y.__dict__  # type: ignore[attr-defined]


@case(4, 3, 2)
def check(x: Tensor) -> Any:
    torch._check(x.shape[0] > 2, lambda: f"{x.shape[0]} rows")
    return x * 2


@case(4, 3, 2)
def check_kinds(x: Tensor) -> Any:
    torch._check_value(x.shape[0] != 3)
    torch._check_index(x.shape[0] > 1)
    return x * 2


@case(4, 3, 2)
def check_caught(x: Tensor) -> Any:
    try:
        torch._check_type(x.shape[0] > 2, lambda: "text")
    except TypeError as error:
        return str(error), x + 1
    return x * 2


@case()
def check_of_no_bool(x: Tensor) -> Any:
    torch._check(1)  # type: ignore[arg-type]
    return x


@case()
def assertions(x: Tensor) -> Any:
    torch._assert(x.shape[1] == 4, "columns")
    torch._assert_async((x < 100).all())
    torch._assert(condition=(x < 100).all(), message="large")
    torch._assert((x > 100).all(), "small")
    return x * 2


@case()
def out_of_another_size(x: Tensor) -> Any:
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return out, torch.add(x, 2, out=torch.empty(7))


@case()
def generator_left_in_a_context(x: Tensor) -> Any:
    def rows() -> Iterator[Tensor]:
        with torch.no_grad():
            yield x * 2

    first = next(rows())
    return first, torch.is_grad_enabled(), x * 3


@case()
def normalisation_of_another_dtype(x: Tensor) -> Any:
    y = torch.nn.functional.layer_norm(x, (4,), torch.ones(4)) * 2
    return torch.nn.functional.layer_norm(y.double(), (4,), torch.ones(4))


@case()
def effects_before_an_error(x: Tensor) -> Any:
    x.calls = getattr(x, "calls", 0) + 1  # type: ignore[attr-defined]
    torch.nn.functional.linear(x.double(), torch.ones(4, 4))
    return x


def _facts(result: Any) -> Any:
    if isinstance(result, Tensor):
        facts = (result.dtype, result.shape, result.stride(), result.device, result.requires_grad)
        notes = {name: value for name, value in vars(result).items() if not isinstance(value, list)}
        return (*facts, notes, None if result.is_meta else result.detach().tolist())
    if isinstance(result, (tuple, list)):
        return type(result), [_facts(item) for item in result]
    if isinstance(result, dict):
        return {name: _facts(value) for name, value in result.items()}
    return type(result), result


def _outcome(function: Callable[..., Any], x: Tensor) -> Any:
    torch.manual_seed(0)
    try:
        result = _facts(function(x))
    except Exception as error:
        result = (type(error), str(error))
    return result, _facts(x), torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device()


def _check(name: str, backend: Any) -> None:
    function, rows = CASES[name]
    compiled = flambeau.compile(function, backend=backend)
    for number in rows:
        x = torch.arange(number * 4.0).view(number, 4) / 7
        theirs, ours = _outcome(function, x.clone()), _outcome(compiled, x.clone())
        assert _rounded(ours) == _rounded(theirs)


def _rounded(facts: Any) -> Any:
    if isinstance(facts, float):
        return float(f"{facts:.5g}")
    if isinstance(facts, complex):
        return _rounded(facts.real), _rounded(facts.imag)
    if isinstance(facts, (tuple, list)) and not isinstance(facts, torch.Size):
        return [_rounded(item) for item in facts]
    return facts


MARKS = {
    "parametrized": pytest.mark.falls_back(
        "ParametrizationList.__init__",
        *["constructing torch.nn.parameter.Parameter"] * (not "2.13" <= TorchVersion(torch.__version__) < "2.15"),
    ),
    "generator_left_in_a_context": pytest.mark.falls_back("a generator is left inside of a with"),
    "check_of_no_bool": pytest.mark.compiles(graphs=0),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS[name]) if name in MARKS else name for name in CASES])
def test_captured(name: str) -> None:
    """What capture makes of a program, its graphs run as they are."""
    _check(name, run_as_it_is)


_on_meta = pytest.param("pauses_on_a_device", marks=pytest.mark.falls_back("a tensor on meta has no data"))


@pytest.mark.parametrize(
    "name", ["complex_numbers", _on_meta, "sizes_made_and_returned", "attributes", "assertions", "check"]
)
def test_compiled(name: str) -> None:
    _check(name, "inductor")


def test_device_in_force_around_the_call() -> None:
    """A device entered outside: tensors are made there, and one program serves every entering of the same device."""
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return run_as_it_is(graph, inputs)

    compiled = flambeau.compile(lambda: torch.ones(3) + 1, backend=backend)
    devices = []
    for device in ("cpu", "meta", "meta", "cpu", "meta"):
        with torch.device(device):
            devices.append(compiled().device.type)
    assert devices == ["cpu", "meta", "meta", "cpu", "meta"]
    assert len(graphs) == 2


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


@pytest.mark.parametrize(
    "make", [torch.fx.symbolic_trace, lambda m: torch.export.export(m, (torch.ones(3, 4),)).module()]
)
def test_graph_modules_as_targets(make: Callable[[nn.Module], nn.Module]) -> None:
    module = make(Layer())
    x = torch.randn(3, 4)
    recorder = Recorder()
    compiled = compile_recorded(module, recorder)
    torch.testing.assert_close(compiled(x), module(x))
    assert recorder.graphs
    assert dict(compiled.named_parameters()).keys() == dict(module.named_parameters()).keys()


@pytest.mark.falls_back("layout torch.sparse_coo")
def test_facts_of_sparse_tensors():
    """How many elements a sparse tensor holds, and whether each once: a break, as fakes hold none."""

    def function(x):
        made = x.to_sparse()
        both = torch.cat([made, made.transpose(0, 1)])
        return [
            (s.is_coalesced(), s._nnz(), s.sparse_dim()) for s in (made, both, both.coalesce(), made.transpose(0, 1))
        ]

    def of_input(x):
        return x.is_coalesced(), x._nnz(), x.dense_dim(), x.is_sparse

    dense = torch.eye(3)
    assert flambeau.compile(function)(dense) == function(dense)
    compiled = flambeau.compile(of_input)
    with torch.sparse.check_sparse_tensor_invariants(True):
        twice = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.ones(2), (3, 3))
    for given in (dense.to_sparse(), twice, twice.coalesce(), torch.zeros(2, 2).to_sparse()):
        assert compiled(given) == of_input(given)


@pytest.mark.parametrize("name", [name for name in ("data_ptr", "const_data_ptr") if hasattr(Tensor, name)])
def test_addresses_are_those_of_the_tensors(name):
    """A fake has none."""
    function = eval(f"lambda x: (x + 1, x.{name}())")
    compiled = flambeau.compile(function)
    for x in (torch.ones(3), torch.ones(3)):
        assert compiled(x)[1] == getattr(x, name)()


@pytest.mark.falls_back("layout torch.sparse")
def test_type_names_of_sparse_tensors():
    """`torch.sparse.FloatTensor`, and an error where torch has no name."""
    assert flambeau.compile(lambda x: x.to_sparse().type())(torch.eye(2)) == "torch.sparse.FloatTensor"
    with pytest.raises(RuntimeError):
        flambeau.compile(lambda x: x.to_sparse_csr().type())(torch.eye(2))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.frombuffer(b"abcdefgh", dtype=torch.float32),
        lambda x: torch.frombuffer(bytearray(8), dtype=torch.float32),
    ],
    ids=["bytes", "bytearray"],
)
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_what_torch_makes_beside_its_dispatcher_is_no_part_of_a_graph(make):
    """Such a tensor is no fake while tracing, and none that was recorded in the stages behind."""

    def f(x):
        y = x * 2
        return y + 1, make(y)

    for found, expected in zip(flambeau.compile(f)(torch.ones(2)), f(torch.ones(2)), strict=True):
        assert str(found) == str(expected)
