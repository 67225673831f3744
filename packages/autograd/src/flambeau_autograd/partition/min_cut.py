"""The default partitioner: a minimum cut between the bytes saved and what may be recomputed.

In: a `Joint` and a `Config`. Out: the nodes to save. Each forward node that the backward could use is an arc whose
capacity is what saving it costs; nodes that must not be recomputed hang on the source, nodes that the backward reads
hang on the sink. Of all minimum cuts the one nearest to the backward is taken: equal bytes, least recomputation.
"""

from __future__ import annotations

from operator import getitem

from attrs import define, field
from torch.fx import Node

from ..config import Config
from ..joint.record import Joint
from ..passes.facts import alias_root, is_late, is_pinned, is_tensor, runs_once
from .costs import is_free, is_fusible, is_reduction, saved_bytes
from .exposed import exposed
from .flow import min_cut_side
from .policy import may_be_saved
from .split import dependents

_INFINITE = 1 << 60
#: Writing what a few numbers and something of its size in memory tell as well: saving it counts for one part in so many more. Small enough that
#: rows of a few hundred elements, whose numbers take about as much, are saved as before.
_WRITTEN = 64


@define
class Problem:
    """`late`: nodes that need a tangent; `wanted`: forward nodes read by the backward, or by one of it; `useful`: their ancestors."""

    joint: Joint
    late: set[Node]
    wanted: set[Node]
    useful: list[Node]
    regions: dict[Node, int] = field(factory=dict)
    lifted: set[Node] = field(factory=set)
    #: Of the lifted ones, those that the options allow whatever the budget.
    allowed: set[Node] = field(factory=set)


def min_cut(joint: Joint, config: Config) -> set[Node]:
    """The nodes to save under the configuration's recomputation rules and memory budget."""
    problem = _problem(joint)
    problem.lifted = problem.allowed = _allowed(problem, config)
    saved = solve(problem, config)
    if config.activation_memory_budget >= 1.0:
        return saved
    return _within_budget(problem, config, saved)


def _allowed(problem: Problem, config: Config) -> set[Node]:
    """Expensive nodes that the options allow to be computed again."""
    whatever = config.aggressive_recomputation
    others = whatever or not config.ban_recompute_not_in_allowlist
    reductions = whatever or not config.ban_recompute_reductions
    if not (others or reductions):
        return set()
    return {node for node in _expensive(problem) if (reductions if is_reduction(node) else others)}


def _expensive(problem: Problem) -> list[Node]:
    return [n for n in problem.useful if n.op == "call_function" and not is_pinned(n) and not is_fusible(n)]


def _problem(joint: Joint) -> Problem:
    late = dependents(joint)
    wanted = {g for g in joint.grads if isinstance(g, Node) and g not in late}
    needed: set[Node] = {g for g in joint.grads if isinstance(g, Node)} | set(filter(is_late, joint.graph.nodes))
    for node in reversed(joint.graph.nodes):
        if node in needed and node in late:
            needed.update(node.all_input_nodes)
            wanted.update(a for a in node.all_input_nodes if a not in late)
    wanted |= joint.told - late
    useful_set = set(wanted)
    for node in reversed(joint.graph.nodes):
        if node in useful_set:
            useful_set.update(node.all_input_nodes)
    useful = [n for n in joint.graph.nodes if n in useful_set]
    regions = {n: n.meta["checkpoint"] for n in useful if n.meta.get("checkpoint") is not None}
    policies = joint.policies
    regions = {n: r for n, r in regions.items() if r not in policies or not may_be_saved(n, policies[r])}
    return Problem(joint, late, wanted, useful, regions)


