"""[187] ExCyTIn-Bench (arXiv 2507.14201): credit for the way to an answer pays where the answer is far.

An evidence tree: at each level one of four leads is right, a wrong one ends the episode. Tabular REINFORCE with groups
of 16, paid for the answer alone or with path credit; how many episodes until four of five succeed. On a small connected
graph, where a random walk already finds the answer, path credit gains nothing (the card's run); that is left out here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo
from palaestra.evaluation.rubric import path_credit

BRANCHES, GROUP, LIMIT, RATE, GOAL = 4, 16, 6000, 0.5, 0.8
DEPTHS = (3, 4, 5)
WORKED = {(1, 1, 1, 0): 0.624, (0, 0, 1, 0): 0.4, (1, 1, 0, 0): 0.224, (1, 0, 1, 0): 0.464, (0, 0, 0, 1): 1.0}


def episodes_needed(depth: int, gamma: float, seeds: Sequence[int]) -> np.ndarray:
    """Episodes until the chance of success is GOAL, per seed; LIMIT if it never is."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), depth, BRANCHES))
    needed, credit = np.full(len(seeds), LIMIT), grpo()
    run, episode, level = np.indices((len(seeds), GROUP, depth))
    for step in range(LIMIT // GROUP):
        policy = softmax(theta)
        solved = policy[..., 0].prod(axis=1) >= GOAL
        needed = np.where(solved & (needed == LIMIT), step * GROUP, needed)
        if (needed < LIMIT).all():
            break
        action = sample(policy[:, None], uniform(streams, GROUP, depth))
        right = np.logical_and.accumulate(action == 0, axis=-1)
        played = np.concatenate([np.ones_like(right[..., :1]), right[..., :-1]], axis=-1)
        reward = path_credit(right, gamma) if gamma else right[..., -1].astype(float)
        last = played & ~np.concatenate([played[..., 1:], np.zeros_like(right[..., :1])], axis=-1)
        columns = {
            "group": 0 * run,
            "episode": episode,
            "turn": level,
            "reward": np.where(last, reward[..., None], 0.0),
        }
        table = {name: value[played] for name, value in columns.items()}
        turns = Turns(table | {"run": run[played].astype(str), "agent": np.full(played.sum(), "analyst")})
        advantage = np.asarray(credit.evaluate(turns))
        theta += RATE * policy_gradient(policy, run[played], level[played], action[played], advantage) / GROUP
    return needed


@reproduction(
    187,
    claim="Credit for the way to the answer shortens learning, the more so the longer the way.",
    baseline="the answer alone, right or wrong",
    criterion="worked credits; path credit needs fewer episodes to 80 % success in the mean at depths 3, 4 and 5, and "
    "the ratio grows with depth",
    seeds=tuple(range(6)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked credits, then both rewards at three depths."""
    error = max(abs(float(path_credit(list(steps))) - credit) for steps, credit in WORKED.items())
    measured, ratios = {"worked_error": error}, []
    for depth in DEPTHS:
        path, answer = (float(episodes_needed(depth, gamma, seeds).mean()) for gamma in (0.4, 0.0))
        measured |= {f"episodes_path_{depth}": path, f"episodes_answer_{depth}": answer}
        ratios.append(answer / path)
    return Outcome(measured, bool(error < 1e-9 and ratios[0] > 1 and (np.diff(ratios) > 0).all()))
