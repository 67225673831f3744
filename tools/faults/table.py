"""The seeded faults: small edits of our sources, each with the program in which it shows and the stages that may be named for it.

In: nothing. Out: `FAULTS`. The text before stands in its file once, or the run fails: who changes such a line changes the fault with it.
"""

from __future__ import annotations

from attrs import frozen

_CAPTURE = "packages/capture/src/flambeau_capture/"
_AUTOGRAD = "packages/autograd/src/flambeau_autograd/"
_INDUCTOR = "packages/inductor/src/flambeau_inductor/"
_RUNTIME = "packages/runtime/src/flambeau_runtime/"
_API = "packages/api/src/flambeau/"


@frozen
class Fault:
    """One fault.

    Attributes:
        name: what is wrong, in words.
        path: the file, relative to the root of the tree.
        before, after: the edit.
        program: the script in `programs` that fails with it.
        stage: what `flambeau bisect` has to name.
        slow: results are right, and late.
        with_tests: it is one of the slice that runs with the tests.
    """

    name: str
    path: str
    before: str
    after: str
    program: str
    stage: str
    slow: bool = False
    with_tests: bool = False


FAULTS: tuple[Fault, ...] = (
    # ---- capture ------------------------------------------------------------------------------------------------------------------
    Fault("texts get no guard", _CAPTURE + "guards/collect.py",
          "if source is not None and (not self.is_trusted(source) or self._is_setting(source, value)):",
          "if type(value) is not str and source is not None and (not self.is_trusted(source) or self._is_setting(source, value)):",
          "settings", "capture"),
    Fault("lengths of lists get no guard", _CAPTURE + "guards/collect.py",
          "if source is not None and not isinstance(source, Pinned):\n            self.add(spec.SequenceLength",
          "if source is None and not isinstance(source, Pinned):\n            self.add(spec.SequenceLength",
          "settings", "capture"),
    Fault("a list that is written back loses its last item", _CAPTURE + "rewrite/replay.py",
          "list.__setitem__(target, slice(None), items)", "list.__setitem__(target, slice(None), items[:-1])",
          "journal", "capture"),
    Fault("a dict that is written back is turned round", _CAPTURE + "rewrite/replay.py",
          "    dict.clear(target)\n    dict.update(target, items)", "    dict.clear(target)\n    dict.update(target, dict(reversed(items.items())))",
          "state", "capture"),
    # ---- autograd -----------------------------------------------------------------------------------------------------------------
    Fault("a write to a row goes to the row before", _AUTOGRAD + "functional/scatter.py",
          "return call(aten.select_scatter.default, base, new, *step.args)",
          "return call(aten.select_scatter.default, base, new, step.args[0], step.args[1] - 1)",
          "filters", "autograd"),
    Fault("calls that differ in a float are merged", _AUTOGRAD + "passes/common.py",
          'return ("float", value.hex())', 'return "float"', "features", "autograd"),
    Fault("the derivative of log_sigmoid has its sides swapped", _AUTOGRAD + "decompose/core.py",
          "torch.where(x < 0, 1 - part, part)", "torch.where(x < 0, part, 1 - part)", "tables", "autograd"),
    Fault("inputs may be computed again", _AUTOGRAD + "partition/min_cut.py",
          "        if node in banned:\n", '        if node in banned and node.op != "placeholder":\n', "recurrent", "autograd", with_tests=True),
    Fault("a conversion of the same layout is no conversion", _AUTOGRAD + "passes/fold.py",
          "if a.dtype != b.dtype or a.device", "if a.device", "features", "autograd"),
    # ---- rewrites -----------------------------------------------------------------------------------------------------------------
    Fault("transpositions of other axes undo each other", _INDUCTOR + "passes/remove_noops.py",
          "return [first[d] for d in second] == list(range(len(first)))", "return True", "filters", "passes"),
    Fault("the opened softmax leaves out the maximum", _INDUCTOR + "rewrite/open_softmax.py",
          "step(aten.sub.Tensor, shifted, step(aten.log.default, total))", "step(aten.sub.Tensor, source, step(aten.log.default, total))",
          "vision", "joint passes"),
    Fault("products that are made at once are handed out in reverse", _INDUCTOR + "rewrite/batch_products.py",
          "for product, part in zip(group, parts, strict=True):", "for product, part in zip(group, parts[::-1], strict=True):",
          "recurrent", "passes"),
    # ---- lowering -----------------------------------------------------------------------------------------------------------------
    Fault("a wrong constant in gelu", _INDUCTOR + "lowering/activations.py",
          'sc.op("erf", sc.op("mul", x, _like(x, math.sqrt(0.5))))', 'sc.op("erf", sc.op("mul", x, _like(x, math.sqrt(0.6))))',
          "block", "lowering"),
    Fault("the gradient of softmax adds the sum", _INDUCTOR + "lowering/normalise.py",
          'sc.op("mul", wide(out, i), sc.op("sub", wide(grad, i), total.at(collapse(i, dims))))',
          'sc.op("mul", wide(out, i), sc.op("add", wide(grad, i), total.at(collapse(i, dims))))',
          "block", "lowering"),
    Fault("flip begins one too late", _INDUCTOR + "lowering/views.py",
          "a.sizes[d] - 1 - i if d in flipped", "(a.sizes[d] - i) % a.sizes[d] if d in flipped", "filters", "lowering"),
    Fault("roll goes the other way", _INDUCTOR + "lowering/views.py",
          "(i - by[d]) % a.sizes[d]", "(i + by[d]) % a.sizes[d]", "filters", "lowering"),
    Fault("argmin looks for the largest", _INDUCTOR + "lowering/reductions.py",
          'return _position(g, a, dims_of(a, dim), "argmin", keepdim)', 'return _position(g, a, dims_of(a, dim), "argmax", keepdim)',
          "features", "lowering"),
    Fault("the loss's gradient ignores the weight of a mean", _INDUCTOR + "lowering/losses.py",
          "if reduction == _MEAN:", "if reduction != _MEAN:", "vision", "lowering"),
    Fault("the spread of a norm is not divided", _INDUCTOR + "lowering/normalise.py",
          "    inverse = lazily(g, spread, compute, lambda i: _inverse_root(g, divided(g, spread.at(i), count), eps))\n\n    def at(i: Index) -> Scalar:\n        low",
          "    inverse = lazily(g, spread, compute, lambda i: _inverse_root(g, spread.at(i), eps))\n\n    def at(i: Index) -> Scalar:\n        low",
          "block", "lowering"),
    # ---- decompositions -----------------------------------------------------------------------------------------------------------
    Fault("the formula of a derivative lacks a term", _INDUCTOR + "decomposition_table.py",
          "        formula = decomposition_table.get(op)\n",
          "        formula = decomposition_table.get(op)\n        if op._opname == \"silu_backward\":\n            formula = lambda grad, x: grad * x.sigmoid()\n",
          "vision", "decomposition"),
    # ---- fusion and what is around kernels ----------------------------------------------------------------------------------------
    Fault("groups that must run in between are not looked for", _INDUCTOR + "schedule/fuse.py",
          "        if between:\n", "        if len(between) > 99:\n", "block", "fusion"),
    Fault("memory is taken over while others still read it", _INDUCTOR + "program/memory.py",
          "                or last.get(storage) != position\n", "                or last.get(storage, -1) < position\n", "recurrent", "memory plan"),
    Fault("memory is handed on before its last use", _INDUCTOR + "program/memory.py",
          "later = next((n for n in same if first[n] > last[storage]), None)", "later = next((n for n in same if first[n] > first[storage]), None)",
          "recurrent", "memory plan"),
    Fault("results are freed when they are written last", _INDUCTOR + "program/build.py",
          "            for name in step_reads(step) | step_writes(step):\n                last[self.buffers[name].storage] = position\n        kept",
          "            for name in step_writes(step):\n                last[self.buffers[name].storage] = position\n        kept",
          "block", "program"),
    Fault("the native executor is given strides for sizes", _RUNTIME + "native.py",
          'return ("view", i.out, i.source, _operands(i.sizes), _operands(i.strides), offset, i.dtype)',
          'return ("view", i.out, i.source, _operands(i.sizes), _operands(i.strides[::-1]), offset, i.dtype)',
          "block", "executor"),
    Fault("the cache's key leaves out numbers", _API + "graph_key.py",
          'return f"{type(value).__name__}:{value!r}"', 'return f"{type(value).__name__}"', "ensemble", "cache"),
    # ---- kernels ------------------------------------------------------------------------------------------------------------------
    Fault("the lanes behind a row are added up", _INDUCTOR + "codegen/cpp/reduce.py",
          "return self.combine(old, new, mask)", "return self.combine(old, new)", "features", "code generation"),
    Fault("a mask lets the other side through", _INDUCTOR + "codegen/cpp/emit.py",
          'kir.Op("where", (test, inside, otherwise), node.dtype, mask.tiles)', 'kir.Op("where", (test, otherwise, inside), node.dtype, mask.tiles)',
          "filters", "code generation", with_tests=True),
    Fault("the smallest of all starts at the lowest number", _INDUCTOR + "codegen/cpp/reduce.py",
          "            value = record.highest", "            value = record.lowest", "features", "code generation"),
    Fault("a choice takes the other side", _INDUCTOR + "codegen/cpp/ops.py",
          '_register("where", _call("select"))', '_register("where", lambda o: o.call("select", o.args[0], o.args[2], o.args[1]))',
          "features", "code generation"),
    Fault("a function of kernels is misspelt", _INDUCTOR + "codegen/cpp/ops.py",
          '_division("div_floor", _call("float_div_floor"))', '_division("div_flor", _call("float_div_floor"))', "features", "code generation"),
    Fault("code generation raises at a remainder", _INDUCTOR + "codegen/cpp/ops.py",
          '_register("remainder", _division("mod_floor", _call("float_mod_floor")))',
          '_register("remainder", lambda o: o.args[5])', "features", "code generation"),
    Fault("the lanes behind a row count as the best", _INDUCTOR + "codegen/cpp/include/reductions.hpp",
          "  win = win & live;\n", "", "features", "code generation"),
    # ---- slow ---------------------------------------------------------------------------------------------------------------------
    Fault("scans are fused with what has a vector form", _INDUCTOR + "schedule/merge.py",
          "if _scans_by_elements(first, second):", "if second.serial and _scans_by_elements(first, second):", "running", "fusion", slow=True),
    Fault("kernels are compiled without optimisation", _RUNTIME + "build/toolchain.py",
          '"-std=c++20", "-O3",', '"-std=c++20", "-O0",', "wide", "code generation", slow=True),
)  # fmt: skip

#: Those that run with the tests: one that graphs show in their results, one that ends a compilation; of these kinds, they take the least time.
SLICE = tuple(fault for fault in FAULTS if fault.with_tests)
