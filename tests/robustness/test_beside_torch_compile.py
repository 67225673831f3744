"""Beside torch.compile: as its backend, called by what it compiles, and with its backends. Each in a process of its own, which loads it."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path

from tests import scripts

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
    import warnings
    warnings.simplefilter("error", RuntimeWarning)
    warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")  # what torch.compile says of itself
    import torch, flambeau
    from torch import nn
    from flambeau import stack
    assembled = []
    made = stack._assemble
    stack._assemble = lambda *a, **k: assembled.append(k.get("cached", False)) or made(*a, **k)
    torch.manual_seed(0)

    def same(compiled, plain, *values):
        for value in values:
            a, b = (value.detach().clone().requires_grad_(value.requires_grad) for _ in range(2))
            found, expected = compiled(a), plain(b)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(a, b)
            if expected.requires_grad:
                found.square().sum().backward()
                expected.square().sum().backward()
                torch.testing.assert_close(a.grad, b.grad)

    def f(x):
        return torch.softmax(x.exp(), -1) * x + x.shape[0]

    def rows(*counts, grad=False):
        return [torch.randn(n, 8, requires_grad=grad) for n in counts]
"""


def run(program: str, folder: Path) -> str:
    """The output of a process; the published entry point is on its path, as where the package is installed."""
    project = tomllib.loads((ROOT / "packages/api/pyproject.toml").read_text())["project"]
    (points,) = (project["entry-points"][group] for group in project["entry-points"])
    published = folder / "flambeau-0.dist-info"
    published.mkdir()
    (published / "METADATA").write_text("Metadata-Version: 2.1\nName: flambeau\nVersion: 0\n")
    text = "\n".join(f"{name} = {value}" for name, value in points.items())
    (published / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{text}\n")
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
    done = scripts.run(source, folder, FLAMBEAU_CACHE_DIR=folder / "cache")
    assert done.status == 0, done.output
    return done.stdout


def test_as_its_backend(tmp_path: Path) -> None:
    """Forward, backward, modules, writes, sizes that change: every graph is compiled by us, none runs in eager."""
    program = """
        def compiled(function, **options):
            torch._dynamo.reset()
            assembled.clear()
            return torch.compile(function, backend="flambeau", **options)

        same(compiled(f), f, *rows(4))
        assert len(assembled) == 1
        same(compiled(f), f, *rows(4, grad=True))
        assert len(assembled) == 1
        same(compiled(f, dynamic=False), f, *rows(4, 3, 5))
        assert assembled == [True, False, False], assembled  # the sizes are part of the key
        same(compiled(f), f, *rows(4, 3, 5, 6))
        assert len(assembled) == 2
        for grad in (False, True):
            same(compiled(f, dynamic=True), f, *rows(4, 3, 7, grad=grad))
            assert len(assembled) == 1
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        import copy
        twin = copy.deepcopy(model)
        same(compiled(model), twin, *rows(5, 5, grad=True))
        torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
        torch.testing.assert_close(list(model.buffers()), list(twin.buffers()))
        assert len(assembled) == 1
        torch._dynamo.reset()
        assembled.clear()
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(8, 2)
            def forward(self, x):
                return self.linear(x).tanh()
        own = Own()
        plain = copy.deepcopy(own)
        own.compile(backend="flambeau")  # in place: torch's own method
        same(own, plain, *rows(5, 5, grad=True))
        torch.testing.assert_close([p.grad for p in own.parameters()], [p.grad for p in plain.parameters()])
        assert len(assembled) == 1, assembled
        def writes(x):
            x.add_(1)
            return x * 2
        same(compiled(writes), writes, *rows(3))
        assert len(assembled) == 1
        same(compiled(f, options={"numerics": "fast"}), f, *rows(4))
        same(compiled(f, mode="lite"), f, *rows(4))
        try:
            compiled(f, options={"b2b_gemm_pass": True})(*rows(4))
        except Exception as error:
            assert "b2b_gemm_pass" in str(error), error
        else:
            raise AssertionError("an option without effect here")
        def strided(x):
            return x.as_strided((2,), (1,), 1) * 2
        g = compiled(strided)
        for part in (torch.arange(9.0)[start : start + 4] for start in (0, 1, 2)):
            torch.testing.assert_close(g(part), strided(part))
        assert len(assembled) == 1
        def wrong(x):
            return x[torch.tensor([9])]
        try:
            compiled(wrong)(*rows(4))
        except IndexError as error:
            assert "out of bounds" in str(error)
        else:
            raise AssertionError("no error")
        print("as its backend")
    """
    assert "as its backend" in run(program, tmp_path)


def test_below_a_hook_that_hands_on_to_ours(tmp_path: Path) -> None:
    """torch.compile was there before and comes on top again: each of the two hooks has the other below it."""
    program = """
        from torch._higher_order_ops.while_loop import while_loop
        def loops(n, x):
            return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x.cos()), (n, x))
        x = torch.ones(2, 3)
        same(flambeau.compile(lambda x: loops(torch.tensor(3), x)[1], backend="eager"), lambda x: loops(torch.tensor(3), x)[1], x)
        for called in (loops, flambeau.compile(loops, backend="eager"), loops):
            try:
                called(torch.tensor(3), x.to(torch.int16))
            except RuntimeError as error:
                print(type(error).__name__)
        print("handed on")
    """
    assert "handed on" in run(program, tmp_path)


def test_called_by_what_it_compiles(tmp_path: Path) -> None:
    """A compiled function and a compiled module: torch.compile breaks its graph there and leaves our compiler alone."""
    program = """
        inner, model = flambeau.compile(f), flambeau.compile(nn.Linear(8, 2))
        def outer(x):
            return torch.relu(model(inner(x + 1) * 2))
        def plain(x):
            return torch.relu(nn.functional.linear(f(x + 1) * 2, model.weight, model.bias))
        theirs = []
        def backend(gm, inputs):
            theirs.append(gm)
            return gm.forward
        same(torch.compile(outer, backend=backend), plain, *rows(4, 4), *rows(4, grad=True))
        assert len(assembled) >= 2 and theirs
        for gm in theirs:
            assert "flambeau" not in gm.code
        same(torch.compile(inner, backend=backend), f, *rows(4, 4))
        same(torch.compile(model, backend=backend), lambda x: nn.functional.linear(x, model.weight, model.bias), *rows(4))
        same(inner, f, *rows(4, 5, 6))
        print("called by it")
    """
    assert "called by it" in run(program, tmp_path)


def test_with_its_backends(tmp_path: Path) -> None:
    """Those made by its `aot_autograd` carry the mark of boxed functions and take their inputs one by one; really boxed ones work as well."""
    program = """
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.aot_autograd import make_boxed_func
        graphs = []
        def unboxed(gm, inputs):
            graphs.append(gm)
            return gm.forward
        def boxed(gm, inputs):
            graphs.append(gm)
            return make_boxed_func(gm.forward)
        def with_break(x):
            y = f(x)
            print(end="")
            return y.sin()
        for compiler in (unboxed, boxed):
            for function in (f, with_break):
                for grad in (False, True):
                    graphs.clear()
                    compiled = flambeau.compile(function, backend=aot_autograd(fw_compiler=compiler))
                    same(compiled, function, *rows(4, 4, grad=grad))
                    assert graphs
        def really_boxed(gm, inputs):
            def run(arguments):
                given = list(arguments)
                arguments.clear()
                return gm.forward(*given)
            run._boxed_call = True
            return run
        for function in (f, with_break):
            same(flambeau.compile(function, backend=really_boxed), function, *rows(4, 4))
        for name in ("aot_eager", "inductor"):
            same(flambeau.compile(f, backend=torch._dynamo.lookup_backend(name)), f, *rows(4, 4), *rows(4, grad=True))
        print("with its backends")
    """
    assert "with its backends" in run(program, tmp_path)


def test_a_graph_of_wrapper_tensors(tmp_path: Path) -> None:
    """Its nodes tell their values under torch.compile's name for them."""
    program = """
        from torch.testing._internal.two_tensor import TwoTensor
        x = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
        y = torch.compile(lambda x: (x * x).sin(), backend="flambeau")(x)
        y.backward(TwoTensor(torch.ones(3), torch.ones(3)))
        torch.testing.assert_close(y.a, (x.a * x.a).sin())
        torch.testing.assert_close(x.grad.b, 2 * x.b * (x.b * x.b).cos())
        print(len(assembled))
    """
    assert run(program, tmp_path).split() == ["1"]
