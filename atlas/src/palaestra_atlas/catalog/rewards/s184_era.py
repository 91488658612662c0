"""[184] ERA: credit per turn, a reward for new bests of progress only, and both shaping terms switched off in time.

Worked advantages and payments. Then tokens: with five tokens a turn and a critic whose values are off by independent
noise, targets at the turn's grain vary less than those at the token's. Then the recipe `corridor`: fetch the key, open
the door; progress is .5 with the key, 1 at the end. Left out: the context, which shows an agent only its own running
summary, and vision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.scripted import fixed
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.credit import gae
from palaestra.envs.worlds.corridor import MOVES, Corridor
from palaestra.learning import demonstrations, supervised_warm_start
from palaestra.play.rollout import rollout
from palaestra.rewards import cum_max_gain, era_reward
from palaestra.teams import self_summary
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

GAMMA = LAM = 0.99
EPISODES, TURNS, TOKENS, NOISE = 400, 6, 5, 0.3
PROGRESS = '0.5 * col("key") + 0.5 * col("opened")'
SHAPED = {"success": "0.0", "shaped": "1.0", "switched": "phase(1, 0, at=22)"}
ARMS: dict[str, dict[str, Any]] = {
    name: {
        "reward": f"era_reward({PROGRESS}, shaped={shaped})",
        "credit": f'centre(return_to_go(gamma={GAMMA}), over="turn")',
        "train": {"iterations": 60},
    }
    for name, shaped in SHAPED.items()
}


KEYS = {"episode": [0] * 6, "turn": range(6), "agent": ["a"] * 6}
MOVING = {**KEYS, "task_progress": [0.0, 0.5, 0.5, 0.25, 0.5, 1.0], "valid": [True, True, False, True, True, True]}


@exact
def new_bests() -> None:
    """A new best of progress pays 1, coming back to an old one nothing, an invalid action costs a half, success 3."""
    turns = Turns({**MOVING, "success": [True] * 6})
    np.testing.assert_allclose(np.asarray(era_reward().evaluate(turns)), [0, 1, -0.5, 0, 0, 4])
    np.testing.assert_allclose(np.asarray(cum_max_gain("task_progress").evaluate(turns)), [0, 0.5, 0, 0, 0, 0.5])


@exact
def one_value_per_turn() -> None:
    """The card's advantages of four turns, to four decimals, however many tokens a turn has."""
    four = {"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "logprobs": [[-0.5, -0.7]] * 4}
    turns = Turns({**four, "reward": [0, 1, -0.5, 4], "value": [1.0] * 4})
    advantage = np.asarray(gae(gamma=GAMMA, lam=LAM, bootstrap=0).evaluate(turns))
    np.testing.assert_allclose(advantage, [3.2948, 3.3719, 2.4303, 3.0], atol=5e-5)


@exact
def switched_off() -> None:
    """Before iteration 22 all three terms are paid, from then on success alone."""
    reward = parse("era_reward(shaped=phase(1, 0, at=22))")
    for iteration, expected in ((21, [0, 1, -0.5, 0, 0, 4]), (22, [0, 0, 0, 0, 0, 3])):
        turns = Turns({**MOVING, "iteration": [iteration] * 6, "success": [True] * 6})
        np.testing.assert_allclose(np.asarray(reward.evaluate(turns)), expected)


@exact
def own_summary() -> None:
    """What an agent reads is its own summary and two earlier turns: no longer after 30 turns than after 4."""
    env = self_summary("native/corridor", window=2, options={"horizon": 40})()
    env.reset(0)
    read = []
    for turn in range(30):
        result = env.step({"walker": "wait | the door is to the right" if turn == 0 else "wait"})
        read.append(result.observations["walker"].text)
    assert all(text.startswith("the door is to the right") for text in read)
    assert len(read[-1]) == len(read[3])


@exact
def imitation_comes_first() -> None:
    """After the first stage a walker most often does what it was shown, instead of each move equally often."""
    walker = TabularPolicy(3, name="walker")
    shown = rollout(Corridor, Team(walker=fixed("left")), groups=4, seed=0)
    supervised_warm_start(
        Team(walker=walker), demonstrations(shown, Team(walker=walker), choices=MOVES), steps=60, lr=0.1
    )
    played = rollout(Corridor, Team(walker=walker), groups=20, seed=0)
    assert np.mean(played["action"].cast(str).to_numpy() == "left") > 0.6


def target_errors(seed: int) -> tuple[float, float]:
    """Standard deviation of the value targets A + V around the truth: per turn, and per token."""
    rng = np.random.default_rng(seed)
    episode, turn = (axis.ravel() for axis in np.indices((EPISODES, TURNS)))
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": np.full(len(turn), "a")}
    found = []
    for grain in (1, TOKENS):
        left = (TURNS - 1 - turn)[:, None] * grain + np.arange(grain)[::-1]
        truth = GAMMA**left  # a reward of one at the end
        values, rewards = truth + NOISE * rng.normal(size=truth.shape), (left == 0).astype(float)
        turns = Turns(keys | {"value": values.tolist(), "reward_": rewards.tolist()})
        target = gae("value", "reward_", gamma=GAMMA, lam=LAM, bootstrap=0) + col("value")
        error = target.evaluate(turns).values.reshape(truth.shape) - truth  # type: ignore[union-attr]
        found.append(float(error.std()))
    return found[0], found[1]


def success(learned: TrainingResult) -> dict[str, float]:
    """Over the first 25 iterations and over the last 10."""
    curve = learned.curve()
    return {"early": float(np.mean(curve[:25])), "final": float(np.mean(curve[-10:]))}


@reproduction(
    184,
    claim="New bests of progress, paid until they have done their work, speed learning up and cost nothing at the end.",
    baseline="success alone; shaping that is never switched off; values per token",
    criterion="success over the first 25 iterations higher than with success alone "
    "in the mean, final success after switching off at 22 at least the others' - .03; targets per turn err less "
    "(held on the one fresh block of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Value targets, then the three rewards on the corridor."""
    measured: dict[str, float] = {}
    by_turn, by_token = np.mean([target_errors(seed) for seed in seeds], axis=0)
    measured |= {"target_error_turn": float(by_turn), "target_error_token": float(by_token)}
    arms = train_arms("corridor", ARMS, seeds, success)
    measured |= arms.measured()
    final = arms.mean("switched", "final") >= max(arms.mean("success", "final"), arms.mean("shaped", "final")) - 0.03
    sooner = arms.gain("switched", "success", "early")[0] > 0
    return Outcome(measured, bool(by_turn < by_token and sooner and final))
