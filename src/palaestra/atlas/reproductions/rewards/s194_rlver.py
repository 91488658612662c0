"""[194] RLVER (arXiv 2507.03112): a policy learns what a simulated user needs from the user's emotion alone.

The user has one of six needs, which can be heard in what it says; the right kind of reply pleases, any other hurts.
Eight turns, group-normalised REINFORCE on the emotion at the end, three difficulties. What is learned in the table is
then played in the env, against the user it was made for. Left out: language, thinking before speaking, 500 personas.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import grpo
from palaestra.envs.roles.user import DIFFICULTIES, NEEDS, NeedyUser, SimulatedUser
from palaestra.rewards.judged.emotion import rlver_reward

KINDS, LONGEST, DIALOGUES, UPDATES, RATE, START = len(NEEDS), 8, 16, 60, 0.3, 40
PLAYED = 100


def dialogues(policy: np.ndarray, difficulty: str, need: np.ndarray, luck: np.ndarray) -> tuple[Turns, np.ndarray]:
    """The turns of all runs, by run, dialogue and turn; and what was replied to which need: int64[turns, 3].

    need: int64[runs, dialogues]; luck: float64[runs, dialogues, turns].
    """
    runs = np.arange(len(policy))[:, None]
    reply = sample(policy[runs, need][:, :, None], luck)
    pleased, hurt = DIFFICULTIES[difficulty]
    delta = np.where(reply == need[:, :, None], pleased, hurt)
    felt = START + np.cumsum(delta, axis=2)
    ends = (felt <= 0) | (felt >= 100)
    run, episode, turn = np.nonzero(np.cumsum(ends, axis=2) == ends)  # none before this turn
    keys = {"run": run.astype(str), "group": run, "episode": episode, "turn": turn, "agent": ["helper"] * len(run)}
    turns = Turns(keys | {"delta": delta[run, episode, turn]})
    return turns, np.stack([run, need[run, episode], reply[run, episode, turn]], axis=-1)


def trained(difficulty: str, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean reward of the first three and of the last three updates, per seed, and the policies."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    theta = np.zeros((len(seeds), KINDS, KINDS))
    rewards = []
    credit = grpo(rlver_reward())
    for _ in range(UPDATES):
        policy = softmax(theta)
        luck = uniform(streams, DIALOGUES, LONGEST + 1)
        turns, taken = dialogues(policy, difficulty, (luck[:, :, 0] * KINDS).astype(int), luck[:, :, 1:])
        reward, (run, need, reply) = np.asarray(rlver_reward().evaluate(turns)), taken.T
        rewards.append(np.bincount(run, reward, len(seeds)) / DIALOGUES)
        advantage = np.asarray(credit.evaluate(turns))
        theta += RATE * policy_gradient(policy, run, need, reply, advantage) / DIALOGUES
    curve = np.array(rewards)
    return curve[:3].mean(axis=0), curve[-3:].mean(axis=0), softmax(theta)


def played(policy: np.ndarray, difficulty: str, seed: int) -> float:
    """Mean reward of a policy in the env."""
    env, rng = SimulatedUser(NeedyUser(difficulty)), np.random.default_rng(seed)
    cues, total = list(NEEDS.values()), 0.0
    for number in range(PLAYED):
        seen = env.reset(number)
        while seen:
            cue = next(i for i, line in enumerate(cues) if line in seen["helper"].text)
            result = env.step({"helper": int(rng.choice(KINDS, p=policy[cue]))})
            seen, total = result.observations, total + (result.rewards.get("helper") or 0.0)
    return total / PLAYED


@reproduction(
    194,
    claim="The emotion of a simulated user at the end of the dialogue is enough to learn what it needs; harder users "
    "teach less.",
    baseline="the same policy before training",
    criterion="final emotion of the moderate above the hard above the harder user, and above its start with each, in "
    "the mean of 5 seeds; the env pays the trained policy what the table does, within .1",
    seeds=tuple(range(5)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Three users."""
    measured: dict[str, float] = {}
    gap = 0.0
    for difficulty in DIFFICULTIES:
        before, after, policy = trained(difficulty, seeds)
        in_env = np.mean([played(each, difficulty, seed) for each, seed in zip(policy, seeds, strict=True)])
        gap = max(gap, abs(float(in_env - after.mean())))
        measured |= {f"before_{difficulty}": float(before.mean()), f"after_{difficulty}": float(after.mean())}
        measured |= {f"worst_seed_{difficulty}": float(after.min())}
    order = [measured[f"after_{difficulty}"] for difficulty in ("moderate", "hard", "harder")]
    better = all(measured[f"after_{d}"] > measured[f"before_{d}"] for d in DIFFICULTIES)
    return Outcome(measured | {"gap_to_env": gap}, order[0] > order[1] > order[2] and better and gap <= 0.1)
