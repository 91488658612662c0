"""The usual teams, each a few lines in the language of graphs: `env.workflow: debate(3, rounds=2)`.

Every function takes the factory of a task with one answer (`TaskEnv`) and gives that of the game between the roles;
`options` are those of `palaestra.teams.deliberation.Deliberation` (price, accept, separator, longest, instructions).
Which paper is which composition stands in docs/teams.md. Left out: shapes that are chosen while one plays
(`orchestrator`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, nearest
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Edges, Graph, Memory
from palaestra.teams.refinement import Refinement


def deliberation(tasks: EnvFactory, graph: Graph, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: a `Deliberation` team with this `Graph`; checked at once."""
    factory = functools.partial(Deliberation, tasks, graph, **options)
    factory()
    return factory


def graph(
    tasks: EnvFactory,
    roles: Sequence[str] | Mapping[str, str],
    *,
    edges: Edges = "none",
    steps: Sequence[Sequence[str] | str] | None = None,
    rounds: int = 1,
    gate: str = "all()",
    route: str = "everyone()",
    aggregate: str = "vote()",
    stop: str = "never()",
    memory: Memory = "latest",
    own: bool = True,
    asks: Mapping[str, str | Sequence[str]] | None = None,
    **options: Any,
) -> EnvFactory:
    """Env factory from another, `tasks`: a team of `roles` with any communication graph; see `teams.graph.Graph.of`."""
    made = Graph.of(
        roles, edges=edges, steps=steps, rounds=rounds, gate=gate, route=route, aggregate=aggregate, stop=stop,
        memory=memory, own=own, asks=asks,
    )  # fmt: skip
    return deliberation(tasks, made, **options)


