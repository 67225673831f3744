"""Applies rules to a graph until none applies.

In: a table of ``Rule``s and a functional graph whose nodes carry ``meta["val"]``. Out: the graph edited in place, and whether anything
changed. A rule is data: what it looks for (``patterns.py``), when that may be replaced, and by what.

Rules are found by the op at the root of their pattern. Every call of such an op is looked at once, in the order of the graph; after a
rewrite, what was made and what could match since then is looked at again. Rules of one root are tried in the order of the table.
What is left over is dead and goes, unless its effects could be noticed. New nodes have the fake result of running them, and the source
position of what they replace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from operator import getitem
from typing import Any

import torch
from attrs import define, field, frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from ..errors import InternalError
from ..log import RULE_APPLIED, logger
from ..passes.remove_dead import erase
from .fakes import PROVENANCE, fake_mode_of, quietly
from .names import fresh_name
from .patterns import Bindings, Call, match, reach, with_argument

#: Rewrites for each node that a graph began with; rules that go on and on are a fault of ours.
_MOST_PER_NODE = 16


@frozen
class Match:
    """One way in which the pattern of a rule fits ``root``; ``match["name"]`` is what was captured under that name."""

    root: fx.Node
    bindings: Bindings

    def __getitem__(self, name: str) -> Any:
        return self.bindings.values[name]

    def val(self, name: str = "") -> torch.Tensor:
        """The fake result of the node captured under ``name``; of the root without a name."""
        node = self[name] if name else self.root
        result: torch.Tensor = node.meta["val"]
        return result


def _always(match: Match, context: CompileContext) -> bool:
    return True


def _on(context: CompileContext) -> bool:
    return True


@frozen
class Rule:
    """A rewrite of one call, with what it reads, into something equal.

    Attributes:
        name: unique in its table; logs and dumps say it.
        identity: the equation that it uses, in which numbers it holds, and what it costs in rounding.
        pattern: a ``call``, or several that capture the same names, whose root is replaced.
        replace: makes the replacement through an ``Editor``, in front of the root unless it says otherwise. Answers with what stands for
            the root: a node; for a root of several results a tuple of nodes (None for one that nobody reads); or None for nothing, where what
            it made goes away again. Nothing of it may read the root.
        check: whether a match may and should be replaced: safety and cost. It may look around in the graph, but is asked again only when
            something that the pattern covers has changed; it must not add guards.
        when: whether the rule is used at all in this compilation.
    """

    name: str
    identity: str
    pattern: Call | tuple[Call, ...]
    replace: Callable[[Match, Editor], fx.Node | Sequence[fx.Node | None] | None] = field(repr=False)
    check: Callable[[Match, CompileContext], bool] = field(default=_always, repr=False)
    when: Callable[[CompileContext], bool] = field(default=_on, repr=False)

    @property
    def patterns(self) -> tuple[Call, ...]:
        """All patterns, in the order in which they are tried."""
        return self.pattern if isinstance(self.pattern, tuple) else (self.pattern,)


@define
class Editor:
    """Makes nodes for one replacement; those that it made are ``made``. They are of ``module``, which the bodies that they call become attributes of."""

    module: fx.GraphModule
    context: CompileContext
    graph: fx.Graph
    match: Match
    mode: FakeTensorMode
    shared: dict[Any, fx.Node]
    #: Left when the replacement is made; what runs ops on fakes is entered by the first that does.
    quiet: ExitStack
    made: list[fx.Node] = field(factory=list)
    is_quiet: bool = False

    def call(
        self, target: Any, *args: Any, before: fx.Node | None = None, known: torch.Tensor | None = None, **kwargs: Any
    ) -> fx.Node:
        """A new call, in front of the root or of ``before``, with the fake result of running it, or the one that is ``known``."""
        if known is not None:
            return self._insert(before or self.match.root, target, args, kwargs, known)
        if not self.is_quiet:
            self.quiet.enter_context(quietly(self.mode))
            self.is_quiet = True
        values = fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
        return self._insert(before or self.match.root, target, args, kwargs, target(*values[0], **values[1]))

    def call_once(self, after: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call of constants and ``after``, right behind that: one for all rewrites of this graph that ask for it."""
        key = (target, _hashable(args), _hashable(tuple(kwargs.items())))
        known = self.shared.get(key)
        # A node that nobody reads, and that was not made just now, is no longer in the graph.
        if known is None or not (known.users or known in self.made):
            known = self.shared[key] = self.call(target, *args, before=after.next, **kwargs)
        return known

    def with_argument(self, name: str, value: Any) -> fx.Node:
        """The root once more with another argument ``name``, where that changes nothing about the layout of the result."""
        root = self.match.root
        args, kwargs = with_argument(root, name, value)
        node = self._insert(root, root.target, args, kwargs, None)
        node.meta = dict(root.meta)
        return node

    def body(self, body: fx.GraphModule) -> fx.Node:
        """A nested graph as an operand, in front of the root."""
        name = fresh_name(self.module, f"{self.match.root.name}_body")
        self.module.add_module(name, body)
        with self.graph.inserting_before(self.match.root):
            node = self.graph.get_attr(name)
        self.made.append(node)
        return node

    def _insert(self, before: fx.Node, target: Any, args: Any, kwargs: Any, val: Any) -> fx.Node:
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {**_notes(self.match.root, *self.match.bindings.nodes), "val": val}
        self.made.append(node)
        return node


