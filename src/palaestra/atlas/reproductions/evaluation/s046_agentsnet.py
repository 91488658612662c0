"""[46] AgentsNet (arXiv 2507.08616): agents who can only talk to their neighbours learn to agree.

Four agents on a ring, one bit to both neighbours twice, then an answer: tabular REINFORCE with a shared reward, with
a table per agent and with one table for all. Beside it, random answers and a scripted protocol on the five problems
and three graph families. Left out: language models; the published transcripts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import reinforce
from palaestra.envs.worlds.exact.networks import PROBLEMS, network, random_score, score, solve, valid_answers

AGENTS, EPISODES, ITERATIONS, RATE, GRAPHS = 4, 64, 320, 4.0, 40
OFFSETS = (0, 1, 9)
"""First state of each turn: nothing heard; three bits (own, left, right); six."""


def episodes(policy: np.ndarray, streams: Sequence[np.random.Generator]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Play of `policy` float64[runs, tables, 73, 2]: states and actions int64[runs, episodes, 3, agents], who agreed.

    A ring looks the same from everywhere: with one table, agents differ by luck alone.
    """
    luck = uniform(streams, EPISODES, 3, AGENTS)
    runs, table = np.arange(len(policy))[:, None, None], np.arange(AGENTS) % policy.shape[1]
    states, actions = np.zeros((2, *luck.shape), int)
    heard = np.zeros(luck[:, :, 0].shape, int)
    for turn, offset in enumerate(OFFSETS):
        states[:, :, turn] = offset + heard
        actions[:, :, turn] = said = sample(policy[runs, table, states[:, :, turn]], luck[:, :, turn])
        heard = 8 * heard + 4 * said + 2 * np.roll(said, 1, -1) + np.roll(said, -1, -1)
    return states, actions, (said == said[..., :1]).all(axis=-1)


def learn(tables: int, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Share of episodes that agree, float64[runs], in the first and in the last ten iterations."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta, agreed = np.zeros((len(seeds), tables, 73, 2)), []
    run, episode, turn, agent = (axis.ravel() for axis in np.indices((len(seeds), EPISODES, 3, AGENTS)))
    keys = {"run": run.astype(str), "group": run * 0, "episode": episode, "turn": turn, "agent": agent.astype(str)}
    turns, credit, last = Turns(keys), reinforce(), (turn == 2).reshape(len(seeds), EPISODES, 3, AGENTS)
    for _ in range(ITERATIONS):
        policy = softmax(theta)
        states, actions, solved = episodes(policy, streams)
        agreed.append(solved.mean(axis=1))
        reward = (last * solved[:, :, None, None]).ravel().astype(float)
        advantage = np.asarray(credit.evaluate(turns.with_column(reward=reward)))
        flat = policy.reshape(-1, 73, 2)
        where = run * tables + agent % tables, states.ravel(), actions.ravel()
        theta += RATE * policy_gradient(flat, *where, advantage).reshape(theta.shape) / EPISODES
    return np.mean(agreed[:10], axis=0), np.mean(agreed[-10:], axis=0)


def answers(n: int, seed: int) -> dict[str, float]:
    """Soft score and solved share of random answers and of a common solution, over graphs of the three families."""
    rng = np.random.default_rng(seed)
    found: dict[str, float] = {}
    for problem in PROBLEMS:
        graphs = [
            network(family, n, k) for family in ("small_world", "preferential", "delaunay") for k in range(GRAPHS)
        ]
        offers = [[valid_answers(problem, graph, agent) for agent in range(n)] for graph in graphs]
        drawn = [score(problem, g, [rng.choice(a) for a in offer]) for g, offer in zip(graphs, offers, strict=True)]
        right = [score(problem, g, solve(problem, g)) for g in graphs]
        found |= {
            f"{problem}_random": float(np.mean(drawn)),
            f"{problem}_random_solved": float(np.mean(np.equal(drawn, 1))),
        }
        found[f"{problem}_solution"] = float(np.min(right))
    return found


@reproduction(
    46,
    claim="Agents who hear only their neighbours learn to agree from a shared reward alone; a soft score hides that "
    "random answers solve nothing.",
    baseline="random answers; the same agents before learning",
    criterion="solutions score 1 on all problems and graphs; random colours of 16 agents score > 0.8 and solve < 5 %; "
    "agreement on a ring of 4 rises above 0.95 in every seed, with a table per agent and with one for all",
    seeds=(0, 1, 2, 3, 4),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Random and right answers, then learning with separate tables and with a shared one."""
    found = answers(16, seeds[0])
    measured = {name: value for name, value in found.items() if not name.endswith("solution")}
    holds = min(value for name, value in found.items() if name.endswith("solution")) == 1
    holds &= found["colouring_random"] > 0.8 and found["colouring_random_solved"] < 0.05
    for name, tables in (("separate", AGENTS), ("shared", 1)):
        before, after = learn(tables, seeds)
        measured |= {f"agreement_{name}_first": before.mean(), f"agreement_{name}_last": after.mean()}
        holds &= bool(after.min() > 0.95)
    measured["agreement_chance"] = random_score("consensus", AGENTS)
    return Outcome(measured, bool(holds))
