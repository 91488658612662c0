"""[103] MasHost (arXiv 2506.08507): a team is built by decisions; both the team and each decision are judged.

Four kinds of query, five roles; a query is solved by a team that has its two roles with an edge between them. A
decision is a role together with its edge (to a member, or to none), or to stop. The team earns 1 if it solves the
query, less 0.05 per member. A judge of decisions gives 0.2 for a new member with a role that the query needs and an
edge to the team, and takes 0.2 for any other member. A rule that only knows duplicates and missing edges was tried too
and gained nothing. The method's formulas are a reconstruction. Left out: what members say; they are scripted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from palaestra.algebra.signals import Signal
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import compare, policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo, mas_host

NEEDED = np.array([[0, 1], [1, 2], [3, 4], [0, 4]])
"""The two roles of each query."""
ROLES, HORIZON, COST, RATIONAL = 5, 6, 0.05, 0.2
STOP = ROLES * (ROLES + 1)
GROUP, ITERATIONS, RATE = 8, 400, 0.5
RELUCTANCE = -1.0
"""Initial logit of stopping: who stops at once earns more than a team that fails, which is a trap."""

_TEAM = np.arange(2**ROLES)
_MEMBER = (_TEAM[:, None] >> np.arange(ROLES) & 1).astype(bool)
LEGAL = np.ones((2**ROLES, STOP + 1), bool)
"""bool[teams, actions]: edges lead to members, or to nobody."""
LEGAL[:, :STOP] = np.tile(np.hstack([_MEMBER, np.ones((2**ROLES, 1), bool)]), ROLES)


class Play(NamedTuple):
    """One entry per decision; state is (query, set of roles). Then one per run: share solved, mean members."""

    run: np.ndarray
    query: np.ndarray
    episode: np.ndarray
    turn: np.ndarray
    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    action_reward: np.ndarray
    solved: np.ndarray
    members: np.ndarray

    def turns(self) -> Turns:
        """The same as a table, a group per query."""
        keys = {"run": self.run.astype(str), "group": self.query, "episode": self.episode, "turn": self.turn}
        rewards = {"reward": self.reward, "action_reward": self.action_reward}
        return Turns(keys | {"agent": np.full(len(self.run), "builder")} | rewards)


def play(policy: np.ndarray, streams: Sequence[np.random.Generator]) -> Play:
    """A group of teams per query and run with `policy` float64[runs, states, actions]; action = 6 · role + target.

    Target 5 is nobody.
    """
    runs = np.arange(len(policy))[:, None, None]
    luck = uniform(streams, len(NEEDED), GROUP, HORIZON)
    query = np.broadcast_to(np.arange(len(NEEDED))[:, None], luck.shape[:3])
    team, members, solved = np.zeros_like(query), np.zeros_like(query), np.zeros(query.shape, bool)
    running = np.ones(query.shape, bool)
    parts = []
    for turn in range(HORIZON):
        state = query * 2**ROLES + team
        action = sample(policy[runs, state], luck[..., turn])
        role, target = np.minimum(action // (ROLES + 1), ROLES - 1), action % (ROLES + 1)
        adds = running & (action != STOP)
        linked = adds & (target < ROLES)
        needed = (NEEDED[query] == role[..., None]).any(axis=-1)
        rational = needed & (team >> role & 1 == 0) & (linked | (team == 0))
        judged = np.where(adds, np.where(rational, RATIONAL, -RATIONAL), 0.0)
        pair = np.sort(np.stack([role, target], axis=-1), axis=-1)
        solved |= linked & (pair == NEEDED[query]).all(axis=-1)
        members += adds
        team = np.where(adds, team | 1 << role, team)
        last = running & ((action == STOP) | (turn == HORIZON - 1))
        reward = np.where(last, solved - COST * members, 0.0)
        run, group, episode = np.nonzero(running)
        now = [column[running] for column in (state, action, reward, judged)]
        parts.append((run, group, episode, np.full(len(run), turn), *now))
        running &= ~last
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Play(*columns, *(facts.mean(axis=(1, 2)) for facts in (solved, members)))


def worked_error() -> float:
    """Four teams, the third with a duplicate role, worked out by hand."""
    table = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["builder"] * 4, "reward": [1, 0, 1, 1]}
    credit = mas_host().evaluate(Turns(table | {"action_reward": [0.0, 0.0, -RATIONAL, 0.0]}))
    return float(np.abs(np.asarray(credit) - [0.5, -1.5, 0.3, 0.5]).max())


def train(credit: Signal, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """float64[iterations, runs]: share of queries solved, mean number of members."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), len(NEEDED) * 2**ROLES, STOP + 1))
    theta[..., STOP] = RELUCTANCE
    solved, members = [], []
    for _ in range(ITERATIONS):
        policy = softmax(np.where(np.tile(LEGAL, (len(NEEDED), 1)), theta, -np.inf))
        batch = play(policy, streams)
        advantage = np.asarray(credit.evaluate(batch.turns()))
        theta += RATE * policy_gradient(policy, batch.run, batch.state, batch.action, advantage) / GROUP
        solved.append(batch.solved)
        members.append(batch.members)
    return np.array(solved), np.array(members)


@reproduction(
    103,
    claim="Group credit for the finished team plus an absolute reward for each decision builds teams that are as "
    "small as they can be, and faster than group credit alone.",
    baseline="the same without the reward for decisions (GRPO)",
    criterion="worked numbers to 4 decimals; at the end >= 0.95 solved with at most 2.5 members (2 are needed); "
    "learning curve higher by > 2 standard errors",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both arms."""
    measured, curves = {"worked_error": worked_error()}, []
    for name, credit in (("mas_host", mas_host()), ("grpo", grpo())):
        solved, members = train(credit, seeds)
        curves.append(solved.mean(axis=0))
        measured[f"curve_mean_{name}"] = float(solved.mean())
        measured |= {f"solved_{name}": float(solved[-20:].mean()), f"members_{name}": float(members[-20:].mean())}
    good = measured["solved_mas_host"] >= 0.95 and measured["members_mas_host"] <= 2.5
    gain, error = compare(*curves)
    measured |= {"gain": gain, "standard_error": error}
    return Outcome(measured, measured["worked_error"] <= 1e-4 and good and gain > 2 * error)