def solve(problem: Problem, config: Config) -> set[Node]:
    """One minimum cut."""
    places = {node: i for i, node in enumerate(problem.useful)}
    count = 2 * len(places) + 2
    source, sink = count - 2, count - 1
    tails: list[int] = []
    heads: list[int] = []
    rooms: list[int] = []
    banned = _banned(problem, config)
    apart = exposed(problem.joint)
    kept_alive = {r for r in problem.joint.results if isinstance(r, Node)} | {t.node for t in problem.joint.inputs}

    def arc(tail: int, head: int, room: int) -> None:
        tails.append(tail)
        heads.append(head)
        rooms.append(room)

    for node, i in places.items():
        weight = _weight(problem, node)
        if weight < _INFINITE and node in kept_alive and alias_root(node) not in apart:
            # The caller holds these anyway, at least for a while.
            weight = max(weight // 4, 1)
        if weight < _INFINITE and node.meta.get("follows"):
            weight += -(-weight // _WRITTEN)
        arc(2 * i, 2 * i + 1, weight)
        if node in banned:
            arc(source, 2 * i, _INFINITE)
        if node in problem.wanted:
            arc(2 * i + 1, sink, _INFINITE)
        for user in node.users:
            j = places.get(user)
            if j is not None:
                arc(2 * i + 1, 2 * j, _INFINITE)
    side = min_cut_side(count, tails, heads, rooms, source, sink, native=config.native)
    return {n for n, i in places.items() if side[2 * i] and not side[2 * i + 1] and n.op != "get_attr"}


def _banned(problem: Problem, config: Config) -> set[Node]:
    """Nodes that the backward must not compute again."""
    ends = config.ban_recompute_long_fusible_chains and not config.aggressive_recomputation
    banned: set[Node] = set()
    depth: dict[Node, int] = {}
    for node in problem.useful:
        if node.op == "placeholder":
            banned.add(node)
            continue
        if node.op == "get_attr" or node in problem.lifted or is_free(node):
            depth[node] = max((depth.get(a, 0) for a in node.all_input_nodes), default=0)
            if not _is_list_of_banned(node):
                continue
            if not runs_once(node) and (node in problem.lifted or node in problem.regions):
                continue
            banned.add(node)
            continue
        if node in problem.regions and not runs_once(node):
            continue
        level = 1 + max((depth.get(a, 0) for a in node.all_input_nodes), default=0)
        if not is_fusible(node) or not config.recompute_fusible or (ends and level > config.max_recompute_chain):
            banned.add(node)
            level = 0
        depth[node] = level
    return banned


def _is_list_of_banned(node: Node) -> bool:
    """True for ops with several results that are not fusible: their items are saved instead."""
    return not is_tensor(node) and node.target is not getitem and not is_fusible(node)


def _weight(problem: Problem, node: Node) -> int:
    """What saving the node costs; infinite where it makes no sense or the user's region forbids it."""
    if node.op == "get_attr" or isinstance(node.meta.get("val"), (list, tuple)):
        return _INFINITE
    region = problem.regions.get(node)
    if region is not None and not runs_once(node):
        if not any(problem.regions.get(u) != region and not u.meta.get("backward") for u in node.users):
            return _INFINITE
    if is_tensor(node) and is_free(node) and node.target is not getitem:
        if alias_root(node).op != "get_attr":
            return _INFINITE
    return saved_bytes(node)


def _within_budget(problem: Problem, config: Config, saved: set[Node]) -> set[Node]:
    """Allow recomputing ever more of the expensive nodes until the saved bytes fit the budget."""
    inputs = {t.node for t in problem.joint.inputs}

    def total(nodes: set[Node]) -> int:
        return sum(saved_bytes(n) for n in nodes if n not in inputs)

    goal = config.activation_memory_budget * total(saved)
    candidates = sorted(_expensive(problem), key=saved_bytes, reverse=True)
    problem.lifted = set(candidates)
    best = solve(problem, config)
    if total(best) > goal:
        return best
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        problem.lifted = problem.allowed | set(candidates[:middle])
        attempt = solve(problem, config)
        if total(attempt) <= goal:
            best, high = attempt, middle
        else:
            low = middle + 1
    return best
