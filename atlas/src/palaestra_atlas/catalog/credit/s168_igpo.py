"""[168] IGPO (arXiv 2510.14967): a query earns what it added to the belief in the true answer.

Four hidden bits; in each of four turns the agent asks one of thirty questions, of which 26 reveal nothing, then it
answers what still fits. The stage `probe` makes the policy itself answer before every turn. Left out: language models
and search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import igpo
from palaestra.envs.worlds.inquiry import Inquiry
from palaestra.learning.stages import Context
from palaestra.learning.stages.probe import probe
from palaestra.play.executors import Local
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

SETTING = {
    "env": {"make": "native/inquiry", "options": {"bits": 4, "questions": 30, "turns": 4, "early": False}},
    "learn": {"lr": 0.2},
    "train": {"iterations": 100, "groups": 2, "group_size": 8},
}


@exact
def worked() -> None:
    """Three episodes of two questions and an answer: gains and outcomes standardised apart, summed to the end."""
    gains, outcome = [[0.5, 0.2], [0.1, -0.2], [0.3, 0.6]], [1.0, 0.0, 1.0]
    gold = np.cumsum(np.hstack([np.zeros((3, 1)), gains]), axis=1)
    episode, turn = (axis.ravel() for axis in np.indices((3, 3)))
    keys = {"group": episode * 0, "episode": episode, "turn": turn, "agent": ["a"] * 9, "gold_logprob": gold.ravel()}
    turns = Turns(keys | {"reward": np.where(turn == 2, np.repeat(outcome, 3), 0.0)})
    expected = [1.2716, 0.4038, 0.5773, -3.2373, -2.7167, -1.1547, 1.9658, 1.7922, 0.5773]
    np.testing.assert_allclose(np.asarray(igpo().evaluate(turns)), expected, atol=1e-4)


@exact
def gains_of_logprobs() -> None:
    """Log-probabilities -3, -2, -2.2, -.5 of the true answer: gains 1, -.2, 1.7, standardised; the outcome is even."""
    turns = Turns(
        {
            "group": [0] * 5,
            "episode": [0, 0, 0, 0, 1],
            "turn": [0, 1, 2, 3, 0],
            "agent": ["a"] * 5,
            "gold_logprob": [-3.0, -2.0, -2.2, -0.5, -1.0],
            "reward": [0.0, 0.0, 0.0, 1.0, 1.0],
        }
    )
    gains = np.array([1.0, -0.2, 1.7])
    informed = (gains - gains.mean()) / gains.std(ddof=1)
    to_go = [informed[k:].sum() for k in range(3)]
    np.testing.assert_allclose(np.asarray(igpo().evaluate(turns)), [*to_go, 0, 0], atol=1e-5)


@exact
def unscored_left_out() -> None:
    """Two groups, rows in any order, episodes of unlike length; one without an outcome is in no statistic.

    Group 0: gains .5, .2 of episode 0, .1 of episode 1, 9 of the one without outcome; outcomes 3, 0 and 1.
    """
    rows = [
        (0, 1, 1, -0.9, 0.0),
        (0, 0, 0, -2.0, 0.0),
        (0, 2, 0, -9.0, None),
        (0, 0, 2, -1.3, 3.0),
        (1, 0, 0, -1.0, 2.0),
    ]
    rows += [(0, 1, 0, -1.0, 0.0), (0, 0, 1, -1.5, 0.0), (0, 2, 1, 0.0, None), (0, 3, 0, -4.0, 1.0)]
    columns = dict(zip(("group", "episode", "turn", "gold_logprob", "reward"), zip(*rows, strict=True), strict=True))
    found = np.asarray(igpo(gamma=0.5).evaluate(Turns(columns | {"agent": ["a"] * 9})))
    gains, outcomes = np.array([0.5, 0.2, 0.1]), np.array([3.0, 0.0, 1.0])
    first, second, other = (gains - gains.mean()) / gains.std(ddof=1)
    long, short, at_once = (outcomes - outcomes.mean()) / outcomes.std(ddof=1)
    by_hand = [
        short,
        first + second / 2 + long / 4,
        np.nan,
        long,
        0.0,
        other + short / 2,
        second + long / 2,
        np.nan,
        at_once,
    ]
    np.testing.assert_allclose(found, by_hand, atol=1e-4)


@exact
def current_policy() -> None:
    """The stage asks today's policy: what it has learned since the last iteration shows in the log-probabilities."""
    team = Team(seeker=TabularPolicy(7, name="seeker"))
    policy = team.policies["seeker"]
    env = lambda: Inquiry(bits=1, questions=5, turns=1, early=False)  # noqa: E731
    turns = rollout(env, team, groups=8, group_size=1)
    stage, context = probe(), Context(np.random.default_rng(0), 1, env, team, Local())
    first = stage(turns, context)["gold_logprob"].to_numpy()
    before = turns["known"].to_numpy() == 0
    np.testing.assert_allclose(first[before], np.log(1 / 2), atol=1e-5)
    policy.meet(turns.frame)  # type: ignore[attr-defined]
    policy.module.get_parameter("logits").data[:, 5] = np.log(3)  # type: ignore[attr-defined]
    second = stage(turns, context)["gold_logprob"].to_numpy()
    said = np.where(turns["gold"].to_numpy() == 5, np.log(3 / 4), np.log(1 / 4))
    np.testing.assert_allclose(second[before], said[before], atol=1e-5)


@reproduction(
    168,
    claim="Rewarding each turn with the gain in the policy's log-probability of the true answer teaches which "
    "questions to ask.",
    baseline="GRPO on the outcome alone, same episodes and learning rate",
    criterion="chance of a right answer at the end >= 0.9 and at least 0.2 above GRPO, "
    "means over the seeds; should hold in 9 of 10 blocks of three fresh seeds",
    seeds=(10, 11, 12),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train world stages="probe()" credit="igpo()"`."""
    arms = train_arms(
        "world",
        {
            "igpo": SETTING | {"stages": ["probe()"], "credit": "igpo()"},
            "igpo_code": SETTING | {"stages": ["probe()"], "credit": 'igpo(flavour="code")'},
            "grpo": SETTING | {"credit": "grpo()"},
        },
        seeds,
        lambda learned: {"right": np.mean(learned.curve()[-8:])},
    )
    gain = arms.gain("igpo", "grpo", "right")[0]
    holds = arms.mean("igpo", "right") >= 0.9 and gain >= 0.2
    return Outcome(arms.measured(), holds)
