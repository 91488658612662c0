"""[78] SALT (arXiv 2510.20022): steps that the episodes of a group share become neutral.

A negative result with a reason. For a policy that sees only the state, averaging credit over equal steps (state,
action, next state) does not change the policy gradient at all, because a sum of means is the sum of values; so on the
key-door corridor of [62] nothing can be gained, and nothing is. Left out: policies that see a history, and losses that
divide by each episode's length, where the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.credit.s062_gigpo import Play, play, train
from palaestra.atlas.reproductions.tabular import compare, policy_gradient, softmax
from palaestra.credit import grpo, salt


def worked() -> tuple[Turns, np.ndarray]:
    """Four episodes through a graph, worked out by hand: the table and its credit. Only the first succeeds."""
    paths = ["0a 1b 2c", "0a 1d 3e", "0a 1b 2f", "0g 4h"]
    steps = [(episode, turn, *step) for episode, path in enumerate(paths) for turn, step in enumerate(path.split())]
    episode, turn, state, action = (np.array(column) for column in zip(*steps, strict=True))
    reward = (episode == 0) & (turn == 2)
    table = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["walker"] * len(steps), "reward": reward}
    credit = np.array([1 / 6, 0.5, 1.5, 1 / 6, -0.5, -0.5, 1 / 6, 0.5, -0.5, -0.5, -0.5])
    return Turns(table | {"state": state.astype(np.uint64), "action": action}), credit


def with_action(batch: Play, policy: np.ndarray) -> dict[str, np.ndarray]:
    """The column that `salt` needs besides those of the corridor."""
    return {"action": np.array(["left", "right", "wait"])[batch.action]}


def gradient_difference(seed: int) -> float:
    """Largest difference of any entry of the policy gradient with and without, for a random policy on the corridor.

    Every visit counts (`unit="row"`): an episode that repeats a step would else be weighed less there.
    """
    rng = np.random.default_rng(seed)
    policy = softmax(rng.normal(size=(1, 14, 3)))
    batch = play(policy, [rng])
    turns = batch.turns().with_column(**with_action(batch, policy))
    credits = (np.asarray(signal.evaluate(turns)) for signal in (grpo(), salt(unit="row")))
    plain, shared = (policy_gradient(policy, batch.run, batch.state, batch.action, credit) for credit in credits)
    return float(np.abs(plain - shared).max())


@reproduction(
    78,
    claim="Averaging credit over equal steps makes what episodes share neutral; for a policy of the state alone it "
    "leaves the policy gradient unchanged, so it gains nothing there.",
    baseline="GRPO, same episodes and learning rate",
    criterion="worked advantages equal to 4 decimals; gradients on the corridor equal to 1e-12; learning curves within "
    "3 standard errors of each other (no gain, as the identity says)",
    seeds=tuple(range(10)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, the identity on random policies, then both arms on the corridor."""
    turns, expected = worked()
    error = float(np.abs(np.asarray(salt().evaluate(turns)) - expected).max())
    gradient = max(gradient_difference(seed) for seed in seeds)
    ours = train(salt(), seeds, columns=with_action).success.mean(axis=0)
    theirs = train(grpo(), seeds).success.mean(axis=0)
    gain, standard_error = compare(ours, theirs)
    measured = {
        "worked_error": error,
        "gradient_difference": gradient,
        "curve_mean_salt": float(ours.mean()),
        "curve_mean_grpo": float(theirs.mean()),
        "gain": gain,
        "standard_error": standard_error,
    }
    return Outcome(measured, error <= 1e-4 and gradient <= 1e-12 and abs(gain) <= 3 * standard_error)
