"""[56] ReAd (arXiv 2405.14314): proposals that are scored by a learned advantage need fewer steps than feasible ones.

Three agents clear six sites; those that go to the same site in one turn block each other. A scripted planner proposes
sites at random. Physical checking asks again if another agent already goes there. The library's prefix critic, fitted
to random episodes, scores a proposal by what it adds: a state is the number of cleared sites, an action whether it went
to a new site, the return minus the number of turns that were still needed. As a stage the critic trains a team: the
recipe `sites`, three tables of logits that act at once. Left out: language models, kitchens, robots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import PrefixCritic, refine, sequential_advantage
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

AGENTS, SITES, LOGGED, RUNS, QUERIES, LONGEST = 3, 6, 3000, 60, 10, 60
Q = np.array([[8.0, 2.0], [4.0, 6.0]])
ARMS = {
    "sequential": {"stages": ["prefix_critic()"], "credit": "sequential_advantage()"},
    "own": {"stages": [], "credit": "reinforce(over='agent')"},
    "team": {"stages": [], "credit": "grpo()"},
}


def worked_error() -> float:
    """Two agents, two actions each: the advantages of both, that they add up to Q - V, and the same as credit."""
    critic = PrefixCritic().fit([0] * 4, [(i, j) for i in (0, 1) for j in (0, 1)], Q.ravel().tolist())
    first = np.array([critic.advantage(0, (i,)) for i in (0, 1)])
    second = np.array([[critic.advantage(0, (i, j)) for j in (0, 1)] for i in (0, 1)])
    gaps = [*first, *(second - [[3, -3], [-1, 1]]).ravel(), *(first[:, None] + second - (Q - 5)).ravel()]
    critic = PrefixCritic().fit([0] * 4, [(i, j) for i in (0, 1) for j in (0, 1)], [8.0, 4.0, 2.0, 2.0])
    prefix = [critic.value(0, (i, j)[:size]) for i in (0, 1) for j in (0, 1) for size in (1, 2)]
    keys = {"episode": np.repeat(range(4), 2), "turn": [0] * 8, "agent": ["x", "y"] * 4}
    credit = np.asarray(sequential_advantage().evaluate(Turns(keys | {"prefix_value": prefix, "value": [4.0] * 8})))
    gaps += [*(credit - [2, 2, 2, -2, -2, 0, -2, 0])]
    return float(np.abs(gaps).max())


def useful(cleared: frozenset[int], chosen: Sequence[int]) -> tuple[bool, ...]:
    """Whether each choice is a site that is not cleared and that nobody before it in the turn has chosen."""
    return tuple(site not in cleared and site not in chosen[:place] for place, site in enumerate(chosen))


def after(cleared: frozenset[int], chosen: Sequence[int]) -> frozenset[int]:
    """What is cleared then: sites to which exactly one agent went."""
    return cleared | {site for site in chosen if chosen.count(site) == 1}


def logged(rng: np.random.Generator) -> PrefixCritic:
    """A critic of random play."""
    critic = PrefixCritic()
    for _ in range(LOGGED):
        cleared: frozenset[int] = frozenset()
        states, actions = [], []
        while len(cleared) < SITES:
            chosen = rng.integers(SITES, size=AGENTS).tolist()
            states.append(len(cleared))
            actions.append(useful(cleared, chosen))
            cleared = after(cleared, chosen)
        critic.fit(states, actions, [-float(left) for left in range(len(states), 0, -1)])
    return critic


def episode(kind: str, critic: PrefixCritic, rng: np.random.Generator) -> tuple[int, int]:
    """Turns until all sites are cleared, and queries to the planner."""
    cleared: frozenset[int] = frozenset()
    turns = queries = 0

    def propose(decided: list[int], feedback: str | None) -> int:
        return int(rng.integers(SITES))

    def advantage(decided: list[int], site: int) -> float:
        if kind == "raw":
            return 0.0
        if kind == "checked":
            return -1.0 if site in decided else 0.0
        return critic.advantage(len(cleared), useful(cleared, [*decided, site]))

    while len(cleared) < SITES and turns < LONGEST:
        chosen, asked = refine(propose, advantage, agents=AGENTS, max_queries=QUERIES)
        cleared, turns, queries = after(cleared, chosen), turns + 1, queries + asked
    return turns, queries


@reproduction(
    56,
    claim="A planner whose proposals are scored by a sequential advantage finishes in fewer steps for as many "
    "queries. Training a team by it gains nothing over each agent's own return here.",
    baseline="physical checking, which asks again until the plan works; the planner unchecked, and training by each "
    "agent's own return or by GRPO, are reported",
    criterion="worked advantages to 1e-9; turns at most 0.6 of checking's, queries at most 1.2 of them",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Fit the critic, then 60 episodes of each kind per seed; then the arms."""
    measured = {"worked_error": worked_error()}
    results: dict[str, list[tuple[int, int]]] = {"raw": [], "checked": [], "read": []}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        critic = logged(rng)
        for kind, found in results.items():
            found += [episode(kind, critic, rng) for _ in range(RUNS)]
    for kind, found in results.items():
        turns, queries = np.mean(found, axis=0)
        measured |= {f"turns_{kind}": float(turns), f"queries_{kind}": float(queries)}
    fewer = measured["turns_read"] <= 0.6 * measured["turns_checked"]
    cheap = measured["queries_read"] <= 1.2 * measured["queries_checked"]
    arms = train_arms(
        "sites", {name: {"train": {"iterations": 40}} | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"reward": float(np.mean(learned.curve("reward")))},
    )  # fmt: skip
    gain, error = arms.gain("sequential", "own", "reward")
    measured |= arms.measured() | {"gain": gain, "standard_error": error}
    return Outcome(measured, fewer and cheap and measured["worked_error"] <= 1e-9)
