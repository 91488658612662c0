"""[78] SALT (arXiv 2510.20022): steps that the episodes of a group share become neutral.

A negative result with a reason. For a policy that sees only the state, averaging credit over equal steps (state,
action, next state) does not change the policy gradient at all, because a sum of means is the sum of values; so in the
recipe `corridor` nothing can be gained, and nothing is. Left out: policies that see a history, and losses that divide
by each episode's length, where the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import grpo, salt
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

ARMS = {"salt": {"credit": "salt()"}, "grpo": {"credit": "grpo()"}}


def worked() -> tuple[Turns, np.ndarray]:
    """Four episodes through a graph, worked out by hand: the table and its credit. Only the first succeeds."""
    paths = ["0a 1b 2c", "0a 1d 3e", "0a 1b 2f", "0g 4h"]
    steps = [(episode, turn, *step) for episode, path in enumerate(paths) for turn, step in enumerate(path.split())]
    episode, turn, state, action = (np.array(column) for column in zip(*steps, strict=True))
    reward = (episode == 0) & (turn == 2)
    table = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["walker"] * len(steps), "reward": reward}
    credit = np.array([1 / 6, 0.5, 1.5, 1 / 6, -0.5, -0.5, 1 / 6, 0.5, -0.5, -0.5, -0.5])
    return Turns(table | {"state": state.astype(np.uint64), "action": action}), credit


def gradient_difference(turns: Turns) -> float:
    """Largest difference, with and without, of a sum of credit over a state and an action.

    That sum is all that a policy of the state learns from. Every visit counts (`unit="row"`): an episode that repeats a
    step would else weigh less there.
    """
    plain, shared = (np.asarray(signal.evaluate(turns)) for signal in (grpo(), salt(unit="row")))
    cells = turns.codes("state", "action")
    return float(np.abs(np.bincount(cells.ids, plain - shared, cells.size)).max())


@reproduction(
    78,
    claim="Averaging credit over equal steps makes what episodes share neutral; for a policy of the state alone it "
    "leaves the policy gradient unchanged, so it gains nothing there.",
    baseline="GRPO, same episodes and learning rate",
    criterion="worked advantages equal to 4 decimals; sums of credit over states and actions equal to 1e-9 on every "
    "batch of the training; learning curves within 3 standard errors of each other (no gain, as the identity says)",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Worked numbers, then both arms, with the identity on what was played."""
    turns, expected = worked()
    error = float(np.abs(np.asarray(salt().evaluate(turns)) - expected).max())
    gaps: list[float] = []

    def watch(arm: str, iteration: int, played: Turns) -> None:
        gaps.append(gradient_difference(played))

    settings: dict[str, object] = {"train": {"iterations": 40}}
    arms = train_arms(
        "corridor", {name: settings | arm for name, arm in ARMS.items()}, seeds,
        lambda learned: {"curve": float(np.mean(learned.curve()))}, on_turns=watch,
    )  # fmt: skip
    gain, standard_error = arms.gain("salt", "grpo", "curve")
    gap = max(gaps, default=np.inf)
    measured = {"worked_error": error, "gradient_difference": gap} | arms.measured()
    measured |= {"gain": gain, "standard_error": standard_error}
    return Outcome(measured, error <= 1e-4 and gap <= 1e-9 and abs(gain) <= 3 * standard_error + 1e-9)
