"""Rules are applied to a fixed point; what they leave is a valid graph that says where it comes from."""

from operator import getitem

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from tracing import traced

from flambeau_inductor.context import CompileContext
from flambeau_inductor.errors import InternalError
from flambeau_inductor.passes.runner import Pass, run_passes
from flambeau_inductor.rewrite.engine import Rule, RuleSet
from flambeau_inductor.rewrite.patterns import Anything, Operand, call

aten = torch.ops.aten
X = torch.randn(3, 4)


def rule(pattern, replace, **more):
    """A rule of whatever name."""
    return Rule(**{"name": "a rule", "identity": "for a test", "pattern": pattern, "replace": replace, **more})


def applied(gm, *rules, context=None):
    """The rewritten graph, through the runner and its checks."""
    after = run_passes(gm, (Pass("rules", RuleSet(rules).run),), context or CompileContext())
    after.recompile()
    return after


def names(gm):
    """Of the ops."""
    return [str(n.target).split(".")[1] for n in gm.graph.nodes if n.op == "call_function"]


#: exp(x) -> sin(x), and two negations -> nothing.
SINES = rule(call(aten.exp.default, Operand("x")), lambda m, edit: edit.call(aten.sin.default, m["x"]))
NEGATIONS = rule(call(aten.neg.default, call(aten.neg.default, Operand("x"))), lambda m, edit: m["x"])


def test_a_match_is_replaced_and_others_stay():
    before = traced(lambda x: x.exp().cos().exp(), X)
    after = applied(before, SINES)
    assert names(after) == ["sin", "cos", "sin"] and names(before) == ["exp", "cos", "exp"]
    torch.testing.assert_close(after(X), X.sin().cos().sin())
    assert applied(after, SINES) is after


def test_what_is_left_over_goes_and_effects_stay():
    """Operands that only the root read are dead; a random draw is noticed."""
    constant = rule(call(aten.exp.default, Operand()), lambda m, edit: edit.call(aten.zeros_like.default, m.root.graph.find_nodes(op="placeholder")[0]))  # fmt: skip
    assert names(applied(traced(lambda x: x.cos().tan().exp() + 1, X), constant)) == ["zeros_like", "add"]
    draws = applied(traced(lambda x: torch.rand_like(x).tan().exp() + 1, X), constant)
    assert names(draws) == ["rand_like", "zeros_like", "add"]


def test_new_nodes_have_the_fake_results_of_running_them():
    wide = rule(
        call(aten.exp.default, Operand("x")),
        lambda m, edit: edit.call(aten.t.default, edit.call(aten.clone.default, edit.call(aten.t.default, m["x"]))),
    )
    after = applied(traced(lambda x: x.exp() + 1, X), wide)
    shapes = [tuple(n.meta["val"].shape) for n in after.graph.nodes if n.op == "call_function"]
    assert shapes == [(4, 3), (4, 3), (3, 4), (3, 4)]


@pytest.mark.parametrize("count", [2, 3, 8, 200])
def test_what_a_rewrite_makes_possible_is_done_too(count):
    """Pairs of negations go until at most one is left, in whatever order they come."""

    def function(x):
        for _ in range(count):
            x = -x
        return x + 1

    assert names(applied(traced(function, X), NEGATIONS)) == ["neg"] * (count % 2) + ["add"]


def test_what_loses_its_other_reader_is_looked_at_again():
    """Only then has it a single user."""
    alone = rule(call(aten.cos.default, call(aten.sin.default, Operand("x"), only_user=True)), lambda m, edit: edit.call(aten.tan.default, m["x"]))  # fmt: skip
    drop = rule(call(aten.exp.default, Operand("x")), lambda m, edit: edit.call(aten.abs.default, edit.call(aten.zeros_like.default, m.root.graph.find_nodes(op="placeholder")[0])), name="another")  # fmt: skip

    def function(x):
        s = x.sin()
        return s.cos() + s.exp()

    assert names(applied(traced(function, X), alone)) == ["sin", "cos", "exp", "add"]
    assert "tan" in names(applied(traced(function, X), alone, drop))


def test_rules_that_know_no_end_are_caught():
    """The error names the rule."""
    there = rule(
        call(aten.sin.default, Operand("x")), lambda m, edit: edit.call(aten.cos.default, m["x"]), name="there"
    )
    back = rule(call(aten.cos.default, Operand("x")), lambda m, edit: edit.call(aten.sin.default, m["x"]), name="back")
    with pytest.raises(InternalError, match=r"do not come to an end.*(there|back)"):
        applied(traced(lambda x: x.sin() + 1, X), there, back)


def test_the_first_rule_that_applies_wins():
    """In the order of the table; checks and switches are asked, and a rule may still decline."""
    asked = []

    def refuses(match, context):
        asked.append(context)
        return False

    def declines(match, edit):
        edit.call(aten.tan.default, edit.call(aten.cos.default, match["x"]))
        return None

    exp = call(aten.exp.default, Operand("x"))
    never = rule(exp, lambda m, edit: edit.call(aten.neg.default, m["x"]), name="off", when=lambda context: False)
    unsafe = rule(exp, lambda m, edit: edit.call(aten.neg.default, m["x"]), name="unsafe", check=refuses)
    hesitant = rule(exp, declines, name="hesitant")
    context = CompileContext()
    after = applied(traced(lambda x: x.exp() + 1, X), never, unsafe, hesitant, SINES, context=context)
    assert names(after) == ["sin", "add"] and asked == [context]
    gm = traced(lambda x: x.exp() + 1, X)
    assert applied(gm, unsafe, hesitant) is gm