@frozen
class RuleSet:
    """A table of rules, ready to run: a pass is ``RuleSet(rules).run``."""

    rules: tuple[Rule, ...]
    #: The op at a root -> rules and patterns in the order in which they are tried.
    index: Mapping[Any, tuple[tuple[Rule, Call], ...]] = field(init=False, repr=False)
    #: The longest chain of calls that a pattern covers.
    reach: int = field(init=False)

    @index.default
    def _index(self) -> Mapping[Any, tuple[tuple[Rule, Call], ...]]:
        if len({rule.name for rule in self.rules}) < len(self.rules):
            raise InternalError("two rules have one name")
        found: dict[Any, list[tuple[Rule, Call]]] = {}
        for rule in self.rules:
            if not rule.identity.strip():
                raise InternalError(f"rule {rule.name} does not say why it holds")
            for pattern in rule.patterns:
                for op in pattern.ops:
                    found.setdefault(op, []).append((rule, pattern))
        return {op: tuple(entries) for op, entries in found.items()}

    @reach.default
    def _reach(self) -> int:
        return max((reach(pattern) for rule in self.rules for pattern in rule.patterns), default=0)

    def run(self, gm: fx.GraphModule, context: CompileContext) -> bool:
        """Apply the rules to ``gm`` until none applies; whether one did. InternalError where there is no end to it."""
        return _Run(gm, gm.graph, context, self).all()


@define
class _Run:
    """One table of rules on one graph."""

    module: fx.GraphModule
    graph: fx.Graph
    context: CompileContext
    table: RuleSet
    index: dict[Any, list[tuple[Rule, Call]]] = field(factory=dict)
    queue: deque[fx.Node] = field(factory=deque)
    waiting: set[fx.Node] = field(factory=set)
    shared: dict[Any, fx.Node] = field(factory=dict)

    def all(self) -> bool:
        used = {rule.name for rule in self.table.rules if rule.when(self.context)}
        for op, entries in self.table.index.items():
            if kept := [entry for entry in entries if entry[0].name in used]:
                self.index[op] = kept
        roots = [node for op in self.index for node in self.graph.find_nodes(op="call_function", target=op, sort=False)]
        self._push(sorted(roots))
        done, most = 0, _MOST_PER_NODE * (len(self.graph.nodes) + 1)
        mode = fake_mode_of(self.graph) if roots else None
        while mode is not None and self.queue:
            node = self.queue.popleft()
            self.waiting.discard(node)
            # What nobody reads is dead, or no longer in the graph.
            rule = self._rewrite(node, mode) if node.users else None
            done += rule is not None
            if done > most:
                raise InternalError(f"rules do not come to an end: {done} rewrites, the last by {rule and rule.name}")
        return done > 0

    def _rewrite(self, node: fx.Node, mode: FakeTensorMode) -> Rule | None:
        """Replace ``node`` by the first rule that applies; that rule."""
        for rule, pattern in self.index[node.target]:
            for bindings in match(pattern, node):
                found = Match(node, bindings)
                if not rule.check(found, self.context) or not self.context.allows(rule.name):
                    continue
                if self._replace(rule, found, mode):
                    logger.debug(RULE_APPLIED, rule=rule.name, node=node.name)
                    return rule
        return None

    def _replace(self, rule: Rule, found: Match, mode: FakeTensorMode) -> bool:
        root = found.root
        with ExitStack() as quiet:
            editor = Editor(self.module, self.context, self.graph, found, mode, self.shared, quiet)
            result = rule.replace(found, editor)
        if result is None:
            _forget(self.graph, editor.made)
            return False
        moved = _put(self.graph, root, result)
        _forget(self.graph, editor.made)
        lost = [node for node in erase(self.graph, root) if len(node.users) == 1]
        seeds = [*editor.made, *moved, *(next(iter(node.users)) for node in lost)]
        self._push(self._near(seeds))
        return True

    def _near(self, seeds: Iterable[fx.Node]) -> list[fx.Node]:
        """The nodes, and all whose matches may hold them."""
        found = dict.fromkeys(seeds)
        edge = list(found)
        for _ in range(self.table.reach - 1):
            edge = [user for node in edge for user in node.users if user not in found]
            found.update(dict.fromkeys(edge))
        return list(found)

    def _push(self, nodes: Iterable[fx.Node]) -> None:
        for node in nodes:
            if node.op == "call_function" and node.target in self.index and node not in self.waiting:
                self.waiting.add(node)
                self.queue.append(node)


def _put(graph: fx.Graph, root: fx.Node, result: fx.Node | Sequence[fx.Node | None]) -> list[fx.Node]:
    """``result`` in the place of ``root``; the nodes that read it now and did not before."""
    if isinstance(result, fx.Node):
        return [*root.replace_all_uses_with(result)]
    moved: list[fx.Node] = []
    for user in list(root.users):
        if user.users or user.target is not getitem:
            place: Any = user.args[1] if user.target is getitem else len(result)
            part = result[place] if place < len(result) else None
            if part is None:
                raise InternalError(f"{user} reads a part of {root} that its replacement does not give")
            moved += user.replace_all_uses_with(part)
        graph.erase_node(user)
    return moved


def _forget(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Erase those of new ``nodes`` that nothing reads."""
    for node in reversed(nodes):
        if not node.users:
            graph.erase_node(node)


def _notes(*nodes: fx.Node) -> dict[str, Any]:
    """Where the matched calls come from: what the root knows, else the nearest that knows."""
    notes: dict[str, Any] = {}
    for key in PROVENANCE:
        for node in nodes:
            if node.meta.get(key):
                notes[key] = node.meta[key]
                break
    return notes


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