def single(tasks: EnvFactory, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: a team of one role that gives one answer, the baseline of every team."""
    return deliberation(tasks, Graph.of(["solver"], aggregate="last()", workflow="single"), **options)


def self_consistency(tasks: EnvFactory, samples: int = 5, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: `samples` independent answers, then a majority vote (arXiv 2203.11171)."""
    made = Graph.of(_names("solver", samples), aggregate="vote()", workflow="self_consistency")
    return deliberation(tasks, made, **options)


def debate(
    tasks: EnvFactory, debaters: int = 3, rounds: int = 2, gate: str = "all()", stop: str = "never()", **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: debaters answer, in later `rounds` again having read the others, and vote.

    [118], arXiv 2305.14325, 2505.22960.
    """
    names = _names("debater", debaters)
    made = Graph.of(names, edges="all", rounds=rounds, gate=gate, stop=stop, workflow="debate")
    return deliberation(tasks, made, **options)


def star(tasks: EnvFactory, workers: int = 3, rounds: int = 1, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: workers answer to a hub that decides; in later rounds they read the hub."""
    names = _names("worker", workers)
    edges = {"hub": names, **({name: ["hub"] for name in names} if rounds > 1 else {})}
    made = Graph.of(
        [*names, "hub"], edges=edges, steps=[names, ["hub"]], rounds=rounds, aggregate="of('hub')", workflow="star"
    )
    return deliberation(tasks, made, **options)


def chain(tasks: EnvFactory, roles: int | Sequence[str] | Mapping[str, str] = 3, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: each role reads the answer of the one before it; the last answer counts."""
    names = _names("link", roles) if isinstance(roles, int) else roles
    made = Graph.of(names, edges="chain", aggregate="last()", own=False, workflow="chain")
    return deliberation(tasks, made, **options)


def tree(tasks: EnvFactory, branch: int = 2, depth: int = 2, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: leaves answer, each parent reads its children, the root decides ([121]).

    arXiv 2601.17311.
    """
    if branch < 2 or depth < 1:
        raise InputError(f"tree: branch={branch} must be at least 2 and depth={depth} at least 1")
    levels = [[f"node-{level}-{at}" for at in range(1, branch**level + 1)] for level in range(depth + 1)]
    edges = {
        parent: levels[level + 1][at * branch : (at + 1) * branch]
        for level in range(depth)
        for at, parent in enumerate(levels[level])
    }
    names = [name for level in reversed(levels) for name in level]
    made = Graph.of(names, edges=edges, aggregate=f"of({levels[0][0]!r})", workflow="tree")
    return deliberation(tasks, made, **options)


def layered(
    tasks: EnvFactory, agents: int = 4, rounds: int = 3, keep: int = 2, quorum: float = 2 / 3, **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: DyLAN [135], rounds of debate, pruning by agreement, a quorum.

    arXiv 2310.02170.

    keep: how many, from the third round on, if there are more than three. Messages weigh as much as others agree with
    them, in place of a model's ratings; what weighs them in `importance_flow` is that.
    """
    made = Graph.of(
        _names("agent", agents), edges="all", rounds=rounds, gate=f"top({max(agents, 1)})",
        route=f"agreeing({keep}, start=3, above=3)", stop=f"agree({quorum!r})", workflow="layered",
    )  # fmt: skip
    return deliberation(tasks, made, **options)


def relay(tasks: EnvFactory, legs: Sequence[str] = ("strong", "weak"), **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: each role continues the partial answer before it; the last counts ([60]).

    Source: arXiv 2511.02687.
    """
    made = Graph.of(legs, edges="chain", aggregate="last()", own=False, workflow="relay")
    return deliberation(tasks, made, **options)


def blackboard(tasks: EnvFactory, agents: int = 3, rounds: int = 2, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: roles speak one after the other, each reads all that was ever written."""
    names = _names("agent", agents)
    made = Graph.of(
        names, edges="all", steps=names, rounds=rounds, memory="all", own=False, aggregate="last()", stop="agree()",
        workflow="blackboard",
    )  # fmt: skip
    return deliberation(tasks, made, **options)


def contest(tasks: EnvFactory, contestants: int = 3, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: independent answers; a judge role reads all of them and decides."""
    names = _names("contestant", contestants)
    made = Graph.of([*names, "judge"], edges={"judge": names}, aggregate="of('judge')", workflow="contest")
    return deliberation(tasks, made, **options)


def auction(tasks: EnvFactory, bidders: int = 3, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: all roles bid a number, then the highest bidder answers."""
    names = _names("bidder", bidders)
    made = Graph.of(
        names, rounds=2, own=False, steps=[names], route="winner()", aggregate="last()", workflow="auction",
        asks=dict.fromkeys(names, ("bid", "answer")),
    )  # fmt: skip
    return deliberation(tasks, made, **options)


def strategy_auction(
    tasks: EnvFactory, prices: Sequence[float] = (1.0, 4.0), weight: float = 0.01, **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: SALE [85], all write and mark plans; the best for its price is done."""
    bidders, jurors = _names("bidder", len(prices)), _names("juror", len(prices))
    made = Graph.of(
        [*bidders, *jurors],
        edges=dict.fromkeys(jurors, bidders),
        steps=[bidders, jurors, bidders],
        route=f"awarded({[float(each) for each in prices]}, {weight!r})",
        aggregate="last()",
        workflow="strategy_auction",
        asks=dict.fromkeys(bidders, ("plan", "answer")) | dict.fromkeys(jurors, ("marks",)),
    )
    values = {"prices": dict(zip(bidders, map(float, prices), strict=True))}
    return deliberation(tasks, made, values=values, **options)


def refine(
    tasks: EnvFactory, attempts: int = 3, *, condition: str = "last", stop: str = "verified()", **options: Any
) -> EnvFactory:
    """Env factory from another, `tasks`: one role answers again until a verifier is satisfied or `attempts` are used.

    [116], arXiv 2504.01931.

    condition: what it knows: its last answer, whatever came of it ("last", self-refinement); the best one, which the
    next replaces only if it scores higher ("best", iterative decoding); or nothing, and the best counts ("none",
    best-of-n). The verifier is the task's own score, or an option: verifier="noisy(.1)". Others: of `Refinement`
    (feedback, worst), and of every team.
    """
    if condition not in (known := ("last", "best", "none")):
        raise InputError(f"refine: condition={condition!r}{nearest(str(condition), known)}")
    made = Graph.of(
        ["solver"],
        rounds=attempts,
        stop=stop,
        aggregate="last()",
        own=condition != "none",
        workflow="refine",
    )
    factory = functools.partial(Refinement, tasks, made, improve=condition != "last", **options)
    factory()
    return factory


def plan_act_check(tasks: EnvFactory, rounds: int = 2, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: planner, actor that reads it, checker that may start another round."""
    roles = ["planner", "actor", "checker"]
    edges = {"actor": ["planner"], "checker": ["actor"], "planner": ["checker"]}
    made = Graph.of(
        roles, edges=edges, steps=roles, rounds=rounds, aggregate="of('checker')", stop="accepted('checker')",
        workflow="plan_act_check", asks={"planner": "plan", "checker": "check"},
    )  # fmt: skip
    return deliberation(tasks, made, **options)


def checked_chain(
    tasks: EnvFactory,
    stages: Sequence[str] | Mapping[str, str] = ("intent", "discovery", "analysis", "report"),
    retries: int = 1,
    **options: Any,
) -> EnvFactory:
    """Env factory from another, `tasks`: each stage reads the one before; its checker accepts, or it tries again.

    [58], arXiv 2511.03023.

    stages: names, or name -> instruction for chat models.
    """
    if retries < 0:
        raise InputError(f"checked_chain: retries={retries}, expected at least 0")
    personas = dict(stages) if isinstance(stages, Mapping) else dict.fromkeys(stages, "")
    stages = list(personas)
    checks = [f"check-{stage}" for stage in stages]
    edges = {check: [stage] for check, stage in zip(checks, stages, strict=True)}
    edges |= {stage: [*stages[at - 1 : at], checks[at]] for at, stage in enumerate(stages)}
    steps = [name for stage, check in zip(stages, checks, strict=True) for name in (stage, *[check, stage] * retries)]
    roles = personas | (dict.fromkeys(checks, "") if retries else {})
    if not retries:
        edges = {stage: [*stages[at - 1 : at]] for at, stage in enumerate(stages)}
    made = Graph.of(
        roles, edges=edges, steps=steps, route="refused()", aggregate="last()", workflow="checked_chain",
        asks=dict.fromkeys(checks if retries else (), ("check",)),
    )  # fmt: skip
    return deliberation(tasks, made, **options)


def search(tasks: EnvFactory, width: int = 3, depth: int = 3, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: proposals at each depth, each from the best so far by task score."""
    names = _names("proposer", width)
    made = Graph.of(
        names, edges="all", rounds=depth, gate="best()", memory="all", own=False, stop="verified()",
        aggregate="best_scored()", workflow="search",
    )  # fmt: skip
    return deliberation(tasks, made, **{"improve": True, **options})


def _names(role: str, count: int) -> list[str]:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"workflow: {count!r} of {role!r}, expected a whole number of at least 1")
    return [f"{role}-{number}" for number in range(1, count + 1)]