def test_every_way_to_match_is_tried():
    """Until the check takes one."""
    pattern = call(aten.add.Tensor, Operand("a"), Operand("b"), commutes=True)
    first = rule(pattern, lambda m, edit: m["a"], check=lambda m, context: m["a"].target is aten.sin.default)
    assert names(applied(traced(lambda x: (x.cos() + x.sin()) * 2, X), first)) == ["sin", "mul"]


def test_results_of_several_parts():
    """Each part by a node of its own; a part that is read must be given, and what nobody reads is not made."""

    def replace(match, edit):
        return [edit.call(aten.sin.default, match["x"]), edit.call(aten.cos.default, match["x"])]

    both = rule(call(aten.split.Tensor, Operand("x"), others=True), replace)
    assert names(applied(traced(lambda x: aten.split(x, 2)[1] + 1, X), both)) == ["cos", "add"]
    assert names(applied(traced(lambda x: aten.split(x, 2)[0] + 1, X), both)) == ["sin", "add"]
    partial = rule(call(aten.split.Tensor, Operand("x"), others=True), lambda m, edit: [m["x"], None])
    with pytest.raises(InternalError, match="does not give"):
        applied(traced(lambda x: aten.split(x, 2)[1] + 1, X), partial)
    gm = traced(lambda x: aten.split(x, 2)[0] + 1, X)
    assert not applied(gm, partial).graph.find_nodes(op="call_function", target=getitem)


@pytest.mark.parametrize("key", ["stack", "stack_trace", "module", "calls"])
def test_provenance_is_carried_on(key):
    """From the root, else from the nearest matched call that knows; also into nodes that stand elsewhere."""
    deep = rule(
        call(aten.exp.default, call(aten.cos.default, Operand("x"))),
        lambda m, edit: edit.call(aten.tan.default, edit.call(aten.sin.default, m["x"], before=m["x"].next)),
    )
    for owners, wanted in ((("exp", "cos"), "of exp"), (("cos",), "of cos"), ((), None)):
        gm = traced(lambda x: x.cos().exp() + 1, X)
        for node in gm.graph.nodes:
            for name in ("stack", "stack_trace", "module", "calls"):
                node.meta.pop(name, None)
            if node.name in owners:
                node.meta[key] = f"of {node.name}"
        after = applied(gm, deep)
        made = [n for n in after.graph.nodes if n.target in (aten.sin.default, aten.tan.default)]
        assert len(made) == 2 and [n.meta.get(key) for n in made] == [wanted, wanted]


def test_a_call_like_the_root():
    """Another argument, everything else as it was, fake result and notes included."""
    other = rule(
        call(aten.add.Tensor, Operand("a"), Anything(), alpha=2),
        lambda m, edit: edit.with_argument("alpha", 3),
    )
    gm = traced(lambda x: torch.add(x, x, alpha=2).exp(), X)
    (old,) = gm.graph.find_nodes(op="call_function", target=aten.add.Tensor)
    old.meta["mine"] = 1
    (new,) = applied(gm, other).graph.find_nodes(op="call_function", target=aten.add.Tensor)
    assert new.kwargs == {"alpha": 3} and new.meta == old.meta


def test_a_call_for_all_rewrites_is_made_once():
    """Right behind what it reads, for whoever asks for it later."""
    flat = rule(
        call(aten.exp.default, Operand("x")), lambda m, edit: edit.call(aten.sin.default, edit.call_once(m["x"], aten.view.default, m["x"], [12]))
    )  # fmt: skip
    after = applied(traced(lambda x: (lambda y: y.exp().sum() + y.tan().sum() + y.exp().sum())(x.cos()), X), flat)
    assert names(after).count("view") == 1 and names(after)[:2] == ["cos", "view"]


def test_symbolic_sizes_get_no_guards():
    """Ops run on the fakes of a graph with symbols, and nothing is assumed of them."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fake = mode.from_tensor(torch.randn(5, 7))
    with mode:
        gm = make_fx(lambda x: x.exp() + 1)(fake)
    choosy = rule(
        call(aten.exp.default, Operand("x")),
        lambda m, edit: edit.call(aten.cat.default, [edit.call(aten.squeeze.default, m["x"]), edit.call(aten.sin.default, m["x"])]),
    )  # fmt: skip
    before = list(mode.shape_env.guards)
    after = applied(gm, choosy)
    assert names(after) == ["squeeze", "sin", "cat", "add"] and mode.shape_env.guards == before


def test_a_graph_without_fakes_is_left_alone():
    gm = traced(lambda x: x.exp() + 1, X)
    for node in gm.graph.nodes:
        node.meta.clear()
    assert not RuleSet((SINES,)).run(gm, CompileContext())


def test_tables_are_checked():
    """Names are unique, and each rule says why it holds."""
    with pytest.raises(InternalError, match="one name"):
        RuleSet((SINES, NEGATIONS))
    with pytest.raises(InternalError, match="why it holds"):
        RuleSet((rule(call(aten.exp.default, Operand()), lambda m, edit: None, identity=" "),))


def test_several_patterns_of_one_rule():
    """Tried in order, of one root or of several."""
    circular = rule((call(aten.exp.default, Operand("x")), call(aten.cos.default, Operand("x"))), SINES.replace)
    assert names(applied(traced(lambda x: x.exp().cos() + 1, X), circular)) == ["sin", "sin", "add"]
